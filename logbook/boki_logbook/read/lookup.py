"""What the index has of a range: records, by the entries that hold them, and gaps where records are missing. Pure, but for what is
in memory: the index, and which batches and aux data are cached.

Nothing is returned of a cut that is not applied whole: a reply does not claim its rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from boki_common import limits
from boki_common.engine.engine_protocol import Direction, GapKind, GapRow, Query
from boki_common.engine.tag_reads import TagRow
from boki_logbook.index.places import EntryPlace
from boki_logbook.read.cache import BatchCache, EntryKey
from boki_logbook.read.gaps import gaps_of
from boki_logbook.read.tag_lookup import missing_until, trimmed_rows, union
from boki_logbook.state.state import DecisionState

AUX_REPLY_BYTES: Final = limits.AUX_BYTES
"""Aux data of one reply, at most; the first record's is always taken."""


class Span(NamedTuple):
    """Records of one entry, in the order of the reply."""

    place: EntryPlace
    seqnums: list[int]


class Found(NamedTuple):
    """Seqnums of a range, whether it may have more, and where records of it are missing."""

    seqnums: list[int]
    more: bool
    gaps: list[GapRow]

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to answer."""
        return not (self.seqnums or self.gaps)


class Lookup:
    """See the module. `unreadable`: entries that nobody can make sense of, as far as is known."""

    def __init__(self, state: DecisionState, cache: BatchCache, unreadable: Collection[EntryKey]) -> None:
        self._state = state
        self._index = state.index
        self._places = state.places
        self._cache = cache
        self._unreadable = unreadable

    def range(
        self,
        query: Query,
        rows: Sequence[TagRow] | None,
        covered: int,
        *,
        looked: int | None = None,
        lost_from: int | None = None,
    ) -> Found:
        """Records and gaps of a range, of one stream or of those that the rows name.

        Args:
            looked: below, all of the streams was looked at, so what is trimmed there is no gap; None: nothing was.
            lost_from: as much, for what was lost before it was indexed: nobody is woken by it.
        """
        looked, lost_from = (query.start if at is None else at for at in (looked, lost_from))
        seqnums, more = self._records(query, rows, covered)
        gaps = self._gaps(query, rows, covered, looked=looked, lost_from=lost_from)
        if not seqnums and not gaps:
            gaps = self._forgotten(query)
        return Found(seqnums, more, gaps)

    def _records(self, query: Query, rows: Sequence[TagRow] | None, covered: int) -> tuple[list[int], bool]:
        most = query.max_records
        if rows is not None and query.direction is Direction.NEXT:
            stop = min(query.stop, covered + 1)
            found, more = union(self._index, query.book, rows, start=query.start, stop=stop, limit=most)
        else:
            if query.direction is Direction.NEXT:
                stop = min(query.stop, covered + 1)
                found = self._index.ascending(query.book, query.tag, query.start, stop, most)
            else:
                found = self._index.descending(query.book, query.tag, min(query.start, covered), query.stop, most)
            more = len(found) == most
        if self._cache.aux_count:
            fitting = self._cache.within_aux(found, AUX_REPLY_BYTES)
            return list(fitting), more or len(fitting) < len(found)
        return found, more

    def _gaps(
        self, query: Query, rows: Sequence[TagRow] | None, covered: int, *, looked: int, lost_from: int
    ) -> list[GapRow]:
        """Of what is trimmed; and, upwards, of what was lost before it was indexed: it may have been of any stream."""
        book, index = query.book, self._index
        if query.direction is not Direction.NEXT:
            mark = index.mark(book, query.tag)
            return gaps_of(query, looked, mark) if mark else []
        lost: list[tuple[int, int]] = []
        if self._places.passed:
            lost = self._places.lost_spans(book, lost_from, min(query.stop, covered + 1))
        if book not in index.book_marks and not lost:
            return []  # nothing of the book was ever trimmed
        floor = self._state.verdicts.floor(book)
        if rows is None:
            until = missing_until(index, floor, book, query.tag, looked=looked, stop=query.stop)
            return gaps_of(query, looked, until, lost, lost_from=lost_from)
        trimmed = trimmed_rows(index, floor, book, rows, looked=looked, stop=query.stop)
        return sorted(trimmed + gaps_of(query, looked, 0, lost, lost_from=lost_from))

    def _forgotten(self, query: Query) -> list[GapRow]:
        """Downwards from below what the book has forgotten, nothing found is no answer: marks went with the streams."""
        floor = self._state.verdicts.floor(query.book) if query.direction is Direction.PREV else 0
        return [GapRow(query.stop, floor - 1, GapKind.TRIMMED)] if query.start < floor else []

    def spans(self, seqnums: Sequence[int]) -> Iterator[Span]:
        """Groups neighbouring seqnums by their entry."""
        ascending = len(seqnums) < 2 or seqnums[0] < seqnums[-1]
        at = 0
        while at < len(seqnums):
            place = self._places.locate(seqnums[at])
            if ascending:
                stop = bisect_left(seqnums, place.stop_seqnum, at)
            else:
                stop = at + 1
                while stop < len(seqnums) and seqnums[stop] >= place.first_seqnum:
                    stop += 1
            yield Span(place, list(seqnums[at:stop]))
            at = stop

    def to_be_had(self, spans: Iterable[Span]) -> tuple[list[Span], list[GapRow]]:
        """The spans that can be had, and gaps where entries were declared lost and are not in memory, or are unreadable."""
        kept: list[Span] = []
        gaps: list[GapRow] = []
        for span in spans:
            key = span.place.ledger_id, span.place.entry
            if key not in self._unreadable and (
                self._places.evidence(span.place.first_seqnum) is None or self._cache.get(*key)
            ):
                kept.append(span)
            else:
                gaps.append(GapRow(min(span.seqnums), max(span.seqnums), GapKind.LOST))
        return kept, gaps
