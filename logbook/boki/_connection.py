"""The connection of a client to its cluster: one engine at a time, another one when it fails.

All sessions of a client share it. Appends of one turn of the event loop, over all books of a log, leave in one frame (or a
few, when they are large): `wants_flush` marks a book, and one callback at the end of the turn collects what the marked books
have queued (`_outbox`). Verdicts come back as rows and go to the window they are about, found by its writer.

When a connection ends:
- it is made again, to the next engine of the URL, after 50 ms that double up to 2 s, with jitter;
- every undecided append is sent again under its number; only pushes of the new connection count;
- so it is when the engine refuses a frame (Overloaded): appends are pushes, and a refused push ends its connection, with
  the verdicts on their way. Nothing is lost or doubled. An engine that makes progress slows its clients down before it
  refuses;
- reads are repeated by their callers (`call`).
An engine that is silent while something is owed is asked once, then dropped. What gets no verdict is given up after
`give_up_s`. An engine that keeps refusing the SDK's bytes ends the client: sending the same again cannot help.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from boki._appender import WRITER_BYTES, Appender
from boki._deadlines import Deadlines
from boki._dial import Dialer, EnginePeer
from boki._lane import Lane
from boki._outbox import Outbox, Outboxes
from boki._outcome import Why, why_of
from boki._together import ReadsTogether
from boki_common import engine_protocol as wire
from boki_common import limits
from boki_common.errors import (
    BokiError,
    CallTimeout,
    ClosedError,
    ConnectionLost,
    InvalidArgument,
    NetworkError,
    Overloaded,
    ProtocolError,
    Unreachable,
    UsageError,
    VersionMismatch,
)
from boki_common.logs import get_logger
from boki_common.run_column import RUN_KEY
from boki_common.runtime.ports import Buffer, Random

BACKOFF_LEAST_S: Final = 0.05
BACKOFF_MOST_S: Final = 2.0
WATCH_S: Final = limits.CALL_TIMEOUT_S
"""How often an engine that owes something must be heard, and undecided appends are looked at."""
OVERLOADED_ATTEMPTS: Final = 3
"""An engine that refused appends as too many is left alone for as long as after so many failed attempts."""
_CHANGES: Final = frozenset((wire.OP_TRIM, wire.OP_SET_AUX))
"""Calls that whoever was asked may have done, answered or not."""
REFUSALS: Final = 3
"""Connections in a row that may end with a protocol error before the client gives up."""

_PUSHES: Final = (wire.OP_ANSWERS, wire.OP_READS)
_log = get_logger("sdk")


class Hello(msgspec.Struct):
    """The engine's answer to HELLO."""

    version: int
    features: list[str] = []
    engine: str = ""
    engines: list[str] = []


class Connection:
    """See the module. Implements `EngineHandler`."""

    def __init__(self, dialer: Dialer, rng: Random, *, give_up_s: float, watch_s: float = WATCH_S) -> None:
        self.loop: Final = asyncio.get_running_loop()
        self.engine = ""
        """Incarnation of the engine that answers now."""
        self.give_up_s: Final = give_up_s
        self.now: Final = self.loop.time
        self._watch_s = watch_s
        self._dialer = dialer
        self._rng = rng
        self._peer: EnginePeer | None = None
        self.undecided: Final[dict[bytes, Appender | Lane]] = {}
        """By book and writer, who has something undecided."""
        self._inquiries: dict[Appender, None] = {}
        self.outboxes: Final = Outboxes()
        self.flush_scheduled = False
        """Whether something is queued in this turn of the loop, which began appending at:"""
        self.turn_began = 0.0
        self._reconnecting: asyncio.Task[None] | None = None
        self._changed: asyncio.Future[None] | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._calls = 0
        self._together: ReadsTogether
        """Of the connection there is."""
        self._deadlines = Deadlines(self.loop)
        self._heard = True
        self._probing = False
        self._refusals = 0
        self._attempts = 0
        self.closed = False
        self._failure: BokiError | None = None
        self._last_error: BokiError | None = None

    # -- opening and closing

    async def open(self) -> None:
        """Connects to the first engine that answers. Raises Unreachable, VersionMismatch."""
        faults: list[BokiError] = []
        for _ in range(self._dialer.engines):
            try:
                await self._connect()
                return
            except BokiError as error:
                faults.append(error)
        definite = [fault for fault in faults if not isinstance(fault, NetworkError)]
        if definite:
            raise definite[0]
        raise Unreachable("no engine answers: " + "; ".join(map(str, faults))) from faults[0]

    async def close(self, patience_s: float) -> None:
        """Waits up to `patience_s` for verdicts, then ends everything; what is undecided gets OutcomeUnknown."""
        try:
            async with asyncio.timeout(patience_s):
                while self._all() and not self.closed:
                    await self._change()
        except TimeoutError:
            pass  # not swallowed: each undecided append hears of it below
        finally:
            self._end(ClosedError("the client is closed"), "the client was closed before the verdict came")

    def check_open(self) -> None:
        """Raises ClosedError, or what ended the client."""
        if self.closed:
            raise self._failure or ClosedError("the client is closed")

    def _end(self, error: BokiError, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self._failure = error
        cause = None if isinstance(error, ClosedError) else error
        for appender in self._all():
            appender.give_up(reason, cause)
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        if self._watching is not None:
            self._watching.cancel()
        self._deadlines.close()
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()
        self._notify()

    # -- connecting

    async def _connect(self) -> None:
        peer = await self._dialer.dial(self)
        try:
            body = msgspec.msgpack.encode({"versions": [wire.PROTOCOL_VERSION], "features": [wire.READS], "auth": None})
            async with asyncio.timeout(limits.CALL_TIMEOUT_S):
                answer = await peer.request(wire.OP_HELLO, body)
            hello = msgspec.msgpack.decode(answer, type=Hello)
        except TimeoutError as error:
            peer.connection.abort(ConnectionLost("no answer to HELLO"))
            raise Unreachable(f"{peer.peer} does not answer; is it a Boki engine?", address=peer.peer) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            peer.close()
            raise ProtocolError(f"{peer.peer} answers HELLO with something else: {error}") from error
        except BaseException:
            peer.close()
            raise
        if hello.version != wire.PROTOCOL_VERSION:
            peer.close()
            raise VersionMismatch(
                f"{peer.peer} speaks version {hello.version} of the engine protocol, this SDK "
                f"{wire.PROTOCOL_VERSION}: upgrade the older one",
                expected=wire.PROTOCOL_VERSION,
                found=hello.version,
            )
        self._established(peer, hello)

    def _established(self, peer: EnginePeer, hello: Hello) -> None:
        self._peer = peer
        self._together = ReadsTogether(peer, taken=wire.READS in hello.features)
        self.engine = hello.engine
        self._dialer.learn(hello.engines)
        self._heard, self._probing = True, False
        for appender in self._all():
            self.wants_flush(appender)
        self._notify()

    async def _reconnect(self) -> None:
        while True:
            await asyncio.sleep(self.backoff_s(self._attempts))
            self._attempts += 1
            try:
                await self._connect()
                return
            except BokiError as error:
                self._last_error = error
                if isinstance(error, ProtocolError):
                    self._refused(error)

    def backoff_s(self, attempt: int) -> float:
        """Half to the whole of 50 ms × 2^attempt, at most 2 s."""
        most: float = min(BACKOFF_LEAST_S * 2.0 ** min(attempt, 10), BACKOFF_MOST_S)
        return most * (512 + self._rng.below(513)) / 1024

    def _refused(self, error: BokiError) -> None:
        self._refusals += 1
        if self._refusals >= REFUSALS:
            _log.error("the engine refuses what this client sends; the client ends", error=error)
            self._end(error, f"the engine refused this client's messages ({error})")

    # -- EngineHandler

    def message_received(self, peer: EnginePeer, opcode: int, request_id: int, body: memoryview) -> None:
        if opcode not in _PUSHES:
            raise ProtocolError(f"expected pushes of opcodes {_PUSHES} from an engine, found {opcode}")
        if peer is not self._peer:
            return  # of a connection given up: whatever it says about numbers sent again since does not count
        if opcode == wire.OP_READS:
            self._together.told(body)
            return
        self._heard = True
        undecided, now = self.undecided, self.now()
        many = wire.decode_committed(body) if len(body) > wire.FEW_ROWS_BYTES and not self._inquiries else None
        if many is not None:
            token, position, committed = many
            outbox = self.outboxes.of(token)
            for key, first, count, first_seqnum in committed:
                found = undecided.get(key)
                if found is not None:
                    if isinstance(found, Lane) or not found.dirty:
                        found.outbox = outbox
                    found.committed_at(first, count, first_seqnum, token, position, now)
        else:
            token, rows = wire.decode_answers(body)
            outbox = self.outboxes.of(token)
            for row in rows:
                found = undecided.get(RUN_KEY.pack(row[0], row[1]))
                if found is not None:
                    if isinstance(found, Lane) or not found.dirty:
                        found.outbox = outbox
                    found.answered(row, token, now)
                if self._inquiries:
                    for inquiry in [one for one in self._inquiries if one.is_about(row)]:
                        inquiry.asked(row, token, now)
        self._refusals = self._attempts = 0
        if not undecided and self._changed is not None:
            self._notify()

    def peer_lost(self, peer: EnginePeer, error: BokiError | None) -> None:
        if peer is not self._peer or self.closed:
            return
        self._peer = None
        self._last_error = error
        for appender in self._all():
            appender.connection_lost()
        if isinstance(error, (ProtocolError, UsageError)):
            self._refused(error)
        if isinstance(error, Overloaded):
            self._attempts = max(self._attempts, OVERLOADED_ATTEMPTS)
        self._notify()
        if not self.closed:
            self._reconnecting = self.loop.create_task(self._reconnect(), name="boki reconnects")

    # -- appends

    def new_writer(self) -> bytes:
        """A random session writer, 128 bits."""
        return self._rng.token(WRITER_BYTES)

    def register(self, appender: Appender) -> None:
        """Appender has something undecided now. Raises InvalidArgument when its writer is in use elsewhere."""
        if appender.asking:
            self._inquiries[appender] = None
        elif self.undecided.setdefault(appender.key, appender) is not appender:
            raise InvalidArgument(
                "another session of this client appends under the same writer now: a named writer has one user at a time"
            )
        self.watch()

    def unregister(self, appender: Appender) -> None:
        """Nothing of it is undecided any more."""
        if appender.asking:
            self._inquiries.pop(appender, None)
        else:
            self.undecided.pop(appender.key, None)

    def _all(self) -> list[Appender]:
        """Whoever has something undecided; a record that was alone gets an appender."""
        found = [one.appender() if isinstance(one, Lane) else one for one in list(self.undecided.values())]
        return [*found, *self._inquiries]

    def schedule_flush(self) -> None:
        """What is queued from now on leaves at the end of this turn of the loop."""
        self.turn_began = self.now()
        self.flush_scheduled = True
        self.loop.call_soon(self._flush)

    def send(self, outbox: Outbox) -> None:
        """Sends what is queued at once: the engine works on it while a thousand callers who were answered append again."""
        outbox.send(self._peer)

    def wants_flush(self, appender: Appender) -> None:
        """What an appender has queued before leaves at the end of this turn of the loop."""
        if not appender.dirty:
            appender.dirty = True
            appender.outbox.dirty.append(appender)
        if not self.flush_scheduled:
            self.schedule_flush()

    def _flush(self) -> None:
        """Sends what is queued, at once: nothing else of this turn is awaited."""
        self.flush_scheduled = False
        for outbox in self.outboxes.all:
            if outbox.dirty or outbox.alone:
                outbox.send(self._peer)

    # -- calls

    async def call(
        self, opcode: int, body: Sequence[Buffer], timeout_s: float, *, together: tuple[bytes, bytes] | None = None
    ) -> memoryview:
        """One request, repeated on the next connection when one ends, and after a back-off when the engine asks for it.

        Args:
            together: token and query of a linearizable READ, which leaves with others of this turn.

        Raises:
            CallTimeout: no answer within `timeout_s`. Unreachable: no engine could be reached in that time, and none was asked.
            ConnectionLost: the client was closed after somebody was asked for a change. ClosedError: it was closed else.
        """
        self._calls += 1
        self.watch()
        peer, fault = self._peer, None
        deadline = self.now() + timeout_s
        deadlines = self._deadlines
        future: asyncio.Future[memoryview] | None = None
        try:
            if peer is not None:  # the common case
                future = peer.request(opcode, *body) if together is None else self._together.ask(*together)
                deadlines.due[future] = deadline
                if deadline < deadlines.timer_at:
                    deadlines.set_timer(deadline)
                answer = await future
                self._heard, self._attempts = True, 0
                return answer
        except BokiError as error:
            if not error.retryable:
                raise
            fault = error
        except TimeoutError as error:
            raise self._timed_out(timeout_s, [peer]) from error
        finally:
            self._calls -= 1
            if future is not None:
                del deadlines.due[future]
        self._calls += 1
        asked = [] if future is None else [peer]
        try:
            async with asyncio.timeout_at(deadline):
                return await self._call_again(opcode, body, peer, fault, asked)
        except TimeoutError as error:
            raise self._timed_out(timeout_s, asked) from error
        finally:
            self._calls -= 1

    async def _call_again(
        self,
        opcode: int,
        body: Sequence[Buffer],
        peer: EnginePeer | None,
        fault: BokiError | None,
        asked: list[EnginePeer | None],
    ) -> memoryview:
        """Goes on with a call: it had this fault on this connection, or there was no connection. Notes who was `asked`."""
        attempt = 0
        while True:
            if peer is not None and peer.closed:
                await self._until_lost(peer)
            elif fault is not None:
                await asyncio.sleep(self.backoff_s(attempt))
                attempt += 1
            if self.closed and asked and opcode in _CHANGES:
                raise ConnectionLost("the client was closed before an answer came: it may have been done")
            self.check_open()
            peer, fault = self._peer, None
            if peer is None:
                await self._change()
                continue
            try:
                future = peer.request(opcode, *body)
                asked[:] = [peer]
                answer = await future
                self._heard, self._attempts = True, 0
                return answer
            except BokiError as error:
                if not error.retryable:
                    raise
                fault = error

    def _timed_out(self, timeout_s: float, asked: Sequence[EnginePeer | None]) -> BokiError:
        """Whoever was asked may have done it, also if it is gone since."""
        last = asked[-1] if asked else None
        if last is None:
            return self.unreachable(timeout_s)
        gone = "" if self._peer is last else f", and is lost ({self._last_error or 'connecting again'})"
        return CallTimeout(f"{last.peer} did not answer within {timeout_s} s{gone}")

    async def why(self) -> Why:
        """What undecided appends wait for, as far as this client and its engine know."""
        peer = self._peer
        future = self.start_call(wire.OP_STATUS, ())
        if peer is None or future is None:
            return Why("connection", f"no engine is connected ({self._last_error or 'connecting'}); trying again")
        try:
            async with asyncio.timeout(limits.CALL_TIMEOUT_S):
                status = msgspec.json.decode(await future, type=dict[str, Any])
        except (BokiError, TimeoutError) as error:
            return Why("connection", f"{peer.peer} does not answer ({error}); another engine is tried when it is lost")
        return why_of(peer.peer, status)

    def unreachable(self, timeout_s: float) -> Unreachable:
        """The error of a call that could not be sent in its time."""
        reason = "the engine took nothing" if self._peer is not None else self._last_error or "no engine is connected"
        return Unreachable(f"nothing could be sent within {timeout_s} s: {reason}")

    def start_call(self, opcode: int, body: Sequence[Buffer]) -> asyncio.Future[memoryview] | None:
        """One request now, never repeated; None while there is no connection."""
        if self._peer is None:
            return None
        try:
            return self._peer.request(opcode, *body)
        except NetworkError:
            return None

    async def _until_lost(self, peer: EnginePeer) -> None:
        """Requests fail a moment before the connection is told lost: waits for that."""
        while self._peer is peer and not self.closed:
            await self._change()

    async def _change(self) -> None:
        """Waits for a connection to come or go, or for everything to be decided."""
        if self._changed is None:
            self._changed = self.loop.create_future()
        await asyncio.shield(self._changed)

    def _notify(self) -> None:
        if self._changed is not None:
            if not self._changed.done():
                self._changed.set_result(None)
            self._changed = None

    # -- watching

    def watch(self) -> None:
        """Something is owed from now on."""
        if self._watching is None:
            self._watch()

    def _watch(self) -> None:
        """Runs every few seconds while something is owed."""
        self._watching = None
        if self.closed or not (self.undecided or self._inquiries or self._calls):
            return
        now = self.now()
        for one in [*self.undecided.values(), *self._inquiries]:
            if now - one.progressed_at > self.give_up_s:
                one.give_up(f"no verdict within {self.give_up_s} s ({self._last_error or 'no error'})")
        self._probe()
        self._watching = self.loop.call_later(min(self._watch_s, self.give_up_s / 2 + 0.01), self._watch)

    def _probe(self) -> None:
        peer = self._peer
        if peer is None:
            return
        if self._heard:
            self._heard = self._probing = False
        elif self._probing:
            peer.connection.abort(CallTimeout(f"{peer.peer} has been silent for {2 * self._watch_s} s", peer=peer.peer))
        else:
            self._probing = True
            future = self.start_call(wire.OP_POSITION, wire.encode_position({}, 0))
            if future is not None:
                future.add_done_callback(self._probed)

    def _probed(self, future: asyncio.Future[memoryview]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._heard = True
