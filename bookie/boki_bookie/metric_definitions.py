"""All metrics of a bookie. Where several share a process counters and times are their sum, gauges are labelled by bookie."""

from __future__ import annotations

from typing import Final

from boki_common.metrics import COUNTER, GAUGE, HISTOGRAM, MetricDefinition

JOURNAL_WRITE: Final = MetricDefinition(
    "boki_bookie_journal_write_seconds", HISTOGRAM, "seconds", "Time of one durable write of the journal."
)
JOURNAL_RECORDS: Final = MetricDefinition(
    "boki_bookie_journal_records_total", COUNTER, "", "Records that the journal made durable."
)
JOURNAL_BYTES: Final = MetricDefinition(
    "boki_bookie_journal_bytes_total",
    COUNTER,
    "bytes",
    "Bytes that the journal made durable, with headers and padding.",
)
CACHED_BYTES: Final = MetricDefinition(
    "boki_bookie_write_cache_bytes",
    GAUGE,
    "bytes",
    "Entries in memory that no checkpoint has stored.",
    labels=("bookie",),
)
CHECKPOINT: Final = MetricDefinition(
    "boki_bookie_checkpoint_seconds", HISTOGRAM, "seconds", "Time of one checkpoint.",
    buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0),
)  # fmt: skip
LEDGERS: Final = MetricDefinition("boki_bookie_ledgers", GAUGE, "", "Ledgers this bookie knows.", labels=("bookie",))
ADDS: Final = MetricDefinition(
    "boki_bookie_adds_total", COUNTER, "", "Add requests answered, by status.", labels=("status",)
)
DIGEST_MISMATCHES: Final = MetricDefinition(
    "boki_bookie_digest_mismatches_total", COUNTER, "", "Adds refused because their digest does not match."
)
READS: Final = MetricDefinition(
    "boki_bookie_reads_total", COUNTER, "", "Read requests answered, by status.", labels=("status",)
)
READ_ONLY: Final = MetricDefinition(
    "boki_bookie_read_only", GAUGE, "", "1 while the disk is too full for normal adds.", labels=("bookie",)
)
GC_LEDGERS: Final = MetricDefinition(
    "boki_bookie_gc_ledgers_total",
    COUNTER,
    "",
    "Ledgers that garbage collection deleted, or emptied because their entries belong to other bookies.",
    labels=("what",),
)
ELSEWHERE: Final = MetricDefinition(
    "boki_bookie_elsewhere_ledgers",
    GAUGE,
    "",
    "Closed ledgers held here that name other bookies only, as far as garbage collection has looked. They are kept.",
    labels=("bookie",),
)
GC_RECLAIMED_BYTES: Final = MetricDefinition(
    "boki_bookie_gc_reclaimed_bytes_total", COUNTER, "bytes", "Bytes of entry log files that were removed."
)
COMPACTION_BYTES: Final = MetricDefinition(
    "boki_bookie_compaction_bytes_total", COUNTER, "bytes", "Bytes of live entries that compaction copied."
)
TOMBSTONES: Final = MetricDefinition(
    "boki_bookie_tombstones", GAUGE, "", "Deleted ledgers that cannot be made again.", labels=("bookie",)
)
