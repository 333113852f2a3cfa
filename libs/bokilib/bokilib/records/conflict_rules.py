"""What a Conflict says, and what it does not. Pure.

A Conflict says that *something* expected did not hold, up to a position. It does not say that somebody else won: the record
that moved a stream may be one's own, of an attempt whose answer was lost. So nobody concludes from it:

1. read each stream that moved, up to `position`;
2. fold what was read, as any reader does;
3. decide anew from the state.

`actual` of a Conflict has all expected streams, those that held too: each is compared with what was expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

Tag: TypeAlias = str | int
Expected: TypeAlias = Mapping[str, int | None]
"""What an append expects: {tag: newest seqnum it may have, or None for none at all, ever}."""


class Moved(NamedTuple):
    """A stream that is not as it was expected to be.

    Attributes:
        start: first seqnum that is new.
        newest: of the stream, as far as the Conflict knows; None if it was forgotten.
    """

    tag: str
    start: int
    newest: int | None


def moved(expected: Expected, actual: Mapping[Tag, int | None], forgotten: Iterable[Tag] = ()) -> list[Moved]:
    """The streams that moved, in the order of what was expected; to be read up to the Conflict's position."""
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
    """A claim as it was read: where, by whom, and for whom.

    Attributes:
        token: of several holders under one incarnation, which.
    """

    seqnum: int
    by: str
    who: str
    token: str = ""


def holder(claims: Iterable[Claim]) -> Claim | None:
    """Who holds a fence: the newest claim, whatever appends returned."""
    return max(claims, default=None)
