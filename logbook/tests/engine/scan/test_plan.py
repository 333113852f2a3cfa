"""A plan against the state it was made of: random logs, books, tags, losers, trims and frozen runs."""

from __future__ import annotations

import random

import numpy as np
import pytest

from boki_common.errors import ProtocolError
from boki_common.ids import SEQNUM_MAX, pos_of, seqnum, term_of
from boki_logbook.scan.facts import COMMITTED, LIVE, ScanRange
from boki_logbook.scan.pages import Page, SpanOfTerm
from boki_logbook.scan.plan import PlanBuilder, clipped, count_of, united, without
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RecordSpec, RunSpec
from boki_logbook.testing.plans import apply, begin, committed_of, everything, plan_of, positions_of, seqnums_of
from boki_metalog.entries.metalog_entry import Lost, Trim

W = b"w".ljust(16, b"\0")
BOOKS = (7, 8, 2**64 - 1)
TAGS = (1, 2, 3)


class RandomLog:
    """A state that grows at random, and a plain list of what was committed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.state = DecisionState(tail_rows=self.rng.choice((8, 64, 4096)))
        self.places = begin(self.state, 1, shards=2)
        self.term = 1
        self.numbers = dict.fromkeys(BOOKS, 1)
        self.committed: list[int] = []

    def step(self) -> None:
        kind = self.rng.random()
        if kind < 0.7:
            self.append()
        elif kind < 0.85:
            self.trim()
        elif kind < 0.9:
            self.term += self.rng.randint(1, 3)
            self.places = begin(self.state, self.term, shards=2)
        elif kind < 0.95:
            self.state.index.freeze()
        else:
            self.state.index.tidy()

    def append(self) -> None:
        runs = []
        lost: list[int] = []
        at = self.places.end_pos
        for book in self.rng.sample(BOOKS, self.rng.randint(1, 3)):
            count = self.rng.randint(1, 5)
            records = tuple(
                RecordSpec(tuple(self.rng.sample(TAGS, self.rng.randint(0, 2))), b"x") for _ in range(count)
            )
            first = self.numbers[book]
            if first > 9 and self.rng.random() < 0.2:  # sent again: all of them are duplicates
                first -= count
                lost += range(at, at + count)
            else:
                self.numbers[book] += count
            runs.append(RunSpec(book, W, first, records, 1))
            at += count
        start = apply(self.state, self.places, *runs, shard=self.rng.randrange(2), time_ms=1_000 + len(self.committed))
        self.committed += [seqnum(self.term, pos) for pos in range(start, at) if pos not in lost]

    def trim(self) -> None:
        book = self.rng.choice(BOOKS)
        before = self.rng.choice(self.committed) if self.committed else 1
        tag = self.rng.choice((0, *TAGS))
        self.state.apply_command(self.places, Trim(book, ((tag, before),), self.rng.random() < 0.3), time_ms=10**9)

    def live(self, book: int | None, tags: tuple[int, ...], low: int, high: int) -> list[int]:
        books = BOOKS if book is None else (book,)
        found = [self.state.index.ascending(one, tag, low, high, 10**6) for one in books for tag in tags or (0,)]
        return sorted({row for rows in found for row in rows})


@pytest.mark.parametrize("seed", range(60))
def test_live_rows_are_those_that_readers_see(seed: int) -> None:
    log = RandomLog(seed)
    for _ in range(60):
        log.step()
    state, rng = log.state, log.rng
    for book in (None, *BOOKS):
        for tags in ((), (1,), (2, 3)):
            plan = plan_of(state, everything(state)._replace(book=book, tags=tags))
            assert seqnums_of(plan) == log.live(book, tags, 0, SEQNUM_MAX)
    for _ in range(10):
        low, high = sorted(rng.sample(log.committed, 2)) if len(log.committed) > 1 else (seqnum(1, 0), seqnum(1, 1))
        asked = ScanRange({0: (term_of(low), pos_of(low))}, {0: (term_of(high), pos_of(high))}, None, (1, 2))
        assert seqnums_of(plan_of(state, asked)) == log.live(None, (1, 2), low, high)
        alive = asked._replace(tags=())
        assert seqnums_of(plan_of(state, alive)) == log.live(None, (), low, high)


@pytest.mark.parametrize("seed", range(60))
def test_committed_rows_are_dead_ones_too_while_their_term_has_live_ones(seed: int) -> None:
    log = RandomLog(seed)
    for _ in range(60):
        log.step()
    plan = plan_of(log.state, everything(log.state), COMMITTED)
    gone = {one.term for one in plan.committed.terms if one.gone}
    assert seqnums_of(plan) == [row for row in log.committed if term_of(row) not in gone]
    assert plan.gone == sum(term_of(row) in gone for row in log.committed)
    assert plan.committed_rows == len(log.committed)


@pytest.mark.parametrize("seed", range(20))
def test_each_row_lies_in_the_entry_that_the_state_names(seed: int) -> None:
    log = RandomLog(seed)
    for _ in range(60):
        log.step()
    for term in plan_of(log.state, everything(log.state)).terms:
        places = log.state.places.terms[term.facts.term]
        entries = term.entries
        for pos in positions_of(term.rows):
            at = int(np.searchsorted(entries.first_positions, pos, "right")) - 1
            place = places.locate(pos)
            assert place is not None
            assert (place.ledger_id, place.entry) == (entries.ledgers[at], entries.entries[at])
            assert pos_of(place.stop_seqnum) == entries.stop_positions[at] and place.time_ms == entries.times[at]


def one_term(*counts: int) -> DecisionState:
    state = DecisionState()
    places = begin(state, 1)
    first = 1
    for count in counts:
        apply(state, places, RunSpec(7, W, first, (RecordSpec((5,), b"x"),) * count))
        first += count
    return state


def test_half_a_cut_is_not_planned() -> None:
    state = one_term(4, 4)  # the second entry belongs to a cut whose other entries are not here yet
    covered = {0: seqnum(1, 3)}
    assert committed_of(state, covered=covered).end == {0: (1, 4)}
    asked = ScanRange({}, {0: (1, 8)})
    for mode in (LIVE, COMMITTED):
        assert seqnums_of(plan_of(state, asked, mode, covered=covered)) == [seqnum(1, pos) for pos in range(4)]


def test_a_log_that_is_blocked_is_planned_as_far_as_it_is_and_others_whole() -> None:
    """An entry of log 1 is not here: what came of its cut waits for it, and nobody else does."""
    state = one_term(4, 4)
    blocked = begin(state, 2, log=1)
    for count in (3, 2):
        apply(state, blocked, RunSpec(8, W, 1 + blocked.end_pos, tuple(RecordSpec() for _ in range(count))))
    covered = {0: seqnum(1, 7), 1: seqnum(2, 2)}
    end = committed_of(state, covered=covered).end
    assert end == {0: (1, 8), 1: (2, 3)}
    shown = seqnums_of(plan_of(state, ScanRange({}, end), covered=covered))
    assert shown == [seqnum(1, pos) for pos in range(8)] + [seqnum(2, pos) for pos in range(3)]


def test_a_term_of_which_no_cut_is_applied_has_nothing_yet() -> None:
    state = one_term(4)
    places = begin(state, 3)
    apply(state, places, RunSpec(7, W, 5, (RecordSpec(),)))
    assert committed_of(state, covered={0: seqnum(1, 3)}).end == {0: (3, 0)}


def test_a_plan_begins_and_ends_in_the_middle_of_entries() -> None:
    state = one_term(4, 4, 4)
    (term,) = plan_of(state, ScanRange({0: (1, 2)}, {0: (1, 9)})).terms
    assert positions_of(term.rows) == list(range(2, 9))
    assert term.entries.first_positions.tolist() == [0, 4, 8] and term.entries.stop_positions.tolist() == [4, 8, 12]


def test_a_trimmed_and_forgotten_tag_leaves_what_other_tags_hold() -> None:
    state = DecisionState()
    places = begin(state, 1)
    apply(state, places, RunSpec(7, W, 1, (RecordSpec((5,)), RecordSpec((5, 6)), RecordSpec((6,)))))
    state.index.freeze()
    state.apply_command(places, Trim(7, ((5, SEQNUM_MAX),), True, 10**12), time_ms=10**12)
    assert state.index.mark(7, 5) == 0, "the mark is forgotten"
    asked = everything(state)
    assert seqnums_of(plan_of(state, asked._replace(tags=(5,)))) == []
    assert seqnums_of(plan_of(state, asked)) == [seqnum(1, 1), seqnum(1, 2)]


def test_what_lost_without_being_indexed_is_planned_with_its_evidence() -> None:
    state = DecisionState()
    places = begin(state, 1)
    state.pass_over(places, 4, shard=0, first_entry=0, stop_entry=1, time_ms=1_000)
    apply(state, places, RunSpec(7, W, 5, (RecordSpec(),) * 2))
    state.apply_command(places, Lost(1, 0, 0, 1, b"why", False), time_ms=1_000)
    plan = plan_of(state, everything(state), COMMITTED)
    assert seqnums_of(plan) == []  # numbers 5 and 6 follow a gap
    assert plan.lost == 4 and plan.terms[0].lost[0] == (0, 4, b"why") and not plan.terms[0].given_up


def test_entries_given_up_after_they_were_indexed_keep_their_rows() -> None:
    state = one_term(4, 4)
    places = state.places.terms[1]
    state.apply_command(places, Lost(1, 0, 1, 2, b"why", True), time_ms=1_000)
    (term,) = plan_of(state, everything(state)).terms
    assert term.row_count == 8 and term.given_up == ((4, 8, b"why"),) and not term.lost
    assert term.entries.given_up.tolist() == [False, True]


def test_a_term_all_of_whose_records_died_is_gone_for_streams() -> None:
    state = one_term(4)
    begin(state, 2)
    state.apply_command(state.places.terms[2], Trim(7, ((0, SEQNUM_MAX),), False), time_ms=1_000)
    plan = plan_of(state, everything(state), COMMITTED)
    assert (plan.rows, plan.gone) == (0, 4)
    assert plan_of(state, everything(state)).gone == 0, "of live rows nothing is missing"


def test_a_page_of_a_term_that_was_not_named_is_refused() -> None:
    builder = PlanBuilder(ScanRange({}, {}), LIVE)
    with pytest.raises(ProtocolError, match="did not name"):
        builder.take(Page(term=4))


def test_columns_of_different_lengths_are_refused() -> None:
    builder = PlanBuilder(ScanRange({}, {}), LIVE)
    builder.take(Page(spans=(SpanOfTerm(4, 0, 2, True, 2, ((0, 9, 2, 2),), (), ()),)))
    with pytest.raises(ProtocolError, match="column"):
        builder.take(Page(term=4, first_positions=bytes(8), entry_shards=bytes(2), entries=bytes(8), times=bytes(8)))


def test_spans_unite_cut_and_complement() -> None:
    spans = united(np.array([(9, 12), (0, 3), (2, 5), (20, 21)], np.uint64))
    assert spans.tolist() == [[0, 5], [9, 12], [20, 21]]
    assert clipped(spans, 4, 10).tolist() == [[4, 5], [9, 10]]
    assert without(0, 22, spans).tolist() == [[5, 9], [12, 20], [21, 22]]
    assert count_of(spans) == 9 and count_of(clipped(spans, 5, 9)) == 0
