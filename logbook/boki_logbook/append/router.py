"""Takes the appends of all connections and gives each to the appender of its log; one bound for all of them together.

While there is one log, nothing is looked at: everything goes to that log's appender. Otherwise each batch is split by `routes`:
also where the engine knows one log because it indexes some slots, for these may move to another any time. What has no way now,
because its slot moves, waits here, in order, and goes on when a term that has the slot begins; what a term that is over did not
cut comes back here first, under the same numbers.

A process that was stopped for long (SIGSTOP, a machine that slept) does not know how old is what waits in its connections: it ends
them, and SDKs judge what they send again.

Memory is bounded: batches count from their arrival until they are applied; above the bound appends are refused as
Overloaded. Either all of a batch is taken, or nothing of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from boki_common.errors import Overloaded
from boki_common.logs import get_logger
from boki_common.metrics import Metrics
from boki_common.records.record_batch import RecordBatch
from boki_logbook import metric_definitions as definitions
from boki_logbook.append.append_queue import AppendQueue
from boki_logbook.append.appender import Appender
from boki_logbook.append.routes import NOWHERE, Routes
from boki_logbook.append.shard import Piece, make_piece
from boki_logbook.ports import AppendSource
from boki_logbook.settings import EngineSettings
from boki_metalog.terms.index_slots import parse_index_slots
from boki_metalog.terms.term_order import ALL_SLOTS
from boki_metalog.terms.view import SlotRange

_BEATS: Final = 8
"""How often, within the longest age of an append, it is looked whether this process was stopped; or else every:"""
_BEAT_S: Final = 5.0

_log = get_logger("engine.router")


class AppendRouter:
    """See the module. Everything is synchronous and called on the event loop.

    Invariant: `queued_bytes` is the cost of all batches that are in this engine and not applied.
    """

    def __init__(
        self, *, settings: EngineSettings, metrics: Metrics, elapsed: Callable[[], float] | None = None
    ) -> None:
        """`elapsed`: a clock that runs on while the machine sleeps; the event loop's without one."""
        self.queued_bytes = 0
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._appenders: dict[int, Appender] = {}
        self._only: Appender | None = None
        """Who gets everything, unseen."""
        self._knows_all_logs = parse_index_slots(settings.index_slots) == ALL_SLOTS
        self._routes = Routes()
        self._elapsed: Final = self._loop.time if elapsed is None else elapsed
        self._waiting = AppendQueue(settings.append_age_s, self.dropped, self._elapsed)
        self.stopped: Callable[[], object] = lambda: None
        """Called when this process did not run for so long that what waits in its connections may be old."""
        self._ran_s = self._elapsed()
        self._stopped_s: Final = settings.append_age_s / 2
        self._beat = self._loop.call_later(min(settings.append_age_s / _BEATS, _BEAT_S), self._beats)
        self._held_back: list[Callable[[], None]] = []
        self._batches_refused = metrics.counter(definitions.REFUSED_BATCHES)

    def add_log(self, log: int, appender: Appender) -> None:
        """A log was found; its terms begin and end from now on."""
        before = self._only
        self._appenders[log] = appender
        self._choose()
        if self._only is None and before is not None:
            self._give(before.take_queue())
        elif before is None:
            self._give(self._waiting.take_all())

    # -- what connections ask

    @property
    def queued(self) -> int:
        """Batches that no active shard has yet."""
        return len(self._waiting.pieces) + sum(appender.queued for appender in self._appenders.values())

    def waiting(self) -> dict[str, Any]:
        """What no term orders now, as plain values."""
        return {"batches": len(self._waiting.pieces), "oldest_s": self._waiting.oldest_s}

    def append(self, batch: RecordBatch, source: AppendSource, request_id: int) -> bool:
        """Queues a batch. Returns whether who appends should wait for `when_room`: not while nothing makes room. Raises Overloaded."""
        now_s = self._elapsed()
        if now_s - self._ran_s > self._stopped_s:
            raise Overloaded(self._has_stopped(now_s))
        piece = make_piece((batch, source, request_id, now_s, ALL_SLOTS))
        cost = batch.kept_bytes
        if self.queued_bytes + cost > self._settings.append_queue_bytes:
            self._batches_refused.inc()
            raise Overloaded(
                f"{self.queued_bytes} bytes of appends wait in this engine, of {self._settings.append_queue_bytes}: "
                "send it again later",
                found=self.queued_bytes,
                expected=self._settings.append_queue_bytes,
            )
        self.queued_bytes += cost
        if self._only is not None:
            self._only.add(piece)
        else:
            self._give((piece,))
        return self.queued_bytes > self._settings.append_queue_bytes // 2 and any(
            appender.shard is not None for appender in self._appenders.values()
        )

    def check_running(self) -> None:
        """Raises Overloaded when this process has just been stopped for long."""
        now_s = self._elapsed()
        if now_s - self._ran_s > self._stopped_s:
            raise Overloaded(self._has_stopped(now_s))

    def _beats(self) -> None:
        now_s = self._elapsed()
        if now_s - self._ran_s > self._stopped_s:
            self._has_stopped(now_s)
        self._ran_s = now_s
        self._beat = self._loop.call_later(min(self._settings.append_age_s / _BEATS, _BEAT_S), self._beats)

    def _has_stopped(self, now_s: float) -> str:
        """What was sent to this process before may have waited for as long as it was stopped: everybody sends again."""
        text = f"this engine was stopped for up to {now_s - self._ran_s:.0f} s, what it was sent before may be old: send it again"
        _log.warning("engine was stopped", seconds=round(now_s - self._ran_s))
        self._ran_s = now_s
        self.stopped()
        return text

    def when_room(self, go_on: Callable[[], None]) -> None:
        """Calls back, once, when there is room again, or when a shard ends and may make none any more."""
        self._held_back.append(go_on)

    # -- what appenders report

    def release(self, cost: int) -> None:
        """Batches were applied."""
        self.queued_bytes -= cost
        if self._held_back and self.queued_bytes <= self._settings.append_queue_bytes // 4:
            self.resume_senders()

    def resume_senders(self) -> None:
        """A shard ended."""
        held_back, self._held_back = self._held_back, []
        for go_on in held_back:
            go_on()

    def dropped(self, piece: Piece) -> None:
        """A batch waited too long."""
        self._batches_refused.inc()
        self.release(piece.batch.kept_bytes)

    # -- what logs report

    def term_started(self, log: int, term: int, slots: Iterable[SlotRange]) -> None:
        """The view names the term; it can be appended to as soon as its sequencer opens a shard."""
        self._routes.started(log, term, slots)
        self._choose()
        self._give(self._waiting.take_all())

    def term_ended(self, log: int, term: int) -> None:
        """All of the term was received, and its appender has what was not cut."""
        self._routes.ended(term)
        self._choose()
        if self._only is not self._appenders[log]:
            self._give(self._appenders[log].take_queue())

    def _choose(self) -> None:
        if len(self._appenders) == 1 and self._knows_all_logs:
            (self._only,) = self._appenders.values()
        else:
            self._only = self._appenders.get(self._routes.only)

    def _give(self, pieces: Sequence[Piece]) -> None:
        """Gives batches to the logs that have their slots now, in order."""
        for piece in pieces:
            if len(self._appenders) == 1 and self._only is not None:
                self._only.add(piece)
                continue
            parts = self._routes.split(piece.batch.books())
            if len(parts) > 1:
                self.queued_bytes -= piece.batch.kept_bytes
            for log, runs, slots in parts:
                batch = piece.batch if len(parts) == 1 else piece.batch.subset(runs)
                part = piece._replace(batch=batch, slots=slots)
                if len(parts) > 1:
                    self.queued_bytes += batch.kept_bytes
                if log == NOWHERE:
                    self._waiting.add(part)
                else:
                    self._appenders[log].add(part)

    def close(self) -> None:
        self._beat.cancel()
        self._waiting.close()
