"""Fences: a fence has one holder at a time, and only the holder can append records that expect its claim.

    fence = Fence(log, "lib/carry/store", "the carrier of store", who="host-7")
    claim = await fence.take(await fence.current())       # Fenced: another process was faster
    await log.append(Contribution(tags, {**fence.expect, …}, events))     # Conflict on the fence: it was taken over

- Only claims join the fence's stream. A record of the holder expects the fence at the holder's claim, and does not join the stream.
- To take over, a process appends a claim that expects the claim it replaces. The caller judges whether the old holder is dead
  (`lease_rules`). A wrong judgement is safe: the old holder's appends fail from then on.
- A claim whose answer was lost is found by reading. A second claim's Conflict alone does not tell which claim won.
- Each `Fence` object writes a token of its own into its claims, and adopts only claims with that token: an earlier object of the
  same process may have written records under its claim that a later one has not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from boki_common.errors import Conflict, Trimmed
from bokilib.append.log import Log
from bokilib.errors import Fenced
from bokilib.records.arguments import check_text
from bokilib.records.conflict_rules import Claim, Moved, holder
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event, Picker


class Claimed(Event, tag="lib.claim", frozen=True):
    """A claim of a fence.

    Attributes:
        fence: the name of the fence. Readers compare it, since two fences may share a tag.
        who: the claimant's name, for people.
        token: of the `Fence` object that claims, unique in its incarnation. Older versions wrote one token for all objects of a process.
    """

    fence: str
    who: str
    token: str = ""


PICKER: Final[Picker[Claimed]] = Picker("lib", (Claimed,))


class Fence:
    """A holder, or would-be holder, of a fence.

    Invariant: `claim` is 0, or the seqnum of a claim in the log that this object appended.

    Attributes:
        tag: of the fence's stream.
        name: of the fence.
        claim: the seqnum of this holder's claim, 0 before it has one.
        token: written into the claims of this object and of no other.
        other: the newest claim of another holder that `take` found, or None: the claim to take over from, if that holder is dead.
    """

    def __init__(self, log: Log, tag: str, name: str, *, who: str, scope: str = "") -> None:
        """Create a fence object that holds nothing yet.

        Args:
            log: the log of the book.
            tag: of the fence's stream.
            name: of the fence.
            who: the claimant's name, for people.
            scope: the first part of the token, by which a process with many fences recognises its own claims (`scope_of`).
        """
        self.tag: Final = tag
        self.name: Final = name
        self.claim = 0
        self.token: Final = log.incarnations.fence_token(scope)
        self.other: Claim | None = None
        self._log = log
        self._who = check_text("a name (who=)", who)

    @property
    def expect(self) -> dict[str, int | None]:
        """The expectation that every record of the holder states."""
        assert self.claim, "nothing was claimed: `await fence.take(...)`"
        return {self.tag: self.claim}

    @property
    def held(self) -> Claim:
        """This holder's own claim. `take(fence.held)` claims again, which moves the claim into the current term."""
        assert self.claim, "nothing was claimed: `await fence.take(...)`"
        return Claim(self.claim, self._log.by, self._who, self.token)

    async def current(self) -> Claim | None:
        """Return the newest claim in the log by a linearizable read, or None if there is none."""
        at_most = await self._log.book.now(consistency="linearizable")
        first = True
        while True:
            try:
                record = await self._log.book.read_prev(self.tag, at_most=at_most)
            except Trimmed:  # a new holder trimmed the claims before its own
                if not first:
                    return None
                at_most = await self._log.book.now(consistency="linearizable")
                continue
            first = False
            if record is None:
                return None
            found = PICKER.of(record.seqnum, await self._log.open(record))
            for event in found:
                if event.fence == self.name:
                    return Claim(record.seqnum, (await self._log.open(record)).by, event.who, event.token)
            at_most = record.seqnum - 1

    async def take(self, last: Claim | None) -> int:
        """Append a claim that replaces `last`, and wait until its outcome is known.

        Args:
            last: the claim to replace, of this object or of a holder that the caller takes for dead; None if there is no claim.

        Returns:
            The seqnum of this holder's claim, also if the answer to its append was lost.

        Raises:
            Fenced: another holder claimed the fence; `other` is its claim.
            BokiError: a read or the append failed; the fence may be taken again.
        """
        expect: dict[str, int | None] = {self.tag: last.seqnum if last else await self._log.book.now()}
        if last is None and (found := await self.current()) is not None:
            return self._mine(found)
        claim = Contribution((self.tag,), expect, (Claimed(self.name, self._who, self.token),))
        try:
            self.claim = await self._log.append(claim, seen=last.seqnum if last else 0, settle=True)
        except Conflict as conflict:
            return self._mine(await self._claimed(self._log.moved(expect, conflict), conflict.facts["position"]))
        return self.claim

    async def _claimed(self, moved: Mapping[str, Moved], position: int) -> Claim | None:
        """Return the newest claim among the records that moved, or the current claim if a holder trimmed those records."""
        claims = []
        try:
            for one in moved.values():
                async for read in self._log.between(one.tag, one.start, position):
                    for event in PICKER.of(read.record.seqnum, read.envelope):
                        if event.fence == self.name:
                            claims.append(Claim(read.record.seqnum, read.envelope.by, event.who, event.token))
        except Trimmed:
            claims = []
        return holder(claims) or await self.current()

    def _mine(self, found: Claim | None) -> int:
        if found is None or not self.is_mine(found):
            self.other = found or self.other
            raise Fenced(
                f"{self.name} was claimed by {found.who if found else 'another process'} meanwhile; take over from that claim, "
                "if its holder is dead",
                tag=self.tag,
                claim=found.seqnum if found else 0,
            )
        self.claim = found.seqnum
        return self.claim

    def is_mine(self, found: Claim) -> bool:
        """Return whether this object appended a claim."""
        return (found.by, found.who, found.token) == (self._log.by, self._who, self.token)

    def moved(self, conflict: Conflict) -> bool:
        """Return whether a Conflict says that the fence was claimed by another holder, so that no append under this claim can succeed."""
        return self.tag in self._log.moved(self.expect, conflict)

    def over(self) -> Fenced:
        """Return the error to raise in a process that lost the fence."""
        return Fenced(
            f"{self.name} was taken over: stop, and look at what the new holder does", tag=self.tag, claim=self.claim
        )
