"""Metrics of the ledger client: names, units, help, in one place; counted per batch, never per entry."""

from __future__ import annotations

from typing import Final

from boki_common.metrics import COUNTER, HISTOGRAM, MetricDefinition, Metrics

ENTRIES_ACKED: Final = MetricDefinition(
    "boki_ledger_entries_acked_total", COUNTER, "", "Entries that reached their ack quorum in order."
)
ENTRIES_RESENT: Final = MetricDefinition(
    "boki_ledger_entries_resent_total", COUNTER, "", "Entries sent again to a bookie that came back or was replaced."
)
SLOT_FAILURES: Final = MetricDefinition(
    "boki_ledger_slot_failures_total", COUNTER, "", "Failures of one bookie seen by one writer or recovery."
)
ENSEMBLE_CHANGES: Final = MetricDefinition(
    "boki_ledger_ensemble_changes_total", COUNTER, "", "Committed ensemble changes."
)
RECOVERIES: Final = MetricDefinition(
    "boki_ledger_recoveries_total", COUNTER, "", "Recoveries by outcome.", labels=("outcome",)
)
RECOVERY_TIME: Final = MetricDefinition(
    "boki_ledger_recovery_seconds", HISTOGRAM, "seconds", "Time from the first fence to the closing write."
)
DIGEST_MISMATCHES: Final = MetricDefinition(
    "boki_ledger_digest_mismatches_total", COUNTER, "", "Copies of entries that failed their digest."
)
SPECULATIVE_READS: Final = MetricDefinition(
    "boki_ledger_speculative_reads_total",
    COUNTER,
    "",
    "Reads asked of a further replica while a slow one may still answer.",
)
EXPLICIT_LACS: Final = MetricDefinition(
    "boki_ledger_explicit_lacs_total",
    COUNTER,
    "",
    "LACs that idle writers sent to bookies by themselves, by outcome.",
    labels=("outcome",),
)


class LedgerMetrics:
    """The metrics, made once per client."""

    def __init__(self, metrics: Metrics) -> None:
        self.entries_acked = metrics.counter(ENTRIES_ACKED)
        self.entries_resent = metrics.counter(ENTRIES_RESENT)
        self.slot_failures = metrics.counter(SLOT_FAILURES)
        self.ensemble_changes = metrics.counter(ENSEMBLE_CHANGES)
        self.recoveries = metrics.counter(RECOVERIES)
        self.recovery_time = metrics.histogram(RECOVERY_TIME)
        self.digest_mismatches = metrics.counter(DIGEST_MISMATCHES)
        self.speculative_reads = metrics.counter(SPECULATIVE_READS)
        self.explicit_lacs = metrics.counter(EXPLICIT_LACS)
