"""Gaps of range reads against a walk over all seqnums."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_common.engine.engine_protocol import Consistency, Direction, GapKind, GapRow, Query
from boki_logbook.read.gaps import gaps_before, gaps_of

small = st.integers(1, 40)


def query(direction: Direction, start: int, stop: int) -> Query:
    return Query(1, 2, start, stop, 10, 10, 0, direction, Consistency.SESSION)


@given(small, small, small, st.integers(0, 40), st.lists(st.tuples(small, st.integers(1, 4)), max_size=4))
def test_a_read_upwards_gets_gaps_of_what_it_has_not_looked_at(
    start: int, stop: int, looked: int, mark: int, spans: list[tuple[int, int]]
) -> None:
    looked = max(looked, start)
    lost: list[tuple[int, int]] = []
    for first, count in sorted(spans):
        if not lost or first > lost[-1][1]:
            lost.append((first, first + count))
    found = {
        seqnum: row.kind
        for row in gaps_of(query(Direction.NEXT, start, stop), looked, mark, lost)
        for seqnum in range(row.first, row.last + 1)
    }
    expected = {}
    for seqnum in range(looked, stop):
        if seqnum < mark:
            expected[seqnum] = GapKind.TRIMMED
        elif any(first <= seqnum < end for first, end in lost):
            expected[seqnum] = GapKind.LOST
    assert found == expected


def test_a_read_downwards_is_trimmed_when_it_begins_below_the_mark() -> None:
    below = query(Direction.PREV, 9, 0)
    assert gaps_of(below, 9, 10) == [GapRow(0, 9, GapKind.TRIMMED)]
    assert gaps_of(query(Direction.PREV, 10, 0), 10, 10) == []
    assert gaps_of(query(Direction.PREV, 30, 0), 30, 10, [(5, 8), (20, 25), (28, 40)]) == [
        GapRow(20, 24, GapKind.LOST),
        GapRow(28, 30, GapKind.LOST),
    ]


def test_a_page_has_gaps_of_losses_up_to_its_last_record_and_of_all_trims() -> None:
    trimmed, near, far = GapRow(1, 4, GapKind.TRIMMED), GapRow(6, 7, GapKind.LOST), GapRow(9, 9, GapKind.LOST)
    assert gaps_before([trimmed, near, far], Direction.NEXT, 8) == [trimmed, near]
    assert gaps_before([trimmed, near, far], Direction.PREV, 8) == [trimmed, far]
