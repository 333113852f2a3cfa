"""The decided state: entries give rows, places, losers and writers, the same from one log wherever it is applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from boki_common import ids, limits
from boki_common.engine.engine_protocol import NEWEST_FORGOTTEN, Verdict
from boki_common.records.record_batch import RUN_NAMED, RecordBatch
from boki_logbook.index.places import TermPlaces
from boki_logbook.state.state import DecisionState, StateDisagrees
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch
from boki_logbook.testing.plans import begin
from boki_logbook.writers.writers import Actual
from boki_metalog.entries.metalog_entry import Command, Expire, Lost, Trim

ALICE = b"alice".ljust(16, b"\0")
BOOK = 7
ALL_SLOTS = ((0, 1023),)


@pytest.fixture
def state() -> DecisionState:
    return DecisionState()


@pytest.fixture
def places(state: DecisionState) -> TermPlaces:
    """Of its first term, which has one shard."""
    return begin(state, 1)


def test_an_entry_gives_rows_places_losers_and_a_writer(state: DecisionState, places: TermPlaces) -> None:
    batch = make_batch(RunSpec(BOOK, ALICE, 1, (RecordSpec(tags=(5,)), RecordSpec(expect=((5, 0),)), RecordSpec())))
    decision = state.apply_entry(places, batch, shard=0, entry=0, time_ms=40)
    first = ids.seqnum(1, 0)
    assert [answer.verdict for answer in decision.answers] == [Verdict.COMMITTED, Verdict.CONFLICT, Verdict.COMMITTED]
    assert state.index.streams() == {(BOOK, 0): [first, first + 2], (BOOK, 5): [first]}
    assert places.losers() == [(1, 2)]
    assert (state.records, places.end_pos) == (3, 3)
    assert state.places.locate(first + 2).time_ms == 40
    assert state.verdicts.last(BOOK, ALICE) == 3
    assert state.index.newest(BOOK, 5) == first


def test_positions_go_on_from_entry_to_entry_and_begin_anew_with_a_term() -> None:
    state = DecisionState()
    for term in (1, 4):
        places = begin(state, term)
        for entry in range(2):
            number = 1 + state.records
            batch = make_batch(RunSpec(BOOK, ALICE, number, (RecordSpec(),) * 2))
            state.apply_entry(places, batch, shard=0, entry=entry, time_ms=term)
    assert state.index.streams() == {(BOOK, 0): [ids.seqnum(term, pos) for term in (1, 4) for pos in range(4)]}
    assert state.places.terms[4].slots == ALL_SLOTS
    assert state.verdicts.last(BOOK, ALICE) == 8


@pytest.mark.parametrize(
    "following",
    [
        lambda state, places: state.index_decided(),
        lambda state, places: append(state, places, RecordSpec((5,), b"", ((5, places.first_seqnum),))),
        lambda state, places: state.apply_command(places, Trim(BOOK, ((5, 2**62),), False), time_ms=1),
        lambda state, places: state.pass_over(places, 2, shard=0, first_entry=1, stop_entry=3, time_ms=1),
        lambda state, places: state.end_term(places.term),
        lambda state, places: state.begin_term(4, 0, ALL_SLOTS),
    ],
)
def test_what_is_decided_joins_before_anything_else_happens(following: Callable[[Any, Any], object]) -> None:
    run = RunSpec(BOOK, ALICE, 1, (RecordSpec(tags=(5,)),))
    batch = make_batch(run, run)  # the second one is a duplicate, and loses
    summaries = []
    for decided_only in (False, True):
        state = DecisionState()
        places = begin(state, 1)
        apply = state.decide_entry if decided_only else state.apply_entry
        apply(places, batch, shard=0, entry=0, time_ms=0)
        assert len(state.index) == (0 if decided_only else 2)
        following(state, places)
        summaries.append(
            (
                state.index.streams(),
                state.verdicts.state(),
                places.losers(),
                places.counts,
                places.live,
                len(state.index),
            )
        )
    assert summaries[0] == summaries[1]


def append(
    state: DecisionState, places: TermPlaces, *records: RecordSpec, book: int = BOOK, time_ms: int = 0
) -> list[int]:
    """Records of one more entry; returns the seqnums they would have."""
    first = state.verdicts.last(book, ALICE) + 1
    start = places.end_pos
    batch = make_batch(RunSpec(book, ALICE, first, records))
    state.apply_entry(places, batch, shard=0, entry=places.entry_count, time_ms=time_ms)
    return [ids.seqnum(places.term, start + at) for at in range(len(records))]


def tagged(*tags: int) -> RecordSpec:
    return RecordSpec(tags=tags)


def trim(
    state: DecisionState, places: TermPlaces, *pairs: tuple[int, int], forget: bool = False, time_ms: int = 0
) -> None:
    assert state.apply_command(places, Trim(BOOK, pairs, forget), time_ms=time_ms) == {BOOK}


HOUR_MS = 3_600_000
FOR_EVER = 2**63 - 1


def test_a_trim_of_the_future_kills_nothing_that_comes_later(state: DecisionState, places: TermPlaces) -> None:
    trim(state, places, (5, FOR_EVER), (0, FOR_EVER))
    (first,) = append(state, places, tagged(5))
    trim(state, places, (0, first), (5, FOR_EVER))
    (second,) = append(state, places, tagged(5))
    assert state.index.streams() == {(BOOK, 0): [second], (BOOK, 5): [second]}
    assert (state.index.mark(BOOK, 5), state.index.mark(BOOK, 0)) == (first + 1, first)
    assert state.index.newest(BOOK, 5) == second


def test_a_trim_of_4096_streams_is_one_command() -> None:
    state = DecisionState(tail_rows=5_000)
    places = begin(state, 1)
    tags = range(1, limits.TRIM_PAIRS + 1)
    seqnums = append(state, places, *(tagged(tag, 1 + tag % limits.TRIM_PAIRS) for tag in tags))
    trim(state, places, *((tag, FOR_EVER) for tag in tags if tag != 9))
    assert state.index.streams() == {(BOOK, 0): seqnums[7:9], (BOOK, 9): seqnums[7:9]}
    assert places.live == 2
    with pytest.raises(AssertionError):
        trim(state, places, *((tag, 1) for tag in range(limits.TRIM_PAIRS + 1)))


def test_an_expectation_still_fails_when_the_record_it_fails_on_is_trimmed(
    state: DecisionState, places: TermPlaces
) -> None:
    (first,) = append(state, places, tagged(5))
    trim(state, places, (5, FOR_EVER))
    assert state.index.streams() == {}
    losing = append(state, places, RecordSpec(expect=((5, first - 1),)), RecordSpec(expect=((5, 0),)))
    assert state.index.streams() == {}
    assert places.losers() == [(1, 3)], losing


def test_forget_takes_emptied_streams_that_are_over_an_hour_old(state: DecisionState, places: TermPlaces) -> None:
    old, newer = append(state, places, tagged(5), tagged(6))
    (young,) = append(state, places, tagged(7), time_ms=120_000)
    trim(state, places, (5, FOR_EVER), (7, FOR_EVER), forget=True, time_ms=HOUR_MS)
    assert (state.index.newest(BOOK, 5), state.verdicts.floor(BOOK)) == (old, 0)
    trim(state, places, (5, FOR_EVER), (6, newer), (7, FOR_EVER), forget=True, time_ms=HOUR_MS + 60_000)
    assert [state.index.newest(BOOK, tag) for tag in (5, 6, 7)] == [0, newer, young]
    assert state.verdicts.floor(BOOK) == old
    assert state.would_fail(BOOK, [(5, old - 1), (6, newer)]) == ((5, NEWEST_FORGOTTEN), (6, newer))
    (again,) = append(state, places, RecordSpec(tags=(5,), expect=((5, 0),)))
    assert state.index.streams()[BOOK, 5] == [again]


def test_a_book_is_forgotten_as_a_whole_once_nothing_of_it_lives(state: DecisionState, places: TermPlaces) -> None:
    append(state, places, tagged(5))
    (second,) = append(state, places, tagged(6))
    trim(state, places, (0, second), forget=True, time_ms=3 * HOUR_MS)
    assert state.index.newest(BOOK, 5) > 0
    trim(state, places, (0, FOR_EVER), forget=True, time_ms=3 * HOUR_MS)
    assert [state.index.newest(BOOK, tag) for tag in (0, 5, 6)] == [0, 0, 0]
    assert (state.verdicts.floor(BOOK), state.index.mark(BOOK, 0)) == (second, second + 1)
    assert state.index.count_books() == 0


def test_an_early_conflict_is_one_that_stands_for_ever(state: DecisionState, places: TermPlaces) -> None:
    (first,) = append(state, places, tagged(5))
    assert state.would_fail(BOOK, [(5, first - 1), (6, 0)]) == ((5, first), (6, 0))
    assert state.would_fail(BOOK, [(5, first), (6, 0)]) is None
    assert state.would_fail(BOOK, [(5, 0)]) is None, "it holds again once the stream is forgotten"
    assert state.would_fail(BOOK, []) is None


def test_a_term_without_live_records_is_needed_no_more_and_lets_go_of_its_rows(
    state: DecisionState, places: TermPlaces
) -> None:
    (first,) = append(state, places, tagged(5), time_ms=90_000)
    assert state.live(1) and state.live(77)
    later = begin(state, 2)
    append(state, later, tagged(5))
    assert places.over and state.live(1)
    trim(state, later, (5, first + 1))
    assert not state.live(1) and state.live(2)
    assert (places.entry_count, state.places.minute(first)) == (0, 1)
    assert places.counts[:4] == places.shards[0].counts[:4] == (1, 1, 1, 2)


def test_a_term_that_dies_before_it_is_over_lets_go_of_its_rows_when_it_ends(
    state: DecisionState, places: TermPlaces
) -> None:
    append(state, places, tagged(5))
    trim(state, places, (0, FOR_EVER))
    assert state.live(1) and places.entry_count == 1
    state.end_term(1)
    assert not state.live(1) and places.entry_count == 0
    empty = begin(state, 2)
    state.end_term(2)
    assert (state.live(2), empty.counts, empty.end_pos) == (False, (0, 0, 0, 0, 0), 0)


def test_an_expire_drops_the_writer_unless_it_went_on(state: DecisionState, places: TermPlaces) -> None:
    append(state, places, tagged(), tagged())
    assert state.apply_command(places, Expire(BOOK, ALICE, 1), time_ms=0) == set()
    assert state.verdicts.last(BOOK, ALICE) == 2
    assert state.apply_command(places, Expire(BOOK, ALICE, 2), time_ms=0) == {BOOK}
    assert state.verdicts.last(BOOK, ALICE) == 0


def test_lost_entries_are_known_by_the_records_they_had(state: DecisionState, places: TermPlaces) -> None:
    (first,) = append(state, places, tagged(5))
    assert state.apply_command(places, Lost(1, 0, 0, 1, b"{}", True), time_ms=0) == set()
    assert state.apply_command(places, Lost(9, 0, 0, 1, b"{}"), time_ms=0) == set()
    assert state.places.evidence(first) == b"{}"
    state.pass_over(places, 3, shard=0, first_entry=1, stop_entry=3, time_ms=0)
    assert (places.losers(), places.end_pos, places.live) == ([(1, 4)], 4, 1)
    assert state.places.lost_spans(BOOK, 0, FOR_EVER) == [(first + 1, first + 4)]
    assert state.places.lost_spans(BOOK, first + 2, first + 3) == [(first + 2, first + 3)]
    assert state.apply_command(places, Lost(1, 0, 1, 3, b"{}"), time_ms=0) == set()
    append(state, places, tagged(5))
    with pytest.raises(StateDisagrees, match="entries 1 to below 4"):
        state.apply_command(places, Lost(1, 0, 1, 4, b"{}"), time_ms=0)


# -- engines and restarts agree


def everything(state: DecisionState, keys: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """All that may be asked, as plain values."""
    return {
        "records": state.records,
        "rows": state.index.streams(),
        "marks": [state.index.mark(*key) for key in keys],
        "newest": [state.index.newest(*key) for key in keys],
        "floors": state.verdicts.floors,
        "writers": state.verdicts.state(),
        "terms": [
            (
                term,
                one.log,
                one.end_pos,
                one.last_time_ms,
                [(shard.ledger_id, shard.counts) for shard in one.shards.values()],
            )
            for term, one in state.places.terms.items()
        ],
        "live": [(term, places.live, state.live(term), places.losers()) for term, places in state.places.terms.items()],
        "places": [state.places.locate(seqnum) for seqnum in sorted(set(chain(*state.index.streams().values())))],
        "lost": [places.lost for places in state.places.terms.values()],
    }


class PlainRecord(NamedTuple):
    book: int
    seqnum: int
    tags: frozenset[int]


BOOKS = (BOOK, 2**64 - 1)
TAGS = (1, 2, 3, 2**64 - 3)
KEYS = [(book, tag) for book in BOOKS for tag in (0, *TAGS)]
WRITERS = {ALICE: 0, bytes(16): RUN_NAMED}
SOME_TAGS = st.lists(st.sampled_from(TAGS), max_size=3).map(tuple)


class Agreement(RuleBasedStateMachine):
    """Two engines whose rows lie in different parts, one of them now and then restarted from the other's snapshot, and a
    list of records with the tags that hold them."""

    @initialize()
    def start(self) -> None:
        self.states = [DecisionState(tail_rows=2), DecisionState()]
        self.records: list[PlainRecord] = []
        self.term = 0
        self.entry = 0
        self.time_ms = 0
        self.next_term()

    @rule()
    def next_term(self) -> None:
        self.term += 1
        self.entry = 0
        self.places = [begin(state, self.term) for state in self.states]

    @rule(minutes=st.sampled_from([0, 1, 30, 59, 60, 61, 300]))
    def wait(self, minutes: int) -> None:
        self.time_ms += 60_000 * minutes

    @rule(
        runs=st.lists(
            st.tuples(
                st.sampled_from(BOOKS), st.sampled_from(sorted(WRITERS)), st.lists(SOME_TAGS, min_size=1, max_size=4)
            ),
            min_size=1,
            max_size=3,
        ),
        again=st.sampled_from([0, 0, 1]),
        expect=st.lists(st.tuples(st.sampled_from((0, *TAGS)), st.integers(0, 40)), max_size=2),
    )
    def append(
        self, runs: list[tuple[int, bytes, list[tuple[int, ...]]]], again: int, expect: list[tuple[int, int]]
    ) -> None:
        specs, lasts = [], {(book, writer): self.states[0].verdicts.last(book, writer) for book, writer, _ in runs}
        for book, writer, tags in runs:
            first = max(lasts[book, writer] + 1 - again, 1)
            lasts[book, writer] = first + len(tags) - 1
            # Positions of this term, or of none.
            wanted = tuple((tag, ids.seqnum(self.term, at - 1) if at else 0) for tag, at in expect)
            records = [RecordSpec(tags=one, expect=wanted if not at else ()) for at, one in enumerate(tags)]
            specs.append(RunSpec(book, writer, first, tuple(records), 1, WRITERS[writer]))
        batch = make_batch(*specs)
        start = self.places[0].end_pos
        decisions = [
            state.apply_entry(places, batch, shard=0, entry=self.entry, time_ms=self.time_ms)
            for state, places in zip(self.states, self.places, strict=True)
        ]
        assert decisions[0].answers == decisions[1].answers
        assert decisions[0].losers == decisions[1].losers
        self.entry += 1
        self.joined(batch, start, decisions[0].losers)

    def joined(self, batch: RecordBatch, start: int, losers: list[tuple[int, int]]) -> None:
        lost = {record for first, stop in losers for record in range(first, stop)}
        books = [run.book for run in batch.runs for _ in range(run.count)]
        for record, book in enumerate(books):
            if record not in lost:
                tags = frozenset(batch.record_tags(record).tolist())
                self.records.append(PlainRecord(book, ids.seqnum(self.term, start + record), tags))

    @rule(
        book=st.sampled_from(BOOKS),
        pairs=st.lists(st.tuples(st.sampled_from((0, *TAGS)), st.integers(0, 1_000)), min_size=1, max_size=3),
        forget=st.booleans(),
    )
    def trim(self, book: int, pairs: list[tuple[int, int]], forget: bool) -> None:
        seqnums = [0, *(record.seqnum for record in self.records), FOR_EVER]
        chosen = tuple((tag, seqnums[at % len(seqnums)]) for tag, at in pairs)
        self.command(Trim(book, chosen, forget))
        before = dict.fromkeys([tag for tag, _ in chosen], 0)
        for tag, mark in chosen:
            before[tag] = max(before[tag], mark)
        left = []
        for record in self.records:
            tags = frozenset(tag for tag in record.tags if record.seqnum >= before.get(tag, 0))
            dead = record.seqnum < before.get(0, 0) or (record.tags and not tags)
            if record.book != book:
                left.append(record)
            elif not dead:
                left.append(record._replace(tags=tags))
        self.records = left

    @rule(book=st.sampled_from(BOOKS), writer=st.sampled_from(sorted(WRITERS)), behind=st.sampled_from([0, 0, 1]))
    def expire(self, book: int, writer: bytes, behind: int) -> None:
        self.command(Expire(book, writer, max(self.states[0].verdicts.last(book, writer) - behind, 0)))

    def command(self, command: Command) -> None:
        touched = [
            state.apply_command(places, command, time_ms=self.time_ms)
            for state, places in zip(self.states, self.places, strict=True)
        ]
        assert touched[0] == touched[1]

    @rule(tail_rows=st.sampled_from([1, 5, 1_000]), twice=st.booleans())
    def restart(self, tail_rows: int, twice: bool) -> None:
        snapshot = self.states[0].snapshot_state()
        again = DecisionState.from_snapshot(snapshot, tail_rows=tail_rows)
        if twice:
            again = DecisionState.from_snapshot(again.snapshot_state(), tail_rows=tail_rows)
        self.states[1] = again
        self.places[1] = again.places.terms[self.term]

    @rule()
    def tidy(self) -> None:
        self.states[0].index.tidy()

    @rule(
        book=st.sampled_from(BOOKS),
        expect=st.lists(st.tuples(st.sampled_from((0, *TAGS)), st.integers(0, 40)), max_size=3),
    )
    def early(self, book: int, expect: list[tuple[int, int]]) -> None:
        wanted = [(tag, ids.seqnum(self.term, at - 1) if at else 0) for tag, at in expect]
        answers: list[Actual | None] = [state.would_fail(book, wanted) for state in self.states]
        assert answers[0] == answers[1]

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "states"):
            return
        assert everything(self.states[0], KEYS) == everything(self.states[1], KEYS)
        rows: dict[tuple[int, int], list[int]] = {}
        for record in self.records:
            for tag in (0, *record.tags):
                rows.setdefault((record.book, tag), []).append(record.seqnum)
        assert self.states[0].index.streams() == rows
        for term, places in self.states[0].places.terms.items():
            assert places.live == sum(ids.term_of(record.seqnum) == term for record in self.records)


TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
