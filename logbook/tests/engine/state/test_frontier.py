"""Positions per log, the gate between terms, and what a reply about a book may claim."""

from __future__ import annotations

import pytest

from boki_common.ids import Position, seqnum, slot_of
from boki_logbook.state.frontier import Frontier

ALL = ((0, 1023),)
BOOK = next(book for book in range(1_000) if slot_of(book) >= 512)
OTHER = next(book for book in range(1_000) if slot_of(book) < 512)


def test_nothing_is_known_at_the_start() -> None:
    frontier = Frontier()
    assert frontier.view_of(BOOK) == frontier.view_after({}, BOOK) == ({}, 0) and frontier.log_of(BOOK) is None
    assert frontier.reached({}) and not frontier.reached({0: Position(1, 0)})


def test_one_log() -> None:
    frontier = Frontier()
    frontier.begin(1, 0, ALL, ())
    frontier.passed(0, Position(1, 1), 0)
    assert frontier.view_of(BOOK) == ({0: Position(1, 1)}, 0)
    frontier.passed(0, Position(1, 2), seqnum(1, 5))
    view = {0: Position(1, 2)}, seqnum(1, 5)
    assert frontier.view_of(BOOK) == view
    assert frontier.reached({0: Position(1, 2)}) and not frontier.reached({0: Position(1, 3)})
    assert frontier.view_after({0: Position(1, 2)}, BOOK) == view
    assert frontier.view_after({0: Position(1, 3)}, BOOK) is None


def test_each_log_has_to_reach_its_own_position() -> None:
    """Terms of different logs say nothing about each other: neither the highest nor the lowest of them will do."""
    frontier = Frontier()
    frontier.begin(5, 0, ((0, 511),), ())
    frontier.begin(7, 1, ((512, 1023),), ())
    frontier.passed(0, Position(5, 899), seqnum(5, 1))
    frontier.passed(1, Position(7, 10), seqnum(7, 1))
    seen = {0: Position(5, 900), 1: Position(7, 10)}
    assert not frontier.reached(seen), "log 1 being at term 7 says nothing about entry 900 of log 0"
    frontier.passed(0, Position(5, 900), seqnum(5, 2))
    assert frontier.reached(seen), "log 0 need not come to term 7"


def test_a_term_begins_after_the_terms_before_it() -> None:
    frontier = Frontier()
    frontier.begin(1, 0, ALL, ())
    frontier.passed(0, Position(1, 1), seqnum(1, 9))
    assert not frontier.may_begin((1,))
    with pytest.raises(AssertionError):
        frontier.begin(3, 1, ((512, 1023),), (1,))
    frontier.end(1, 0)
    assert frontier.may_begin((1,))
    frontier.begin(3, 1, ((512, 1023),), (1,))
    assert frontier.view_of(BOOK) == ({1: Position(3, 0)}, seqnum(1, 9)), "records of the other log lie below"
    assert frontier.view_of(OTHER)[0] == {0: Position(1, 1)}


def test_what_is_covered_is_handed_on_through_terms_without_records() -> None:
    frontier = Frontier()
    frontier.begin(1, 0, ALL, ())
    frontier.passed(0, Position(1, 1), seqnum(1, 9))
    frontier.end(1, 0)
    frontier.begin(2, 1, ALL, (1,))
    frontier.end(2, 1)
    frontier.begin(3, 2, ALL, (2,))
    assert frontier.view_of(BOOK)[1] == seqnum(1, 9)
    assert frontier.log_of(OTHER) == 2
