"""The datasets of terms and of ordered entries."""

from __future__ import annotations

from datetime import UTC, datetime

from boki_logbook.scan.facts import COMMITTED, Committed, TermFacts
from boki_logbook.scan.partitions import cut
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RecordSpec, RunSpec
from boki_logbook.testing.plans import apply, begin, everything, plan_of
from boki_spark.source.datasets import METALOG_SCHEMA, SEGMENTS_SCHEMA, metalog_rows, segment_rows


def test_a_term_is_a_row() -> None:
    facts = TermFacts(3, 1, ((0, 511),), 9, True, 8, 2, 1_500, False, 0)
    (row,) = segment_rows(Committed((facts,), 0))
    assert row == (3, 1, [[0, 511]], 9, True, 8, 2, datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC), False, None)
    assert len(row) == SEGMENTS_SCHEMA.count(",") + 1


def test_an_ordered_entry_is_a_row() -> None:
    state = DecisionState()
    places = begin(state, 1)
    for number in (1, 2):
        apply(state, places, RunSpec(7, b"w" * 16, number, (RecordSpec((), b"x"),), 1), time_ms=1_000 * number)
    (partition,) = cut(plan_of(state, everything(state), COMMITTED))
    rows = list(metalog_rows(partition))
    assert [row[:7] for row in rows] == [(1, 0, 0, 1, 0, 100, 0), (1, 0, 1, 2, 0, 100, 1)]
    assert [row[7].second for row in rows] == [1, 2] and len(rows[0]) == METALOG_SCHEMA.count(",") + 1
