"""Calls of one number are one append, and what writers must not be answered is named."""

from __future__ import annotations

import pytest

from boki_sim.checkers.history import Operation, Outcome
from boki_sim.work.named_numbers import merge
from boki_sim.work.operations import CONFLICT, NEVER, OK, UNKNOWN


def sent(number: int, at: float, outcome: Outcome = OK, seqnum: int | None = None, error: str = "") -> Operation:
    """One call of a number, that lasted half a second."""
    return Operation(
        "c", "append", "b", at, at + 0.5, outcome, f"r{number}", seqnum=seqnum, error=error, writer="w", number=number
    )  # fmt: skip


def conflict(number: int, at: float, newest: int) -> Operation:
    made = sent(number, at, CONFLICT)
    made.expect, made.actual = {"a": None}, {"a": newest}
    return made


def test_all_calls_of_a_number_are_one_append_from_first_call_to_first_answer() -> None:
    other = Operation("c", "read", "b", 0.5, 0.6, OK)
    merged, faults = merge([other, sent(1, 1, UNKNOWN), sent(1, 2, OK, 10), sent(2, 3, OK, 20), sent(1, 4, OK, 10)])
    assert faults == []
    assert [(one.kind, one.start, one.end, one.outcome) for one in merged] == [
        ("read", 0.5, 0.6, OK), ("append", 1, 2.5, OK), ("append", 3, 3.5, OK),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("outcomes", "known"),
    [
        ([NEVER, NEVER], NEVER),
        ([NEVER, UNKNOWN], UNKNOWN),
        ([UNKNOWN, NEVER], UNKNOWN),
        ([CONFLICT, UNKNOWN], CONFLICT),
    ],
)
def test_a_number_without_an_answer_is_as_unknown_as_the_worst_of_its_calls(
    outcomes: list[Outcome], known: Outcome
) -> None:
    assert merge([sent(1, at, outcome) for at, outcome in enumerate(outcomes)]).operations[0].outcome == known


def test_a_number_of_which_a_call_never_returned_is_pending() -> None:
    pending = sent(1, 1, UNKNOWN)
    pending.end = None
    merged = merge([pending, sent(1, 2, NEVER)]).operations[0]
    assert (merged.start, merged.end, merged.outcome) == (1, None, UNKNOWN)


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ([sent(1, 1, OK, 10), sent(1, 2, OK, 20)], "number 1 of writer w was answered differently"),
        ([sent(1, 1, OK, 10), conflict(1, 2, 5)], "number 1 of writer w was answered differently"),
        ([sent(1, 1, OK, 20), sent(2, 2, OK, 10)], "number 2 of writer w is at 10, number 1 before it at 20"),
        ([sent(1, 1, UNKNOWN), sent(1, 2, NEVER, error="NumberReused: x")], "got NumberReused"),
        ([sent(1, 1, OK, 10), sent(1, 2, UNKNOWN, error="AnswerForgotten: x")], "got AnswerForgotten"),
        (
            [sent(1, 1, OK, 10), sent(2, 2, NEVER, error="InvalidArgument: numbers have no holes")],
            "all before it were",
        ),
    ],
)
def test_what_contradicts_the_numbers_is_named(calls: list[Operation], said: str) -> None:
    faults = merge(calls).faults
    assert any(said in text for text in faults), faults


def test_a_hole_may_be_answered_while_the_number_before_is_undecided() -> None:
    early = sent(2, 1, NEVER, error="InvalidArgument: numbers have no holes")
    assert merge([sent(1, 1, UNKNOWN), early]).faults == []
    assert merge([sent(1, 1.2, OK, 10), early]).faults == [], "it was answered before number 1 was answered"


@pytest.mark.parametrize("error", ["WriterForgotten: x", "InvalidArgument: numbers have no holes"])
def test_a_writer_may_be_forgotten_when_it_was_idle_for_so_long(error: str) -> None:
    calls = [sent(1, 1, OK, 10), sent(2, 50, NEVER, error=error)]
    assert merge(calls, kept_s=40).faults == []
    assert any(", got " in text for text in merge(calls, kept_s=60).faults)
    assert any(", got " in text for text in merge(calls).faults), "where writers are kept for ever"


def test_a_writer_that_was_idle_may_be_forgotten_after_it_repeated_an_old_number() -> None:
    """It was proposed before the repeat, and ordered after it."""
    forgotten = sent(3, 52, NEVER, error="WriterForgotten: x")
    known, repeat = [sent(1, 1, OK, 10), sent(2, 2, OK, 11)], sent(1, 51, OK, 10)
    assert merge([*known, repeat, forgotten], kept_s=40).faults == []
    assert any(", got " in text for text in merge([*known, sent(1, 30, OK, 10), repeat, forgotten], kept_s=40).faults)
    assert any(", got " in text for text in merge([known[0], sent(2, 51, OK, 11), forgotten], kept_s=40).faults)


def test_a_writer_that_is_forgotten_stays_so() -> None:
    calls = [sent(1, 1, OK, 10), sent(2, 50, NEVER, error="WriterForgotten: x"), sent(2, 60, OK, 20)]
    assert any("writer w was forgotten at" in text for text in merge(calls, kept_s=40).faults)


def test_a_hole_that_is_answered_while_the_writer_is_known_forgets_nothing() -> None:
    early = sent(3, 1.7, NEVER, error="InvalidArgument: numbers have no holes")
    assert merge([sent(1, 1, OK, 10), early, sent(2, 1.5, OK, 11), sent(3, 5, OK, 12)], kept_s=40).faults == []
