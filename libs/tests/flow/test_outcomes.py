"""How things ended: what is stored comes back."""

from __future__ import annotations

import msgspec
import pytest

from bokiflow.errors import StepFailed
from bokiflow.outcomes import CANCELLED_OUTCOME, Failure, Outcome, error_of, failed, succeeded
from bokilib import NotEncodable


class Declined(Exception):
    """An error of a user, with more than its arguments."""

    def __init__(self, card: str, *, cents: int) -> None:
        super().__init__(f"{card} was declined")
        self.cents = cents
        self.client = object()


def stored(outcome: Outcome) -> Outcome:
    """What comes back from the log."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(outcome), type=Outcome)


def back(error: BaseException) -> BaseException:
    failure = stored(failed(error)).error
    assert failure is not None
    return error_of(failure)


def test_values_come_back() -> None:
    assert stored(succeeded({"a": (1, None)})).value == {"a": [1, None]}
    with pytest.raises(NotEncodable):
        succeeded(object())


def test_errors_come_back_as_their_class_with_what_of_them_is_json() -> None:
    error = back(Declined("visa", cents=5))
    assert isinstance(error, Declined) and str(error) == "visa was declined"
    assert error.cents == 5 and not hasattr(error, "client")
    assert repr(back(ValueError(1, "a"))) == "ValueError(1, 'a')"
    assert isinstance(back(NotEncodable("no")), NotEncodable)


def test_a_class_is_looked_for_among_the_names_of_the_function_first() -> None:
    failure = Failure("made.up:Declined.Inner", "no", ["visa"])
    Declined.Inner = ValueError  # type: ignore[attr-defined]
    found = error_of(failure, {"__name__": "made.up", "Declined": Declined})
    assert repr(found) == "ValueError('visa')"
    assert isinstance(error_of(failure), StepFailed)


def test_arguments_that_are_no_json_come_back_as_text() -> None:
    assert back(KeyError(object)).args == (str(object),)


@pytest.mark.parametrize("name", ["nowhere:Error", "builtins:print", "builtins:KeyboardInterrupt", "os:path", ":", ""])
def test_what_is_no_class_of_errors_of_this_program_is_a_step_failed(name: str) -> None:
    error = error_of(Failure(name, "it broke"))
    assert isinstance(error, StepFailed) and "it broke" in str(error)


def test_an_error_that_cannot_be_made_anew_is_a_step_failed() -> None:
    assert isinstance(error_of(Failure("builtins:UnicodeDecodeError", "bad", [])), (StepFailed, UnicodeDecodeError))


def test_cancellation_is_distinguished_from_failure() -> None:
    assert stored(CANCELLED_OUTCOME).cancelled and not failed(ValueError()).cancelled


class Unreadable(Exception):
    """An error of a user whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


HALF_AN_EMOJI = "caf\udce9"


@pytest.mark.parametrize(
    "error",
    [
        ValueError(HALF_AN_EMOJI),
        UnicodeEncodeError("utf-8", HALF_AN_EMOJI, 3, 4, "surrogates not allowed"),
        ValueError("a" * 3_000_000),
        ValueError({"a": ["b" * 3_000_000]}),
        KeyError(HALF_AN_EMOJI, object()),
        Unreadable("x"),
    ],
    ids=["surrogate", "unicode error", "megabytes", "nested megabytes", "argument", "no text"],
)
def test_any_text_of_an_error_can_be_stored(error: Exception) -> None:
    outcome = failed(error)
    assert len(msgspec.msgpack.encode(outcome)) < 90_000
    assert type(back(error)) is type(error)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration(1)])
def test_errors_that_no_coroutine_can_be_given_are_step_failed(error: BaseException) -> None:
    found = back(error)
    assert isinstance(found, StepFailed) and type(error).__name__ in str(found)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - it is returned
        return caught


def test_causes_notes_and_the_stack_come_back() -> None:
    def lookup() -> None:
        try:
            raise KeyError("shelf 7")
        except KeyError as fault:
            fault.add_note("of the second floor")
            raise ValueError("no such book") from fault

    with pytest.raises(ValueError) as caught:
        lookup()
    failure = failed(caught.value).error
    assert failure is not None and "in lookup" in failure.stack and "raise ValueError" in failure.stack
    found = back(error_of(failure))
    assert repr(found.__cause__) == "KeyError('shelf 7')"
    assert found.__cause__ is not None and found.__cause__.__notes__ == ["of the second floor"]


def test_the_stack_of_a_step_is_kept_when_the_workflow_fails_with_its_error() -> None:
    of_step = failed(raised(ValueError("x"))).error
    assert of_step is not None
    of_workflow = failed(raised(error_of(of_step))).error
    assert of_workflow is not None
    assert of_workflow.stack.startswith(of_step.stack) and "raised again by the workflow" in of_workflow.stack


def test_groups_come_back_with_their_errors() -> None:
    found = back(ExceptionGroup("two of three", [ValueError(1), ExceptionGroup("inner", [KeyError("a")])]))
    assert isinstance(found, ExceptionGroup) and found.message == "two of three"
    assert repr(found.exceptions) == "(ValueError(1), ExceptionGroup('inner', [KeyError('a')]))"
    found = back(BaseExceptionGroup("one left", [SystemExit(2), ValueError(1)]))
    assert isinstance(found, ExceptionGroup) and isinstance(found.exceptions[0], StepFailed)
    many = failed(ExceptionGroup("many", [ValueError(n) for n in range(1_000)])).error
    assert many is not None and many.detail is not None and len(many.detail.errors) == 16


def test_errors_of_older_records_have_no_stack() -> None:
    old = msgspec.msgpack.encode([None, ["builtins:ValueError", "x", ["x"], None]])
    outcome = msgspec.msgpack.decode(old, type=Outcome)
    assert (
        outcome.error is not None and outcome.error.stack == "" and repr(error_of(outcome.error)) == "ValueError('x')"
    )
