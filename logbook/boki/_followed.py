"""What a cursor over several tags has seen of each, what it asks for next, and what it makes of an answer. Pure.

Rules:
- A record is given if one of the tags carries it, by its name where a name was asked for, at or above where that tag is wanted; once,
  however many do.
- A gap is of one tag, and reported once: from then on the tag is asked for behind it. It moves nothing else, so live records of other tags
  inside it are given. What was lost may have been of any.
- `position` never falls, whoever answers: an engine that is behind says less, and is asked for no less than before.
- What is not taken was not seen: an answer that is lost is asked for again from `position` + 1.
- A tag that is added is asked for from its own start, and the others from where they were: so its backlog comes first. A record that
  another tag gave before comes again with it, since what is folded by tag needs it. An answer that was asked for before is not taken.
- A tag without a start begins at what lives: what was trimmed before the first answer about it is no gap.

Invariant: for each tag, everything at or above its start and below its `next` was given, or lies in a gap that was reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from boki._arguments import Tag, tag_number
from boki._record import Gap, Record
from boki_common.engine.engine_protocol import GapKind, GapRow, Token
from boki_common.engine.tag_reads import FROM_BEGINNING, TagRow


class FollowedTag:
    """One tag. `next`: what lies below was seen."""

    __slots__ = ("from_beginning", "next", "number", "reports_gaps", "tag")

    def __init__(self, tag: Tag, number: int, start: int) -> None:
        self.tag: Final = tag
        self.number: Final = number
        self.next = start
        self.reports_gaps = start > 0
        """Whether what is trimmed is a gap."""
        self.from_beginning = start <= 1
        """Nothing of it was given, and it was never seen to its end: what was forgotten never was."""


class Request(NamedTuple):
    """What to ask for: from the lowest place of all tags."""

    tags: tuple[FollowedTag, ...]
    rows: tuple[TagRow, ...]
    start: int
    added: int = 0
    """How many tags had been added."""


class Answer(NamedTuple):
    """What came: records, ascending, gaps of tags by their place in the request, what cannot be read, and how far it goes."""

    records: Sequence[Record]
    gaps: Sequence[GapRow]
    unreadable: Sequence[Gap]
    more: bool
    position: int
    """Of the engine's view."""
    last: int
    """Of all records of the answer, given or not; 0: there were none."""
    token: Token = MappingProxyType({})
    """What the engine had applied."""


class Followed:
    """See the module."""

    def __init__(self, book: str | int, start: int) -> None:
        """`book`: as gaps name it."""
        self.book: Final = book
        self.position = max(start - 1, 0)
        """Everything at or below it was given, or lies in a gap, but for tags that are `behind`."""
        self.added = 0
        """How many tags were added. An answer to a request that knew of fewer may have a record of a tag of which older ones were not
        asked for: it is not taken."""
        self._tags: dict[int, FollowedTag] = {}

    def __len__(self) -> int:
        return len(self._tags)

    def __contains__(self, number: int) -> bool:
        return number in self._tags

    def add(self, tag: Tag, number: int, start: int) -> None:
        """Goes on with one more."""
        assert number not in self._tags, f"tag {tag!r} is followed"
        self.added += 1
        self._tags[number] = FollowedTag(tag, number, start)

    def discard(self, number: int) -> None:
        """Goes on without one, if it is there."""
        self._tags.pop(number, None)

    @property
    def tags(self) -> tuple[Tag, ...]:
        """In the order they came."""
        return tuple(one.tag for one in self._tags.values())

    @property
    def behind(self) -> tuple[Tag, ...]:
        """Those whose backlog was not given yet."""
        return tuple(one.tag for one in self._tags.values() if one.next <= self.position)

    def request(self) -> Request:
        """What to ask for now."""
        tags = tuple(self._tags.values())
        rows = tuple(TagRow(one.number, one.next, FROM_BEGINNING if one.from_beginning else 0) for one in tags)
        return Request(tags, rows, min((one.next for one in tags), default=self.position + 1), self.added)

    def wanted(self, item: Record | Gap) -> bool:
        """Whether what was taken before is still wanted: a tag may have been given up since."""
        if isinstance(item, Gap):
            return item.tag is None or any(one.tag == item.tag for one in self._tags.values())
        return any(_carries(one, item) for one in self._tags.values())

    def take(self, request: Request, answer: Answer, stop: int) -> list[Record | Gap]:
        """What to give of an answer to a request, in order. `stop`: nothing was asked for from there on."""
        upto = max(request.start, answer.last + 1)
        gaps: list[Gap] = [*answer.unreadable]
        for gap in answer.gaps:
            if gap.kind == GapKind.LOST:
                upto = max(upto, gap.last + 1)
        if not answer.more:
            upto = max(upto, answer.position + 1)
        upto = min(upto, stop)
        records = [record for record in answer.records if self._gives(request.tags, record)]
        gaps += [found for gap in answer.gaps if (found := self._reported(request, gap)) is not None]
        for one in request.tags:
            one.next = max(one.next, upto)
            one.reports_gaps = True
            one.from_beginning = one.from_beginning and answer.more
        self.position = max(self.position, upto - 1)
        return merged(records, gaps)

    def _followed(self, one: FollowedTag) -> bool:
        return self._tags.get(one.number) is one

    def _gives(self, tags: Sequence[FollowedTag], record: Record) -> bool:
        gives = False
        for one in tags:
            if record.seqnum >= one.next and _carries(one, record) and self._followed(one):
                gives, one.from_beginning = True, False
        return gives

    def _reported(self, request: Request, gap: GapRow) -> Gap | None:
        if not 0 < gap.tag <= len(request.tags):
            return Gap(gap.kind, gap.first, gap.last, self.book)
        one = request.tags[gap.tag - 1]
        one.next = max(one.next, gap.last + 1)
        if not self._followed(one) or not one.reports_gaps:
            return None
        one.from_beginning = False
        return Gap(gap.kind, gap.first, gap.last, self.book, tag=one.tag)


def _carries(one: FollowedTag, record: Record) -> bool:
    if one.tag in record.tags or isinstance(one.tag, str):
        return one.tag in record.tags
    return any(tag_number(tag) == one.number for tag in record.tags)


def merged(records: Sequence[Record], gaps: Sequence[Gap]) -> list[Record | Gap]:
    """Records and gaps in order; a gap before the records that lie in it."""
    items: list[Record | Gap] = []
    waiting = sorted(gaps, key=lambda gap: (gap.first, gap.last))
    for record in records:
        while waiting and waiting[0].first <= record.seqnum:
            items.append(waiting.pop(0))
        items.append(record)
    return items + waiting
