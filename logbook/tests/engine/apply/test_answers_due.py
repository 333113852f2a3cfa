"""Answers: kept until the cut is passed, one push for each source, equal rows whichever way they are made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.engine.answers import AnswerRow
from boki_common.engine.engine_protocol import ROW_DUPLICATE, Verdict
from boki_common.ids import Position
from boki_common.records.record_batch import RUN_END, RecordBatch, join
from boki_logbook.append.shard import OwnEntry, Piece
from boki_logbook.apply import answers_due
from boki_logbook.apply.answers_due import AnswersDue
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RecordingSource, RunSpec, make_batch, plain_records
from boki_logbook.testing.plans import begin

WRITERS = [bytes(15) + b"a", bytes(15) + b"b"]
TOKEN = {0: Position(1, 9)}
RUNS = st.builds(
    lambda book, writer, first, count: RunSpec(book, WRITERS[writer], first, plain_records(*"xyz"[:count])),
    *(st.integers(1, 3), st.integers(0, 1), st.integers(1, 3), st.integers(1, 3)),
)


def an_entry(*pieces: tuple[RecordingSource, list[RunSpec]]) -> OwnEntry:
    parts = [Piece(make_batch(*runs), source, 0, 0.0) for source, runs in pieces]
    joined = join([part.batch for part in parts], term=1, shard=0, first_local_id=0)
    return OwnEntry(0, RecordBatch.parse(memoryview(b"".join(joined))), parts, 0, 0, 0.0)


def rows_of(pieces: list[list[RunSpec]], few_runs: int) -> list[list[AnswerRow]]:
    """What each source is answered of an entry, when more runs than `few_runs` are answered by columns."""
    sources = [RecordingSource() for _ in pieces]
    own, due = an_entry(*zip(sources, pieces, strict=True)), AnswersDue()
    state = DecisionState()
    decision = state.apply_entry(begin(state, 1), own.batch, shard=0, entry=0, time_ms=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers_due, "FEW_ROWS", few_runs)
        due.decided(own, decision)
    due.cut_passed()
    due.send(TOKEN, 77)
    return [source.rows for source in sources]


@given(st.lists(st.lists(RUNS, min_size=1, max_size=4), min_size=1, max_size=3))
def test_rows_are_the_same_made_one_by_one_and_by_columns(pieces: list[list[RunSpec]]) -> None:
    assert rows_of(pieces, 0) == rows_of(pieces, 1_000)


def test_numbers_that_were_committed_before_are_marked() -> None:
    """Also those of the same entry: two users of one name may append at once."""
    run = RunSpec(1, WRITERS[0], 1, plain_records(*"xy"))
    first, second = rows_of([[run], [run._replace(records=plain_records(*"xyz"))]], 1_000)
    assert [(row.first, row.count, row.flags) for row in first] == [(1, 2, 0)]
    assert [(row.first, row.count, row.flags) for row in second] == [(1, 2, ROW_DUPLICATE), (3, 1, 0)]
    assert second[0].first_seqnum == first[0].first_seqnum


def test_runs_that_are_all_committed_are_answered_with_the_seqnums_of_their_records() -> None:
    runs = [RunSpec(book, WRITERS[0], 1, plain_records(*"xy")) for book in range(3)]
    found = rows_of([runs[:1], runs[1:]], 0)
    assert [[(row.book, row.first_seqnum - (1 << 35), row.count, row.position) for row in rows] for rows in found] == [
        [(0, 0, 2, 77)],
        [(1, 2, 2, 77), (2, 4, 2, 77)],
    ]


def test_nobody_is_answered_before_the_cut_is_passed_and_then_each_source_once() -> None:
    one, other = RecordingSource(), RecordingSource()
    own = an_entry(
        (one, [RunSpec(1, WRITERS[0], 5, plain_records("x"))]), (other, [RunSpec(1, WRITERS[1], 4, (), flags=RUN_END)])
    )
    due = AnswersDue()
    for _ in range(2):
        due.passed_over(own, lambda book, writer: 3)
    due.send(TOKEN, 77)
    assert not due.waiting and one.pushes == 0
    due.cut_passed()
    assert due.waiting
    due.send(TOKEN, 77)
    assert (one.pushes, len(one.rows), one.tokens, due.waiting) == (1, 2, [TOKEN], False)
    assert other.pushes == 0, "it has sent no number"


def test_what_is_passed_over_is_a_gap_behind_the_last_decided_number() -> None:
    source = RecordingSource()
    runs = [RunSpec(1, WRITERS[0], 5, plain_records(*"xy")), RunSpec(2, WRITERS[1], 4, (), flags=RUN_END)]
    due = AnswersDue()
    due.passed_over(an_entry((source, runs)), lambda book, writer: {1: 4, 2: 3}[book])
    due.cut_passed()
    due.send(TOKEN, 77)
    assert source.rows == [AnswerRow(1, WRITERS[0], 5, 4, 77, 2, Verdict.GAP)]
