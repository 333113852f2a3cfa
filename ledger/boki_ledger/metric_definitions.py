"""Metrics of the ledger client: names, units, help, in one place; counted per batch, never per entry."""

from __future__ import annotations

from typing import Final

from boki_common.metrics import Metrics, counter, gauge, histogram

ENTRIES_ACKED: Final = counter("boki_ledger_entries_acked_total", "Entries that reached their ack quorum in order.")
ENTRIES_RESENT: Final = counter(
    "boki_ledger_entries_resent_total", "Entries sent again to a bookie that came back or was replaced."
)
SLOT_FAILURES: Final = counter(
    "boki_ledger_slot_failures_total", "Failures of one bookie seen by one writer or recovery."
)
ENSEMBLE_CHANGES: Final = counter("boki_ledger_ensemble_changes_total", "Committed ensemble changes.")
RECOVERIES: Final = counter("boki_ledger_recoveries_total", "Recoveries by outcome.", "outcome")
RECOVERY_TIME: Final = histogram("boki_ledger_recovery_seconds", "Time from the first fence to the closing write.")
DIGEST_MISMATCHES: Final = counter("boki_ledger_digest_mismatches_total", "Copies of entries that failed their digest.")
SPECULATIVE_READS: Final = counter(
    "boki_ledger_speculative_reads_total", "Reads asked of a further replica while a slow one may still answer."
)
EXPLICIT_LACS: Final = counter(
    "boki_ledger_explicit_lacs_total", "LACs that idle writers sent to bookies by themselves, by outcome.", "outcome"
)


REPAIR_MISSING: Final = gauge(
    "boki_repair_missing_ledgers",
    "Ledgers of which bookies that are away have copies, as the leading controller sees it.",
)
REPAIR_SINGLE: Final = gauge("boki_repair_single_copy_ledgers", "Those of them with an entry of one copy at most.")
REPAIR_DUE: Final = gauge("boki_repair_due_bytes", "Copies that are to be made now.")
REPAIR_BLOCKED: Final = gauge("boki_repair_blocked_ledgers", "Ledgers that could not be repaired in the last round.")
REPAIR_DRAINS: Final = gauge("boki_repair_draining_bookies", "Bookies that are drained.")
REPAIR_COPIED: Final = counter("boki_repair_copied_bytes_total", "Copies that this controller made.")


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
