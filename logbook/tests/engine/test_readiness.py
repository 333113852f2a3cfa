"""Which calls an engine may answer: what it has applied since it started, and what a session has seen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Final, cast

from boki_common.ids import Position
from boki_logbook.apply.engine_parts import EngineParts, KnownTerms
from boki_logbook.readiness import Readable, Readiness
from boki_logbook.state.frontier import Frontier
from boki_metalog.terms.term_order import ALL_SLOTS

BOOK: Final = 1


class Log:
    def __init__(self, ready: bool) -> None:
        self._ready = ready

    @property
    def ready(self) -> bool:
        return self._ready


def parts_of(frontier: Frontier, foreign: frozenset[int] = frozenset()) -> EngineParts:
    terms = KnownTerms(foreign.__contains__, lambda _: None)
    return cast("EngineParts", SimpleNamespace(frontier=frontier, terms=terms))


def frontier_at(position: Position) -> Frontier:
    frontier = Frontier()
    frontier.begin(position.term, 0, ((0, 1023),), ())
    frontier.passed(0, position, 0)
    return frontier


def test_ready_once_all_logs_that_existed_at_the_start_have_caught_up() -> None:
    logs: dict[int, Readable] = {0: Log(ready=True), 1: Log(ready=False)}
    readiness = Readiness(parts_of(frontier_at(Position(1, 2))), ALL_SLOTS, logs)
    assert not readiness.ready, "which logs there are is not known yet"
    readiness.view_changed()
    assert not readiness.ready
    logs[1] = Log(ready=True)
    logs[2] = Log(ready=False)
    readiness.view_changed()
    assert readiness.ready, "log 2 came later"


def test_a_book_can_be_read_when_its_own_log_has_caught_up() -> None:
    logs: dict[int, Readable] = {0: Log(ready=True), 1: Log(ready=False)}
    frontier = frontier_at(Position(1, 2))
    readiness = Readiness(parts_of(frontier), ALL_SLOTS, logs)
    assert readiness.view_after({}, BOOK, 0) is None, "which log has a book is not known yet"
    readiness.view_changed()
    assert readiness.view_after({}, BOOK, 0) == frontier.view_of(BOOK) and readiness.view_after({}, BOOK, 1) is None
    assert readiness.view_after({}, BOOK, 7) is None, "nothing is known of that log"


def test_what_a_session_has_seen_must_be_applied_but_for_terms_of_other_slots() -> None:
    logs: dict[int, Readable] = {0: Log(ready=True)}
    parts = parts_of(frontier_at(Position(1, 2)), frozenset({9}))
    whole, some = Readiness(parts, ALL_SLOTS, logs), Readiness(parts, 1, logs)
    for readiness in (whole, some):
        readiness.view_changed()
        assert readiness.view_after({0: Position(1, 2)}, BOOK, 0) == parts.frontier.view_of(BOOK)
        assert readiness.view_after({0: Position(1, 3)}, BOOK, 0) is None
    elsewhere = {4: Position(9, 1)}
    assert some.view_after(elsewhere, BOOK, 0) is not None and whole.view_after(elsewhere, BOOK, 0) is None
