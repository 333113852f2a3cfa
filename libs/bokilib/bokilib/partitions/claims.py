"""The newest known claim of each partition of a group, read once and then followed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import boki
from boki_common.errors import BokiError, Trimmed
from boki_common.logs import get_logger
from bokilib.append.log import Log, Read
from bokilib.errors import ForeignRecord
from bokilib.records.conflict_rules import Claim

L = TypeVar("L")

log = get_logger(__name__)

READ_ATTEMPTS: Final = 16
"""Reads of the claims, while claims are replaced and trimmed between the two requests of a read."""


class Picked(NamedTuple, Generic[L]):
    """A claim of a partition, as a library picks it from a record.

    Attributes:
        partition: its number.
        who: the claimant, `NOBODY` for a release.
        token: of the claimant; "" if the library has none.
        left: what a release says about the holder that releases the partition; None in claims.
    """

    partition: int
    who: str
    token: str = ""
    left: L | None = None


class ClaimMove(NamedTuple, Generic[L]):
    """A claim that is newer than the one that was known, and what it replaces."""

    partition: int
    before: Claim | None
    now: Claim
    left: L | None


class NewestClaims(Generic[L]):
    """The newest known claims of a group's partitions.

    Invariant: the claim of a partition is only replaced by one with a higher seqnum.

    Attributes:
        fences: the tags of the partitions' fences.
        newest: the newest known claims, by partition; None where none is known.
        times_ms: the times of the newest claims that were read, by partition, by the clock of the log. A claim of this process is read
            about when its append returns.
        read_at: the position of the last read of all claims: above it, claims come from records that were followed.
    """

    def __init__(self, opened: Log, fences: Sequence[str], pick: Callable[[Read], Iterable[Picked[L]]]) -> None:
        """`pick`: returns the claims of these partitions in a record, whichever fence it was read from."""
        self.fences: Final = fences
        self.newest: Final[list[Claim | None]] = [None] * len(fences)
        self.times_ms: Final[dict[int, int]] = {}
        self.read_at = 0
        self._log: Final = opened
        self._pick: Final = pick
        self._passed: Final[dict[int, int]] = {}
        """The newest record of a fence that no library wrote, by partition."""

    async def read(self) -> list[ClaimMove[L]]:
        """Read the newest claims as of a linearizable position, `read_at`. Return those that were not known.

        Raises:
            Trimmed: claims were trimmed during each of many attempts.
        """
        position, found = await self._read_newest()
        moves = []
        for partition, record in enumerate(found):
            read = await self._opened(partition, record)
            if read is not None:
                moves += self.saw(read)
        self.read_at = position
        return moves

    async def _opened(self, partition: int, record: boki.Record | None) -> Read | None:
        """Return the newest record of a fence that a library wrote, at or below a record; None without one.

        Raises:
            Trimmed: that record was trimmed meanwhile, so there is a newer one.
        """
        while record is not None:
            try:
                return Read(record, await self._log.open(record))
            except ForeignRecord as error:
                if "damaged" in error.facts:
                    raise
            if record.seqnum > self._passed.get(partition, 0):
                self._passed[partition] = record.seqnum
                log.warning(
                    "record that no library wrote: passed over", fence=self.fences[partition], record=record.seqnum
                )
            record = await self._log.book.read_prev(self.fences[partition], at_most=record.seqnum - 1)
        return None

    def expected(self, partition: int) -> int:
        """Return the place in its fence that the next claim of a partition expects."""
        newest = self.newest[partition]
        claimed = newest.seqnum if newest is not None else self.read_at
        return max(claimed, self._passed.get(partition, 0))

    async def _read_newest(self) -> tuple[int, list[boki.Record | None]]:
        """Return a position, and the newest records of all fences as of it."""
        for left in reversed(range(READ_ATTEMPTS)):
            position = await self._log.book.now(consistency="linearizable")
            try:
                return position, await self._log.book.read_prev_many([(fence, position) for fence in self.fences])
            except Trimmed:  # a new claim was made meanwhile, and the one before it trimmed
                if not left:
                    raise
        raise AssertionError("READ_ATTEMPTS is at least 1")

    def saw(self, item: Read | boki.Gap | BokiError) -> list[ClaimMove[L]]:
        """Apply a record of a fence. Return its claims that are newer than the known ones."""
        if not isinstance(item, Read):
            return []  # a gap: a newer claim follows the trimmed ones
        moves = []
        for picked in self._pick(item):
            claim = Claim(item.record.seqnum, item.envelope.by, picked.who, picked.token)
            before = self.newest[picked.partition]
            if before is None or claim.seqnum >= before.seqnum:
                self.times_ms[picked.partition] = item.record.time_ms
            if self.learn(picked.partition, claim):
                moves.append(ClaimMove(picked.partition, before, claim, picked.left))
        return moves

    def learn(self, partition: int, claim: Claim) -> bool:
        """Store a claim if it is newer than the known one; return whether it is."""
        newest = self.newest[partition]
        if newest is not None and claim.seqnum <= newest.seqnum:
            return False
        self.newest[partition] = claim
        return True
