"""Rates of the last minutes: never negative, never over a time in which nobody looked."""

from __future__ import annotations

from boki_gateway.history import GAP_S, SAMPLES, History, Sample


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
