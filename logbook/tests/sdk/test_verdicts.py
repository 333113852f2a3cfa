"""What rows of verdicts say to callers. What they do to numbers: `test_numbers_model.py`."""

from __future__ import annotations

import pytest

from boki._arguments import NO_EXPECTATIONS, Expectations, encode_tags
from boki._in_doubt import inquiry_of
from boki._numbers import Numbers
from boki._outbox import Outbox
from boki._session import Session
from boki._ticket import Duplicate, Ticket
from boki._verdicts import Forgotten, Stalled, answered, asked, forgotten_of, unknown
from boki_common.engine.answers import AnswerRow
from boki_common.engine.engine_protocol import NEWEST_FORGOTTEN, ROW_DUPLICATE, Verdict
from boki_common.errors import AnswerForgotten, BokiError, Conflict, LogBookError, NumberReused, ProtocolError
from boki_common.ids import Position
from boki_common.records.batch_builder import BatchBuilder

TAGS = encode_tags(["a"])
WRITER = b"w" * 16
TOKEN = {0: Position(1, 9)}


def sent(count: int, expectations: Expectations = NO_EXPECTATIONS) -> tuple[Numbers, list[Ticket]]:
    numbers, tickets = Numbers(Session(), 1, Outbox()), [Ticket(TAGS, b"x", expectations) for _ in range(count)]
    for ticket in tickets:
        assert numbers.add(ticket, 0.0) or numbers.add(ticket, 0.0, WRITER)
    numbers.fill(BatchBuilder())
    return numbers, tickets


def row(verdict: int, first: int = 1, first_seqnum: int = 0, count: int = 1, **more: object) -> AnswerRow:
    return AnswerRow(1, WRITER, first, first_seqnum, 70, count, verdict)._replace(**more)  # type: ignore[arg-type]


def test_committed_numbers_are_seen_and_progress_is_noted() -> None:
    numbers, tickets = sent(3)
    assert answered(numbers, row(Verdict.COMMITTED, 1, 80, 2), TOKEN, 5.0) is None
    assert [ticket.result() for ticket in tickets[:2]] == [80, 81]
    assert (numbers.position, numbers.session.positions, numbers.progressed_at, numbers.low) == (81, TOKEN, 5.0, 3)


def test_what_was_there_before_is_a_duplicate_only_for_who_sent_it_once() -> None:
    for again in (False, True):
        numbers, (ticket,) = sent(1)
        if again:
            numbers.connection_lost()
            numbers.fill(BatchBuilder())
        answered(numbers, row(Verdict.COMMITTED, 1, 80, flags=ROW_DUPLICATE), TOKEN, 0.0)
        assert ticket.result() == 80 and isinstance(ticket.result(), Duplicate) is not again


def test_a_conflict_names_tags_as_the_caller_did() -> None:
    numbers, (ticket,) = sent(1, Expectations(((5, 0), (6, 0), (7, 0)), {5: "a", 6: "b", 7: "c"}))
    answered(numbers, row(Verdict.CONFLICT, actual=((5, 9), (6, NEWEST_FORGOTTEN), (7, 0))), TOKEN, 0.0)
    with pytest.raises(Conflict) as caught:
        ticket.result()
    assert caught.value.actual == {"a": 9, "b": None, "c": None}
    assert caught.value.forgotten == ["b"]
    assert caught.value.position == 70


@pytest.mark.parametrize(
    ("verdict", "error"),
    [(Verdict.NEVER, LogBookError), (Verdict.REUSED, NumberReused), (Verdict.FORGOTTEN, AnswerForgotten)],
)
def test_verdicts_that_are_errors(verdict: Verdict, error: type[BokiError]) -> None:
    numbers, (ticket,) = sent(1)
    answered(numbers, row(verdict), TOKEN, 0.0)
    with pytest.raises(error):
        ticket.result()
    assert numbers.ordered == 1


def test_what_the_log_refuses_is_said() -> None:
    numbers, _ = sent(2)
    assert answered(numbers, row(Verdict.GAP, 2), TOKEN, 0.0) == Stalled(0)
    assert answered(numbers, row(Verdict.GAP, 2), TOKEN, 0.0) is None, "once, until it goes on"
    assert numbers.resume(WRITER)
    numbers.fill(BatchBuilder())
    assert answered(numbers, row(Verdict.GAP, 2), TOKEN, 0.0) == Stalled(1)
    numbers, _ = sent(2)
    assert answered(numbers, row(Verdict.TOO_OLD, 1, 33), TOKEN, 0.0) == Forgotten(33)
    answered(numbers, row(Verdict.COMMITTED, 1, 80), TOKEN, 0.0)
    assert answered(numbers, row(Verdict.GAP, 2), TOKEN, 0.0) == Forgotten()


@pytest.mark.parametrize(
    "wrong", [row(Verdict.COMMITTED, 2, 80), row(Verdict.NEVER, 0), row(99), row(Verdict.GAP, 1, 9)]
)
def test_what_cannot_be_about_these_numbers(wrong: AnswerRow) -> None:
    numbers, _ = sent(1)
    with pytest.raises(ProtocolError):
        answered(numbers, wrong, TOKEN, 0.0)


def test_of_a_row_about_more_only_what_is_asked_for_counts() -> None:
    view, ticket = Numbers(Session(), 1, Outbox()), Ticket(TAGS, b"x")
    numbers = inquiry_of(view, WRITER, 3, 0, 2)
    assert numbers.add(ticket, 0.0)
    numbers.fill(BatchBuilder())
    assert asked(numbers, row(Verdict.COMMITTED, 1, 80, 2), TOKEN, 0.0) is None and not ticket.done()
    asked(numbers, row(Verdict.COMMITTED, 1, 80, 9), TOKEN, 0.0)
    assert ticket.result() == 82


def test_what_nobody_knows_is_not_definite() -> None:
    for error in (unknown("gone", 3, WRITER, 1), forgotten_of(3, WRITER)):
        assert not error.definite and error.facts["number"] == 3
