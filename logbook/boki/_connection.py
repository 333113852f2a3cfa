"""The connection of a client to its cluster: one engine at a time, another one when it fails.

All sessions of a client share it. It knows no appends: who sends them (`AppendSide`) is called when a connection comes or
goes, and with what the engine answers to appends.

When a connection ends:
- it is made again, to the next engine of the URL, after 50 ms that double up to 2 s, with jitter (`_attempts`);
- appends are sent again by who sent them; only pushes of the new connection count;
- so it is when the engine refuses a frame (Overloaded): appends are pushes, and a refused push ends its connection, with
  the verdicts on their way. Nothing is lost or doubled. An engine that makes progress slows its clients down before it
  refuses;
- reads are repeated by their callers (`_calls`).
An engine that is silent while something is owed is asked once, then dropped (`_watch`). An engine that keeps refusing the SDK's bytes
ends the client, and so do engines of which none takes the cluster token that this client shows, or that it shows none, and engines of
another cluster where its own were.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import msgspec

from boki._attempts import Attempts, backoff_s
from boki._calls import Calls
from boki._credential import NOTHING, Credential
from boki._dial import Dialer, EnginePeer
from boki._session import cluster_mark
from boki._watch import Watch
from boki_common import limits
from boki_common.engine import engine_protocol as wire
from boki_common.errors import (
    DECODE_FAULTS,
    BokiError,
    ClosedError,
    ConnectionLost,
    NetworkError,
    ProtocolError,
    Unreachable,
    VersionMismatch,
    WrongCluster,
    WrongLoop,
)
from boki_common.logs import get_logger
from boki_common.runtime import confined, forks
from boki_common.runtime.ports import MachineClock, Random
from boki_common.writer_ids import BIRTHS, WRITER_BYTES, born_writer

WATCH_S: Final = limits.CALL_TIMEOUT_S
"""How often an engine that owes something must send something, and undecided appends are looked at."""
EARLY_PUSHES: Final = 16
"""Kept of what an engine says before this end knows that it answered HELLO; there is one, or none."""
_JITTERS: Final = 513

_PUSHES: Final = (wire.OP_ANSWERS, wire.OP_READS)
_log = get_logger("sdk")


class Hello(msgspec.Struct):
    """The engine's answer to HELLO."""

    version: int
    features: list[str] = []
    engine: str = ""
    engines: list[str] = []
    cluster: str = ""
    """What its cluster calls itself; an earlier version does not say."""
    now_ms: int | None = None
    """Its wall clock; an earlier version says nothing, and knows nothing of births of writers."""


class AppendSide(Protocol):
    """Who sends appends over a connection."""

    @property
    def owed(self) -> bool:
        """Whether anything is undecided."""

    def connected(self) -> None:
        """There is a connection: what is undecided leaves by it."""

    def connection_lost(self) -> None:
        """There is none any more."""

    def answers(self, body: memoryview) -> None:
        """ANSWERS of the connection there is. Raises ProtocolError."""

    def give_up_old(self) -> None:
        """Gives up what is undecided for too long."""

    def give_up_all(self, reason: str, cause: BokiError | None) -> None:
        """The client ends."""


class Connection:
    """See the module. Implements `EngineHandler`, and `Link` and `Watched` of its parts.

    Attributes:
        attempts: what became of attempts to reach an engine; why the last of them failed.
        calls: requests that are answered, over whatever connection there is.
        cluster: what stands for the cluster in tokens; None: no engine has said it yet.
        engine: incarnation of the engine that answers now.
        elapsed: a clock that runs on while the machine sleeps, for ages; for deadlines there is `now`.
        peer: the connection there is.
    """

    def __init__(
        self,
        dialer: Dialer,
        rng: Random,
        clock: MachineClock,
        *,
        give_up_s: float,
        watch_s: float = WATCH_S,
        credential: Credential = NOTHING,
    ) -> None:
        self.loop: Final = asyncio.get_running_loop()
        self.engine = ""
        self.cluster: int | None = None
        self.give_up_s: Final = give_up_s
        self.elapsed: Final = clock.elapsed_s
        self.attempts: Final = Attempts()
        self.peer: EnginePeer | None = None
        self.closed = False
        self.dialer: Final = dialer
        self.credential: Final = credential
        self._rng = rng
        self._ahead_s: float | None = None
        """The engine's clock minus `elapsed`, for births of writers; None: it does not say."""
        self._side: AppendSide
        self.calls: Final = Calls(self, self.loop)
        self._watch: Final = Watch(self, self.loop.call_later, watch_s, min(watch_s, give_up_s / 2 + 0.01))
        self._reconnecting: asyncio.Task[None] | None = None
        self._changed: asyncio.Future[None] | None = None
        self._failure: BokiError | None = None
        self._early: tuple[EnginePeer, list[bytes]] | None = None
        """What an engine pushes while its answer to HELLO is looked at."""
        self._left: EnginePeer | None = None
        """In a forked child: the connection of the parent, which nobody may take apart."""
        forks.watch(self)

    def serve(self, side: AppendSide) -> None:
        """Who sends appends, from before it is opened."""
        self._side = side

    def now(self) -> float:
        """A time of the loop, for deadlines."""
        return self.loop.time()

    # -- opening and closing

    async def open(self, wait_s: float = 0.0) -> None:
        """Connect to the first engine that answers; while none does, try again for so long. Raises Unreachable, VersionMismatch,
        Unauthenticated."""
        deadline, attempt = self.now() + wait_s, 0
        while True:
            try:
                await self._open()
                return
            except Unreachable:
                pause_s = self.backoff_s(attempt)
                if self.now() + pause_s >= deadline:
                    raise
                await asyncio.sleep(pause_s)
                attempt += 1

    async def _open(self) -> None:
        faults: list[BokiError] = []
        for _ in range(self.dialer.engines):
            try:
                await self._connect()
                return
            except BokiError as error:
                faults.append(error)
        definite = [fault for fault in faults if not isinstance(fault, NetworkError)]
        if definite:
            raise definite[0]
        raise Unreachable("no engine answers: " + "; ".join(map(str, faults))) from faults[0]

    async def close(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` for verdicts, then end everything; what is undecided gets OutcomeUnknown. Nothing is left to end where
        the loop is closed. Raises WrongLoop."""
        if self.closed:
            return
        if self.loop.is_closed():
            self.closed, self._failure = True, ClosedError("the client is closed")
            return
        self.check_here()
        try:
            async with asyncio.timeout(timeout_s):
                while self._side.owed and not self.closed:
                    await self.change()
        except TimeoutError:
            pass  # not swallowed: each undecided append fails below
        finally:
            self._end(ClosedError("the client is closed"), "the client was closed before the verdict came")

    def check_open(self) -> None:
        """Raises ClosedError, or what ended the client."""
        if self.closed:
            raise ClosedError("the client is closed") if self._failure is None else self._failure.again()

    def check_here(self) -> None:
        """Raise WrongLoop unless the event loop that this client was opened in is what runs here; ClosedError in a forked process; in code
        of a workflow the error that says that this is for a step."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self.loop:
            return
        confined.check(confined.A_CLIENT)
        self.check_open()
        gone = "is closed" if self.loop.is_closed() else "is another one than runs here"
        raise WrongLoop(
            f"the event loop that this client was opened in {gone}: nothing was done; open a client in each loop, or use boki.sync, whose "
            "clients any thread may use"
        )

    def forked(self) -> None:
        """See `forks`. The loop is not this process's, nor is the socket: nothing is closed, and no call fails."""
        self.closed = True
        self._failure = forks.opened_elsewhere("this client")
        self._left, self.peer = self.peer, None

    def _end(self, error: BokiError, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self._failure = error
        self._side.give_up_all(reason, None if isinstance(error, ClosedError) else error)
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        self._watch.close()
        self.calls.close()
        peer, self.peer = self.peer, None
        if peer is not None:
            peer.close()
        self._notify()

    # -- connecting

    async def _connect(self) -> None:
        auth = await self.credential.current()
        peer = await self.dialer.dial(self)
        self._early = peer, []
        try:
            hello = {"versions": [wire.PROTOCOL_VERSION], "features": [wire.READS], "auth": auth, "role": wire.ROLE_SDK}
            body = msgspec.msgpack.encode(hello)
            async with asyncio.timeout(min(limits.CALL_TIMEOUT_S, self.give_up_s)):
                answer = await peer.request(wire.OP_HELLO, body)
            hello = msgspec.msgpack.decode(answer, type=Hello)
        except TimeoutError as error:
            peer.connection.abort(ConnectionLost("no answer to HELLO"))
            raise Unreachable(f"{peer.peer} does not answer; is it a Boki engine?", address=peer.peer) from error
        except DECODE_FAULTS as error:
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
        mark = cluster_mark(hello.cluster)
        if None not in (mark, self.cluster) and mark != self.cluster:
            peer.close()
            raise WrongCluster(
                f"{peer.peer} belongs to another cluster ({mark:016x}) than the one that this client was opened on "
                f"({self.cluster:016x}): what it holds is not known there; open a new client",
                expected=self.cluster,
                found=mark,
            )
        self.cluster = mark if self.cluster is None else self.cluster
        if peer.closed:  # since it said hello: `peer_lost` was called already
            raise Unreachable(f"the connection to {peer.peer} ended as it began", address=peer.peer)
        early, self._early = self._early, None
        try:
            for body in () if early is None else early[1]:
                self._side.answers(memoryview(body))
        except BaseException:
            peer.close()
            raise
        self._established(peer, hello)

    def _established(self, peer: EnginePeer, hello: Hello) -> None:
        self.peer = peer
        self.attempts.connected()
        self.calls.connected(peer, together=wire.READS in hello.features)
        self.engine = hello.engine
        self.dialer.learn(hello.engines)
        self._ahead_s = None if hello.now_ms is None else hello.now_ms / 1_000 - self.elapsed()
        self._watch.connected()
        self._side.connected()
        self._notify()

    async def _reconnect(self) -> None:
        while True:
            await asyncio.sleep(self.backoff_s(self.attempts.begun()))
            try:
                await self._connect()
                return
            except BokiError as error:
                self._end_if(error, self.attempts.failed(error, self.dialer.engines))

    def backoff_s(self, attempt: int) -> float:
        """How long to wait after so many attempts that failed."""
        return backoff_s(attempt, self._rng.below(_JITTERS))

    def _end_if(self, error: BokiError | None, reason: str) -> None:
        if reason and error is not None:
            _log.error(f"{reason}; the client ends", error=error)
            self._end(error, reason)

    # -- EngineHandler

    def message_received(self, peer: EnginePeer, opcode: int, request_id: int, body: memoryview) -> None:
        if opcode not in _PUSHES:
            raise ProtocolError(f"expected pushes of opcodes {_PUSHES} from an engine, found {opcode}")
        early = self._early
        if early is not None and peer is early[0] and opcode == wire.OP_ANSWERS and len(early[1]) < EARLY_PUSHES:
            early[1].append(bytes(body))
            return
        if peer is not self.peer:
            return  # of a connection given up: whatever it says about numbers sent again since does not count
        if opcode == wire.OP_READS:
            self.calls.together.answered(body)
            return
        self._watch.received()
        self._side.answers(body)
        self.attempts.decided()
        if self._changed is not None and not self._side.owed:
            self._notify()

    def peer_lost(self, peer: EnginePeer, error: BokiError | None) -> None:
        if peer is not self.peer or self.closed:
            return
        self.peer = None
        self._side.connection_lost()
        self._end_if(error, self.attempts.lost(error))
        self._notify()
        if not self.closed:
            self._reconnecting = self.loop.create_task(self._reconnect(), name="boki reconnects")

    # -- what goes over it

    def new_writer(self, floor: int = -1) -> bytes:
        """A session writer that nobody had before, born now, and later than `floor`."""
        birth = BIRTHS if self._ahead_s is None else max(int(self.elapsed() + self._ahead_s), floor + 1, 0)
        return born_writer(self._rng, birth) if birth < BIRTHS else self._rng.token(WRITER_BYTES)

    def new_cursor(self) -> int:
        """A number for one who follows several tags, of this client and connection after connection its own."""
        return int.from_bytes(self._rng.token(8), "little") or 1

    async def change(self) -> None:
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

    @property
    def owed(self) -> bool:
        """Whether the engine owes something."""
        return not self.closed and (self._side.owed or self.calls.owed)

    def watch(self) -> None:
        """Something is owed from now on."""
        self._watch.begin()

    def received(self) -> None:
        """The engine answered a call."""
        self._watch.received()
        self.attempts.answered()

    def give_up_old(self) -> None:
        """Gives up what is undecided for too long."""
        self._side.give_up_old()

    def ask_position(self) -> asyncio.Future[memoryview] | None:
        """Something that an engine answers at once."""
        return self.calls.start(wire.OP_POSITION, wire.encode_position({}, 0))
