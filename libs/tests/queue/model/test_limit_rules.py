"""Shares add up to the limit, and the rate holds over any second, also across owners."""

from __future__ import annotations

import pytest

from boki_common.errors import InvalidArgument
from bokiqueue.model.events import Limits
from bokiqueue.model.limit_rules import UNLIMITED, KeyRateLimits, RateLimit, check_key_rate, check_limits, share


def test_shares_add_up_to_the_limit_and_each_has_one() -> None:
    for shards in range(1, 9):
        for limit in range(shards, 20):
            shares = [share(limit, shards, shard) for shard in range(shards)]
            assert sum(shares) == limit
            assert min(shares) >= 1
    assert share(0, 4, 1) == UNLIMITED


def test_the_rate_is_a_bucket_of_a_second_that_begins_empty() -> None:
    rate = RateLimit(10, 100.0)
    assert (rate.allowed(100.0), rate.next_s(100.0)) == (0, 100.1)
    assert rate.allowed(100.25) == 2
    rate.take(2, 100.25)
    assert rate.allowed(100.25) == 0
    assert rate.allowed(200.0) == 10
    assert RateLimit(0, 0.0).allowed(0.0) == UNLIMITED
    assert RateLimit(0, 0.0).next_s(5.0) is None
    slow = RateLimit(0.5, 0.0)
    assert [slow.allowed(1.0), slow.allowed(2.0)] == [0, 1]


@pytest.mark.parametrize("limits", [Limits(-1), Limits(0, -0.5), Limits(0, float("inf")), Limits(True)])
def test_wrong_limits_are_refused(limits: Limits) -> None:
    with pytest.raises(InvalidArgument):
        check_limits(limits)


def test_a_key_has_one_message_in_each_interval_and_a_new_owner_waits_for_one() -> None:
    keys = KeyRateLimits(10.0, 1_000)
    assert (keys.due_ms("a", 1_050), keys.due_ms("a", 1_100), keys.due_ms(None, 1_000)) == (1_101, 0, 0)
    keys.take("a", 1_100)
    keys.take(None, 1_100)
    assert (keys.due_ms("a", 1_199), keys.due_ms("b", 1_199), keys.due_ms("a", 1_200)) == (1_201, 0, 0)
    keys.take("a", 1_200)
    keys.take("b", 1_250)
    assert keys.due_ms("b", 1_300) == 1_351 and len(keys) == 1, "what is over is forgotten"
    assert KeyRateLimits(0.0, 5).due_ms("a", 0) == 0
    with pytest.raises(InvalidArgument, match="of a key"):
        check_limits(Limits(key_per_second=1e-6))


def test_a_key_has_a_rate_of_its_own_which_may_change() -> None:
    keys = KeyRateLimits(10.0, 0, {"slow": 1.0, "free": 0.0})
    for key in ("slow", "free", "usual"):
        keys.take(key, 1_000)
    assert [keys.due_ms(key, 1_050) for key in ("slow", "free", "usual")] == [2_001, 0, 1_101]
    keys.own = {"slow": 20.0}
    assert [keys.due_ms(key, 1_050) for key in ("slow", "usual")] == [0, 1_101]
    keys.own = {"slow": 0.5}
    assert keys.due_ms("slow", 1_500) == 3_001 and len(keys) == 1, (
        "usual is over, slow is remembered as long as it has to"
    )
    assert KeyRateLimits(0.0, 0, {"slow": 1.0}).due_ms("slow", 500) == 1_001, "also where keys have none"


def test_wrong_rates_of_keys_are_refused() -> None:
    for wrong in (-1.0, float("inf"), 1e-6):
        with pytest.raises(InvalidArgument):
            check_key_rate(wrong)
