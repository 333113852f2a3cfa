"""When a step is tried again."""

from __future__ import annotations

import pytest

import boki
from bokiflow.runtime.calls import ONCE, Retry, next_delay_s


def test_delays_grow_up_to_their_bound_and_end_with_the_attempts() -> None:
    retry = Retry(attempts=5, delay_s=1, backoff=3, most_s=10)
    assert [next_delay_s(retry, attempt, OSError()) for attempt in range(1, 6)] == [1, 3, 9, 10, None]


def test_by_default_there_is_one_attempt() -> None:
    assert next_delay_s(ONCE, 1, OSError()) is None


def test_only_errors_that_are_named_are_worth_another_attempt() -> None:
    retry = Retry(on=(OSError,))
    assert next_delay_s(retry, 1, ConnectionError()) == 1.0
    assert next_delay_s(retry, 1, ValueError()) is None


def test_many_attempts_do_not_overflow() -> None:
    for backoff in (2.0, 3, 10.0, 1e300):
        assert next_delay_s(Retry(attempts=10**9, backoff=backoff), 10**8, OSError()) == 100.0
    assert next_delay_s(Retry(attempts=10**9, delay_s=0, backoff=3.0), 10**8, OSError()) == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"attempts": 2.5},
        {"attempts": "3"},
        {"delay_s": -1},
        {"delay_s": "1"},
        {"delay_s": float("nan")},
        {"backoff": 0.5},
        {"most_s": None},
        {"on": ()},
        {"on": [ValueError]},
        {"on": ("ValueError",)},
    ],
)
def test_rules_that_mean_nothing_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(boki.InvalidArgument, match="found"):
        Retry(**wrong)  # type: ignore[arg-type]
