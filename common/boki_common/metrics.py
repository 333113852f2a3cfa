"""Metrics of a process: definitions in one place, one registry per process.

    JOURNAL_SYNC = histogram("boki_bookie_journal_sync_seconds", "Time of one fdatasync.")

    metrics = Metrics()
    syncs = metrics.histogram(JOURNAL_SYNC)             # once, at construction of the role; then syncs.observe(0.0001)

Rules:
- Each package lists its definitions in `metric_definitions.py`; nobody makes a metric from loose strings.
- A name is snake_case, begins with `boki_`, ends with its unit, and a counter then with `_total`; so a reader of a
  dashboard never guesses. Units are Prometheus' base units: seconds, bytes, ratio, or "" for plain counts.
- Counting happens per batch, not per record, and on the event loop only: counters and histograms have no lock, because the
  library's, with theirs, cost ten times as much, and that thirty times per append. A hot path adds to `value` itself.
- Asking for a definition again gives the same metric; two definitions of one name are a programmer's error.

The page that shows them is `metrics_page`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal, TypeVar

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

M = TypeVar("M")
OURS = TypeVar("OURS", "Counter", "Histogram")

_NAME: Final = re.compile(r"boki(_[a-z0-9]+)+")
_UNITS: Final = frozenset({"", "seconds", "bytes", "ratio"})
LATENCY_BUCKETS_S: Final = (
    0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
)  # fmt: skip
"""From half a fast fdatasync to the call time-out."""


MetricKind = Literal["counter", "gauge", "histogram"]
"""What Prometheus calls the type of a metric."""
COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"


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
        assert (stem != self.name) == (self.kind == COUNTER), f"{self.name}: counters, and only they, end with _total"
        assert not self.unit or stem.endswith("_" + self.unit), f"{self.name}: the name must end with {self.unit}"
        assert self.help.endswith("."), f"{self.name}: the help is a sentence"


def counter(name: str, help: str, *labels: str) -> MetricDefinition:
    """The definition of a counter; its unit is the end of its name, as of all."""
    return MetricDefinition(name, COUNTER, _unit_of(name), help, labels)


def gauge(name: str, help: str, *labels: str) -> MetricDefinition:
    return MetricDefinition(name, GAUGE, _unit_of(name), help, labels)


def histogram(name: str, help: str, *labels: str, buckets: tuple[float, ...] = LATENCY_BUCKETS_S) -> MetricDefinition:
    return MetricDefinition(name, HISTOGRAM, _unit_of(name), help, labels, buckets)


def _unit_of(name: str) -> str:
    unit = name.removesuffix("_total").rpartition("_")[2]
    return unit if unit in _UNITS else ""


class Counter:
    """A number that grows; one that has labels only gives out those that count, by the labels' values."""

    __slots__ = ("_by_labels", "_names", "value")

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.value = 0.0
        self._names = tuple(names)
        self._by_labels: dict[tuple[str, ...], Counter] = {}

    def inc(self, amount: float = 1) -> None:
        self.value += amount

    def labels(self, *values: str, **named: str) -> Counter:
        """The counter of some labels, always the same."""
        key = _label_values(self._names, values, named)
        return self._by_labels.get(key) or self._by_labels.setdefault(key, Counter())

    def rows(self) -> dict[tuple[str, ...], Counter]:
        """What counts, by label values."""
        return self._by_labels if self._names else {(): self}


class Histogram:
    """How often values fell into which bucket, and their sum; with labels as a `Counter`."""

    __slots__ = ("_by_labels", "_names", "bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float], names: Sequence[str] = ()) -> None:
        self.counts = [0] * (len(bounds) + 1)
        """Per bucket, the one without an upper bound last."""
        self.sum = 0.0
        self.bounds = tuple(bounds)
        """Upper bounds of the buckets, but for the last, which has none."""
        self._names = tuple(names)
        self._by_labels: dict[tuple[str, ...], Histogram] = {}

    def observe(self, amount: float) -> None:
        self.counts[bisect_left(self.bounds, amount)] += 1
        self.sum += amount

    def labels(self, *values: str, **named: str) -> Histogram:
        """The histogram of some labels, always the same."""
        key = _label_values(self._names, values, named)
        return self._by_labels.get(key) or self._by_labels.setdefault(key, Histogram(self.bounds))

    def rows(self) -> dict[tuple[str, ...], Histogram]:
        """What observes, by label values."""
        return self._by_labels if self._names else {(): self}

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, how many values at or below it), as Prometheus wants them."""
        names = [*map(str, map(float, self.bounds)), "+Inf"]
        return list(zip(names, map(float, accumulate(self.counts)), strict=True))


def _label_values(names: Sequence[str], values: Sequence[str], named: dict[str, str]) -> tuple[str, ...]:
    found = (*values, *(named[name] for name in names if name in named))
    assert names and len(found) == len(names) == len(values) + len(named), f"expected labels {names}"
    return found


class _Page(Collector):
    """Shows one metric of ours to the library."""

    def __init__(self, definition: MetricDefinition, metric: Counter | Histogram) -> None:
        self._definition = definition
        self._metric = metric

    def describe(self) -> Iterator[Metric]:
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        name, text, labels = self._definition.name, self._definition.help, self._definition.labels
        if isinstance(self._metric, Counter):
            counts = CounterMetricFamily(name, text, labels=labels)
            for values, counter in self._metric.rows().items():
                counts.add_metric(values, counter.value)
            yield counts
        else:
            spread = HistogramMetricFamily(name, text, labels=labels)
            for values, histogram in self._metric.rows().items():
                spread.add_metric(values, histogram.buckets(), histogram.sum)
            yield spread


class Metrics:
    """The metrics of one process. Roles that share the process share it (and are distinguished by labels)."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._made: dict[str, tuple[MetricDefinition, object]] = {}

    def counter(self, definition: MetricDefinition) -> Counter:
        assert definition.kind == COUNTER, f"{definition.name} is a {definition.kind}"
        return self._get(definition, lambda: self._registered(definition, Counter(definition.labels)))

    def gauge(self, definition: MetricDefinition) -> Gauge:
        assert definition.kind == GAUGE, f"{definition.name} is a {definition.kind}"
        return self._get(
            definition, lambda: Gauge(definition.name, definition.help, definition.labels, registry=self._registry)
        )

    def histogram(self, definition: MetricDefinition) -> Histogram:
        assert definition.kind == HISTOGRAM, f"{definition.name} is a {definition.kind}"
        return self._get(
            definition, lambda: self._registered(definition, Histogram(definition.buckets, definition.labels))
        )

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _registered(self, definition: MetricDefinition, made: OURS) -> OURS:
        self._registry.register(_Page(definition, made))
        return made

    def _get(self, definition: MetricDefinition, make: Callable[[], M]) -> M:
        known = self._made.get(definition.name)
        if known is None:
            made = make()
            self._made[definition.name] = definition, made
            return made
        assert known[0] == definition, f"two definitions of {definition.name}"
        return known[1]  # type: ignore[return-value]  # equal definitions have one kind, and the kind is M
