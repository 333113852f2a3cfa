"""Transactions of one process that commit as one record: which may join, which run again, which wait. Pure.

A record is composed when it is sent, and not while transactions arrive, as `bokilib.append.batches` does it: whether a transaction joins
depends on those before it in the record. A stream that several of them join counts once.

- Members are in order. A member that read what an earlier one writes must have seen that: it runs again, on the other's state, and
  then *depends* on it. At snapshot isolation the same holds for a member that *writes* what an earlier one writes, whether it read it or
  not: two that write one object did not run at the same time; a member that only reads it may see the snapshot.
- A member that ran on another's state expects all that it read not to have moved, at snapshot isolation too: the state was the snapshot
  and the others' writes, and without what foreign ones committed between the two it is no past of the log (a long fork).
- A member that ran on the state of one that is not in the same record, before it, runs again: that one lost, or was sent already.
- A member of which a stream is known to have moved above what it expects is not sent: it runs again (`NewestSeqnums`).
- Of each stream the lowest snapshot of all members is expected: what the higher one missed would be lost.
- A record that fails fails for all. Members of which a stream moved run again, and so do all that depend on them, transitively; the
  others keep what they staged and are sent again. A member whose fence moved is dropped, not run.
- What a member returned or raised counts only when what it depends on is in the log.
- Together they are one record, with its bounds; a member that does not fit waits for the next one. So does one whose fence is a stream
  that an earlier member joins (both begin a workflow of one id): in one record both expectations would hold, and both would happen.
- A member waits while another transaction of its process has the turn for a stream that it joins (`turns`).
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from bokilib.records.conflict_rules import moved
from bokilib.records.contribution import Contribution, counts_fit, joined
from bokilib.records.isolation import Isolation


class Member(msgspec.Struct, frozen=True):
    """A transaction that has run and may join a record.

    Attributes:
        number: of the member; later members have higher ones.
        isolation: its level.
        read: streams that it read.
        written: streams of objects that it writes.
        joined: all streams that its part of the record joins.
        fences: streams of other libraries that it expects unchanged.
        part: its part of the record.
        size: bytes of the part.
        ran_on: numbers of the members on whose state it ran.
    """

    number: int
    isolation: Isolation
    read: frozenset[str]
    written: frozenset[str]
    joined: frozenset[str]
    fences: Mapping[str, int | None]
    part: Contribution
    size: int
    ran_on: frozenset[int] = frozenset()


def must_see(later: Member, earlier: Member) -> bool:
    """Return whether a member that ran without seeing an earlier one has to run again, on its state."""
    if earlier.number in later.ran_on:
        return False
    looked_at = later.read if later.isolation == "serializable" else later.written
    return bool(looked_at & earlier.joined)


OVERHEAD: Final = 64
"""Bytes of a record beside its events."""
NEWEST_STREAMS: Final = 4_096


class NewestSeqnums:
    """The newest seqnums of streams that were seen to move, the longest unmoved dropped: a record that must fail need not be sent.

    It decides nothing: a stream that was dropped costs a Conflict.
    """

    def __init__(self, limit: int = NEWEST_STREAMS) -> None:
        self._limit: Final = limit
        self._seqnums: Final[dict[str, int]] = {}

    def moved(self, streams: Iterable[str], seqnum: int) -> None:
        """Note that streams moved to a seqnum."""
        for stream in streams:
            newest = max(seqnum, self._seqnums.pop(stream, 0))
            self._seqnums[stream] = newest
        while len(self._seqnums) > self._limit:
            del self._seqnums[next(iter(self._seqnums))]

    def above(self, expect: Mapping[str, int | None]) -> int:
        """Return the highest seqnum of a stream that moved above what is expected of it; 0: none did."""
        found = 0
        for stream, seqnum in expect.items():
            newest = self._seqnums.get(stream, 0)
            if newest > (seqnum or 0):
                found = max(found, newest)
        return found


class Draft:
    """The record that members join, in order, as long as they fit; the first always does, and fails alone if it is too large."""

    def __init__(self) -> None:
        self.members: Final[list[Member]] = []
        self.numbers: Final[set[int]] = set()
        self._tags: set[str] = set()
        self.joined: Final[set[str]] = set()
        self._expected: set[str] = set()
        self._size = OVERHEAD

    def takes(self, member: Member) -> bool:
        """Return whether there is room for a member."""
        if not self.members:
            return True
        tags = len(self._tags) + len({*member.part.tags} - self._tags)
        expected = len(self._expected) + len(member.part.expect.keys() - self._expected)
        fits = counts_fit(tags, expected, self._size + member.size)
        return fits and self._tags.isdisjoint(member.fences)

    def add(self, member: Member) -> None:
        """Add a member for which there is room."""
        self.members.append(member)
        self.numbers.add(member.number)
        self._tags.update(member.part.tags)
        self.joined.update(member.joined)
        self._expected.update(member.part.expect)
        self._size += member.size

    def without(self, numbers: Collection[int]) -> tuple[Draft, list[int]]:
        """Return the record without some members, and the numbers of the others that cannot be in it then: they ran on these."""
        rest, out, dependents = Draft(), set(numbers), []
        for member in self.members:
            if member.number in out:
                continue
            if member.ran_on & out:
                out.add(member.number)
                dependents.append(member.number)
            else:
                rest.add(member)
        return rest, dependents

    def part(self) -> Contribution:
        """Return what is appended."""
        return joined(member.part for member in self.members)


class Standing(enum.Enum):
    """The next step of a member that has run."""

    JOINS = "joins"
    RUNS_AGAIN = "runs again"
    WAITS = "waits for room in a record"


def outdated(member: Member, newest: NewestSeqnums) -> int:
    """Return how far something moved that a member expects, its fences excepted; 0: nothing did, as far as is known."""
    return newest.above({tag: seqnum for tag, seqnum in member.part.expect.items() if tag not in member.fences})


def standing(member: Member, draft: Draft, newest: NewestSeqnums) -> Standing:
    """Decide what a member does that comes next to a record."""
    if outdated(member, newest) or not member.ran_on <= draft.numbers:
        return Standing.RUNS_AGAIN
    concerned = not draft.joined.isdisjoint(
        member.read | member.written
    )  # else it has to see no member: one look instead of many
    if concerned and any(must_see(member, earlier) for earlier in draft.members):
        return Standing.RUNS_AGAIN
    return Standing.JOINS if draft.takes(member) else Standing.WAITS


class Verdict(NamedTuple):
    """Members after a Conflict: those that are dropped, those that run again, those that are sent again as they are."""

    dropped: list[Member]
    again: list[Member]
    kept: list[Member]


def after_conflict(members: Sequence[Member], moved_tags: Mapping[str, int | None]) -> Verdict:
    """Decide what becomes of the members of a record that failed.

    Args:
        moved_tags: newest seqnum of each stream that moved, None if it was forgotten.
    """
    gone = [tag for tag, newest in moved_tags.items() if newest is None]

    def failed(expect: Mapping[str, int | None]) -> bool:
        return bool(moved(expect, moved_tags, gone))

    dropped = [member for member in members if failed(member.fences)]
    out = {member.number for member in dropped}
    rerun: dict[int, Member] = {}
    for member in members:  # in order: a member that ran on another's state comes after it
        if member.number not in out and (failed(member.part.expect) or member.ran_on & (out | rerun.keys())):
            rerun[member.number] = member
    again = list(rerun.values())
    kept = [member for member in members if member.number not in out and member.number not in rerun]
    return Verdict(dropped, again, kept)
