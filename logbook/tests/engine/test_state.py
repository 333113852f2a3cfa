"""The decided state: entries give rows, places, losers and writers, the same from one log wherever it is applied."""

from __future__ import annotations

from boki_common import ids
from boki_common.engine_protocol import Verdict
from boki_logbook.places import ShardPlace, TermPlaces
from boki_logbook.state import DecisionState
from boki_logbook.testing import RecordSpec, RunSpec, make_batch

ALICE = b"alice".ljust(16, b"\0")
BOOK = 7
ALL_SLOTS = ((0, 1023),)


def begun(state: DecisionState, term: int = 1) -> TermPlaces:
    """A term with one shard in one ledger."""
    places = state.begin_term(term, 0, ALL_SLOTS)
    places.shards[0] = ShardPlace(term, 0, 100 + term, "e")
    return places


def test_an_entry_gives_rows_places_losers_and_a_writer() -> None:
    state = DecisionState()
    places = begun(state)
    batch = make_batch(RunSpec(BOOK, ALICE, 1, (RecordSpec(tags=(5,)), RecordSpec(expect=((5, 0),)), RecordSpec())))
    decision = state.apply_entry(places, batch, shard=0, entry=0, time_ms=40)
    first = ids.seqnum(1, 0)
    assert [answer.verdict for answer in decision.answers] == [Verdict.COMMITTED, Verdict.CONFLICT, Verdict.COMMITTED]
    assert state.index.streams() == {(BOOK, 0): [first, first + 2], (BOOK, 5): [first]}
    assert places.losers() == [(1, 2)]
    assert (state.records, places.end_pos) == (3, 3)
    assert state.places.locate(first + 2).time_ms == 40
    assert state.writer_last(BOOK, ALICE) == 3
    assert state.newest(BOOK, 5) == first


def test_positions_go_on_from_entry_to_entry_and_begin_anew_with_a_term() -> None:
    state = DecisionState()
    for term in (1, 4):
        places = begun(state, term)
        for entry in range(2):
            number = 1 + state.records
            batch = make_batch(RunSpec(BOOK, ALICE, number, (RecordSpec(),) * 2))
            state.apply_entry(places, batch, shard=0, entry=entry, time_ms=term)
    assert state.index.streams() == {(BOOK, 0): [ids.seqnum(term, pos) for term in (1, 4) for pos in range(4)]}
    assert state.places.terms[4].slots == ALL_SLOTS
    assert state.writer_last(BOOK, ALICE) == 8
