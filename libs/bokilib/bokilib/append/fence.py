"""One fence: who may write for something, one at a time, for as long as nobody else claims it.

    fence = Fence(log, "lib/carry/store", "the carrier of store", who="host-7")
    claim = await fence.take(await fence.current())       # Fenced: somebody was faster
    await log.append(Contribution(tags, {**fence.expect, …}, events))     # Conflict on the fence: it is over

- Only claims join the fence's stream. What the holder appends expects the fence at its claim, without joining it.
- Taking over is a claim that expects the claim it replaces. Whether that one's holder is dead is the caller's to judge
  (`lease_rules`); safe it is whatever he judged.
- A claim whose answer was lost is found by reading, never concluded from the Conflict that a second one gets.
- Each `Fence` object has a token of its own, which its claims carry. Only the object that appended a claim adopts it when it is found:
  an earlier object of the same process may have written under its claim what a later one has not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from boki_common.errors import Conflict, Trimmed
from bokilib.append.log import Log
from bokilib.errors import Fenced
from bokilib.records.conflict_rules import Claim, Moved, holder
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event, Picker


class Claimed(Event, tag="lib.claim", frozen=True):
    """A claim of a fence.

    Attributes:
        fence: its name, compared when read.
        who: claims it, for people. token: of the fence object that claims, unique in its incarnation; older versions wrote one for
            all objects of a process.
    """

    fence: str
    who: str
    token: str = ""


PICKER: Final[Picker[Claimed]] = Picker("lib", (Claimed,))


class Fence:
    """One holder of a fence. Invariant: `claim` is a place at which a claim of this object is in the log, or 0.

    Attributes:
        tag: its stream. claim: the place of this holder's claim, 0 before there is one. token: in its claims, of this object alone.
        other: the newest claim of another holder that `take` met, None before: to take over from, if that holder is dead.
    """

    def __init__(self, log: Log, tag: str, name: str, *, who: str, scope: str = "") -> None:
        """Args: scope: the first part of the token, by which a holder of many fences knows the claims of its own (`scope_of`)."""
        self.tag: Final = tag
        self.name: Final = name
        self.claim = 0
        self.token: Final = log.incarnations.fence(scope)
        self.other: Claim | None = None
        self._log = log
        self._who = who

    @property
    def expect(self) -> dict[str, int | None]:
        """What the holder's records expect."""
        assert self.claim, "nothing was claimed: `await fence.take(...)`"
        return {self.tag: self.claim}

    @property
    def held(self) -> Claim:
        """The holder's claim, to claim it once more: a new place for what must not get old."""
        assert self.claim, "nothing was claimed: `await fence.take(...)`"
        return Claim(self.claim, self._log.by, self._who, self.token)

    async def current(self) -> Claim | None:
        """The newest claim, as of now."""
        at_most = await self._log.book.now(consistency="linearizable")
        first = True
        while True:
            try:
                record = await self._log.book.read_prev(self.tag, at_most=at_most)
            except Trimmed:  # a holder trimmed what was before his claim
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
        """Claims it, over the claim that the caller knows to be over, or None where there is none.

        Returns:
            The place of the claim: of this holder's, also if its answer was lost.

        Raises:
            Fenced: somebody else claimed it. AppendUnknown, Unreachable: it may be taken again.
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
        """The newest claim among what moved; or now, if a holder has trimmed the claims before his."""
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
                f"{self.name} was claimed by {found.who if found else 'somebody'} meanwhile; take over from that claim, if its "
                "holder is dead",
                tag=self.tag,
                claim=found.seqnum if found else 0,
            )
        self.claim = found.seqnum
        return self.claim

    def is_mine(self, found: Claim) -> bool:
        """Return whether this object appended a claim."""
        return (found.by, found.who, found.token) == (self._log.by, self._who, self.token)

    def moved(self, conflict: Conflict) -> bool:
        """Whether a Conflict of the holder's record says that the fence is over: then nothing under this claim can succeed."""
        return self.tag in self._log.moved(self.expect, conflict)

    def over(self) -> Fenced:
        """The error for who held it."""
        return Fenced(
            f"{self.name} was taken over: stop, and look at what the new holder does", tag=self.tag, claim=self.claim
        )
