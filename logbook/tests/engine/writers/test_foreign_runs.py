"""Entries of a log are held to the slots of their term: what else they have joins nothing, the same on every engine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common import ids
from boki_common.engine.engine_protocol import Verdict
from boki_common.records.numpy_pays import FEW_RUNS
from boki_common.records.record_batch import RUN_END, RUN_NAMED, RUN_VOID, RecordBatch
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch
from boki_logbook.testing.plans import begin
from boki_logbook.writers.foreign_runs import BOOKS, SlotGuard
from boki_metalog.entries.metalog_entry import Command, Expire, Trim
from boki_metalog.terms.term_order import ALL_SLOTS, slot_mask

HALVES = (((0, 511),), ((512, 1023),))
"""The slots of two logs; log n is in term n + 1."""
BY_LOG = [
    [book for book in range(1, 40) if any(low <= ids.slot_of(book) <= high for low, high in half)][:2]
    for half in HALVES
]
OTHERS = sorted(book for books in BY_LOG for book in books)
WRITERS = tuple(bytes([number]) * 16 for number in (1, 2))
SOME = sum(1 << slot for slot in sorted({ids.slot_of(BY_LOG[0][0]), ids.slot_of(BY_LOG[1][0])}))
RECORDS = (RecordSpec(tags=(1, 2)), RecordSpec(tags=(2,)), RecordSpec())

Step = list[RunSpec] | Command
Steps = Sequence[tuple[int, Step]]
"""What two logs order, each by itself in this order: (log, entry or command)."""

runs = st.builds(
    lambda book, writer, first, count, expect, flags: RunSpec(
        book, WRITERS[writer], first, tuple(one._replace(expect=expect) for one in RECORDS[:count]), flags=flags
    ),
    st.sampled_from(OTHERS),
    st.integers(0, 1),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([(), ((1, 0),), ((2, 2**40),)]),
    st.sampled_from([0, 0, 0, RUN_NAMED, RUN_VOID, RUN_END]),
)
commands = st.one_of(
    st.builds(
        lambda book, tag, forget: Trim(book, ((tag, 2**62),), forget),
        st.sampled_from(OTHERS),
        st.integers(0, 2),
        st.booleans(),
    ),
    st.builds(
        lambda book, writer, last: Expire(book, WRITERS[writer], last),
        st.sampled_from(OTHERS),
        st.integers(0, 1),
        st.integers(1, 4),
    ),
)
steps = st.lists(st.tuples(st.integers(0, 1), st.one_of(st.lists(runs, min_size=1, max_size=4), commands)), max_size=14)


class Engine:
    """Applies the two logs."""

    def __init__(self, state: DecisionState | None = None, slots: int = ALL_SLOTS) -> None:
        self.state = DecisionState(tail_rows=3, slots=slots) if state is None else state
        if state is None:
            for log, slots_of in enumerate(HALVES):
                begin(self.state, log + 1, log=log, slots=slots_of)

    def apply(self, log: int, step: Step) -> None:
        places = self.state.places.terms[log + 1]
        if isinstance(step, list):
            self.state.apply_entry(places, make_batch(*step), shard=0, entry=places.shards[0].entries, time_ms=60_000)
        else:
            self.state.apply_command(places, step, time_ms=60_000 * 10**4)

    def apply_all(self, steps: Steps) -> None:
        for log, step in steps:
            self.apply(log, step)

    def known(self) -> list[object]:
        """Everything that can be asked, and the digests of all positions and losers."""
        state = self.state
        return [
            state.index.streams(),
            state.verdicts.state(),
            [(state.index.mark(book, tag), state.index.newest(book, tag)) for book in OTHERS for tag in range(3)],
            [state.verdicts.floor(book) for book in OTHERS],
            [(places.end_pos, places.live, places.losers(), places.counts) for places in state.places.terms.values()],
        ]


def merged(steps: Steps, first: Sequence[bool]) -> Steps:
    """Another order of what two logs order: which log is next where both have something."""
    logs = [[one for one in steps if one[0] == log] for log in (0, 1)]
    choices = iter(first)
    found = []
    while logs[0] or logs[1]:
        log = 0 if not logs[1] or (logs[0] and next(choices, True)) else 1
        found.append(logs[log].pop(0))
    return found


@given(steps, st.lists(st.booleans(), max_size=14), st.integers(0, 14))
def test_engines_that_apply_the_logs_in_any_order_know_the_same(
    steps: Steps, first: Sequence[bool], snapshot_at: int
) -> None:
    """One goes log by log, another as it comes, a third begins from a snapshot of that."""
    one, other = Engine(), Engine()
    one.apply_all(steps)
    again = merged(steps, first)
    other.apply_all(again[:snapshot_at])
    loaded = Engine(DecisionState.from_snapshot(other.state.snapshot_state(), tail_rows=3))
    other.apply_all(again[snapshot_at:])
    loaded.apply_all(again[snapshot_at:])
    assert one.known() == other.known() == loaded.known()


@given(steps)
def test_a_book_is_as_if_its_own_log_were_the_only_one(steps: Steps) -> None:
    whole = Engine()
    whole.apply_all(steps)
    for log in (0, 1):
        alone = Engine()
        alone.apply_all([one for one in steps if one[0] == log])
        for book in BY_LOG[log]:
            assert [whole.state.index.newest(book, tag) for tag in range(3)] == [
                alone.state.index.newest(book, tag) for tag in range(3)
            ]
            assert [whole.state.verdicts.last(book, one) for one in WRITERS] == [
                alone.state.verdicts.last(book, one) for one in WRITERS
            ]
            of_book = {key: rows for key, rows in whole.state.index.streams().items() if key[0] == book}
            assert of_book == {key: rows for key, rows in alone.state.index.streams().items() if key[0] == book}


@given(steps)
def test_an_engine_of_some_slots_knows_of_these_what_an_engine_of_all_knows(steps: Steps) -> None:
    whole, some = Engine(), Engine(slots=SOME)
    whole.apply_all(steps)
    some.apply_all(steps)
    own = [book for book in OTHERS if SOME >> ids.slot_of(book) & 1]
    assert some.state.index.streams() == {
        key: rows for key, rows in whole.state.index.streams().items() if key[0] in own
    }
    assert some.state.verdicts.state() == {
        key: known for key, known in whole.state.verdicts.state().items() if key[0] in own
    }


def one_run(book: int, first: int = 1, flags: int = 0) -> RunSpec:
    return RunSpec(book, WRITERS[0], first, RECORDS, flags=flags)


@pytest.mark.parametrize("flags", [0, RUN_NAMED])
def test_a_foreign_run_keeps_its_positions_and_joins_nothing(flags: int) -> None:
    engine, (own, foreign) = Engine(), (BY_LOG[0][0], BY_LOG[1][0])
    batch = make_batch(one_run(own, flags=flags), one_run(foreign, flags=flags), one_run(own, 4, flags))
    places = engine.state.places.terms[1]
    decision = engine.state.apply_entry(places, batch, shard=0, entry=0, time_ms=1)
    assert [(one.run, one.verdict, one.first_seqnum) for one in decision.answers] == [
        (0, Verdict.COMMITTED, ids.seqnum(1, 0)),
        (1, Verdict.GAP, 0),
        (2, Verdict.COMMITTED, ids.seqnum(1, 6)),
    ]
    assert (places.end_pos, places.live, places.losers()) == (9, 6, [(3, 6)])
    assert engine.state.verdicts.last(own, WRITERS[0]) == 6 and engine.state.verdicts.last(foreign, WRITERS[0]) == 0
    (reported,) = engine.state.foreign
    assert reported[:5] == (1, 0, 0, 3, foreign) and f"slot {ids.slot_of(foreign)}" in str(reported)


def many(*books: int) -> RecordBatch:
    """More runs than are looked at one by one, each of another writer."""
    return make_batch(
        *(
            RunSpec(books[at % len(books)], at.to_bytes(16, "little"), 1, (RecordSpec(tags=(1,)),))
            for at in range(FEW_RUNS + 9)
        )
    )


def test_of_many_runs_the_foreign_ones_join_nothing() -> None:
    engine, (own, foreign) = Engine(), (BY_LOG[0][0], BY_LOG[1][0])
    places = engine.state.places.terms[1]
    decision = engine.state.apply_entry(places, many(own, foreign), shard=0, entry=0, time_ms=1)
    assert [one.verdict for one in decision.answers[:4]] == [Verdict.COMMITTED, Verdict.GAP] * 2
    assert {book for book, _ in engine.state.index.streams()} == {own}
    assert {book for book, _ in engine.state.verdicts.state()} == {own}


def test_many_runs_that_belong_there_are_decided_by_columns() -> None:
    engine, own = Engine(), BY_LOG[0]
    places = engine.state.places.terms[1]
    for entry in range(2):
        decision = engine.state.apply_entry(places, many(*own), shard=0, entry=entry, time_ms=1)
        assert decision.all_committed(FEW_RUNS + 9) or entry
    assert not engine.state.foreign


def test_where_one_term_orders_all_slots_nothing_is_looked_at() -> None:
    state = DecisionState()
    assert state._guard(state.begin_term(1, 0, ((0, 1023),))) is None


def test_a_term_without_slots_orders_no_record() -> None:
    state = DecisionState()
    places = begin(state, 1, slots=())
    state.apply_entry(places, make_batch(one_run(7)), shard=0, entry=0, time_ms=1)
    assert not state.index.streams() and places.end_pos == 3 and places.live == 0


def test_commands_about_books_of_other_slots_change_nothing() -> None:
    engine, foreign = Engine(), BY_LOG[1][0]
    engine.apply(1, [one_run(foreign)])
    before = engine.known()
    places = engine.state.places.terms[1]
    for command in (Trim(foreign, ((0, 2**62),), False), Expire(foreign, WRITERS[0], 3)):
        assert engine.state.apply_command(places, command, time_ms=1) == set()
    assert engine.known() == before


def test_what_is_known_to_belong_there_is_bounded() -> None:
    guard = SlotGuard(slot_mask(HALVES[0]))
    guard._known.update(range(10**6, 10**6 + BOOKS + 1))
    assert not guard.foreign(make_batch(one_run(BY_LOG[0][0])))
    assert guard._known == {BY_LOG[0][0]}
    assert guard.foreign(make_batch(one_run(BY_LOG[0][0]), one_run(BY_LOG[1][0]))) == [1]
