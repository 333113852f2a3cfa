"""The partitions of a group as one worker sees them: their owners, and its own claims.

All claims of one round are one record. Each expects the claim that it replaces; after a Conflict, which another worker's claim causes, the
owners are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import boki
from boki_common.errors import BokiError, Conflict, Trimmed
from bokiflow.history import instance_state
from bokiflow.history.instance_state import PartitionFold
from bokiflow.model.flow_events import PICKER, Leaving, PartitionClaimed
from bokilib.append.log import Log, Read
from bokilib.records import tags
from bokilib.records.contribution import Contribution

READ_ATTEMPTS: Final = 16
"""Reads of the owners, while claims are replaced and trimmed between the two requests of a read."""


class PartitionOwner:
    """The partitions of one worker; see the module.

    Attributes:
        worker: the name of the worker.
        holders: the workers of the newest claims, by partition.
        mine: the seqnums of this worker's claims, by partition.
        lost: partitions that other workers took from this one. The worker empties it at each heartbeat.
        claimed_ms: the times of the newest claims that were read, by the clock of the log.
    """

    def __init__(
        self, log: Log, group: str, worker: str, changed: Callable[[], None], left: Callable[[Leaving, int], None]
    ) -> None:
        """Call `left` with records that release partitions, then `changed` after a release or a claim of this worker's partitions."""
        self.worker: Final = worker
        self.holders: Final[dict[int, str]] = {}
        self.mine: Final[dict[int, int]] = {}
        self.lost: Final[set[int]] = set()
        self._log: Final = log
        self._group: Final = group
        self.claimed_ms: Final[dict[int, int]] = {}
        self._newest: Final[dict[int, int]] = {}
        self._looked = 0
        self._changed: Final = changed
        self._left: Final = left

    async def refresh(self) -> int:
        """Read the owners, and return the position of the read. Raises Trimmed if claims were trimmed during each of many attempts."""
        position, found = await self._owners()
        for record in found:
            if record is not None:
                self.saw(Read(record, await self._log.open(record)))
        self._looked = position
        return position

    async def _owners(self) -> tuple[int, list[boki.Record | None]]:
        """Return a position, and the newest records of all fences as of it."""
        for left in reversed(range(READ_ATTEMPTS)):
            position = await self._log.book.now(consistency="linearizable")
            wanted = [(tags.flow_partition_owner(self._group, one), position) for one in range(tags.PARTITIONS)]
            try:
                return position, await self._log.book.read_prev_many(wanted)
            except Trimmed:  # a new claim was made meanwhile, and the one before it trimmed
                if not left:
                    raise
        raise AssertionError("READ_ATTEMPTS is at least 1")

    def saw(self, item: Read | boki.Gap | BokiError) -> None:
        """Apply a record of a partition's fence."""
        if not isinstance(item, Read):
            return  # a gap: a newer claim follows the trimmed ones
        seqnum, changed = item.record.seqnum, False
        events = PICKER.of(seqnum, item.envelope)
        leaving = next((one for one in events if isinstance(one, Leaving) and one.group == self._group), None)
        for event in events:
            if not isinstance(event, PartitionClaimed) or event.group != self._group:
                continue
            if seqnum >= self._newest.get(event.partition, 0):
                self.claimed_ms[event.partition] = item.record.time_ms
            if seqnum <= self._newest.get(event.partition, 0):
                continue
            self._newest[event.partition] = seqnum
            if event.worker and event.worker != self.worker == self.holders.get(event.partition):
                self.lost.add(event.partition)
            if event.worker:
                self.holders[event.partition] = event.worker
            else:
                known = self.holders.pop(event.partition, "")
                self._left(leaving or Leaving(self._group, event.left or known), seqnum)
            lost = event.worker != self.worker and self.mine.pop(event.partition, None) is not None
            changed = changed or lost or not event.worker
        if changed:
            self._changed()

    async def claim(self, partitions: Sequence[int]) -> int:
        """Claim partitions from their known holders. Return the seqnum of the claims, or 0 after a Conflict."""
        names = [tags.flow_partition_owner(self._group, one) for one in partitions]
        expect: dict[str, int | None] = {
            name: self._newest.get(one, self._looked) for one, name in zip(partitions, names, strict=True)
        }
        claims = tuple(PartitionClaimed(self._group, one, self.worker) for one in partitions)
        try:
            seqnum = await self._log.append(Contribution(tuple(names), expect, claims), settle=True)
        except Conflict:
            await self.refresh()
            return 0
        for one in partitions:
            # A later claim may have replaced this one, and may have been read before this answer came.
            if seqnum >= self._newest.get(one, 0):
                self._newest[one] = self.mine[one] = seqnum
                self.holders[one] = self.worker
        return seqnum

    async def leave(self, keeps: Sequence[int], runs: Sequence[str] = ()) -> bool:
        """Give up all partitions of this worker, and tell other workers which workflows it still runs. Claim nothing after that.

        `keeps`, `runs`: see `Leaving`. Return False, with nothing appended, if a partition moved meanwhile; the caller retries.
        """
        given = dict(sorted(self.mine.items()))
        fences = {tags.flow_partition_owner(self._group, one): claim for one, claim in given.items()}
        told = Leaving(self._group, self.worker, tuple(keeps), tuple(runs))
        claims = [PartitionClaimed(self._group, one, "", self.worker) for one in given]
        part = Contribution((tags.flow_blocked(self._group), *fences), dict(fences), (told, *claims))
        try:
            seqnum = await self._log.append(part, settle=True)
        except Conflict:
            await self.refresh()
            return False
        for one, claim in given.items():
            self._newest[one] = max(self._newest.get(one, 0), seqnum)
            if self.mine.get(one) == claim:
                del self.mine[one]
                self.holders.pop(one, None)
        return True

    async def unfinished(self, partitions: Sequence[int], last: int) -> list[str]:
        """Return ids of workflows of partitions that were started up to a position and may not have ended, oldest first."""
        folds = {one: PartitionFold() for one in partitions}
        wanted = [tags.flow_part(self._group, one) for one in partitions]
        async for item in self._log.book.read(tags=wanted, start=1, stop=last + 1):
            if isinstance(item, boki.Gap):
                continue  # trimmed workflows are in a checkpoint, or have ended
            instance_state.apply(folds, self._group, item.seqnum, item.time_ms, await self._log.open(item))
        found = sorted((start, id) for fold in folds.values() for id, start in fold.ids.items())
        return [id for _, id in found if tags.partition_of(id) in folds]
