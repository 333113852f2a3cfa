"""What an engine does between the logs and its connections: wires logs, router, reader and sealer together.

The followers of the logs call it with what is ordered (it is a `LogsListener`, each `EngineLog` a `FollowerListener`),
connections give it appends and reads. It listens nowhere and knows no metadata store; `engine.Engine` adds these.

All logs share the decision state of all books, the frontier, the cache and the readers of ledgers. What belongs to one log,
its appender and indexer, is in `engine_log`; one that stands still holds up no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from boki_common.engine.engine_protocol import Token
from boki_common.errors import BokiError, NotPermitted
from boki_common.ids import Position
from boki_common.logs import get_logger
from boki_common.metrics import Counter, Metrics
from boki_common.records.record_batch import RecordBatch
from boki_common.runtime.ports import MachineClock
from boki_ledger.ledgers import Ledgers
from boki_logbook.append.appender import Appender
from boki_logbook.append.router import AppendRouter
from boki_logbook.apply.engine_log import EngineLog
from boki_logbook.apply.engine_parts import EngineParts
from boki_logbook.apply.indexer import Indexer
from boki_logbook.apply.lost_entries import LostEntries
from boki_logbook.apply.sealer import Sealer
from boki_logbook.metric_definitions import EngineMetrics
from boki_logbook.peers.header_publisher import HeaderPublisher
from boki_logbook.peers.pushed_headers import PushedHeaders
from boki_logbook.ports import ShardLink
from boki_logbook.read.cache import BatchCache
from boki_logbook.read.carried_entries import CarriedEntries, Metalog
from boki_logbook.read.compression import compressor
from boki_logbook.read.entry_source import EntrySource
from boki_logbook.read.parked_reads import Arrival
from boki_logbook.read.reader import Reader
from boki_logbook.readiness import Readiness
from boki_logbook.scan.facts import ScanRange
from boki_logbook.scan.pages import Captured, capture
from boki_logbook.sequencer_calls import SequencerCalls
from boki_logbook.settings import EngineSettings
from boki_logbook.state.frontier import Frontier
from boki_logbook.state.snapshot_format import Snapshot
from boki_logbook.state.state import DecisionState
from boki_logbook.upkeep.clock_watch import ClockWatch
from boki_logbook.upkeep.expiry import Expiry
from boki_logbook.whole_state import WholeState
from boki_logbook.writers.early_conflicts import EarlyConflicts, early_conflicts
from boki_metalog.entries.metalog_entry import Lost
from boki_metalog.entries.progress import Order
from boki_metalog.terms.index_slots import index_slots_text, parse_index_slots
from boki_metalog.terms.term_order import ALL_SLOTS
from boki_metalog.terms.view import View

_log = get_logger("engine")


class EngineCore:
    """See the module. Implements `Serving`.

    Attributes:
        parts: what the logs share.
        logs: number → log.
        failed: gets what ends the engine.
        slots: what this engine indexes, as the bits of a number; calls about other books do not come here.
    """

    cluster = ""
    """Of a core alone; an engine has a name of its cluster from the metadata store."""

    def __init__(
        self,
        *,
        ledgers: Ledgers,
        incarnation: str,
        settings: EngineSettings,
        metrics: Metrics,
        given_up: LostEntries | None = None,
        clock: MachineClock | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        elapsed = loop.time if clock is None else clock.elapsed_s
        self.logs: dict[int, EngineLog] = {}
        self.failed: asyncio.Future[None] = loop.create_future()
        self.slots: Final = parse_index_slots(settings.index_slots)
        self.counters = EngineMetrics(metrics)
        self.parts = EngineParts(
            incarnation=incarnation,
            settings=settings,
            state=DecisionState(slots=self.slots),
            frontier=Frontier(),
            cache=BatchCache(settings.cache_bytes),
            given_up=LostEntries() if given_up is None else given_up,
            source=EntrySource(ledgers, fetched=self.counters.fetched),
            pushed=PushedHeaders(taken=self.counters.pushed),
        )
        self.snapshots = WholeState(self.parts, self.slots, self.logs)
        self.sequencers = SequencerCalls(self.logs)
        self.view_of: Final = self.parts.frontier.view_of
        self.log_of: Final = self.sequencers.log_of
        self.link_of: Final = self.sequencers.link_of
        self._readiness = Readiness(self.parts, self.slots, self.logs)
        self._clock = clock
        self.headers = HeaderPublisher()
        self.appender = AppendRouter(settings=settings, metrics=metrics, elapsed=elapsed)
        self._make_appender: Final = partial(
            Appender,
            ledgers=ledgers,
            incarnation=incarnation,
            settings=settings,
            metrics=metrics,
            backlog=self.appender,
            headers=self.headers,
            compress=compressor() if settings.compress else None,
            elapsed=elapsed,
        )
        carried = CarriedEntries(
            ledgers, metalog=self._metalog, shards=lambda term: self.state.places.terms[term].shards
        )
        self.reader = Reader(
            serving=self,
            state=self.state,
            cache=self.cache,
            source=self.parts.source,
            carried=carried,
            settings=settings,
        )
        self.sealer = Sealer(
            ledgers,
            carried,
            incarnation=incarnation,
            others_s=settings.retry_limit_s,
            backoff=settings.backoff,
        )
        self._expiry = Expiry(lambda: self.state, self.order, settings, log_of=self.log_of, elapsed=elapsed)
        self.clock_watch = None if clock is None else ClockWatch(clock, self._links, settings, metrics)
        self._tasks: list[asyncio.Task[None]] = []
        self._start_works()

    def _start_works(self) -> None:
        """What is measured now and then, and what goes on beside the logs."""
        counters = self.counters
        counters.index_bytes.set_function(lambda: self.state.index.bytes)
        counters.cache_bytes.set_function(lambda: self.cache.used_bytes)
        counters.queue_bytes.set_function(lambda: self.appender.queued_bytes)
        works = [self.sealer.run, self._expiry.run]
        if self.clock_watch is not None:
            works.append(self.clock_watch.run)
        loop = asyncio.get_running_loop()
        self._tasks += [loop.create_task(self._run(work)) for work in works]

    @property
    def incarnation(self) -> str:
        return self.parts.incarnation

    @property
    def state(self) -> DecisionState:
        """All that the logs decided."""
        return self.parts.state

    @property
    def frontier(self) -> Frontier:
        return self.parts.frontier

    @property
    def cache(self) -> BatchCache:
        return self.parts.cache

    @property
    def reads(self) -> Counter:
        """Read requests answered."""
        return self.counters.reads

    def fail(self, error: BaseException) -> None:
        """Ends the engine: what it knows cannot be trusted or continued."""
        if not self.failed.done():
            _log.error("engine failed", error=error)
            self.failed.set_exception(error)
            self.failed.exception()  # `failed` raises it where it is awaited

    async def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - the engine ends with it
            self.fail(error)

    def _links(self) -> dict[int, ShardLink]:
        return {number: log.link for number, log in self.logs.items() if log.link is not None}

    def _metalog(self, term: int) -> Metalog | None:
        """What is known of a term's metalog."""
        record = self.parts.terms.record_of(term)
        if record is not None:
            return Metalog(record.metalog_ledger, record.last_entry + 1)
        for number, log in self.logs.items():
            received = self.frontier.received.get(number)
            if log.info is not None and log.info.term == term and received is not None and received.term == term:
                return Metalog(log.info.metalog_ledger, received.entry)
        return None

    def restore(self, snapshot: Snapshot) -> None:
        """Goes on from a snapshot; before any log is found."""
        state = self.snapshots.restore(snapshot)
        self.reader.use(state)
        self.counters.begin_at(state.records)
        for shard in self.snapshots.closed_shards():
            self.sealer.seal(shard, None)

    def capture(self, asked: ScanRange, mode: str) -> Captured:
        """What pages of a scan are made of, of this moment. Raises NotPermitted: this engine does not index all books."""
        if self.slots != ALL_SLOTS:
            raise NotPermitted(
                f"expected a SCAN at an engine that indexes all slots, found one of {index_slots_text(self.slots)}: ask another"
            )
        return capture(self.state, self.frontier.covered, asked, mode, self._metalog)

    # -- LogsListener

    def log_found(self, log: int) -> EngineLog:
        appender = self._make_appender()
        indexer = Indexer(log, self.parts, appender, self)
        made = self.logs[log] = EngineLog(
            owner=self,
            frontier=self.frontier,
            router=self.appender,
            sealer=self.sealer,
            appender=appender,
            indexer=indexer,
        )
        point = self.snapshots.points.get(log)
        if point is not None:
            indexer.restore(point)
        self._tasks.append(asyncio.get_running_loop().create_task(self._run(appender.run)))
        return made

    def view_changed(self, view: View) -> None:
        self._readiness.view_changed()
        self.sequencers.view_changed(view)
        self.reader.advanced(())

    # -- LogOwner

    def link_changed(self) -> None:
        self.sequencers.link_changed()

    def lost(self, command: Lost) -> None:
        self.parts.given_up.add(command)
        for log in self.logs.values():
            log.indexer.lost(command)

    # -- IndexerOwner

    def advanced(self, arrived: Sequence[Arrival]) -> None:
        self.counters.decided_up_to(self.state.records)
        self.reader.advanced(arrived)
        self.snapshots.advanced()

    def term_applied(self) -> None:
        if len(self.logs) > 1:
            for log in self.logs.values():
                log.indexer.resume()

    def needing_snapshot(self) -> dict[int, Position]:
        """Where logs stand that only a snapshot brings on."""
        nowhere = Position(0, 0)
        return {
            number: self.frontier.positions.get(number, nowhere)
            for number, log in sorted(self.logs.items())
            if log.indexer.needs_snapshot or log.stop is not None
        }

    @property
    def pending(self) -> int:
        """Metalog entries received and not applied, of all logs."""
        return sum(log.indexer.pending for log in self.logs.values())

    # -- Serving

    @property
    def positions(self) -> Mapping[int, Position]:
        return self.frontier.positions

    @property
    def ready(self) -> bool:
        return self._readiness.ready

    def view_after(self, token: Token, book: int) -> tuple[dict[int, Position], int] | None:
        return self._readiness.view_after(token, book, self.sequencers.log_of(book))

    async def order(self, book: int, command: Order) -> tuple[int, Position]:
        return await self.sequencers.order(book, command)

    async def barrier(self, book: int) -> tuple[int, Position]:
        return await self.sequencers.barrier(book)

    def forget_before_ms(self, book: int) -> int:
        return self._expiry.forget_before_ms(book)

    # -- EngineState

    def now_ms(self) -> int:
        """Wall clock; the time of the newest cut where there is none."""
        return self.state.places.last_time_ms if self._clock is None else self._clock.now_ms()

    def check_named(self, batch: RecordBatch) -> None:
        """Check the named writers of a batch before it is ordered. Raises TooManyWriters."""
        self.state.verdicts.check_named(batch.runs)

    def early_conflicts(self, token: Token, batch: RecordBatch) -> EarlyConflicts | None:
        """The records of an appended batch that have lost already; the caller orders `batch` and answers `rows`."""
        found = early_conflicts(batch, token, self.state, self)
        if found is not None:
            self.counters.early_conflicts.inc(len(found.rows))
        return found

    @property
    def unordered_s(self) -> float:
        """How long the oldest append of this engine waits to be ordered; 0 when none does."""
        waits = [log.appender.unordered_s for log in self.logs.values()]
        return max(waits + [float(self.appender.waiting()["oldest_s"])])

    async def close(self) -> None:
        """Says goodbye to the sequencers and ends everything. The ledgers stay open until their owner closes them."""
        self.appender.close()
        await asyncio.gather(*(log.appender.close() for log in self.logs.values()))
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        for log in self.logs.values():
            await log.indexer.close()
        await self.reader.close()
        try:
            await self.parts.source.close()
        except BokiError as error:
            _log.info("readers not closed", error=error)
