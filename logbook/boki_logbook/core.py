"""What an engine does between the logs and its connections: wires logs, router, reader and sealer together.

The followers of the logs tell it what is ordered (it is a `LogsListener`, each `EngineLog` a `FollowerListener`),
connections give it appends and reads. It listens nowhere and knows no metadata store; `engine.Engine` adds these.

All logs share the decision state of all books, the frontier, the cache and the readers of ledgers. What belongs to one log,
its appender and indexer, is in `engine_log`; one that stands still holds up no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from boki_common import limits
from boki_common.engine.engine_protocol import Token
from boki_common.errors import (
    BokiError,
    CorruptData,
    NetworkError,
    NoSequencer,
    NotPermitted,
    OrderUnknown,
    SlotNotInTerm,
    TermOver,
)
from boki_common.ids import Position, slot_of
from boki_common.logs import get_logger
from boki_common.metrics import Metrics
from boki_common.records.record_batch import RecordBatch
from boki_common.runtime.ports import MachineClock
from boki_ledger.ledgers import Ledgers
from boki_logbook import metric_definitions as definitions
from boki_logbook.append.appender import Appender
from boki_logbook.append.router import AppendRouter
from boki_logbook.apply.engine_log import EngineLog
from boki_logbook.apply.given_up import GivenUp
from boki_logbook.apply.indexer import Indexer
from boki_logbook.apply.sealer import Sealer
from boki_logbook.peers.header_publisher import HeaderPublisher
from boki_logbook.peers.pushed_headers import PushedHeaders
from boki_logbook.ports import ShardLink
from boki_logbook.read.cache import BatchCache
from boki_logbook.read.carried_entries import CarriedEntries, Metalog
from boki_logbook.read.compression import compressor
from boki_logbook.read.entry_source import EntrySource
from boki_logbook.read.parked_reads import Arrival
from boki_logbook.read.reader import Reader
from boki_logbook.scan.facts import ScanRange
from boki_logbook.scan.pages import Captured, capture
from boki_logbook.settings import EngineSettings
from boki_logbook.state.frontier import Frontier
from boki_logbook.state.snapshot_format import LogPoint, Snapshot
from boki_logbook.state.snapshot_rules import as_applied
from boki_logbook.state.state import DecisionState, checked_state
from boki_logbook.upkeep.clock_watch import ClockWatch
from boki_logbook.upkeep.expiry import Expiry
from boki_logbook.writers.early_conflicts import EarlyConflicts, early_conflicts
from boki_metalog.entries.metalog_entry import Lost
from boki_metalog.entries.progress import Order
from boki_metalog.terms.index_slots import index_slots_text, parse_index_slots
from boki_metalog.terms.term_order import ALL_SLOTS
from boki_metalog.terms.term_record import TermRecord
from boki_metalog.terms.view import FIRST_LOG, View

ORDER_WAIT_S: Final = limits.CALL_TIMEOUT_S
"""A command or a barrier waits so long for a sequencer that takes it, through as many terms as there are."""
FAULT_AFTER_S: Final = 10.0
"""An entry that cannot be read for so long is a fault, and not only bookies that are away for a moment."""
HOLD_S: Final = 1.0
"""For a snapshot all logs stop behind a metalog entry, for so long at most: then another time."""

_log = get_logger("engine")


class EngineCore:
    """See the module. Implements `Serving`. `failed` gets what ends the engine; the other attributes are for the server,
    for the simulator and for tests."""

    waits_for_snapshot: str = ""
    """Why it cannot begin yet, when the index snapshot that it would begin with is of no use."""
    _prepared: tuple[Snapshot, DecisionState] | None = None
    """The state of a snapshot that was found to be usable, until it is restored."""

    cluster = ""
    """Of a core alone; an engine has a name of its cluster from the metadata store."""

    def __init__(
        self,
        *,
        ledgers: Ledgers,
        incarnation: str,
        settings: EngineSettings,
        metrics: Metrics,
        given_up: GivenUp | None = None,
        clock: MachineClock | None = None,
    ) -> None:
        self.incarnation = incarnation
        self.given_up = GivenUp() if given_up is None else given_up
        """What is known to be lost; one that begins anew knows what the one before it knew."""
        self.known_engines: list[str] = []
        """Addresses of the engines of the cluster, as far as is known."""
        self.logs: dict[int, EngineLog] = {}
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self._ledgers = ledgers
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._elapsed = self._loop.time if clock is None else clock.elapsed_s
        self._compress = compressor() if settings.compress else None
        self.slots: Final = parse_index_slots(settings.index_slots)
        """What this engine indexes, as the bits of a number; calls about other books do not come here."""
        self.foreign: Callable[[int], bool] = lambda term: False
        """Whether a term is known to have none of these slots: then nobody here waits for what it ordered."""
        self.record_of: Callable[[int], TermRecord | None] = lambda term: None
        """The record of a sealed term, as far as it was read."""
        self.state = DecisionState(slots=self.slots)
        self.frontier = Frontier()
        self.cache = BatchCache(settings.cache_bytes)
        self._source = EntrySource(ledgers, fetched=metrics.counter(definitions.FETCHED_ENTRIES))
        self.pushed = PushedHeaders(taken=metrics.counter(definitions.PUSHED_HEADERS))
        """Of other engines' entries."""
        self.headers = HeaderPublisher()
        self.appender = AppendRouter(settings=settings, metrics=metrics, elapsed=self._elapsed)
        carried = CarriedEntries(
            ledgers, metalog=self._metalog, shards=lambda term: self.state.places.terms[term].shards
        )
        self.reader = Reader(
            serving=self, state=self.state, cache=self.cache, source=self._source, carried=carried, settings=settings
        )
        self.sealer = Sealer(
            ledgers,
            carried,
            incarnation=incarnation,
            others_s=settings.retry_limit_s,
            retry_first_s=settings.retry_first_s,
            retry_limit_s=settings.retry_limit_s,
        )
        self._view: View | None = None
        self._log_of_slot: tuple[int, ...] = ()
        self._only_log: int | None = None
        """The log that orders every slot, while one does."""
        self._first_logs: tuple[int, ...] | None = None
        """The logs that existed when this engine started, until all of them have caught up."""
        self._ready = False
        self._moved: list[asyncio.Future[None]] = []
        self._points: dict[int, LogPoint] = {}
        """Where the snapshot was that this engine began with."""
        self._stopped: asyncio.Future[None] | None = None
        """Told of each advance, while a snapshot waits for the logs to stop."""
        self._counted_records = 0
        self._indexed = metrics.counter(definitions.INDEXED_RECORDS)
        self.reads = metrics.counter(definitions.READS)
        self._early = metrics.counter(definitions.EARLY_CONFLICTS)
        self._tasks: list[asyncio.Task[None]] = []
        self._start_works()

    def _start_works(self) -> None:
        """What is measured now and then, and what goes on beside the logs."""
        metrics, clock, settings = self._metrics, self._clock, self._settings
        self._expiry = Expiry(lambda: self.state, self.order, settings, log_of=self.log_of, elapsed=self._elapsed)
        self._clock_watch = None if clock is None else ClockWatch(clock, self._links, settings, metrics)
        self._acks = metrics.histogram(definitions.ACK_SECONDS)
        metrics.gauge(definitions.INDEX_BYTES).set_function(lambda: self.state.index.bytes)
        metrics.gauge(definitions.CACHE_BYTES).set_function(lambda: self.cache.used_bytes)
        metrics.gauge(definitions.QUEUE_BYTES).set_function(lambda: self.appender.queued_bytes)
        works = [self.sealer.run, self._expiry.run]
        if self._clock_watch is not None:
            works.append(self._clock_watch.run)
        self._tasks += [self._loop.create_task(self._run(work)) for work in works]

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

    def _links(self) -> dict[int, ShardLink]:
        return {number: log.link for number, log in self.logs.items() if log.link is not None}

    def _metalog(self, term: int) -> Metalog | None:
        """What is known of a term's metalog."""
        record = self.record_of(term)
        if record is not None:
            return Metalog(record.metalog_ledger, record.last_entry + 1)
        for number, log in self.logs.items():
            received = self.frontier.received.get(number)
            if log.info is not None and log.info.term == term and received is not None and received.term == term:
                return Metalog(log.info.metalog_ledger, received.entry)
        return None

    # -- snapshots

    def restore(self, snapshot: Snapshot) -> None:
        """Goes on from a snapshot; before any log is found."""
        assert not self.logs, "a snapshot is restored before anything is applied"
        prepared, self._prepared = self._prepared, None
        state = (
            prepared[1]
            if prepared is not None and prepared[0] is snapshot
            else checked_state(snapshot.state, slots=self.slots)
        )
        self.state = state
        self.reader.use(state)
        self._points = {point.log: point for point in snapshot.logs}
        self.frontier.restore(
            {log: Position(point.term, point.entry) for log, point in self._points.items()},
            {log: point.covered for log, point in self._points.items() if point.covered},
            dict(snapshot.ended),
            [(term, places.log, places.slots) for term, places in state.places.terms.items()],
        )
        self._counted_records = state.records
        for term in sorted(state.places.terms):
            places = state.places.terms[term]
            for shard in places.shards.values():
                if shard.closed and state.live(term):
                    self.sealer.seal(shard, None)

    def check_usable(self, snapshot: Snapshot) -> None:
        """Whether this engine can begin with it. Raises CorruptData: nothing can be made of it, or it has something that was given
        up as never indexed."""
        state = checked_state(snapshot.state, slots=self.slots)
        if not all(state.agrees(lost) for lost in self.given_up.commands):
            raise CorruptData("the index snapshot has entries that a LOST command gave up as never indexed")
        self._prepared = snapshot, state

    def starts(self) -> dict[int, Position]:
        """Where each log goes on; a log that is not named begins at its beginning."""
        return {
            log: Position(point.term + 1, 0) if point.ended else Position(point.term, point.entry)
            for log, point in self._points.items()
        }

    async def snapshot(self) -> Snapshot:
        """The whole state: every log stops behind a metalog entry, until all have. Raises TimeoutError."""
        try:
            async with asyncio.timeout(HOLD_S):
                while True:
                    for log in self.logs.values():
                        log.indexer.hold()
                    if all(log.indexer.between_entries for log in self.logs.values()):
                        return self._snapshot_now()
                    self._stopped = self._loop.create_future()
                    await self._stopped
        finally:
            self._stopped = None
            for log in self.logs.values():
                log.indexer.release()

    def _snapshot_now(self) -> Snapshot:
        points = [self.logs[log].indexer.point() for log in sorted(self.logs)]
        logs = tuple(point for point in points if point is not None)
        state = as_applied(self.state.snapshot_state(), logs)
        return Snapshot(state, logs, tuple(sorted(self.frontier.ended.items())))

    def capture(self, asked: ScanRange, mode: str) -> Captured:
        """What pages of a scan are made of, of this moment. Raises NotPermitted: this engine does not index all books."""
        if self.slots != ALL_SLOTS:
            raise NotPermitted(
                f"expected a SCAN at an engine that indexes all slots, found one of {index_slots_text(self.slots)}: ask another"
            )
        return capture(self.state, self.frontier.covered, asked, mode, self._metalog)

    # -- LogsListener

    def log_found(self, log: int) -> EngineLog:
        made = self.logs[log] = EngineLog(
            log=log,
            owner=self,
            frontier=self.frontier,
            router=self.appender,
            sealer=self.sealer,
            make_appender=self._make_appender,
            make_indexer=lambda appender: self._make_indexer(log, appender),
        )
        point = self._points.get(log)
        if point is not None:
            made.indexer.restore(point)
        self._tasks.append(self._loop.create_task(self._run(made.appender.run)))
        return made

    def _make_appender(self) -> Appender:
        return Appender(
            ledgers=self._ledgers,
            incarnation=self.incarnation,
            settings=self._settings,
            metrics=self._metrics,
            backlog=self.appender,
            headers=self.headers,
            compress=self._compress,
            elapsed=self._elapsed,
        )

    def _make_indexer(self, log: int, appender: Appender) -> Indexer:
        return Indexer(
            log=log,
            incarnation=self.incarnation,
            state=self.state,
            frontier=self.frontier,
            own=appender,
            given_up=self.given_up,
            source=self._source,
            pushed=self.pushed,
            cache=self.cache,
            advanced=self._advanced,
            term_applied=self._term_applied,
            failed=self.fail,
            retry_first_s=self._settings.retry_first_s,
            retry_limit_s=self._settings.retry_limit_s,
        )

    def view_changed(self, view: View) -> None:
        self._view = view
        if self._first_logs is None:
            self._first_logs = tuple(self.logs)
        self._log_of_slot = tuple(log for first, last, log in view.slots for _ in range(first, last + 1))
        self._only_log = view.slots[0].log if len({one.log for one in view.slots}) == 1 else None
        self.link_changed()
        self.reader.advanced(())

    # -- LogOwner

    def link_changed(self) -> None:
        moved, self._moved = self._moved, []
        for future in moved:
            if not future.done():
                future.set_result(None)

    def lost(self, command: Lost) -> None:
        self.given_up.add(command)
        for log in self.logs.values():
            log.indexer.lost(command)

    # -- what indexers tell

    def _advanced(self, arrived: Sequence[Arrival]) -> None:
        records = self.state.records
        self._indexed.value += records - self._counted_records
        self._counted_records = records
        self.reader.advanced(arrived)
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    def _term_applied(self) -> None:
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

    def faults(self) -> list[str]:
        """What keeps something of the logs from being served, for people, and will hardly mend itself."""
        found = [self.waits_for_snapshot] if self.waits_for_snapshot else []
        for number, log in sorted(self.logs.items()):
            if log.stop is not None:
                (term, entry), error = log.stop
                found.append(f"log {number} stops at entry {entry} of the metalog of term {term}: {error}")
            found += [
                f"log {number} waits for entry {one['first']} of data ledger {one['ledger_id']}, which cannot be read: {one['error']}"
                for one in log.indexer.unreadable
                if one["for_s"] >= FAULT_AFTER_S
            ]
        return found

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
        if not self._ready and self._first_logs is not None:
            self._ready = all(self.logs[log].indexer.ready for log in self._first_logs)
        return self._ready

    def reached(self, token: Token, book: int | None = None) -> bool:
        if not self._ready and not self.ready and (book is None or not self._ready_for(book)):
            return False
        if self.slots != ALL_SLOTS:
            token = {log: position for log, position in token.items() if not self.foreign(position.term)}
        return self.frontier.reached(token)

    def _ready_for(self, book: int) -> bool:
        """Whether the book's log has caught up; what comes before its term in other logs was applied first."""
        log = None if self._view is None else self.logs.get(self.log_of(book))
        return log is not None and log.indexer.ready

    def covered(self, book: int) -> int:
        return self.frontier.covered_of(book)

    def seen(self, book: int) -> dict[int, Position]:
        return self.frontier.seen(book)

    def view_of(self, book: int) -> tuple[dict[int, Position], int]:
        return self.frontier.view_of(book)

    def log_of(self, book: int) -> int:
        if self._only_log is not None:
            return self._only_log
        return self._log_of_slot[slot_of(book)] if self._log_of_slot else FIRST_LOG

    def link_of(self, log: int) -> ShardLink | None:
        found = self.logs.get(log)
        return None if found is None else found.link

    async def order(self, book: int, command: Order) -> tuple[int, Position]:
        return await self._ask(book, lambda link: link.order(command))

    def forget_before_ms(self, book: int) -> int:
        return self._expiry.forget_before_ms(book)

    async def barrier(self, book: int) -> tuple[int, Position]:
        return await self._ask(book, lambda link: link.barrier())

    async def _ask(self, book: int, call: Callable[[ShardLink], Awaitable[Position]]) -> tuple[int, Position]:
        """Asks the sequencer of the book's log, and the next one when it cannot prove that its term goes on."""
        asked: tuple[ShardLink, View | None] | None = None
        fault: BokiError | None = None
        perhaps = False  # whether a sequencer that was asked may have ordered it
        try:
            async with asyncio.timeout(ORDER_WAIT_S):
                while True:
                    log = self.logs.get(self.log_of(book))
                    link = None if log is None else log.link
                    if log is not None and link is not None and (link, self._view) != asked:
                        asked = link, self._view
                        before, perhaps = perhaps, True
                        try:
                            return log.log, await call(link)
                        except (TermOver, SlotNotInTerm, NetworkError) as error:
                            fault = error
                            perhaps = before or not error.definite
                    else:
                        moved: asyncio.Future[None] = self._loop.create_future()
                        self._moved.append(moved)
                        await moved
        except TimeoutError:
            raise (OrderUnknown if perhaps else NoSequencer)(
                f"no sequencer of log {self.log_of(book)} answered within {ORDER_WAIT_S} s"
                f"{'' if fault is None else f', the last said: {fault}'}; "
                f"{'whether it was ordered is unknown' if perhaps else 'nothing was ordered'}: ask again"
            ) from fault

    # -- EngineState

    def engines(self) -> list[str]:
        return self.known_engines

    def now_ms(self) -> int:
        """Wall clock; the time of the newest cut where there is none."""
        return self.state.places.last_time_ms if self._clock is None else self._clock.now_ms()

    def early_conflicts(self, token: Token, batch: RecordBatch) -> EarlyConflicts | None:
        """The records of an appended batch that have lost already; the caller orders `batch` and tells `rows`."""
        found = early_conflicts(batch, token, self.state, self)
        if found is not None:
            self._early.inc(len(found.rows))
        return found

    @property
    def unordered_s(self) -> float:
        """How long the oldest append of this engine waits to be ordered; 0 when none does."""
        waits = [log.appender.unordered_s for log in self.logs.values()]
        return max(waits + [float(self.appender.waiting()["oldest_s"])])

    def status(self) -> dict[str, Any]:
        """What there is to say about this engine; values are plain. The first log's facts are also the engine's."""
        appender, index = self.appender, self.state.index
        logs = [self.logs[log].status() for log in sorted(self.logs)]
        if self._clock_watch is not None:
            for log in logs:
                log["clock"] = self._clock_watch.status(log["log"])
        first = logs[0] if logs else {"log": FIRST_LOG, "term": 0, "position": {}, "seqnum": 0, "shard": None}
        return {
            "role": "engine",
            "incarnation": self.incarnation,
            "log": first["log"],
            "ready": self.ready,
            "index_slots": index_slots_text(self.slots),
            "term": first["term"],
            "position": first["position"],
            "lag_entries": self.pending,
            "seqnum": first["seqnum"],
            "shard": first["shard"],
            "logs": logs,
            "records": self.state.records,
            "books": index.count_books(),
            "writers": len(self.state.verdicts),
            "index": {
                "rows": len(index),
                "bytes": index.bytes,
                "runs": index.run_count,
                "entries": self.state.places.entry_count,
            },
            "cache": {
                "bytes": self.cache.used_bytes,
                "batches": len(self.cache),
                "hits": self.cache.hits,
                "misses": self.cache.misses,
            },
            "append_queue": {"bytes": appender.queued_bytes, "batches": appender.queued},
            "ack_seconds": {"bounds": self._acks.bounds, "counts": self._acks.counts},
            "between_terms": appender.waiting(),
            "waiting_reads": self.reader.parked,
            "unreadable_data": self.reader.unreadable,
            "reads": {"positions": {str(log): one._asdict() for log, one in self.reader.awaited().items()}},
            "ledgers_to_close": self.sealer.waiting,
            "faults": self.faults(),
        }

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
            await self._source.close()
        except BokiError as error:
            _log.info("readers not closed", error=error)
