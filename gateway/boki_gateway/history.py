"""The last minutes of a few numbers, as rates: what the sparklines draw. Pure.

Samples come whenever somebody looks, so their times are kept. A number that was not known, or that fell because a process
began again, gives a gap (null) and no negative rate.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

SAMPLES: Final = 180
"""Six minutes of one every 2 s."""
GAP_S: Final = 30.0
"""Samples further apart are not joined by a rate: nobody looked in between."""

Rates = Annotated[list[float | None], Meta(description="Per second, up to each time; null: not known.")]


class Sample(NamedTuple):
    """Numbers of one moment; counters only grow while their processes live."""

    time_s: float
    records: int | None
    entries: dict[tuple[int, int], int]
    lag_entries: int | None
    requests: int


class HistoryAnswer(msgspec.Struct, frozen=True):
    """Columns of equal length, oldest first."""

    ages_s: Annotated[list[float], Meta(description="How long ago.")]
    records_per_s: Rates
    cuts_per_s: Rates
    requests_per_s: Rates
    lag_entries: Annotated[list[int | None], Meta(description="Of the engine furthest behind; null: not known.")]


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
        )


def _grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None or after < before else after - before


def _entries(before: Sample, after: Sample) -> int | None:
    """Entries of the terms that both samples know; a term that began in between counts from its beginning."""
    if not before.entries or not after.entries:
        return None
    return sum(max(count - before.entries.get(term, 0), 0) for term, count in sorted(after.entries.items()))


def _rate(before: Sample, after: Sample, grown: int | None) -> float | None:
    passed = after.time_s - before.time_s
    return None if grown is None or not 0 < passed <= GAP_S else round(grown / passed, 2)
