"""Rounds in which a worker trims its partitions (`collector`) and rewrites old records that are needed, so that old terms are reclaimed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import reduce
from typing import Final, NamedTuple, TypeVar

from boki_common.errors import BokiError, Conflict, Trimmed
from boki_common.logs import get_logger
from bokiflow.execute.executor import Executor
from bokiflow.history import history_checkpoint, inspection
from bokiflow.locks.lock_room import LockRoom
from bokiflow.model import records
from bokiflow.model.flow_events import Leaving
from bokiflow.retention.collector import Collected, Collector
from bokilib.append.log import Log
from bokilib.partitions.owner import PartitionOwner
from bokilib.records import tags

AT_ONCE: Final = 64
"""Histories that are rewritten at the same time."""
UNREADABLE: Final = "partition not trimmed or checkpointed: it has a record that this program cannot read"

R = TypeVar("R")

log = get_logger(__name__)


class WorkerView(NamedTuple):
    """The live state of a worker that its upkeep reads.

    Attributes:
        unread: claimed partitions whose workflows are not read yet, with the seqnums of their claims.
        rounding: the lock that is held while partitions are claimed.
        executors: running workflows by id.
        blocked: workflows that cannot run here, with the times of their oldest records.
        is_mine: returns True for workflows of the worker's partitions.
    """

    partitions: PartitionOwner[Leaving]
    unread: Mapping[int, int]
    rounding: asyncio.Lock
    executors: Mapping[str, Executor]
    blocked: dict[str, int]
    is_mine: Callable[[str], bool]
    locks: LockRoom


class Upkeep:
    """The upkeep of one worker; see the module."""

    def __init__(self, opened: Log, group: str, collector: Collector, view: WorkerView) -> None:
        self._log: Final = opened
        self._group: Final = group
        self._collector: Final = collector
        self._view: Final = view

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._collector.every_s)
            try:
                await self.round()
            except BokiError as error:
                worker = self._view.partitions.who
                log.warning("worker upkeep failed: retried at the next round", worker=worker, error=repr(error))

    async def round(self) -> Collected:
        """Run one round; see `Worker.collect`."""
        view = self._view
        async with self._collector.at_once:
            ended = await self._of_readable(self._collector.over, sorted(view.partitions.mine))
            done = reduce(Collected.plus, ended, Collected())
            async with view.rounding:
                claims = {one: at for one, at in view.partitions.mine.items() if one not in view.unread}
                try:
                    checkpoints = sum(
                        await self._of_readable(
                            lambda some: self._collector.checkpoint({one: claims[one] for one in some}), sorted(claims)
                        )
                    )
                except Conflict:
                    await view.partitions.refresh()
                    checkpoints = 0
                await self._renew_claims(await self._log.newest_ms())
            now_ms = await self._log.newest_ms()
            carried, locks = await self._rewrite_histories(now_ms), await self._rewrite_locks(now_ms)
            if 0 in view.partitions.mine:  # after old blocks were rewritten
                await self._collector.trim_blocked(now_ms)
            done = done.plus(Collected(checkpoints=checkpoints, carried=carried, locks=locks))
            self._collector.metrics.round(done)
            return done

    async def _of_readable(self, work: Callable[[Sequence[int]], Awaitable[R]], partitions: Sequence[int]) -> list[R]:
        """Do some upkeep for all partitions at once, or for each by itself but those with records that this program cannot read."""
        try:
            return [await work(partitions)]
        except inspection.UNREADABLE as error:
            if len(partitions) == 1:
                log.warning(UNREADABLE, worker=self._view.partitions.who, partition=partitions[0], error=str(error))
                return []
        return [done for one in partitions for done in await self._of_readable(work, [one])]

    async def _rewrite_locks(self, now_ms: int) -> int:
        """Rewrite the queues of locks that are held for longer than a term; the owner of the first partition does it for all."""
        partitions = self._view.partitions
        claim = partitions.mine.get(0)
        if claim is None:
            return 0
        fence: dict[str, int | None] = {tags.flow_partition_owner(self._group, 0): claim}
        try:
            return await self._view.locks.carry(now_ms, fence, self._collector.ages.carry_ms)
        except Conflict:
            await partitions.refresh()
            return 0

    async def _renew_claims(self, now_ms: int) -> None:
        """Replace claims of partitions that are as old as a term, and trim the claims before."""
        partitions, unread = self._view.partitions, self._view.unread
        old_ms = now_ms - self._collector.ages.carry_ms
        old = [one for one in partitions.older_than(old_ms) if one not in unread]
        if old:
            await partitions.claim(old)
        await self._collector.trim_claims(partitions.mine)

    async def _rewrite_histories(self, now_ms: int) -> int:
        """Rewrite histories that are as old as a term, of running and of blocked workflows; return their number."""
        view, old_ms = self._view, now_ms - self._collector.ages.carry_ms
        old = [executor for executor in view.executors.values() if executor.carried_ms <= old_ms]
        carried = [id for id, at_ms in view.blocked.items() if at_ms <= old_ms and view.is_mine(id)]
        blocked = [id for id in carried if await self._rewrite_blocked(id, now_ms)]
        count = len(blocked)
        for at in range(0, len(old), AT_ONCE):
            some = old[at : at + AT_ONCE]
            count += sum(await asyncio.gather(*(executor.checkpoint() for executor in some)))
            await self._collector.tidy_all(executor.instance.started for executor in some)
        return count

    async def _rewrite_blocked(self, id: str, now_ms: int) -> bool:
        """Rewrite the history of a blocked workflow, which needs no code. Return False if that was not possible."""
        state = await inspection.newest(self._log, id)
        if state is None or state.ended is not None or not state.blocked:
            self._view.blocked.pop(id, None)
            return False
        place = records.InstanceStreams(id, self._group)
        try:
            claim, history = await history_checkpoint.append_checkpoint(
                self._log, place, {place.fence: state.claim}, "", state.blocked, own_uniques=state.own_uniques
            )
        except (Conflict, Trimmed):
            return False
        except inspection.UNREADABLE as error:
            log.warning("history not rewritten: this program cannot read it", id=id, error=str(error))
            self._view.blocked[id] = now_ms
            return False
        await self._collector.trim_history(place, history, claim)
        self._view.blocked[id] = now_ms
        return True
