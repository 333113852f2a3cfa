"""The partitions of one member: their holders, and the member's own claims.

All claims of one round are one record. Each expects the claim that it replaces; after a Conflict, which another member's claim causes, the
newest claims are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Generic, TypeVar

import boki
from boki_common.errors import BokiError, Conflict
from bokilib.append.log import Log, Read
from bokilib.follow.follower import Follower
from bokilib.partitions.assignment import NOBODY, Standing
from bokilib.partitions.claims import ClaimMove, NewestClaims
from bokilib.partitions.peers import Peers
from bokilib.records.conflict_rules import Claim
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event

L = TypeVar("L")

ATTEMPTS: Final = 4
"""Attempts to claim partitions in a round, after Conflicts."""


class PartitionOwner(Generic[L]):
    """The partitions of one member; see the module.

    Attributes:
        who: the name of this start of the member. No other start has it.
        mine: the seqnums of this member's claims, by partition.
        lost: partitions that other members took from this one. The member empties it at each round that is due, so that members that
            disagree move a partition once a round, and not at the speed of the log.
    """

    def __init__(
        self,
        opened: Log,
        who: str,
        claims: NewestClaims[L],
        event: Callable[[int, str, str], Event],
        *,
        changed: Callable[[], None],
        released: Callable[[ClaimMove[L]], None],
    ) -> None:
        """Create the owner, which has read no claim yet.

        Args:
            opened: the log of the book.
            who: the name of this start of the member.
            claims: the newest claims.
            event: returns the event of a claim, given the partition, its next holder, and the holder that releases it or `NOBODY`.
            changed: called after a release or a claim of this member's partitions was read.
            released: called before, with each release.
        """
        self.who: Final = who
        self.mine: Final[dict[int, int]] = {}
        self.lost: Final[set[int]] = set()
        self._log: Final = opened
        self._claims: Final = claims
        self._event: Final = event
        self._changed: Final = changed
        self._released: Final = released

    @property
    def fences(self) -> Sequence[str]:
        """The tags of the partitions' fences."""
        return self._claims.fences

    @property
    def holders(self) -> dict[int, str]:
        """The members of the newest claims, by partition, without released ones."""
        return {one: claim.who for one, claim in enumerate(self._claims.newest) if claim is not None and claim.who}

    def standings(self, free: Callable[[str], bool]) -> list[Standing]:
        """Return the standing of each partition. `free` says whether this member may claim from another member.

        A partition without a holder is free. One that another member took from this one rests until the next round that is due.
        """
        holders, found = self.holders, []
        for one in range(len(self.fences)):
            holder = holders.get(one, NOBODY)
            found.append(
                Standing(holder, one in self.mine, holder == NOBODY or (one not in self.lost and free(holder)))
            )
        return found

    def older_than(self, time_ms: int) -> list[int]:
        """Return this member's partitions whose newest claim was read and is that old, to claim them again."""
        times_ms = self._claims.times_ms
        return [one for one in sorted(self.mine) if one in times_ms and times_ms[one] <= time_ms]

    async def refresh(self) -> int:
        """Read the newest claims, and return the position of the read.

        Raises:
            Trimmed: claims were trimmed during each of many attempts.
        """
        self._apply(await self._claims.read())
        return self._claims.read_at

    async def follow(self, follower: Follower, peers: Peers) -> None:
        """Read the newest claims, as of which this member starts, and follow the later ones."""
        peers.since = position = await self.refresh()
        for name in self.holders.values():
            peers.saw_claim(name, position)
        for fence in self.fences:
            follower.add(fence, position + 1, self.saw)

    def saw(self, item: Read | boki.Gap | BokiError) -> None:
        """Apply a record of a partition's fence."""
        self._apply(self._claims.saw(item))

    def _apply(self, moves: Iterable[ClaimMove[L]]) -> None:
        changed = False
        for move in moves:
            if move.now.who not in (NOBODY, self.who) and move.before is not None and move.before.who == self.who:
                self.lost.add(move.partition)
            if move.now.who == NOBODY:
                self._released(move)
            lost = move.now.who != self.who and self.mine.pop(move.partition, None) is not None
            changed = changed or lost or move.now.who == NOBODY
        if changed:
            self._changed()

    async def take(self, choose: Callable[[], Sequence[int]]) -> dict[int, int]:
        """Claim the partitions that `choose` returns, again after a Conflict. Return the seqnums of the claims, by partition."""
        for _ in range(ATTEMPTS):
            partitions = choose()
            seqnum = await self.claim(partitions) if partitions else 0
            if seqnum or not partitions:
                return dict.fromkeys(partitions, seqnum)
        return {}

    async def claim(self, partitions: Sequence[int]) -> int:
        """Claim partitions from their known holders. Return the seqnum of the claims, or 0 after a Conflict."""
        expect = {self.fences[one]: self._claims.expected(one) for one in partitions}
        claims = tuple(self._event(one, self.who, NOBODY) for one in partitions)
        try:
            seqnum = await self._log.append(Contribution(tuple(expect), expect, claims), settle=True)
        except Conflict:
            await self.refresh()
            return 0
        for one in partitions:
            # A later claim may have replaced this one, and may have been read before this answer came.
            newest = self._claims.newest[one]
            if newest is None or seqnum >= newest.seqnum:
                self._claims.learn(one, Claim(seqnum, self._log.by, self.who))
                self.mine[one] = seqnum
        return seqnum

    async def release(self, beside: Contribution, partitions: Collection[int] | None = None) -> int:
        """Release partitions of this member by one record.

        Args:
            beside: what the library adds to the record.
            partitions: those to release, as far as this member owns them; None for all.

        Returns:
            The seqnum of the record, or 0 if a partition moved meanwhile: nothing was appended, and the caller retries.
        """
        given = {one: claim for one, claim in sorted(self.mine.items()) if partitions is None or one in partitions}
        fences: dict[str, int | None] = {self.fences[one]: claim for one, claim in given.items()}
        claims = tuple(self._event(one, NOBODY, self.who) for one in given)
        part = Contribution((*beside.tags, *fences), {**beside.expect, **fences}, (*beside.events, *claims))
        try:
            seqnum = await self._log.append(part, settle=True)
        except Conflict:
            await self.refresh()
            return 0
        for one, claim in given.items():
            self._claims.learn(one, Claim(seqnum, self._log.by, NOBODY))
            if self.mine.get(one) == claim:
                del self.mine[one]
        return seqnum

    def forget(self, partition: int, claim: int) -> bool:
        """Note that another member owns a partition; return False if the claim was not this member's newest one."""
        if self.mine.get(partition) != claim:
            return False
        del self.mine[partition]
        return True
