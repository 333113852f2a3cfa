"""All metrics of the sequencer, and the set of them that one process keeps. Counted per entry, never per record."""

from __future__ import annotations

from typing import Final

from boki_common.metrics import Metrics, counter, gauge, histogram

TERM: Final = gauge("boki_sequencer_term", "Term that this sequencer orders; 0 while it stands by.", "log")
ENTRIES: Final = counter("boki_sequencer_entries_total", "Metalog entries acknowledged by their quorum.", "log")
RECORDS: Final = counter("boki_sequencer_records_total", "Records ordered.", "log")
REFUSED: Final = counter(
    "boki_sequencer_refused_reports_total", "Reports for shards that are closed or cannot be so.", "log"
)
LAGGED: Final = counter(
    "boki_sequencer_lagged_subscribers_total", "Subscribers dropped for taking entries too slowly.", "log"
)
PROVEN: Final = counter(
    "boki_sequencer_barriers_proven_total", "Barriers that the bookies answered, without an entry for them.", "log"
)
ENTRY_SECONDS: Final = histogram(
    "boki_sequencer_entry_seconds", "From submitting a metalog entry to its quorum.", "log"
)


class SequencerMetrics:
    """The metrics of one log, bound to those of the process."""

    def __init__(self, metrics: Metrics, log: int) -> None:
        label = str(log)
        self.term = metrics.gauge(TERM).labels(label)
        self.refused = metrics.counter(REFUSED).labels(label)
        self.lagged = metrics.counter(LAGGED).labels(label)
        self._proven = metrics.counter(PROVEN).labels(label)
        self._entries = metrics.counter(ENTRIES).labels(label)
        self._records = metrics.counter(RECORDS).labels(label)
        self._entry_seconds = metrics.histogram(ENTRY_SECONDS).labels(label)

    def acked(self, records: int, seconds: float) -> None:
        self._entries.value += 1
        self._records.value += records
        self._entry_seconds.observe(seconds)

    def proven(self) -> None:
        self._proven.value += 1
