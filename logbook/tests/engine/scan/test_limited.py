"""Steps of a stream over several logs: 400 random histories of moved slots, against rules that break the order of a book."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from boki_common.ids import slot_of
from boki_logbook.scan.facts import COMMITTED, NOWHERE, ScanRange
from boki_logbook.scan.limited import limited
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RecordSpec, RunSpec
from boki_logbook.testing.plans import apply, begin, committed_of, plan_of, positions_of

SLOTS = 6
Place = tuple[int, int]
Step = Callable[[DecisionState, dict[int, Place], dict[int, Place], int], dict[int, Place]]


class History(NamedTuple):
    """A state of moved slots, and the slot of each record, by (term, position)."""

    state: DecisionState
    slots: dict[Place, int]


def history(seed: int) -> History:
    rng = random.Random(seed)
    owner, number, logs = [0] * SLOTS, 1, [0]
    current: dict[int, int] = {}
    state, slots = DecisionState(), dict[Place, int]()
    books = books_of_slots()

    def install(those: set[int]) -> None:
        nonlocal number
        ended = [current[log] for log in those if log in current]
        for term in ended:
            state.end_term(term)
        for log in sorted(those):
            own = [slot for slot in range(SLOTS) if owner[slot] == log]
            places = begin(state, number, log=log, slots=tuple((slot, slot) for slot in own))
            current[log] = number
            for _ in range(rng.choice((0, 0, 1, 3, 6)) if own else 0):
                slot = rng.choice(own)
                first = apply(state, places, RunSpec(books[slot], rng.randbytes(16), 1, (RecordSpec(),)))
                slots[number, first] = slot
            number += 1

    install({0})
    for _ in range(rng.randint(2, 7)):
        if rng.random() < 0.35 and len(logs) < 3:
            logs.append(len(logs))
        slot, to = rng.randrange(SLOTS), rng.choice(logs)
        source, owner[slot] = owner[slot], to
        install({source, to})
    return History(state, slots)


def books_of_slots() -> list[int]:
    found: dict[int, int] = {}
    book = 1
    while len(found) < SLOTS:
        if slot_of(book) < SLOTS:
            found.setdefault(slot_of(book), book)
        book += 1
    return [found[slot] for slot in range(SLOTS)]


def causal(state: DecisionState, start: dict[int, Place], end: dict[int, Place], rows: int) -> dict[int, Place]:
    return limited(plan_of(state, ScanRange(start, end), COMMITTED), max_rows=rows)


def per_log(state: DecisionState, start: dict[int, Place], end: dict[int, Place], rows: int) -> dict[int, Place]:
    """The tempting rule: each log goes on alone."""
    found = dict(start)
    for log in end:
        left = max(rows // len(end), 1)
        terms = [term for term, places in sorted(state.places.terms.items()) if places.log == log]
        for term in terms:
            at, pos = found.get(log, NOWHERE)
            if term < at or not left:
                continue
            begin_pos = pos if term == at else 0
            taken = min(left, state.places.terms[term].end_pos - begin_pos)
            found[log], left = (term, begin_pos + taken), left - taken
    return found


def outcome(one: History, step: Step, rows: int) -> str:
    """ok, or what is wrong: ORDER, or UNFINISHED."""
    end = dict(committed_of(one.state).end)
    offset: dict[int, Place] = dict.fromkeys(end, NOWHERE)
    last, shown = dict[int, Place](), 0
    for _ in range(300):
        if offset == end:
            break
        after = step(one.state, offset, end, rows)
        plan = plan_of(one.state, ScanRange(offset, after), COMMITTED)
        batch = [(term.facts.term, pos) for term in plan.terms for pos in positions_of(term.rows)]
        for place in batch:
            if place < last.get(one.slots[place], NOWHERE):
                return "ORDER"
        for place in batch:
            slot = one.slots[place]
            last[slot] = max(place, last.get(slot, NOWHERE))
        shown, offset = shown + len(batch), after
    return "ok" if offset == end and shown == len(one.slots) else "UNFINISHED"


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_records_of_a_book_are_never_shown_out_of_order(rows: int) -> None:
    for seed in range(130):
        assert outcome(history(seed), causal, rows) == "ok", seed


def test_a_limit_for_each_log_alone_breaks_the_order() -> None:
    found = [outcome(history(seed), per_log, 2) for seed in range(130)]
    assert "ORDER" in found


def log_of_entries(*counts: int, data: bytes = b"") -> DecisionState:
    state = DecisionState()
    places = begin(state, 1)
    for at, count in enumerate(counts):
        apply(state, places, RunSpec(100 + at, b"w" * 16, 1, (RecordSpec((), data),) * count))
    return state


def test_a_step_ends_between_entries() -> None:
    state = log_of_entries(4, 4, 4)
    for rows, end in ((1, 4), (4, 4), (7, 4), (8, 8), (100, 12)):
        assert causal(state, {0: NOWHERE}, {0: (1, 12)}, rows) == {0: (1, end)}


def test_a_step_of_bytes_takes_an_entry_at_least() -> None:
    state = log_of_entries(4, 4, 4, data=b"x" * 98)  # with the length of names, 100 bytes each
    plan = plan_of(state, ScanRange({}, {0: (1, 12)}), COMMITTED)
    assert [limited(plan, max_bytes=size) for size in (1, 850, 10_000)] == [{0: (1, 4)}, {0: (1, 8)}, {0: (1, 12)}]


def test_without_a_limit_a_step_goes_to_the_end() -> None:
    plan = plan_of(log_of_entries(4), ScanRange({}, {0: (1, 4)}), COMMITTED)
    assert limited(plan) == {0: (1, 4)}


def test_a_quiet_log_beside_a_busy_one_is_not_kept_waiting() -> None:
    state = DecisionState()
    busy = begin(state, 1, log=0, slots=((0, 511),))
    quiet = begin(state, 2, log=1, slots=((512, 1023),))
    books = range(1, 400)
    for book in books:
        places = busy if slot_of(book) < 512 else quiet
        if places is busy or places.end_pos < 2:
            apply(state, places, RunSpec(book, b"w" * 16, 1, (RecordSpec(),)))
    end = dict(committed_of(state).end)
    assert end[1] == (2, 2) and end[0][1] > 100
    step = causal(state, {0: NOWHERE, 1: NOWHERE}, end, 8)
    assert step == {0: (1, 4), 1: (2, 2)}


def test_behind_an_empty_term_nothing_is_shown_before_what_came_before_it() -> None:
    """Slots go from log 0 to log 1, which orders nothing, to log 2: the book's later record waits for all of its earlier ones."""
    state = DecisionState()
    book = 1
    a = begin(state, 1, log=0)
    for at in range(3):
        apply(state, a, RunSpec(book, bytes([at]) * 16, 1, (RecordSpec(),)))
    begin(state, 2, log=0, slots=())
    begin(state, 3, log=1)
    state.end_term(3)
    begin(state, 4, log=1, slots=())
    c = begin(state, 5, log=2)
    for at in range(3, 6):
        apply(state, c, RunSpec(book, bytes([at]) * 16, 1, (RecordSpec(),)))
    end, offset, seen = dict(committed_of(state).end), dict[int, Place](), []
    for _ in range(9):
        after = causal(state, offset, end, 1)
        plan = plan_of(state, ScanRange(offset, after), COMMITTED)
        seen += [(term.facts.term, pos) for term in plan.terms for pos in positions_of(term.rows)]
        assert plan.rows <= 2, "a row of each log"
        offset = after
    assert seen == [(1, 0), (1, 1), (1, 2), (5, 0), (5, 1), (5, 2)] and offset == end
