"""The sequencer's metrics, bound to the metrics of its process. Counted per entry, never per record."""

from __future__ import annotations

from boki_common.metrics import Metrics
from boki_metalog import metric_definitions as definitions


class SequencerMetrics:
    """Counts for one log."""

    def __init__(self, metrics: Metrics, log: int) -> None:
        label = str(log)
        self._term = metrics.gauge(definitions.TERM).labels(label)
        self._entries = metrics.counter(definitions.ENTRIES).labels(label)
        self._records = metrics.counter(definitions.RECORDS).labels(label)
        self._refused = metrics.counter(definitions.REFUSED).labels(label)
        self._lagged = metrics.counter(definitions.LAGGED).labels(label)
        self._entry_seconds = metrics.histogram(definitions.ENTRY_SECONDS).labels(label)

    def term(self, term: int) -> None:
        self._term.set(term)

    def acked(self, records: int, seconds: float) -> None:
        self._entries.inc()
        self._records.inc(records)
        self._entry_seconds.observe(seconds)

    def refused(self) -> None:
        self._refused.inc()

    def lagged(self) -> None:
        self._lagged.inc()
