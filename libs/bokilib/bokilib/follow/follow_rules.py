"""Who is given what of the streams that one process follows. Pure.

- Each subscription is of one tag, from a place on. It is given each record of its tag from there on once and in order, and each gap;
  whatever is read twice, because another tag of the record was added, or because reading begins anew, is not given twice.
- A record is given to each of its tags' subscriptions: what is folded by tag needs it. What was lost may have been of any tag.
- A subscription that is over is given nothing more, though it was read.
- One cursor reads up to 255 tags: so there are as many as it takes, and a new tag goes where there is room.

Invariant: for each subscription, everything at or above its start and below its `next` was given, or lies in a gap that was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from boki_common.errors import InvalidArgument
from boki_common.limits import RECORD_TAGS

D = TypeVar("D")

CURSOR_TAGS: Final = RECORD_TAGS


class Subscription(Generic[D]):
    """One tag that is followed. `next`: what lies below was given."""

    __slots__ = ("deliver", "next", "tag")

    def __init__(self, tag: str, start: int, deliver: D) -> None:
        self.tag: Final = tag
        self.next = start
        self.deliver: Final = deliver


class Subscriptions(Generic[D]):
    """Those of one cursor, by tag. See the module."""

    def __init__(self) -> None:
        self._by_tag: dict[str, Subscription[D]] = {}

    def __len__(self) -> int:
        return len(self._by_tag)

    def __contains__(self, tag: str) -> bool:
        return tag in self._by_tag

    @property
    def full(self) -> bool:
        """Whether no tag more may be read by this cursor."""
        return len(self._by_tag) >= CURSOR_TAGS

    def add(self, tag: str, start: int, deliver: D) -> None:
        """Follows one more. Raises InvalidArgument."""
        if start < 1:
            raise InvalidArgument(f"expected a start of at least 1, so that what is missing is reported, found {start}")
        if tag in self._by_tag:
            raise InvalidArgument(f"{tag!r} is followed already", found=tag)
        assert not self.full, "another cursor has room"
        self._by_tag[tag] = Subscription(tag, start, deliver)

    def discard(self, tag: str) -> None:
        """Follows one no more."""
        self._by_tag.pop(tag, None)

    def starts(self) -> list[tuple[str, int]]:
        """(tag, where to read it from), for a cursor that begins anew."""
        return [(one.tag, one.next) for one in self._by_tag.values()]

    def of_record(self, tags: Iterable[str | int], seqnum: int) -> list[D]:
        """Who is given a record; it counts as given."""
        found = []
        for tag in tags:
            one = self._by_tag.get(tag) if isinstance(tag, str) else None
            if one is not None and seqnum >= one.next:
                one.next = seqnum + 1
                found.append(one.deliver)
        return found

    def of_gap(self, tag: str | int | None, first: int, last: int) -> list[D]:
        """Who is given a gap; None: of all tags."""
        found = []
        for one in self._by_tag.values():
            if tag in (None, one.tag) and last >= one.next:
                one.next = max(one.next, last + 1) if tag is not None else one.next
                found.append(one.deliver)
        return found
