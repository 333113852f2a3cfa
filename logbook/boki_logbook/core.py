"""What an engine does between the log and its connections: wires appender, indexer, reader and sealer together.

The follower of the log tells it what is ordered (it is a `FollowerListener`), connections give it appends and reads. It
listens nowhere and knows no metadata store; `engine.Engine` adds these.

The order of steps on a metalog entry matters:
    1. the indexer takes it, and asks for the headers that other engines wrote;
    2. the appender hears how far its shard is cut, then that it was closed: what is beyond goes to the next shard;
    3. what can be applied is: verdicts, rows, answers, readers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from boki_common.errors import BokiError
from boki_common.logs import get_logger
from boki_common.metrics import Metrics
from boki_logbook import metric_definitions as definitions
from boki_logbook.appender import Appender
from boki_logbook.cache import BatchCache
from boki_logbook.compression import compressor
from boki_logbook.entry_source import EntrySource
from boki_logbook.indexer import Indexer
from boki_logbook.ports import DataLedgers, ShardLink
from boki_logbook.reader import Reader
from boki_logbook.sealer import Sealer
from boki_logbook.settings import EngineSettings
from boki_metalog.follower import TermInfo
from boki_metalog.metalog_entry import Close, MetalogEntry
from boki_metalog.term_record import TermRecord

_log = get_logger("engine")


class EngineCore:
    """See the module. Attributes are for the server and for tests; `failed` gets what ends the engine."""

    def __init__(
        self, *, ledgers: DataLedgers, incarnation: str, settings: EngineSettings, metrics: Metrics, log: int = 0
    ) -> None:
        self.incarnation = incarnation
        self.log = log
        loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = loop.create_future()
        self.cache = BatchCache(settings.cache_bytes)
        self._source = EntrySource(ledgers, fetched=metrics.counter(definitions.FETCHED_ENTRIES))
        self.appender = Appender(
            ledgers=ledgers,
            incarnation=incarnation,
            settings=settings,
            metrics=metrics,
            compress=compressor() if settings.compress else None,
        )
        self.indexer = Indexer(
            incarnation=incarnation,
            own=self.appender,
            source=self._source,
            cache=self.cache,
            advanced=self._advanced,
            failed=self.fail,
            retry_first_s=settings.retry_first_s,
            retry_limit_s=settings.retry_limit_s,
        )
        self.reader = Reader(indexer=self.indexer, cache=self.cache, source=self._source, settings=settings, log=log)
        self.sealer = Sealer(ledgers, retry_first_s=settings.retry_first_s, retry_limit_s=settings.retry_limit_s)
        self._counted_records = 0
        self._indexed = metrics.counter(definitions.INDEXED_RECORDS)
        self._reads = metrics.counter(definitions.READS)
        metrics.gauge(definitions.INDEX_BYTES).set_function(lambda: self.indexer.index.bytes)
        metrics.gauge(definitions.CACHE_BYTES).set_function(lambda: self.cache.used_bytes)
        metrics.gauge(definitions.QUEUE_BYTES).set_function(lambda: self.appender.queued_bytes)
        self._tasks = [loop.create_task(self._run(self.appender.run)), loop.create_task(self._run(self.sealer.run))]

    def fail(self, error: BaseException) -> None:
        """Ends the engine: what it knows cannot be trusted or continued."""
        if not self.failed.done():
            _log.error("engine failed", error=error)
            self.failed.set_exception(error)
            self.failed.exception()  # told by `failed`, to whoever asks

    async def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - the engine ends with it
            self.fail(error)

    # -- FollowerListener

    async def term_started(self, info: TermInfo) -> None:
        await self.indexer.room(0)
        self.indexer.term_started(info.term, info.log)

    def entries_ordered(self, term: int, first_entry: int, entries: Sequence[MetalogEntry]) -> None:
        indexer, appender = self.indexer, self.appender
        for entry, metalog_entry in enumerate(entries, first_entry):
            indexer.ordered(term, entry, metalog_entry)
            for number, _, entries_end in metalog_entry.shards:
                appender.cut(term, number, entries_end)
            for command in metalog_entry.commands:
                if isinstance(command, Close):
                    appender.closed(term, command.shard)
                    self._seal(term, command.shard)
        indexer.apply()

    async def caught_up(self) -> None:
        await self.indexer.room()

    async def term_ended(self, record: TermRecord) -> None:
        await self.indexer.room(0)
        self.appender.term_ended(record.term)
        for number, shard in self.indexer.places.terms[record.term].shards.items():
            if not shard.closed:
                shard.closed = True
                self._seal(record.term, number)

    def sequencer_up(self, link: ShardLink) -> None:
        self.indexer.caching = True
        self.appender.link_up(link)

    def sequencer_down(self) -> None:
        self.appender.link_down()

    def _seal(self, term: int, number: int) -> None:
        shard = self.indexer.places.terms[term].shards[number]
        self.sealer.seal(shard.ledger_id, shard.entries_end, self.appender.writer_of(term, number))

    def _advanced(self, books: dict[int, None]) -> None:
        records = self.indexer.records
        self._indexed.inc(records - self._counted_records)
        self._counted_records = records
        self.reader.advanced(books)

    # -- status

    def counted_read(self) -> None:
        self._reads.inc()

    def status(self) -> dict[str, Any]:
        """What there is to say about this engine; values are plain."""
        indexer, appender, index = self.indexer, self.appender, self.indexer.index
        received = indexer.received.get(self.log, (0, 0))
        applied = indexer.positions.get(self.log, (0, 0))
        shard = appender.shard
        return {
            "role": "engine",
            "incarnation": self.incarnation,
            "log": self.log,
            "ready": indexer.ready,
            "term": received[0],
            "position": {"received_entry": received[1], "indexed_entry": applied[1]},
            "lag_entries": indexer.pending,
            "seqnum": indexer.covered.get(self.log, 0),
            "shard": None
            if shard is None
            else {
                "number": shard.number,
                "ledger_id": shard.writer.ledger_id,
                "submitted_entries": shard.submitted_entries,
                "acked_entries": shard.acked_entries,
                "cut_entries": shard.cut_entries,
            },
            "records": indexer.records,
            "books": index.book_count,
            "writers": len(indexer.verdicts),
            "index": {
                "rows": len(index),
                "bytes": index.bytes,
                "runs": index.run_count,
                "entries": indexer.places.entry_count,
            },
            "cache": {
                "bytes": self.cache.used_bytes,
                "batches": len(self.cache),
                "hits": self.cache.hits,
                "misses": self.cache.misses,
            },
            "append_queue": {"bytes": appender.queued_bytes, "batches": appender.queued},
            "waiting_reads": self.reader.parked,
            "ledgers_to_close": self.sealer.waiting,
        }

    async def close(self) -> None:
        """Says goodbye to the sequencer and ends everything. The ledgers stay open until their owner closes them."""
        await self.appender.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self.indexer.close()
        await self.reader.close()
        try:
            await self._source.close()
        except BokiError as error:
            _log.info("readers not closed", error=error)
