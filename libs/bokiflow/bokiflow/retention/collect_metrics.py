"""Metrics of a collector, counted per round and per chunk of a round."""

from __future__ import annotations

from typing import Final, Protocol

from boki_common.metrics import Metrics
from bokiflow.retention import metric_definitions as definitions


class Counts(Protocol):
    """What one round came to."""

    def _asdict(self) -> dict[str, int]: ...


NAMES: Final = {"ended": "histories", "carried": "written_anew"}
"""Fields of `Collected` that are called otherwise for people."""


class CollectMetrics:
    """See the module."""

    def __init__(self, metrics: Metrics | None) -> None:
        registry = metrics or Metrics()
        self._rounds: Final = registry.counter(definitions.COLLECT_ROUNDS)
        self._checked: Final = registry.counter(definitions.COLLECT_CHECKED)
        self._collected: Final = registry.counter(definitions.COLLECTED)
        self._lag: Final = registry.gauge(definitions.COLLECT_LAG)

    def checked(self, count: int) -> None:
        """So many ends were looked at."""
        self._checked.inc(count)

    def overdue(self, ms: int) -> None:
        """By so much the oldest end was late when a round began."""
        self._lag.set(max(0, ms) / 1_000)

    def round(self, done: Counts) -> None:
        """A round is over."""
        self._rounds.inc()
        for name, count in done._asdict().items():
            self._collected.labels(NAMES.get(name, name)).inc(count)
