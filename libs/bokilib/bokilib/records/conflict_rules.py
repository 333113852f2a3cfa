"""Rules for the handling of a Conflict. Pure.

A Conflict says that an expectation did not hold, as of a position. It does not say that another writer won: the record that moved a
stream may be one of the same writer, from an attempt whose answer was lost. So a library decides only after reading:

1. read each stream that moved, up to `position`;
2. fold the records, as any reader does;
3. decide from the resulting state.

`actual` of a Conflict lists all expected streams, also those whose expectation held; `moved` compares each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

Expected: TypeAlias = Mapping[str, int | None]
"""Expectations of an append: {tag: the highest seqnum that its stream may have, or None if it must never have had a record}."""


class Moved(NamedTuple):
    """A stream whose expectation did not hold.

    Attributes:
        tag: of the stream.
        start: the first seqnum above the expected one.
        newest: seqnum of the stream's newest record as of the Conflict; None if the log has forgotten the stream.
    """

    tag: str
    start: int
    newest: int | None


def moved(expected: Expected, actual: Mapping[str, int | None], forgotten: Iterable[str] = ()) -> list[Moved]:
    """Return the streams that moved, in the order of the expectations. Read them up to the Conflict's position.

    Args:
        expected: the expectations of the append.
        actual: the newest seqnum of each expected stream, from the Conflict.
        forgotten: the streams that the log has forgotten, from the Conflict.
    """
    gone = set(forgotten)
    found = []
    for tag, seqnum in expected.items():
        newest = actual.get(tag)
        if tag in gone:
            found.append(Moved(tag, (seqnum or 0) + 1, None))
        elif newest is not None and (seqnum is None or newest > seqnum):
            found.append(Moved(tag, (seqnum or 0) + 1, newest))
    return found


class Claim(NamedTuple):
    """A claim of a fence, as read from the log.

    Attributes:
        seqnum: of its record.
        by: incarnation of its writer.
        who: the claimant's name, for people.
        token: of the fence object, which tells several holders of one incarnation apart.
    """

    seqnum: int
    by: str
    who: str
    token: str = ""


def scope_of(token: str) -> str:
    """Return the scope of a token that `Incarnations.fence_token` made."""
    return token.rpartition("/")[0]


def holder(claims: Iterable[Claim]) -> Claim | None:
    """Return the newest claim, which holds the fence whatever its append returned."""
    return max(claims, default=None)
