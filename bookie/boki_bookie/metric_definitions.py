"""All metrics of a bookie. Where several share a process counters and times are their sum, gauges are labelled by bookie."""

from __future__ import annotations

from typing import Final

from boki_common.metrics import counter, gauge, histogram

JOURNAL_WRITE: Final = histogram("boki_bookie_journal_write_seconds", "Time of one durable write of the journal.")
JOURNAL_RECORDS: Final = counter("boki_bookie_journal_records_total", "Records that the journal made durable.")
JOURNAL_BYTES: Final = counter(
    "boki_bookie_journal_bytes_total", "Bytes that the journal made durable, with headers and padding."
)
CACHED_BYTES: Final = gauge(
    "boki_bookie_write_cache_bytes", "Entries in memory that no checkpoint has stored.", "bookie"
)
CHECKPOINT: Final = histogram(
    "boki_bookie_checkpoint_seconds",
    "Time of one checkpoint.",
    buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0),
)
LEDGERS: Final = gauge("boki_bookie_ledgers", "Ledgers this bookie knows.", "bookie")
ADDS: Final = counter("boki_bookie_adds_total", "Add requests answered, by status.", "status")
DIGEST_MISMATCHES: Final = counter(
    "boki_bookie_digest_mismatches_total", "Adds refused because their digest does not match."
)
READS: Final = counter("boki_bookie_reads_total", "Read requests answered, by status.", "status")
READ_ONLY: Final = gauge("boki_bookie_read_only", "1 while the disk is too full for normal adds.", "bookie")
GC_LEDGERS: Final = counter(
    "boki_bookie_gc_ledgers_total",
    "Ledgers that garbage collection deleted, or emptied because their entries belong to other bookies.",
    "what",
)
ELSEWHERE: Final = gauge(
    "boki_bookie_elsewhere_ledgers",
    "Closed ledgers held here that name other bookies only, as far as garbage collection has looked. They are kept.",
    "bookie",
)
GC_RECLAIMED_BYTES: Final = counter(
    "boki_bookie_gc_reclaimed_bytes_total", "Bytes of entry log files that were removed."
)
COMPACTION_BYTES: Final = counter("boki_bookie_compaction_bytes_total", "Bytes of live entries that compaction copied.")
TOMBSTONES: Final = gauge("boki_bookie_tombstones", "Deleted ledgers that cannot be made again.", "bookie")
