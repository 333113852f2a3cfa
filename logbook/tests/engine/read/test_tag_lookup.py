"""Unions against a walk over all records, and what is returned of streams that were trimmed or forgotten."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.engine.engine_protocol import GapKind, GapRow
from boki_common.engine.tag_reads import FROM_BEGINNING, TagRow
from boki_logbook.read.tag_lookup import LEAST_SHARE, missing_until, trimmed_rows, union

END = 2**63


class Plain:
    """Streams as lists of live seqnums."""

    def __init__(
        self,
        rows: dict[int, list[int]],
        marks: dict[int, int] | None = None,
        book: int = 0,
        newest: dict[int, int] | None = None,
    ) -> None:
        self.rows, self.marks, self.book, self.ever = rows, marks or {}, book, newest or {}
        self.looked_up = 0

    def ascending(self, book: int, tag: int, start: int, stop: int, limit: int) -> list[int]:
        row = self.rows.get(tag, [])
        found = row[bisect_left(row, start) : bisect_left(row, stop)][:limit]
        self.looked_up += len(found)
        return found

    def next(self, book: int, tag: int, at_least: int) -> int:
        return next((one for one in self.rows.get(tag, []) if one >= at_least), 0)

    def prev(self, book: int, tag: int, at_most: int) -> int:
        return next((one for one in reversed(self.rows.get(tag, [])) if one <= at_most), 0)

    def newest(self, book: int, tag: int) -> int:
        return max([self.ever.get(tag, 0), *self.rows.get(tag, [])])

    def newest_of(self, book: int, tags: Sequence[int]) -> list[int]:
        return [self.newest(book, tag) for tag in tags]

    def mark(self, book: int, tag: int) -> int:
        return max(self.book, self.marks.get(tag, 0))

    def own_mark(self, book: int, tag: int) -> int:
        return self.marks.get(tag, 0)


@given(
    st.dictionaries(st.integers(1, 6), st.sets(st.integers(1, 400), max_size=200), max_size=6),
    st.dictionaries(st.integers(1, 6), st.integers(0, 400), min_size=1),
    st.integers(1, 200),
    st.integers(0, 400),
    st.integers(0, 400),
)
def test_pages_of_a_union_give_each_record_once_and_in_order(
    rows: dict[int, set[int]], wanted: dict[int, int], limit: int, start: int, stop: int
) -> None:
    streams = Plain({tag: sorted(row) for tag, row in rows.items()})
    asked = [TagRow(tag, begin) for tag, begin in wanted.items()]
    expected = sorted(
        {one for tag, begin in wanted.items() for one in rows.get(tag, ()) if max(begin, start) <= one < stop}
    )
    seen: list[int] = []
    at, more = start, True
    while more:
        found, more = union(streams, 1, asked, start=at, stop=stop, limit=limit)
        assert len(found) <= limit and (found or not more)
        seen += found
        at = found[-1] + 1 if found else at
    assert seen == expected


def test_a_page_of_many_tags_looks_up_what_a_page_holds() -> None:
    streams = Plain({tag: list(range(tag, 600_000, 255)) for tag in range(1, 256)})
    found, more = union(streams, 1, [TagRow(tag, 0) for tag in range(1, 256)], start=0, stop=END, limit=4_096)
    assert len(found) == 4_096 and more and found == list(range(1, 4_097))
    assert streams.looked_up <= 255 * LEAST_SHARE


@pytest.mark.parametrize(
    ("streams", "floor", "looked", "stop", "beginning", "expected"),
    [
        (Plain({}, {7: 9}), 0, 3, END, False, 9),
        (Plain({}, {7: 9}), 0, 3, 6, False, 6),
        (Plain({}, {7: 9}), 0, 9, END, False, 0),
        (Plain({}, {7: 9}), 20, 9, END, False, 0),  # it has a mark, so it was never forgotten since
        (Plain({}), 20, 9, END, False, 21),
        (Plain({7: [15]}), 20, 9, END, False, 15),
        (Plain({7: [5, 15]}), 20, 9, END, False, 0),  # a record from before shows that nothing was forgotten
        (Plain({}, newest={7: 5}), 20, 9, END, False, 0),
        (Plain({}, newest={7: 12}), 20, 9, END, False, 21),
        (Plain({}), 20, 21, END, False, 0),
        (Plain({}), 20, 1, END, False, 0),  # from the beginning: it never was
        (Plain({}), 20, 9, END, True, 0),
        (Plain({}), 20, 1, 15, False, 15),  # but at a place below the floor it was
        (Plain({}), 20, 1, 20, True, 20),
        (Plain({7: [12]}), 20, 1, 15, False, 0),  # unless a record lives there: it was written after that
        (Plain({7: [12]}), 20, 9, 15, True, 0),
        (Plain({7: [12]}), 20, 1, 12, False, 12),
        (Plain({7: [12]}, book=5), 20, 1, 15, False, 5),
        (Plain({}, book=5), 20, 3, END, False, 21),  # the mark of the book says nothing of the stream
        (Plain({7: [2, 9]}, book=5), 0, 3, END, False, 5),
    ],
)  # fmt: skip
def test_up_to_where_records_may_be_missing(
    streams: Plain, floor: int, looked: int, stop: int, beginning: bool, expected: int
) -> None:
    assert missing_until(streams, floor, 1, 7, looked=looked, stop=stop, from_beginning=beginning) == expected


def test_gaps_of_a_union_name_their_tags_by_place() -> None:
    streams = Plain({9: [1, 3, 30]}, {7: 9, 8: 5})
    rows = [TagRow(7, 2), TagRow(9, 2), TagRow(8, 4), TagRow(6, 5, FROM_BEGINNING), TagRow(5, 5)]
    assert trimmed_rows(streams, 12, 1, rows, looked=2, stop=END) == [
        GapRow(2, 8, GapKind.TRIMMED, 1),
        GapRow(4, 4, GapKind.TRIMMED, 3),
        GapRow(5, 12, GapKind.TRIMMED, 5),
    ]


def test_of_the_whole_book_only_its_mark_is_returned() -> None:
    assert missing_until(Plain({}), 20, 1, 0, looked=9, stop=END) == 0
    assert missing_until(Plain({}, book=12), 20, 1, 0, looked=9, stop=END) == 12
