"""Snapshots hold all of a state and nothing that goes on changing; that restarts agree is in test_state.py."""

from __future__ import annotations

from itertools import pairwise

from tests.engine.state.test_snapshot_format import plain

from boki_common import ids
from boki_common.records.record_batch import RUN_NAMED
from boki_logbook.index.places import TermPlaces
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch
from boki_logbook.testing.plans import begin
from boki_metalog.entries.metalog_entry import Trim

ALICE = b"alice".ljust(16, b"\0")
BOB = b"bob".ljust(16, b"\0")


def filled() -> tuple[DecisionState, TermPlaces]:
    """Two writers, a conflict, a trim, over several runs of the index."""
    state = DecisionState(tail_rows=5)
    places = begin(state, 3, log=1)
    for entry in range(4):
        first = 1 + 3 * entry
        records = (RecordSpec(tags=(5, 6)), RecordSpec(tags=(5,), expect=((6, 0),)), RecordSpec())
        batch = make_batch(RunSpec(7, ALICE, first, records), RunSpec(8, BOB, first, records, flags=RUN_NAMED))
        state.apply_entry(places, batch, shard=0, entry=entry, time_ms=1_000 * entry)
    state.apply_command(places, Trim(7, ((5, ids.seqnum(3, 7)),), False), time_ms=0)
    return state, places


def test_a_snapshot_never_changes_while_the_state_goes_on() -> None:
    state, places = filled()
    snapshot = state.snapshot_state()
    before = plain(snapshot)
    again = DecisionState.from_snapshot(snapshot)
    for one, of_term in ((state, places), (again, again.places.terms[3])):
        one.apply_command(of_term, Trim(7, ((0, 2**63), (6, 2**63)), True), time_ms=10**9)
        one.apply_command(of_term, Trim(8, ((5, 2**63),), False), time_ms=10**9)
        batch = make_batch(RunSpec(7, ALICE, 13, (RecordSpec(tags=(5,)),) * 3))
        one.apply_entry(of_term, batch, shard=0, entry=4, time_ms=10**9)
    assert plain(snapshot) == before
    assert plain(state.snapshot_state()) != before


def test_rows_are_given_as_runs_oldest_first_and_it_is_known_which_are_dead() -> None:
    state, _ = filled()
    snapshot = state.snapshot_state()
    rows = [rows.seqnums for rows in snapshot.rows]
    assert all(one.max() < other.min() for one, other in pairwise(rows))
    dead = sum(run.dead for run in state.index.frozen())
    assert sum(map(len, rows)) - dead == sum(map(len, state.index.streams().values()))
    again = DecisionState.from_snapshot(snapshot)
    assert sum(run.dead for run in again.index.frozen()) == dead > 0
    assert snapshot.marks.tags.tolist() == [5]
    assert (snapshot.records, snapshot.terms[0].end_pos, snapshot.terms[0].live) == (24, 24, state.places.terms[3].live)


def test_columns_have_the_types_that_a_file_has() -> None:
    state, _ = filled()
    snapshot = state.snapshot_state()
    assert [column.dtype.name for column in snapshot.rows[0]] == ["uint64", "uint64", "uint32", "uint64", "uint8"]
    assert [column.dtype.name for column in snapshot.terms[0][-7:]] == [
        *("uint64", "uint32", "uint64", "int64", "uint64", "uint64", "uint64")
    ]
    assert snapshot.writers.books.tolist() == [7, 8]
    assert snapshot.writers.ids == ALICE + BOB
    assert snapshot.writers.crc_counts.tolist() == [0, 12]
    assert all(column.dtype.byteorder in "<=|" for rows in snapshot.rows for column in rows)


def test_an_empty_state_has_a_snapshot_too() -> None:
    again = DecisionState.from_snapshot(DecisionState().snapshot_state())
    assert (again.records, len(again.index), len(again.verdicts.writers), again.places.terms) == (0, 0, 0, {})


def test_a_book_that_comes_after_a_restart_is_known_like_those_before() -> None:
    state, _ = filled()
    again = DecisionState.from_snapshot(state.snapshot_state())
    batch = make_batch(RunSpec(9, ALICE, 1, (RecordSpec(),)))
    again.apply_entry(again.places.terms[3], batch, shard=0, entry=4, time_ms=10**9)
    assert again.index.count_books() == 3


def test_named_writers_are_counted_again() -> None:
    state, _ = filled()
    again = DecisionState.from_snapshot(state.snapshot_state())
    assert again.verdicts.expire(8, BOB, again.verdicts.last(8, BOB))
    assert again.verdicts.admits(8, BOB)


def test_writers_are_ascending_by_book_and_id_with_their_answers_and_come_back() -> None:
    state = DecisionState()
    places = begin(state, 3, log=1)
    ids_of_writers = [bytes([255 - number, number]) * 8 for number in range(40)]
    plain_runs = [RunSpec(9 - number % 3, writer, 1, (RecordSpec(),)) for number, writer in enumerate(ids_of_writers)]
    conflicts = (RecordSpec(tags=(5,)), RecordSpec(expect=((5, 0),)), RecordSpec())
    runs = (*plain_runs, RunSpec(8, ALICE, 1, conflicts), RunSpec(8, BOB, 1, conflicts, flags=RUN_NAMED))
    state.apply_entry(places, make_batch(*runs), shard=0, entry=0, time_ms=1_000)
    assert (len(state.verdicts.writers.rows), len(state.verdicts.writers.states)) == (40, 2)
    snapshot = state.snapshot_state()
    writers = snapshot.writers
    found = [(int(book), writers.ids[16 * at : 16 * at + 16]) for at, book in enumerate(writers.books)]
    assert found == sorted((run.book, run.writer) for run in runs)
    assert writers.kept_counts.tolist() == [3 if writer in (ALICE, BOB) else 1 for _, writer in found]
    again = DecisionState.from_snapshot(snapshot)
    assert again.verdicts.state() == state.verdicts.state()
    assert len(again.verdicts.writers.rows) == 40
