"""An engine of some slots has of these what an engine of all has, and nothing else; after a snapshot too."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from boki_common import ids
from boki_common.records.record_batch import RUN_END, RUN_NAMED, RUN_VOID
from boki_logbook.index.index import Index
from boki_logbook.index.index_tail import BATCH_START
from boki_logbook.state.some_slots import indexed
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch
from boki_logbook.testing.plans import begin
from boki_metalog.entries.metalog_entry import Command, Expire, Trim

WRITERS = tuple(bytes([n]) * 16 for n in range(1, 3))
BOOKS = range(1, 7)
SOME = sum(1 << slot for slot in sorted({ids.slot_of(book) for book in (1, 3, 4)}))
OWN = [book for book in BOOKS if indexed(book, SOME)]

runs = st.builds(
    lambda book, writer, first, count, tags, expect, flags: RunSpec(
        book,
        WRITERS[writer],
        first,
        tuple(RecordSpec(tags=tags, expect=expect if not at else ()) for at in range(count)),
        flags=flags,
    ),
    st.sampled_from(BOOKS),
    st.integers(0, 1),
    st.integers(1, 4),
    st.integers(1, 3),
    st.lists(st.integers(1, 3), max_size=2, unique=True).map(tuple),
    st.sampled_from([(), ((1, 0),), ((2, 2**40),)]),
    st.sampled_from([0, RUN_NAMED, RUN_VOID, RUN_END]),
)
commands = st.one_of(
    st.builds(lambda book, tag, forget: Trim(book, ((tag, 2**62),), forget), st.sampled_from(BOOKS), st.integers(0, 3), st.booleans()),
    st.builds(lambda book, writer, last: Expire(book, WRITERS[writer], last), st.sampled_from(BOOKS), st.integers(0, 1), st.integers(1, 4)),
)  # fmt: skip


def own_part(state: DecisionState) -> list[object]:
    """Everything that can be asked about books of these slots."""
    streams = {key: rows for key, rows in state.index.streams().items() if key[0] in OWN}
    return [
        streams,
        {key: rest for key, rest in state.verdicts.state().items() if key[0] in OWN},
        [
            (state.index.mark(book, tag), state.index.newest(book, tag), state.verdicts.floor(book))
            for book in OWN
            for tag in range(4)
        ],
        state.records,
        [place.end_pos for place in state.places.terms.values()],
    ]


@given(st.lists(st.one_of(st.lists(runs, min_size=1, max_size=4), commands), max_size=12), st.integers(0, 12))
def test_what_is_known_of_own_slots_is_what_an_engine_of_all_knows(
    steps: list[list[RunSpec] | Command], at: int
) -> None:
    whole, some = DecisionState(tail_rows=3), DecisionState(tail_rows=3, slots=SOME)
    states = {id(state): (state, begin(state, 1)) for state in (whole, some)}
    entry = 0
    for number, step in enumerate(steps):
        if number == at:
            loaded = DecisionState.from_snapshot(whole.snapshot_state(), tail_rows=3, slots=SOME)
            states[id(loaded)] = loaded, loaded.places.terms[1]
        for state, places in states.values():
            if isinstance(step, list):
                state.apply_entry(places, make_batch(*step), shard=0, entry=entry, time_ms=60_000 * entry)
            else:
                state.apply_command(places, step, time_ms=60_000 * 10**4)
        entry += isinstance(step, list)
    for state, _ in states.values():
        assert own_part(state) == own_part(whole)
        if state is not whole:
            assert all(indexed(book, SOME) for book, _ in state.index.streams())
            assert all(indexed(book, SOME) for book, _ in state.verdicts.writers)
            assert all(indexed(book, SOME) for book in [*state.index.book_marks, *state.verdicts.floors])
            assert all(indexed(book, SOME) for book in state.index.marks.columns().books.tolist())


def test_places_of_own_records_are_where_they_are_among_the_others() -> None:
    state = DecisionState(slots=SOME)
    places = begin(state, 1)
    foreign = next(book for book in BOOKS if book not in OWN)
    three = (RecordSpec(tags=(5,)),) * 3
    batch = make_batch(RunSpec(foreign, WRITERS[0], 1, three), RunSpec(OWN[0], WRITERS[0], 1, three))
    decision = state.apply_entry(places, batch, shard=0, entry=0, time_ms=40)
    first = ids.seqnum(1, 3)
    assert state.index.streams() == {(OWN[0], tag): [first, first + 1, first + 2] for tag in (0, 5)}
    assert decision.losers == [(0, 3)]
    assert state.places.locate(first).first_seqnum == ids.seqnum(1, 0)
    assert places.live == 3, "the term is let go of when the own records are dead"


def test_a_batch_may_join_its_streams_part_by_part() -> None:
    batch = make_batch(
        *(
            RunSpec(book, WRITERS[0], 1, (RecordSpec(tags=(5, 6)), RecordSpec(), RecordSpec(tags=(5,))))
            for book in BOOKS
        )
    )
    whole, parts = Index(), Index()
    whole.add(batch, 0, 18, 100)
    at = BATCH_START
    for first, stop in ((0, 1), (1, 3), (3, 7), (7, 8), (8, 17), (17, 18)):
        at = parts.add(batch, first, stop, 100, at)
        assert at.record <= stop
    assert parts.streams() == whole.streams() and at.run == len(BOOKS)
    ahead = parts.add(make_batch(RunSpec(9, WRITERS[0], 1, (RecordSpec(),) * 2)), 1, 2, 200)
    assert parts.streams()[9, 0] == [201] and ahead == (1, 2, 0)
    assert np.uint64(201) == parts.newest(9, 0)
