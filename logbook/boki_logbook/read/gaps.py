"""Where a range read has to say that records are missing: below trim marks, and where entries were lost. Pure.

A gap is answered only to a read that has not seen what was there. `looked` is how far it has: everything of its range below was
there to be found when the index was looked at, for a read that waits, or before its start. So a follower that keeps up with
a book gets no gap of a trim, and one that was overtaken gets it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from boki_common.engine.engine_protocol import Direction, GapKind, GapRow, Query


def gaps_of(
    query: Query, looked: int, mark: int, lost: Iterable[tuple[int, int]] = (), *, lost_from: int | None = None
) -> list[GapRow]:
    """The gaps of one range read, ascending.

    Args:
        looked: not below the start of a read upwards.
        mark: what lies below is trimmed; 0 for nothing.
        lost: spans of lost seqnums [first, stop), ascending, not touching.
        lost_from: as `looked`, for what was lost; by default the same.
    """
    rows: list[GapRow] = []
    if query.direction is Direction.NEXT:
        begin = min(mark, query.stop)
        if looked < begin:
            rows.append(GapRow(looked, begin - 1, GapKind.TRIMMED))
        low, stop = max(looked if lost_from is None else lost_from, mark), query.stop
    else:
        if query.start < mark:
            rows.append(GapRow(query.stop, mark - 1, GapKind.TRIMMED))
        low, stop = max(query.stop, mark), query.start + 1
    for first, end in lost:
        if first < stop and end > low:
            rows.append(GapRow(max(first, low), min(end, stop) - 1, GapKind.LOST))
    return rows


def gaps_before(gaps: Sequence[GapRow], direction: Direction, horizon: int) -> list[GapRow]:
    """The gaps of a page that ends at `horizon`: what is lost beyond is in the next one, among its records."""
    upwards = direction is Direction.NEXT
    return [
        gap
        for gap in gaps
        if gap.kind is not GapKind.LOST or (gap.first <= horizon if upwards else gap.last >= horizon)
    ]
