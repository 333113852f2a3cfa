"""Which log a slot's appends go to while terms begin and end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common import limits
from boki_common.ids import slot_of
from boki_logbook.append.routes import NOWHERE, Routes
from boki_metalog.terms.view import SlotRange

ALL = (SlotRange(0, 1023),)
LOW, HIGH = (SlotRange(0, 511),), (SlotRange(512, 1023),)


def test_nothing_goes_anywhere_before_a_term() -> None:
    routes = Routes()
    assert routes.only == NOWHERE and routes.log_of(5) == NOWHERE


def test_one_log_with_all_slots_gets_everything() -> None:
    routes = Routes()
    routes.started(3, 1, ALL)
    assert routes.only == 3
    routes.ended(1)
    assert routes.only == NOWHERE


def test_a_slot_stays_until_its_term_is_over_here() -> None:
    routes = Routes()
    routes.started(0, 1, ALL)
    routes.started(1, 3, HIGH)
    assert routes.log_of(600) == 0, "what the old term did not cut is not known yet"
    routes.ended(1)
    assert routes.log_of(600) == 1 and routes.log_of(5) == NOWHERE
    routes.started(0, 2, LOW)
    assert routes.log_of(5) == 0
    assert routes.only == NOWHERE


def test_the_newest_of_several_terms_gets_it() -> None:
    routes = Routes()
    routes.started(0, 1, ALL)
    routes.started(1, 3, HIGH)
    routes.started(2, 5, HIGH)
    routes.ended(1)
    assert routes.log_of(600) == 2
    routes.ended(3)
    assert routes.log_of(600) == 2


def test_the_end_of_a_term_that_was_never_live_changes_nothing() -> None:
    routes = Routes()
    routes.started(0, 7, ALL)
    routes.ended(3)
    assert routes.only == 0


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=30))
def test_a_split_has_each_run_once_where_its_slot_goes(books: list[int]) -> None:
    routes = Routes()
    routes.started(0, 1, LOW)
    routes.started(1, 2, (SlotRange(512, 900),))
    parts = routes.split(books)
    assert sorted(at for part in parts for at in part.runs) == list(range(len(books)))
    assert [part.runs[0] for part in parts] == sorted(part.runs[0] for part in parts)
    assert len({part.log for part in parts}) == len(parts)
    for part in parts:
        assert list(part.runs) == sorted(part.runs)
        slots = 0
        for at in part.runs:
            slot = slot_of(books[at])
            assert part.log == (0 if slot <= 511 else 1 if slot <= 900 else NOWHERE)
            slots |= 1 << slot
        assert part.slots == slots


def test_slots_of_few_books_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ENGINE_BOOKS_ROUTED", 3)
    routes = Routes()
    routes.started(0, 1, ALL)
    for first in range(0, 40, 4):
        (part,) = routes.split(range(first, first + 4))
        assert part.slots == sum(1 << slot for slot in {slot_of(book) for book in range(first, first + 4)})
        assert len(routes._slot_of) == 4
