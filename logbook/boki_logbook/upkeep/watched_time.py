"""How far the time of each log was, so long ago by a clock that never jumps (ADR 23). Pure.

The time of a log is its sequencer's wall clock, which may step: then everything in the log looks older than it is. Who is about
to forget what is old therefore asks two clocks. What lies before `bound` is as old as it should be by the log's time, and was in
the log when this process looked, that long ago by its own clock.

A process that has not run for so long knows nothing, and forgets nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

SAMPLES: Final = 64
"""Of one age, at most, and one or two more: what is old is known to be so up to a part of this later."""


class WatchedTime:
    """See the module; of one age. Times are those of the newest cuts, by log, in ms; `now_s` never goes back.

    Invariant: samples ascend; only the first may be as old as the age, unless it is alone.
    """

    def __init__(self, age_s: float) -> None:
        self._age_s = age_s
        self._samples: deque[tuple[float, dict[int, int]]] = deque()

    def look(self, now_s: float, times: Mapping[int, int]) -> None:
        """Takes note of the times of all logs, if the last note is not too new."""
        samples = self._samples
        if not samples or now_s - samples[-1][0] >= self._age_s / SAMPLES:
            samples.append((now_s, dict(times)))
        while len(samples) > 1 and samples[1][0] <= now_s - self._age_s:
            samples.popleft()

    def bound(self, now_s: float, log: int, time_ms: int) -> int:
        """What was ordered in the log before this time of it is old, which is `time_ms` now; 0 or less: nothing is known to be."""
        samples = self._samples
        while len(samples) > 1 and samples[1][0] <= now_s - self._age_s:
            samples.popleft()
        if not samples or samples[0][0] > now_s - self._age_s:
            return 0
        return min(time_ms - round(self._age_s * 1000), samples[0][1].get(log, 0))
