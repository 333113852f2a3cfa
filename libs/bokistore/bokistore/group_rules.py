"""Transactions of one process that commit as one record: who may join, and who runs again when it fails. Pure.

- Members are in order. One that read what an earlier one writes has to have seen that: it runs again, on the other's state, and
  then *depends* on it. At snapshot isolation it is who *writes* what an earlier one writes, whether he read it or not: two that
  write one object did not run at the same time; who only reads it may well see the snapshot.
- Who ran on another's state expects all that it read not to have moved, at snapshot isolation too: the state was the snapshot and the
  others' writes, and without what foreign ones committed between the two it is no past of the log (a long fork).
- Of each stream the lowest snapshot of all members is expected: what the higher one missed would be lost.
- A record that fails fails for all. Those of which a stream moved run again, and so do all that depend on them, on and on; the
  others keep what they staged and are sent again. A member whose fence moved is over: it is dropped, not run.
- What a member returned or raised counts only when what it depends on is in the log.
- Together they are one record, with its bounds; who does not fit waits for the next one. So does whose fence is a stream that an earlier
  member joins (both begin a workflow of one id): in one record both expectations would hold, and both would happen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from bokilib.contribution import Contribution, counts_fit, joined
from bokilib.isolation import Isolation


class Member(msgspec.Struct, frozen=True):
    """One transaction that has run.

    Attributes:
        number: of the member; later members have higher ones.
        read, written: streams, as far as they decide who has to see whom; `joined`: all that its part joins.
        expect: of its streams. fences: of other libraries.
        part: its part of the record. size: in bytes.
        ran_on: numbers of members on whose state it ran.
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
    """Whether a member that ran without seeing an earlier one has to run again, on its state."""
    if earlier.number in later.ran_on:
        return False
    looked_at = later.read if later.isolation == "serializable" else later.written
    return bool(looked_at & earlier.joined)


class Record(NamedTuple):
    """What is sent, for whom, and who has to wait."""

    part: Contribution
    members: list[Member]
    waiting: list[Member]


def record_of(members: Sequence[Member], overhead: int = 64) -> Record:
    """The record of as many members as fit, in order; the first is always in, and fails alone if it is too large."""
    taken: list[Member] = []
    waiting: list[Member] = []
    tags: set[str] = set()
    expected: set[str] = set()
    size = overhead
    for member in members:
        more_tags, more_expected = tags.union(member.part.tags), expected.union(member.part.expect)
        if taken and (
            not counts_fit(len(more_tags), len(more_expected), size + member.size)
            or any(one.number in member.ran_on for one in waiting)
            or not tags.isdisjoint(member.fences)
        ):
            waiting.append(member)
        else:
            taken.append(member)
            tags, expected, size = more_tags, more_expected, size + member.size
    return Record(joined(member.part for member in taken), taken, waiting)


class Verdict(NamedTuple):
    """After a Conflict: who is over, who runs again, who is sent again as he is."""

    dropped: list[Member]
    again: list[Member]
    kept: list[Member]


def after_conflict(members: Sequence[Member], moved_tags: Mapping[str, int | None]) -> Verdict:
    """Who does what after a record of these members failed.

    Args:
        moved_tags: newest seqnum of each stream that moved, None if it was forgotten.
    """

    def failed(expect: Mapping[str, int | None]) -> bool:
        for tag, seqnum in expect.items():
            if tag in moved_tags:
                newest = moved_tags[tag]
                if newest is None or newest > (seqnum or 0):
                    return True
        return False

    dropped = [member for member in members if failed(member.fences)]
    out = {member.number for member in dropped}
    rerun: dict[int, Member] = {}
    for member in members:  # in order: who ran on another's state comes after it
        if member.number not in out and (failed(member.part.expect) or member.ran_on & (out | rerun.keys())):
            rerun[member.number] = member
    again = list(rerun.values())
    kept = [member for member in members if member.number not in out and member.number not in rerun]
    return Verdict(dropped, again, kept)
