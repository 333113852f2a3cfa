"""Appends batches of SDKs to this engine's shard of a log's current term, and has them ordered (DESIGN §6.2-3, §8).

An engine has one for each log; `router` gives it the batches whose books its term orders, and bounds their memory.

One shard is active at a time: a data ledger made ahead as a *spare* and opened at the sequencer. Batching is natural, without
timers: what queued up during one turn of the loop, or while `limits.BATCHES_IN_FLIGHT` entries wait for their quorum, becomes the
next entry. A batch that finds nothing in flight does not wait for that. An SDK's batch is never split.

    queue → entry of the shard → acked → reported → cut → applied by the indexer (`take`)

What finds nothing on its way, and is small, is *carried*: it goes to the sequencer alone, whose metalog entry makes it durable and
orders it at once (ADR 21). So is then what queued up until its cut, if it is small too. The data ledger gets them a little later.

    queue → carried to the sequencer → cut → applied … → entry of the shard, `WRITE_AFTER_S` later or before the next entry

A shard ends by its term's end, a CLOSE, the failure of its ledger, or its size and age. What was not cut then goes back to
the front of the queue, in order, under the same numbers. The next shard is used only after that, so records of one engine
are never ordered out of turn (FIFO).

What waits too long for a shard is dropped, and a shard whose bookies take nothing for so long fails. That ends the connection of
its SDK, which resends all that is undecided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from boki_common import limits
from boki_common.background_tasks import BackgroundTasks
from boki_common.errors import BokiError, NotEnoughBookies, Overloaded
from boki_common.logs import get_logger
from boki_common.metrics import Metrics
from boki_common.records.record_batch import Compress, RecordBatch
from boki_common.retry import event_or_timeout
from boki_common.runtime.ports import Buffer
from boki_ledger.ledgers import Ledgers, LedgerWriter
from boki_logbook.append.append_queue import AppendQueue, age_check_s
from boki_logbook.append.next_entry import entry_of, fit_together, next_pieces
from boki_logbook.append.shard import OwnEntry, Piece, Shard
from boki_logbook.append.spare_ledger import SpareLedger
from boki_logbook.metric_definitions import AppenderMetrics
from boki_logbook.peers.header_publisher import HeaderPublisher
from boki_logbook.ports import ShardLink
from boki_logbook.settings import EngineSettings

_log = get_logger("engine.appender")

WRITE_AFTER_S: Final = 0.005
"""Carried entries are written to their data ledger so long after the first of them, at the latest."""
CLOSE_TIMEOUT_S: Final = 1.0
"""Saying goodbye takes no longer; without it the sequencer closes the shard after its grace."""

ShardKey = tuple[int, int]
"""Term, shard number."""


class Backlog(Protocol):
    """Counts what waits in all logs of the engine."""

    def release(self, cost: int) -> None:
        """Batches were applied."""

    def resume_senders(self) -> None:
        """A shard ended."""

    def dropped(self, piece: Piece) -> None:
        """A batch waited too long."""


class Appender:
    """See the module. `run` opens shards; everything else is synchronous and called on the event loop."""

    def __init__(
        self,
        *,
        ledgers: Ledgers,
        incarnation: str,
        settings: EngineSettings,
        metrics: Metrics,
        backlog: Backlog,
        headers: HeaderPublisher,
        compress: Compress | None = None,
        elapsed: Callable[[], float] | None = None,
    ) -> None:
        """`elapsed`: a clock that runs on while the machine sleeps; the event loop's without one."""
        self._spare = SpareLedger(ledgers, incarnation=incarnation, settings=settings)
        self._headers = headers
        self._backlog = backlog
        self._settings = settings
        self._compress = compress
        self._loop = asyncio.get_running_loop()
        self._link: ShardLink | None = None
        self.shard: Shard | None = None
        """The active one."""
        self.shards: dict[ShardKey, Shard] = {}
        """What is cut of these can be taken here."""
        self._writers: dict[ShardKey, LedgerWriter] = {}
        self._closed: dict[ShardKey, None] = {}
        self._ended_term = 0
        self._slots: dict[int, int] = {}
        """Term → its slots as bits: of the terms that began and are not over, one at most."""
        self.no_shard: Callable[[ShardLink], object] = lambda _: None
        """Called when no shard can be opened at a sequencer, as too few bookies take writes; again each time that it is tried."""
        self._waiting = AppendQueue(settings.append_age_s, backlog.dropped, elapsed)
        self._age_check = self._loop.call_later(age_check_s(settings.append_age_s), self._check_age)
        self._flush_due = False
        self._write_due: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()
        self._background = BackgroundTasks()
        self._metrics = AppenderMetrics(metrics)

    # -- what the rest of the engine asks

    @property
    def queued(self) -> int:
        """Batches that no active shard has yet."""
        return len(self._waiting.pieces)

    @property
    def oldest_s(self) -> float:
        """How long the oldest of them waits; 0 when there is none."""
        return self._waiting.oldest_s

    @property
    def unordered_s(self) -> float:
        """How long the oldest append waits to be ordered, in the queue or in the shard; 0 when there is none."""
        since_s = None if self.shard is None else self.shard.uncut_since_s
        return max(self.oldest_s, 0.0 if since_s is None else self._waiting.elapsed() - since_s)

    def status(self) -> dict[str, Any] | None:
        """The active shard, as plain values."""
        shard = self.shard
        if shard is None:
            return None
        return {
            "number": shard.number,
            "ledger_id": shard.writer.ledger_id,
            "submitted_entries": shard.submitted_entries,
            "acked_entries": shard.acked_entries,
            "cut_entries": shard.cut_entries,
            "unacked_s": None if shard.unacked_since_s is None else self._loop.time() - shard.unacked_since_s,
            "failing_bookies": shard.writer.failing_bookies,
        }

    def add(self, piece: Piece) -> None:
        """Queues a batch whose books belong to this log's term, or to the next one."""
        shard, queue = self.shard, self._waiting.pieces
        if shard is not None and shard.accepting and not shard.in_flight and not queue and not shard.carrying:
            self._send(shard, (piece,))
            return
        self._waiting.add(piece)
        if shard is not None and not shard.in_flight:
            self._flush()
        elif not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush_now)

    def take_queue(self) -> list[Piece]:
        """All batches that no shard has, in order: they may have to go elsewhere."""
        return self._waiting.take_all()

    def take(self, term: int, number: int, entry: int) -> OwnEntry | None:
        """The entry to apply next, if this engine wrote it."""
        shard = self.shards.get((term, number))
        if shard is None:
            return None
        own = shard.take(entry)
        if own is not None:
            self._backlog.release(own.cost)
        if shard is not self.shard and shard.drained:
            del self.shards[term, number]
        return own

    def writer_of(self, term: int, number: int) -> LedgerWriter | None:
        """The writer of a shard of ours that ended, handed over once, if it still can close its ledger."""
        return self._writers.pop((term, number), None)

    # -- events of the log

    def term_started(self, term: int, slots: int) -> None:
        """The view names the term; `slots` are those it orders, as bits."""
        self._slots[term] = slots

    def link_up(self, link: ShardLink) -> None:
        """A sequencer takes reports: of the term of our shard, or of a later one."""
        self._link = link
        shard = self.shard
        if shard is not None and shard.term == link.term and self._is_old(shard):
            self._fail_old(shard)
        elif shard is not None and shard.term == link.term and shard.acked_entries > shard.cut_entries:
            link.report(shard.number, shard.acked_records, shard.acked_entries)
        if shard is not None and shard.term == link.term and shard.failed:
            self._end_failed(shard)
        self._wake.set()

    def link_down(self) -> None:
        self._link = None
        self._write_carried()  # whether the sequencer has the newest is unknown: it will be reported

    def cut(self, term: int, number: int, entries_end: int) -> None:
        """The metalog orders a shard up to `entries_end`. Raises StateDisagrees: this engine never reported that."""
        shard = self.shards.get((term, number))
        if shard is not None and entries_end > shard.cut_entries:
            shard.cut(entries_end)
            if not shard.accepting:
                self._end_if_finished(shard)

    def cut_applied(self) -> None:
        """Whoever was to be answered was: what waited for an entry that was carried goes now."""
        if self._waiting.pieces:
            self._flush()

    def closed(self, term: int, number: int) -> None:
        """The metalog closed a shard where it is cut."""
        self._closed[term, number] = None
        shard = self.shards.get((term, number))
        if shard is not None:
            self._end(shard, "closed by the sequencer")

    def term_ended(self, term: int) -> None:
        """Nothing more is ordered in the term."""
        self._ended_term = max(self._ended_term, term)
        self._slots.pop(term, None)
        self._closed.clear()
        for shard in [shard for shard in self.shards.values() if shard.term <= term]:
            self._end(shard, "its term ended")
        self._wake.set()

    # -- sending

    def _flush_now(self) -> None:
        self._flush_due = False
        self._flush()

    def _flush(self) -> None:
        shard = self.shard
        if shard is None:
            return
        self._waiting.drop_old()
        while self._waiting.pieces and shard.in_flight < limits.BATCHES_IN_FLIGHT and shard.accepting:
            if shard.carrying and fit_together(self._waiting.pieces, self._settings.carried_entry_bytes):
                return  # it will be carried next, when the one that is on its way is cut
            if not self._send(shard, next_pieces(self._waiting.pieces)):
                return

    def _send(self, shard: Shard, pieces: Sequence[Piece]) -> bool:
        """Makes these the next entry; what could not be sent is in front of the queue again: False."""
        for piece in pieces:
            assert not piece.slots & shard.foreign_slots, (
                f"a book of another log came to shard {shard.number} of {shard.term}"
            )
        payload, batch = entry_of(shard, pieces, self._compress)
        link = self._carrier(shard, batch)
        try:
            if link is not None:
                entry = shard.submitted_entries
            else:
                self._write(shard)
                entry = shard.writer.submit(*payload)
        except Overloaded:
            self._waiting.put_back(pieces)
            return False  # the writer's window is full: the next ack goes on
        except BokiError as error:
            self._waiting.put_back(pieces)
            self._failed(shard, error)
            return False
        now_s = self._loop.time()
        shard.submitted(entry, batch, pieces, now_s)
        if link is not None:
            self._carry(link, shard, payload)
        self._metrics.entries.value += 1
        self._metrics.records.value += batch.record_count
        if shard.bytes >= self._settings.shard_bytes or now_s - shard.opened_s >= self._settings.shard_age_s:
            shard.retire()
        return True

    def _carrier(self, shard: Shard, batch: RecordBatch) -> ShardLink | None:
        """Who has the next entry carried, if it may be."""
        link = self._link
        if link is None or link.term != shard.term or not link.carries:
            return None
        return link if batch.size <= self._settings.carried_entry_bytes and shard.may_carry else None

    def _carry(self, link: ShardLink, shard: Shard, payload: Sequence[Buffer]) -> None:
        """Has the sequencer order the entry that was submitted last; its ledger gets it later."""
        shard.carried(payload)
        link.carry(shard.number, shard.submitted_records, shard.submitted_entries, payload)
        self._metrics.carried.value += 1
        if self._write_due is None:
            self._write_due = self._loop.call_later(WRITE_AFTER_S, self._write_carried)

    def _write_carried(self) -> None:
        """Gives the data ledger what was carried."""
        if self._write_due is not None:
            self._write_due.cancel()
            self._write_due = None
        shard = self.shard
        if shard is None:
            return
        try:
            self._write(shard)
        except Overloaded:
            return  # the writer's window is full: the next ack goes on
        except BokiError as error:
            self._failed(shard, error)
            return
        self._flush()

    def _write(self, shard: Shard) -> None:
        """Gives a data ledger what was carried. Raises what its writer does; the rest is unwritten then."""
        unwritten = shard.unwritten
        while unwritten:
            entry = shard.writer.submit(*unwritten[0])
            assert entry == shard.carried_entries - len(unwritten), (
                f"ledger {shard.writer.ledger_id} gave entry id {entry} out of turn"
            )
            unwritten.popleft()

    def _acked(self, shard: Shard, last_acked: int) -> None:
        if shard is not self.shard:
            return  # it ended: what is beyond its cut is appended again elsewhere
        first = shard.acked_entries
        sent_s = shard.acked(last_acked)
        if shard.unwritten and self._write_due is None:
            self._write_carried()
        if sent_s is None:
            return
        link = self._link
        if link is not None and link.term == shard.term:
            link.report(shard.number, shard.acked_records, shard.acked_entries, now=not shard.in_flight)
        self._metrics.ack_seconds.observe(self._loop.time() - sent_s)
        if self._headers.subscribers:
            entries = shard.newly_acked(first)
            self._headers.acked(shard.writer.ledger_id, shard.term, shard.number, entries)
        if self._waiting.pieces:
            self._flush()

    def _failed(self, shard: Shard, error: BokiError) -> None:
        if shard.failed or shard is not self.shard:
            return
        _log.warning(
            "data ledger failed", term=shard.term, shard=shard.number, ledger_id=shard.writer.ledger_id, error=error
        )
        shard.fail()
        self._writers.pop((shard.term, shard.number), None)
        shard.writer.abandon()  # closing it takes recovery now
        self._end_failed(shard)

    def _is_old(self, shard: Shard) -> bool:
        """Whether something of it arrived so long ago that it may not be ordered any more, unless it was reported."""
        since_s = shard.uncut_since_s
        return since_s is not None and self._waiting.is_old(since_s)

    def _check_age(self) -> None:
        """What bookies do not take in time is never ordered."""
        self._age_check = self._loop.call_later(age_check_s(self._settings.append_age_s), self._check_age)
        shard = self.shard
        if shard is not None and shard.in_flight and self._is_old(shard):
            self._fail_old(shard)

    def _fail_old(self, shard: Shard) -> None:
        """Nothing more of the shard is ordered, whatever was not reported yet."""
        self._failed(shard, Overloaded(f"an append was not ordered within {self._settings.append_age_s} s"))
        link = self._link
        if shard is self.shard and link is not None and link.term == shard.term:
            self._background.spawn(self._close_shard(link, shard.number))

    # -- the end of a shard

    def _end_failed(self, shard: Shard) -> None:
        """If its last entry was carried, nobody here knows whether that will be ordered: its CLOSE does."""
        self._end_if_finished(shard)
        link = self._link
        unreported = shard.carried_entries > max(shard.cut_entries, shard.acked_entries)
        if shard is self.shard and unreported and link is not None and link.term == shard.term:
            self._background.spawn(self._close_shard(link, shard.number))

    def _end_if_finished(self, shard: Shard) -> None:
        if shard is self.shard and shard.finished:
            link = self._link
            if link is not None and link.term == shard.term:
                self._background.spawn(self._close_shard(link, shard.number))
            self._end(shard, "its data ledger failed" if shard.failed else "rolled")

    def _end(self, shard: Shard, reason: str) -> None:
        """Nothing of the shard beyond its cut will be ordered: that goes elsewhere."""
        uncut = shard.take_uncut()
        self._waiting.put_back(uncut)
        if shard.drained:
            self.shards.pop((shard.term, shard.number), None)
        if shard is self.shard:
            _log.info("shard ended", term=shard.term, shard=shard.number, reason=reason, appended_again=len(uncut))
            self.shard = None
            self._write_last(shard)
            self._backlog.resume_senders()
            self._wake.set()

    def _write_last(self, shard: Shard) -> None:
        """Completes the data ledger of a shard that ended. If it takes not all, recovery does, from the metalog."""
        try:
            self._write(shard)
        except BokiError as error:
            _log.info("data ledger is left to recovery", ledger_id=shard.writer.ledger_id, error=error)
            self._writers.pop((shard.term, shard.number), None)
            shard.writer.abandon()

    async def _close_shard(self, link: ShardLink, number: int) -> None:
        backoff = self._settings.backoff()
        while True:
            try:
                await link.close_shard(number)
                return
            except Overloaded as error:  # what waits for it to close would wait for the term's end
                _log.info("shard not closed yet", term=link.term, shard=number, error=error)
            except BokiError as error:  # the sequencer closes it when the term ends, at the latest
                _log.info("shard not closed at the sequencer", term=link.term, shard=number, error=error)
                return
            await asyncio.sleep(backoff.next())

    # -- the beginning of a shard

    async def run(self) -> None:
        """Opens a shard whenever there is none and a sequencer to open it at. Ends only when cancelled."""
        backoff = self._settings.backoff()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (link := self._opening_link()) is not None:
                try:
                    await self._open_shard(link)
                    backoff.reset()
                except BokiError as error:
                    _log.info("no shard yet", term=link.term, error=error)
                    if isinstance(error, NotEnoughBookies):
                        self.no_shard(link)
                    # The next term's sequencer is not kept waiting.
                    await event_or_timeout(self._wake, backoff.next())
                    if self._link is not link:
                        backoff.reset()

    def _opening_link(self) -> ShardLink | None:
        link = self._link
        if self.shard is not None or link is None or link.term <= self._ended_term:
            return None
        return link

    async def _open_shard(self, link: ShardLink) -> None:
        number, writer = await self._spare.open_shard(link)
        key = link.term, number
        if link.term <= self._ended_term or key in self._closed:
            self._spare.close_unused(writer)
            return
        shard = self.shard = self.shards[key] = Shard(
            link.term, number, writer, self._loop.time(), self._slots[link.term]
        )
        self._writers[key] = writer
        writer.listen(partial(self._acked, shard), partial(self._failed, shard))
        self._metrics.shards_opened.inc()
        _log.info("shard opened", term=shard.term, shard=number, ledger_id=writer.ledger_id)
        self._spare.make()
        self._flush()

    # -- end

    async def close(self) -> None:
        """Tells the sequencer that the shard ends, as far as it listens in time, and deletes the spare ledger."""
        self._write_carried()
        shard, link = self.shard, self._link
        self.shard = self._link = None
        self._waiting.close()
        self._age_check.cancel()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                if shard is not None and link is not None and link.term == shard.term:
                    await self._close_shard(link, shard.number)
                await self._spare.delete()
        except (BokiError, TimeoutError) as error:
            _log.info("engine left without saying so", error=error)
        await self._background.close()
        await self._spare.close()
