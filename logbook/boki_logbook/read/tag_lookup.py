"""What a read of several tags finds, and where records of a stream may be missing. Pure, but for the index that it looks at.

A union is looked up stream by stream, a share of the page of each, up to a horizon below which all of them were looked up: so a page of
255 tags costs what its records cost, and not what 255 pages do.

Records of a stream may be missing from where a reader has looked (`looked`):
- up to its mark;
- up to the book's *floor*, if the stream shows nothing of its own from before `looked`: neither a mark, nor a record. A stream that was
  forgotten has lost both; one that was trimmed and not forgotten has a mark or a newest record.

A read from the beginning gets no gap for a forgotten stream: as of its end (`stop`) the stream was new. It does get one if the stream
may have been forgotten only after that place, because as of that place its records were there. Nothing tells when a stream was forgotten,
so this is assumed where `stop` is not above the floor and no record of the stream lives below `stop`. A record that lives was written after
the stream was last forgotten, so a record below `stop` proves that the stream was new as of there, however high the floor is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final, Protocol

from boki_common.engine.engine_protocol import GapKind, GapRow
from boki_common.engine.tag_reads import FROM_BEGINNING, TagRow
from boki_common.ids import ALL_RECORDS

LEAST_SHARE: Final = 64
"""Records of each stream that are looked up at once, at least."""


class Streams(Protocol):
    """What is asked of the index."""

    def ascending(self, book: int, tag: int, start: int, stop: int, limit: int) -> list[int]: ...

    def next(self, book: int, tag: int, at_least: int) -> int: ...

    def prev(self, book: int, tag: int, at_most: int) -> int: ...

    def newest(self, book: int, tag: int) -> int: ...

    def newest_of(self, book: int, tags: Sequence[int]) -> list[int]: ...

    def mark(self, book: int, tag: int) -> int: ...

    def own_mark(self, book: int, tag: int) -> int:
        """Of the stream alone, whatever became of its book."""


def union(
    streams: Streams, book: int, rows: Sequence[TagRow], *, start: int, stop: int, limit: int
) -> tuple[list[int], bool]:
    """Up to `limit` seqnums of records in [start, stop) that have one of the tags, ascending, and whether there may be more."""
    newest = streams.newest_of(book, [row.tag for row in rows])
    rows = [row for row, last in zip(rows, newest, strict=True) if last >= max(row.start, start)]
    if not rows:
        return [], False
    if len(rows) == 1:
        found = streams.ascending(book, rows[0].tag, max(rows[0].start, start), stop, limit)
        return found, len(found) == limit
    share = min(limit, max(LEAST_SHARE, limit // max(len(rows), 1)))
    parts = [streams.ascending(book, row.tag, max(row.start, start), stop, share) for row in rows]
    horizon = min((part[-1] for part in parts if len(part) == share), default=stop)
    merged = [seqnum for seqnum in sorted(set(chain.from_iterable(parts))) if seqnum <= horizon]
    return merged[:limit], horizon < stop or len(merged) > limit


def missing_until(
    streams: Streams, floor: int, book: int, tag: int, *, looked: int, stop: int, from_beginning: bool = False
) -> int:
    """Return the seqnum below which records of the stream may be missing from `looked` on; 0 if none can be.

    Args:
        floor: newest record of all streams of the book that were forgotten.
        from_beginning: the read began at the beginning of the stream, and no record of it was returned yet.
    """
    end = min(streams.mark(book, tag), stop)
    at = max(looked, end)
    if at <= floor and tag != ALL_RECORDS and not streams.own_mark(book, tag):
        newest, first = streams.newest(book, tag), streams.next(book, tag, at)
        begins = from_beginning or looked <= 1
        if begins and (stop > floor or 0 < first < stop):
            forgotten = False
        else:
            forgotten = not newest or (newest >= at and not streams.prev(book, tag, at - 1))
        if forgotten:
            end = min(floor + 1, first or stop, stop)
    return end if end > looked else 0


def trimmed_rows(
    streams: Streams, floor: int, book: int, rows: Sequence[TagRow], *, looked: int, stop: int
) -> list[GapRow]:
    """Gaps of the streams of a union, ascending. `looked`: what lies below was looked at, of all."""
    gaps = []
    for place, row in enumerate(rows, 1):
        begin = max(looked, row.start)
        end = missing_until(
            streams, floor, book, row.tag, looked=begin, stop=stop, from_beginning=bool(row.flags & FROM_BEGINNING)
        )
        if end:
            gaps.append(GapRow(begin, end - 1, GapKind.TRIMMED, place))
    return sorted(gaps)
