"""The last minutes of a few numbers, as rates and quantiles: what the sparklines draw. Pure.

Samples come whenever somebody looks, so their times are kept. A number that was not known, or that fell because a process
began again, gives a gap (null) and no negative rate. Latencies are those of what ended between two samples; of a histogram a
quantile is as exact as its buckets are narrow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from boki_common.metrics import LATENCY_BUCKETS_S

SAMPLES: Final = 180
"""Six minutes of one every 2 s."""
GAP_S: Final = 30.0
"""Samples further apart are not joined by a rate: nobody looked in between."""

Rates = Annotated[list[float | None], Meta(description="Per second, up to each time; null: not known.")]
Counts = Sequence[int]
"""How many values fell into each of LATENCY_BUCKETS_S, and above them."""


class Sample(NamedTuple):
    """Numbers of one moment; counters only grow while their processes live."""

    time_s: float
    records: int | None
    entries: Mapping[tuple[int, int], int]
    lag_entries: int | None
    requests: int
    acks: Mapping[str, Counts] = {}
    """By engine."""
    answers: Counts = ()
    """Of this gateway."""


class Latencies(msgspec.Struct, frozen=True):
    """Quantiles of what ended up to each time, in milliseconds; null: nothing did, or it is not known."""

    p50_ms: list[float | None]
    p99_ms: list[float | None]


class HistoryAnswer(msgspec.Struct, frozen=True):
    """Columns of equal length, oldest first."""

    ages_s: Annotated[list[float], Meta(description="How long ago.")]
    records_per_s: Rates
    cuts_per_s: Rates
    requests_per_s: Rates
    lag_entries: Annotated[list[int | None], Meta(description="Of the engine furthest behind; null: not known.")]
    acks: Annotated[Latencies, Meta(description="From sending an entry to its ack quorum, at all engines.")]
    answers: Annotated[
        Latencies, Meta(description="Requests about books at this gateway, but for those that wait for records.")
    ]


class History:
    """Invariant: at most SAMPLES samples, times ascending."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)

    def add(self, sample: Sample) -> None:
        assert not self._samples or sample.time_s >= self._samples[-1].time_s, "samples come in order"
        self._samples.append(sample)

    def answer(self, now_s: float) -> HistoryAnswer:
        """What is known now. The first sample begins the first rate, so it has none itself."""
        samples = list(self._samples)
        pairs = list(pairwise(samples))
        return HistoryAnswer(
            [round(now_s - after.time_s, 1) for _, after in pairs],
            [_rate(before, after, _grown(before.records, after.records)) for before, after in pairs],
            [_rate(before, after, _entries(before, after)) for before, after in pairs],
            [_rate(before, after, _grown(before.requests, after.requests)) for before, after in pairs],
            [after.lag_entries for _, after in pairs],
            _latencies(
                [_together(before.acks, after.acks) if _joined(before, after) else () for before, after in pairs]
            ),
            _latencies(
                [
                    _difference(before.answers, after.answers) if _joined(before, after) else ()
                    for before, after in pairs
                ]
            ),
        )


def quantile_ms(counts: Counts, part: float) -> float | None:
    """Below it lies that part of the values: on a line within its bucket. None of no values."""
    total = sum(counts)
    if not total:
        return None
    left = part * total
    lower = 0.0
    for count, upper in zip(counts, LATENCY_BUCKETS_S, strict=False):
        if left <= count and count:
            return round(1_000 * (lower + (upper - lower) * left / count), 3)
        left -= count
        lower = upper
    return 1_000 * lower


def _latencies(columns: Sequence[Counts]) -> Latencies:
    return Latencies([quantile_ms(one, 0.5) for one in columns], [quantile_ms(one, 0.99) for one in columns])


def _together(before: Mapping[str, Counts], after: Mapping[str, Counts]) -> Counts:
    """What all engines that both samples know have added."""
    added = [_difference(before[name], counts) for name, counts in sorted(after.items()) if name in before]
    return [sum(column) for column in zip(*(one for one in added if one), strict=True)]


def _difference(before: Counts, after: Counts) -> Counts:
    """Nothing of histograms of other buckets, or of one that began again."""
    if len(before) != len(after) or any(new < old for old, new in zip(before, after, strict=True)):
        return ()
    return [new - old for old, new in zip(before, after, strict=True)]


def _grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None or after < before else after - before


def _entries(before: Sample, after: Sample) -> int | None:
    """Entries of the terms that both samples know; a term that began in between counts from its beginning."""
    if not before.entries or not after.entries:
        return None
    return sum(max(count - before.entries.get(term, 0), 0) for term, count in sorted(after.entries.items()))


def _joined(before: Sample, after: Sample) -> bool:
    return 0 < after.time_s - before.time_s <= GAP_S


def _rate(before: Sample, after: Sample, grown: int | None) -> float | None:
    return round(grown / (after.time_s - before.time_s), 2) if grown is not None and _joined(before, after) else None
