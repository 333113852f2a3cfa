"""Rates of the last minutes: never negative, never over a time in which nobody looked."""

from __future__ import annotations

import pytest

from boki_common.metrics import LATENCY_BUCKETS_S, Histogram
from boki_gateway.history import GAP_S, SAMPLES, History, Sample, quantile_ms


def test_rates_follow_the_samples() -> None:
    history = History()
    history.add(Sample(10.0, 100, {(0, 1): 5}, 3, 1))
    history.add(Sample(12.0, 300, {(0, 1): 9, (1, 2): 4}, 0, 2))
    found = history.answer(13.0)
    assert (found.ages_s, found.records_per_s, found.cuts_per_s, found.requests_per_s, found.lag_entries) == (
        [1.0], [100.0], [4.0], [0.5], [0]
    )  # fmt: skip


def test_what_is_not_known_or_began_again_is_a_gap() -> None:
    history = History()
    for time_s, records, entries in (
        (0.0, 100, {(0, 1): 5}),
        (1.0, None, {}),
        (2.0, 90, {(0, 2): 7}),
        (3.0, 80, {(0, 2): 8}),
    ):
        history.add(Sample(time_s, records, entries, None, 0))
    found = history.answer(3.0)
    assert found.records_per_s == [None, None, None]
    assert found.cuts_per_s == [None, None, 1.0]
    assert found.lag_entries == [None, None, None]


def test_samples_far_apart_are_not_joined() -> None:
    history = History()
    history.add(Sample(0.0, 0, {}, 0, 0))
    history.add(Sample(GAP_S + 1, 1_000, {}, 0, 0))
    history.add(Sample(GAP_S + 1, 1_000, {}, 0, 0))
    assert history.answer(GAP_S + 1).records_per_s == [None, None], "nor two of one moment"


def test_it_is_bounded() -> None:
    history = History()
    assert history.answer(0.0).ages_s == []
    for number in range(2 * SAMPLES):
        history.add(Sample(float(number), number, {}, 0, 0))
    assert len(history.answer(0.0).ages_s) == SAMPLES - 1


def counts(**buckets: int) -> list[int]:
    """`b3=5`: five values in the fourth bucket."""
    found = [0] * (len(LATENCY_BUCKETS_S) + 1)
    for name, count in buckets.items():
        found[int(name[1:])] = count
    return found


def test_latencies_are_of_what_ended_between_two_samples() -> None:
    history = History()
    history.add(Sample(0.0, 0, {}, 0, 0, {"e1": counts(b3=1_000), "gone": counts(b9=1)}, counts(b0=10)))
    history.add(Sample(2.0, 0, {}, 0, 0, {"e1": counts(b3=1_000, b4=100), "new": counts(b9=5)}, counts(b0=10)))
    history.add(Sample(4.0, 0, {}, 0, 0, {"e1": counts(b3=1), "new": counts(b9=15)}, counts(b0=11)))
    found = history.answer(4.0)
    assert found.acks.p50_ms == [0.75, 35.0], "what began again and what just began are left out"
    assert found.answers.p50_ms == [None, 0.025]
    assert found.answers.p99_ms == [None, 0.05]


def test_latencies_of_another_kind_of_histogram_or_over_a_gap_are_not_known() -> None:
    history = History()
    history.add(Sample(0.0, 0, {}, 0, 0, {"e": [1, 2, 3]}))
    history.add(Sample(1.0, 0, {}, 0, 0, {"e": counts(b3=9)}))
    history.add(Sample(GAP_S + 2, 0, {}, 0, 0, {"e": counts(b3=20)}))
    assert history.answer(0.0).acks.p50_ms == [None, None]


@pytest.mark.parametrize("seconds", [0.00003, 0.0007, 0.004, 0.9, 4.9])
def test_a_quantile_lies_in_the_bucket_of_its_value(seconds: float) -> None:
    histogram = Histogram(LATENCY_BUCKETS_S)
    for _ in range(100):
        histogram.observe(seconds)
    upper = next(bound for bound in LATENCY_BUCKETS_S if bound >= seconds)
    lower = max((bound for bound in LATENCY_BUCKETS_S if bound < seconds), default=0.0)
    for part in (0.01, 0.5, 0.99, 1.0):
        found = quantile_ms(histogram.counts, part)
        assert found is not None and 1_000 * lower < found <= 1_000 * upper


def test_what_is_beyond_the_buckets_is_at_least_the_last() -> None:
    histogram = Histogram(LATENCY_BUCKETS_S)
    histogram.observe(60.0)
    assert quantile_ms(histogram.counts, 0.5) == 1_000 * LATENCY_BUCKETS_S[-1]
    assert quantile_ms([], 0.5) is quantile_ms([0] * 17, 0.5) is None
