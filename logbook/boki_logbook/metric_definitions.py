"""All metrics of an engine. Counted per batch, per cut and per call, never per record."""

from __future__ import annotations

from typing import Final

from boki_common.metrics import Metrics, counter, gauge, histogram

APPENDED_ENTRIES: Final = counter("boki_engine_appended_entries_total", "Entries sent to data ledgers.")
APPENDED_RECORDS: Final = counter(
    "boki_engine_appended_records_total", "Records in those entries, re-appended ones again."
)
CARRIED_ENTRIES: Final = counter(
    "boki_engine_carried_entries_total",
    "Entries sent to a sequencer, to be ordered before their data ledgers have them.",
)
ACK_SECONDS: Final = histogram("boki_engine_ack_seconds", "From sending an entry to its ack quorum.")
REFUSED_BATCHES: Final = counter(
    "boki_engine_refused_batches_total", "Appended batches refused or dropped before they were ordered."
)
EARLY_CONFLICTS: Final = counter(
    "boki_engine_early_conflicts_total", "Appends told to have lost before they were ordered, without payload."
)
SHARDS_OPENED: Final = counter("boki_engine_shards_opened_total", "Shards opened.")
INDEXED_RECORDS: Final = counter("boki_engine_indexed_records_total", "Records decided, losers included.")
FETCHED_ENTRIES: Final = counter(
    "boki_engine_fetched_entries_total", "Entries read from data ledgers, for the index or for readers."
)
PUSHED_HEADERS: Final = counter(
    "boki_engine_pushed_headers_total", "Entries indexed from headers that their engines pushed, unread."
)
INDEX_BYTES: Final = gauge("boki_engine_index_bytes", "Memory of the index, roughly.")
CACHE_BYTES: Final = gauge("boki_engine_cache_bytes", "Memory of the record cache.")
QUEUE_BYTES: Final = gauge("boki_engine_append_queue_bytes", "Appended batches that are not indexed yet.")
CLOCK_AHEAD_SECONDS: Final = gauge(
    "boki_engine_sequencer_clock_ahead_seconds",
    "The clock of a log's sequencer minus this machine's; negative when it is behind.",
    "log",
)
READS: Final = counter("boki_engine_reads_total", "Read requests answered.")


class AppenderMetrics:
    """What an appender counts, bound to the metrics of the process."""

    def __init__(self, metrics: Metrics) -> None:
        self.entries = metrics.counter(APPENDED_ENTRIES)
        self.records = metrics.counter(APPENDED_RECORDS)
        self.carried = metrics.counter(CARRIED_ENTRIES)
        self.ack_seconds = metrics.histogram(ACK_SECONDS)
        self.shards_opened = metrics.counter(SHARDS_OPENED)


class EngineMetrics:
    """What an engine counts beside its appenders, bound to the metrics of the process."""

    def __init__(self, metrics: Metrics) -> None:
        self.reads = metrics.counter(READS)
        self.early_conflicts = metrics.counter(EARLY_CONFLICTS)
        self.fetched = metrics.counter(FETCHED_ENTRIES)
        self.pushed = metrics.counter(PUSHED_HEADERS)
        self.acks = metrics.histogram(ACK_SECONDS)
        self.index_bytes = metrics.gauge(INDEX_BYTES)
        self.cache_bytes = metrics.gauge(CACHE_BYTES)
        self.queue_bytes = metrics.gauge(QUEUE_BYTES)
        self._indexed = metrics.counter(INDEXED_RECORDS)
        self._records = 0

    def begin_at(self, records: int) -> None:
        """So many records came with a snapshot: nobody decided them here."""
        self._records = records

    def decided_up_to(self, records: int) -> None:
        """So many records are decided by now."""
        self._indexed.value += records - self._records
        self._records = records
