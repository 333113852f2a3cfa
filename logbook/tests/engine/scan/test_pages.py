"""Pages of a scan while the state goes on: appends, trims, merges and ends of terms between two pages change nothing of a plan."""

from __future__ import annotations

import random

import numpy as np
import pytest

from boki_common.ids import seqnum
from boki_logbook.scan import pages
from boki_logbook.scan.facts import COMMITTED, LIVE, ScanRange, TermFacts, first_missing, reached
from boki_logbook.scan.pages import capture, pages_of, spans_of
from boki_logbook.scan.plan import PlanBuilder
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RecordSpec, RunSpec
from boki_logbook.testing.plans import apply, begin, committed_of, everything, no_metalog, plan_of, seqnums_of
from boki_metalog.entries.metalog_entry import Trim

W = b"w".ljust(16, b"\0")
BOOKS = (3, 5)


class Growing:
    """A state of two books that is changed while pages of it are made."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.state = DecisionState(tail_rows=self.rng.choice((8, 32)))
        self.places = begin(self.state, 1)
        self.number = 1
        for _ in range(30):
            self.change()

    def change(self) -> None:
        kind = self.rng.random()
        book = self.rng.choice(BOOKS)
        if kind < 0.5:
            records = tuple(RecordSpec((self.rng.randint(1, 3),)) for _ in range(self.rng.randint(1, 6)))
            apply(self.state, self.places, RunSpec(book, self.rng.randbytes(16), 1, records))
        elif kind < 0.7:
            place = seqnum(self.places.term, self.rng.randrange(self.places.end_pos + 1))
            trim = Trim(book, ((self.rng.choice((0, 1, 2, 3)), place),), self.rng.random() < 0.5)
            self.state.apply_command(self.places, trim, time_ms=10**9)
        elif kind < 0.8:
            self.state.index.freeze()
        elif kind < 0.95:
            self.state.index.tidy()
        else:
            self.places = begin(self.state, self.places.term + 1)


@pytest.mark.parametrize("mode", [LIVE, COMMITTED])
@pytest.mark.parametrize("seed", range(40))
def test_a_plan_is_of_one_moment_whatever_happens_between_its_pages(
    seed: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PAGE_TERMS", "PAGE_ENTRIES", "PAGE_ROWS"):
        monkeypatch.setattr(pages, name, 3)
    log = Growing(seed)
    for tags in ((), (1, 3)):
        asked = everything(log.state)._replace(book=log.rng.choice((None, *BOOKS)), tags=tags)
        expected = plan_of(log.state, asked, mode)
        builder = PlanBuilder(asked, mode)
        count = 0
        for page in pages_of(capture(log.state, None, asked, mode, no_metalog)):
            builder.take(page)
            log.change()
            count += 1
        found = builder.finish()
        assert count >= 3
        assert seqnums_of(found) == seqnums_of(expected)
        assert found.committed == expected.committed
        assert [one.entries.entries.tolist() for one in found.terms] == [
            one.entries.entries.tolist() for one in expected.terms
        ]


def test_a_running_term_grows_while_its_columns_are_held() -> None:
    """A view of an array would make the next cut raise BufferError."""
    state = DecisionState()
    places = begin(state, 1)
    apply(state, places, RunSpec(7, W, 1, (RecordSpec(),) * 4))
    scan = pages_of(capture(state, None, everything(state), LIVE, no_metalog))
    held = [next(scan)]
    for at in range(100):
        apply(state, places, RunSpec(7, W, 5 + at, (RecordSpec(),)))
    held += scan
    assert sum(len(page.first_positions) for page in held) == 8


def test_a_term_shrinks_at_the_last_trim_and_a_plan_made_before_keeps_its_places() -> None:
    state = DecisionState()
    places = begin(state, 1)
    apply(state, places, RunSpec(7, W, 1, (RecordSpec((5,)),) * 4))
    running = begin(state, 2)
    asked = everything(state)
    scan = pages_of(capture(state, None, asked, COMMITTED, no_metalog))
    builder = PlanBuilder(asked, COMMITTED)
    builder.take(next(scan))
    state.apply_command(running, Trim(7, ((0, 1 << 60),), False), time_ms=2_000)
    assert places.entry_count == 0
    for page in scan:
        builder.take(page)
    assert seqnums_of(builder.finish()) == [seqnum(1, pos) for pos in range(4)]
    assert plan_of(state, asked, COMMITTED).gone == 4


def test_a_forgotten_stream_beside_a_merge_is_not_planned() -> None:
    state = DecisionState(tail_rows=4)
    places = begin(state, 1)
    for at in range(40):
        apply(state, places, RunSpec(7, W, 1 + at, (RecordSpec((5 if at % 2 else 6,)),)))
    while state.index.tidy() and state.index._merge is None:
        pass
    state.apply_command(places, Trim(7, ((5, 1 << 60),), True, 10**12), time_ms=10**12)
    asked = everything(state)
    assert seqnums_of(plan_of(state, asked._replace(tags=(5,)))) == []
    assert seqnums_of(plan_of(state, asked)) == [seqnum(1, pos) for pos in range(0, 40, 2)]


def test_plans_do_not_freeze_the_tail() -> None:
    state = DecisionState()
    places = begin(state, 1)
    for at in range(50):
        apply(state, places, RunSpec(7, W, 1 + at, (RecordSpec(),)))
        plan_of(state, everything(state)._replace(book=7))
    assert len(state.index.runs) == 0


def test_facts_of_a_term_say_where_its_metalog_is() -> None:
    state = DecisionState()
    begin(state, 1)
    asked = ScanRange({}, {})
    (fact,) = plan_of(state, asked, metalog=lambda term: (60 + term, 9)).committed.terms
    assert (fact.metalog_ledger, fact.metalog_stop) == (61, 9)
    (fact,) = plan_of(state, asked).committed.terms
    assert (fact.metalog_ledger, fact.metalog_stop) == (-1, 0)


def test_an_offset_is_reached_when_every_log_is_there() -> None:
    state = DecisionState()
    places = begin(state, 2)
    apply(state, places, RunSpec(7, W, 1, (RecordSpec(),) * 4))
    committed = committed_of(state)
    assert isinstance(committed.terms[0], TermFacts)
    assert reached(committed, {0: (2, 4)}) and reached(committed, {0: (1, 10**6), 5: (0, 0)})
    for behind in ({0: (2, 5)}, {0: (3, 0)}, {1: (1, 0)}):
        assert not reached(committed, behind)
    assert first_missing(committed, {0: (2, 4)}) is None
    assert first_missing(committed, {0: (2, 9)}) == (0, (2, 4), (2, 9))


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        (ScanRange({}, {}, -1), "book"),
        (ScanRange({}, {}, None, (0,)), "tags"),
        (ScanRange({0: (0, 5)}, {}), "position"),
        (ScanRange({}, {-1: (1, 5)}), "position"),
        (ScanRange({}, {0: (1, 5)}, 5, (1, 2)), None),
    ],
)
def test_a_range_that_cannot_be_is_refused(asked: ScanRange, fault: str | None) -> None:
    found = asked.fault()
    assert found is None if fault is None else found is not None and fault in found


def test_numbers_in_a_row_are_one_span() -> None:
    assert spans_of(np.array([4, 5, 6, 1, 2, 9], np.uint64)).tolist() == [4, 7, 1, 3, 9, 10]
    assert len(spans_of(np.array([], np.uint64))) == 0
