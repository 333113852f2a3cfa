"""What a worker trims of its partitions, and writes anew of what it runs, so that old terms can go; round by round (`collector`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from boki_common.errors import BokiError, Conflict, Trimmed
from boki_common.logs import get_logger
from bokiflow.execute.executor import Executor
from bokiflow.history import history_checkpoint, inspection
from bokiflow.locks.lock_room import LockRoom
from bokiflow.model import records
from bokiflow.retention.collector import Collected, Collector
from bokiflow.worker.partition_owner import PartitionOwner
from bokilib.append.log import Log
from bokilib.records import tags

AT_ONCE: Final = 64
"""Histories that are written anew together."""

log = get_logger(__name__)


class WorkerView(NamedTuple):
    """What a worker has, as it is.

    Attributes:
        partitions: which it owns; `unread`: of these, claimed, and not known yet what is there. rounding: who claims has it.
        executors: what it runs. blocked: what it cannot, and when its oldest record was written.
        is_mine: whether a workflow is of its partitions. locks: as it sees them.
    """

    partitions: PartitionOwner
    unread: Mapping[int, int]
    rounding: asyncio.Lock
    executors: Mapping[str, Executor]
    blocked: dict[str, int]
    is_mine: Callable[[str], bool]
    locks: LockRoom


class Upkeep:
    """See the module."""

    def __init__(self, opened: Log, group: str, collector: Collector, view: WorkerView) -> None:
        self._log: Final = opened
        self._group: Final = group
        self._collector: Final = collector
        self._view: Final = view

    async def run(self) -> None:
        """One round after the other."""
        while True:
            await asyncio.sleep(self._collector.every_s)
            try:
                await self.round()
            except BokiError as error:
                log.warning("a worker collects later", worker=self._view.partitions.worker, error=repr(error))

    async def round(self) -> Collected:
        """See `Worker.collect`."""
        view = self._view
        async with self._collector.at_once:
            done = await self._collector.over(sorted(view.partitions.mine))
            async with view.rounding:
                claims = {one: at for one, at in view.partitions.mine.items() if one not in view.unread}
                try:
                    checkpoints = await self._collector.checkpoint(claims)
                except Conflict:
                    await view.partitions.look()
                    checkpoints = 0
                await self._claim_anew(await self._log.newest_ms())
            now_ms = await self._log.newest_ms()
            carried, locks = await self._carry(now_ms), await self._carry_locks(now_ms)
            if 0 in view.partitions.mine:  # after `_carry`: what is blocked was recorded again since
                await self._collector.trim_blocked(now_ms)
            done = done.plus(Collected(checkpoints=checkpoints, carried=carried, locks=locks))
            self._collector.metrics.round(done)
            return done

    async def _carry_locks(self, now_ms: int) -> int:
        """Locks that are held for as long as a term is old, whoever's they are; the first partition's owner does it for its group."""
        partitions = self._view.partitions
        claim = partitions.mine.get(0)
        if claim is None:
            return 0
        fence: dict[str, int | None] = {tags.flow_partition_owner(self._group, 0): claim}
        try:
            return await self._view.locks.carry(now_ms, fence, self._collector.ages.carry_ms)
        except Conflict:
            await partitions.look()
            return 0

    async def _claim_anew(self, now_ms: int) -> None:
        """Claims of partitions that are as old as a term; what was claimed before is trimmed."""
        partitions, unread = self._view.partitions, self._view.unread
        old_ms = now_ms - self._collector.ages.carry_ms
        times = partitions.claimed_ms
        old = [one for one in sorted(partitions.mine) if one not in unread and times.get(one, now_ms) <= old_ms]
        if old:
            await partitions.claim(old)
        await self._collector.trim_claims(partitions.mine)

    async def _carry(self, now_ms: int) -> int:
        """Histories that are as old as a term, of what lives: written anew."""
        view, old_ms = self._view, now_ms - self._collector.ages.carry_ms
        old = [executor for executor in view.executors.values() if executor.carried_ms <= old_ms]
        carried = [id for id, at_ms in view.blocked.items() if at_ms <= old_ms and view.is_mine(id)]
        blocked = [id for id in carried if await self._carry_blocked(id, now_ms)]
        count = len(blocked)
        for at in range(0, len(old), AT_ONCE):
            some = old[at : at + AT_ONCE]
            count += sum(await asyncio.gather(*(executor.carry() for executor in some)))
            await self._collector.tidy_all(executor.instance.started for executor in some)
        return count

    async def _carry_blocked(self, id: str, now_ms: int) -> bool:
        """The same of what nobody can run: its history needs no code."""
        state = await inspection.newest(self._log, id)
        if state is None or state.ended is not None or not state.blocked:
            self._view.blocked.pop(id, None)
            return False
        place = records.InstanceStreams(id, self._group)
        try:
            claim, history = await history_checkpoint.append_checkpoint(
                self._log, place, {place.fence: state.claim}, "", state.blocked
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
