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
