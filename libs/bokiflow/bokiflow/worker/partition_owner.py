"""Partitions of a group as one worker sees them: who owns which, and those that it has claimed.

All claims of one round are one record. Each expects the claim that it replaces; after a Conflict they are read again: others were
faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import boki
from boki_common.errors import BokiError, Conflict, Trimmed
from bokiflow.history import partition_fold
from bokiflow.history.partition_fold import PartitionFold
from bokiflow.model.flow_events import PICKER, Leaving, PartitionClaimed
from bokilib.append.log import Log, Read
from bokilib.records import tags
from bokilib.records.contribution import Contribution

LOOKS: Final = 16
"""At who owns what, while claims are made anew and trimmed between two of its steps."""


class PartitionOwner:
    """See the module.

    Attributes:
        worker: this one's name. holders: of partitions that were claimed. mine: seqnums of its claims.
        lost: partitions that other workers took from this one. The worker empties it at each beat.
        claimed_ms: when the newest claims were made that were read, by the clock of the log.
    """

    def __init__(
        self, log: Log, group: str, worker: str, changed: Callable[[], None], left: Callable[[Leaving, int], None]
    ) -> None:
        """
        Args:
            changed: called when another worker took a partition of this one's, or gave up one of its own.
            left: called before that with what a worker said that gives up partitions, and where.
        """
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

    async def look(self) -> int:
        """Reads who owns what; returns as of when. Raises Trimmed: claims went under each of many looks."""
        position, found = await self._owners()
        for record in found:
            if record is not None:
                self.saw(Read(record, await self._log.open(record)))
        self._looked = position
        return position

    async def _owners(self) -> tuple[int, list[boki.Record | None]]:
        """The newest records of all fences as of a place, and that place."""
        for left in reversed(range(LOOKS)):
            position = await self._log.book.now(consistency="linearizable")
            wanted = [(tags.flow_partition_owner(self._group, one), position) for one in range(tags.PARTITIONS)]
            try:
                return position, await self._log.book.read_prev_many(wanted)
            except Trimmed:  # it was claimed anew meanwhile, and the claim before it trimmed
                if not left:
                    raise
        raise AssertionError("it looks at least once")

    def saw(self, item: Read | boki.Gap | BokiError) -> None:
        """A record of a partition's fence was read."""
        if not isinstance(item, Read):
            return  # a gap: what was trimmed is followed by the newest
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
        """Claim partitions, over the workers that have them as far as `look` and `saw` know; return where, 0: others were faster."""
        names = [tags.flow_partition_owner(self._group, one) for one in partitions]
        expect: dict[str, int | None] = {
            name: self._newest.get(one, self._looked) for one, name in zip(partitions, names, strict=True)
        }
        claims = tuple(PartitionClaimed(self._group, one, self.worker) for one in partitions)
        try:
            seqnum = await self._log.append(Contribution(tuple(names), expect, claims), settle=True)
        except Conflict:
            await self.look()
            return 0
        for one in partitions:
            # A later claim may have replaced this one, and been read before this answer came.
            if seqnum >= self._newest.get(one, 0):
                self._newest[one] = self.mine[one] = seqnum
                self.holders[one] = self.worker
        return seqnum

    async def leave(self, keeps: Sequence[int], runs: Sequence[str] = ()) -> bool:
        """Give up all partitions of this worker, and tell the others which workflows it still runs. Claim nothing after that.

        Args:
            keeps, runs: see `Leaving`.

        Returns:
            Whether it is in the log. False: a partition moved meanwhile, and it is to be tried again.
        """
        given = dict(sorted(self.mine.items()))
        fences = {tags.flow_partition_owner(self._group, one): claim for one, claim in given.items()}
        told = Leaving(self._group, self.worker, tuple(keeps), tuple(runs))
        claims = [PartitionClaimed(self._group, one, "", self.worker) for one in given]
        part = Contribution((tags.flow_blocked(self._group), *fences), dict(fences), (told, *claims))
        try:
            seqnum = await self._log.append(part, settle=True)
        except Conflict:
            await self.look()
            return False
        for one, claim in given.items():
            self._newest[one] = max(self._newest.get(one, 0), seqnum)
            if self.mine.get(one) == claim:
                del self.mine[one]
                self.holders.pop(one, None)
        return True

    async def unfinished(self, partitions: Sequence[int], last: int) -> list[str]:
        """Ids of what was started in partitions up to a place and may not be over, in the order of their beginnings."""
        folds = {one: PartitionFold() for one in partitions}
        wanted = [tags.flow_part(self._group, one) for one in partitions]
        async for item in self._log.book.read(tags=wanted, start=1, stop=last + 1):
            if isinstance(item, boki.Gap):
                continue  # what was trimmed is in a checkpoint, or over
            partition_fold.apply(folds, self._group, item.seqnum, item.time_ms, await self._log.open(item))
        found = sorted((start, id) for fold in folds.values() for id, start in fold.ids.items())
        return [id for _, id in found if tags.partition_of(id) in folds]
