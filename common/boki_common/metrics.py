"""Metrics of a process: definitions in one place, one registry per process.

    JOURNAL_SYNC = MetricDefinition("boki_bookie_journal_sync_seconds", HISTOGRAM, "seconds", "Time of one fdatasync.")

    metrics = Metrics()
    syncs = metrics.histogram(JOURNAL_SYNC)             # once, at construction of the role; then syncs.observe(0.0001)

Rules:
- Each package lists its definitions in `metric_definitions.py`; nobody makes a metric from loose strings.
- A name is snake_case, begins with `boki_`, ends with its unit, and a counter then with `_total`; so a reader of a
  dashboard never guesses. Units are Prometheus' base units: seconds, bytes, ratio, or "" for plain counts.
- Counting happens per batch, not per record: a counter costs about a microsecond.
- Asking for a definition again gives the same metric; two definitions of one name are a programmer's error.

The page that shows them is `metrics_page`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics import MetricWrapperBase

M = TypeVar("M", bound=MetricWrapperBase)

_NAME: Final = re.compile(r"boki(_[a-z0-9]+)+")
_UNITS: Final = frozenset({"", "seconds", "bytes", "ratio"})
LATENCY_BUCKETS_S: Final = (
    0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
)  # fmt: skip
"""From half a fast fdatasync to the call time-out."""


class MetricKind(enum.Enum):
    """What Prometheus calls the type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


COUNTER: Final = MetricKind.COUNTER
GAUGE: Final = MetricKind.GAUGE
HISTOGRAM: Final = MetricKind.HISTOGRAM


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """Name, kind, unit, meaning and labels of one metric. Buckets are for histograms, in the unit."""

    name: str
    kind: MetricKind
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = LATENCY_BUCKETS_S

    def __post_init__(self) -> None:
        assert _NAME.fullmatch(self.name), f"{self.name}: a metric is snake_case and begins with boki_"
        assert self.unit in _UNITS, f"{self.name}: expected a unit of {sorted(_UNITS)}, found {self.unit!r}"
        stem = self.name.removesuffix("_total")
        assert (stem != self.name) == (self.kind is COUNTER), f"{self.name}: counters, and only they, end with _total"
        assert not self.unit or stem.endswith("_" + self.unit), f"{self.name}: the name must end with {self.unit}"
        assert self.help.endswith("."), f"{self.name}: the help is a sentence"


class Metrics:
    """The metrics of one process. Roles that share the process share it (and tell themselves apart by labels)."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._made: dict[str, tuple[MetricDefinition, MetricWrapperBase]] = {}

    def counter(self, definition: MetricDefinition) -> Counter:
        assert definition.kind is COUNTER, f"{definition.name} is a {definition.kind.value}"
        return self._get(
            definition, lambda: Counter(definition.name, definition.help, definition.labels, registry=self._registry)
        )

    def gauge(self, definition: MetricDefinition) -> Gauge:
        assert definition.kind is GAUGE, f"{definition.name} is a {definition.kind.value}"
        return self._get(
            definition, lambda: Gauge(definition.name, definition.help, definition.labels, registry=self._registry)
        )

    def histogram(self, definition: MetricDefinition) -> Histogram:
        assert definition.kind is HISTOGRAM, f"{definition.name} is a {definition.kind.value}"
        return self._get(
            definition,
            lambda: Histogram(
                definition.name,
                definition.help,
                definition.labels,
                registry=self._registry,
                buckets=definition.buckets,
            ),
        )

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _get(self, definition: MetricDefinition, make: Callable[[], M]) -> M:
        known = self._made.get(definition.name)
        if known is None:
            made = make()
            self._made[definition.name] = definition, made
            return made
        assert known[0] == definition, f"two definitions of {definition.name}"
        return known[1]  # type: ignore[return-value]  # equal definitions have one kind, and the kind is M
