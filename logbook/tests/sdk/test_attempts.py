"""How long to wait for the next attempt, and when there is none any more."""

from __future__ import annotations

import pytest

from boki._attempts import OVERLOADED_ATTEMPTS, REFUSALS, STRANGERS, Attempts, backoff_s
from boki_common.errors import (
    BokiError,
    ConnectionLost,
    Overloaded,
    ProtocolError,
    Unauthenticated,
    Unreachable,
    WrongCluster,
)


@pytest.mark.parametrize(
    ("attempt", "most"), [(0, 0.05), (1, 0.1), (2, 0.2), (5, 1.6), (6, 2.0), (7, 2.0), (10_000, 2.0)]
)
def test_back_off_doubles_up_to_two_seconds_with_jitter(attempt: int, most: float) -> None:
    assert (backoff_s(attempt, 0), backoff_s(attempt, 512)) == (most / 2, most)


def test_attempts_are_counted_until_something_is_answered() -> None:
    attempts = Attempts()
    assert [attempts.begun(), attempts.begun()] == [0, 1]
    attempts.connected()
    assert attempts.begun() == 2, "a connection alone is no answer"
    attempts.answered()
    assert attempts.begun() == 0


def test_an_engine_that_has_too_much_is_left_alone_for_longer() -> None:
    attempts = Attempts()
    assert attempts.lost(Overloaded("full")) == ""
    assert attempts.begun() == OVERLOADED_ATTEMPTS


@pytest.mark.parametrize("error", [ConnectionLost("gone"), Unreachable("not there"), Overloaded("full"), None])
def test_what_may_pass_never_ends_the_client(error: BokiError | None) -> None:
    attempts = Attempts()
    assert not any(attempts.lost(error) for _ in range(100))
    assert error is None or not any(attempts.failed(error, 1) for _ in range(100))
    assert attempts.fault is error


def test_refusals_in_a_row_end_the_client() -> None:
    attempts, wrong = Attempts(), ProtocolError("wrong")
    for _ in range(REFUSALS - 1):
        assert attempts.lost(wrong) == ""
    attempts.answered()
    attempts.connected()
    assert "refused this client's messages (wrong)" in attempts.failed(wrong, 9), (
        "only answers to appends are another start"
    )
    attempts = Attempts()
    for _ in range(5):
        for _ in range(REFUSALS - 1):
            assert attempts.lost(wrong) == ""
        attempts.decided()


def test_the_client_ends_when_another_cluster_answers_again_and_again() -> None:
    attempts, wrong = Attempts(), WrongCluster("another")
    for _ in range(STRANGERS - 1):
        assert attempts.failed(wrong, 1) == ""
    attempts.connected()
    for _ in range(STRANGERS - 1):
        assert attempts.failed(wrong, 1) == attempts.failed(Unreachable("its own is away"), 1) == ""
    assert "another cluster is where" in attempts.failed(wrong, 1)


def test_the_client_ends_when_no_engine_takes_its_token() -> None:
    attempts, denied = Attempts(), Unauthenticated("who are you?")
    assert attempts.failed(denied, 2) == ""
    attempts.connected()
    assert attempts.failed(denied, 2) == ""
    assert "no engine lets this client in" in attempts.failed(denied, 2)
