"""Calls to the cluster: one request each, repeated on the next connection when one ends, by whoever waits for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from boki._attempts import Attempts
from boki._dial import EnginePeer
from boki._outcome import Why, why_of
from boki._together import ReadsTogether
from boki_common import limits
from boki_common.engine import engine_protocol as wire
from boki_common.errors import BokiError, CallTimeout, ConnectionLost, NetworkError, Unreachable
from boki_common.net.deadlines import Deadlines
from boki_common.runtime.ports import Buffer

_CHANGES: Final = frozenset((wire.OP_TRIM, wire.OP_SET_AUX))
"""Calls that whoever was asked may have done, answered or not."""


class Link(Protocol):
    """The connection that there is, or will be."""

    @property
    def peer(self) -> EnginePeer | None: ...

    @property
    def attempts(self) -> Attempts: ...

    @property
    def closed(self) -> bool: ...

    def check_open(self) -> None:
        """Raises ClosedError, or what ended the client."""

    def check_here(self) -> None:
        """Raise WrongLoop in another event loop."""

    def backoff_s(self, attempt: int) -> float:
        """How long to wait before the next attempt."""

    def watch(self) -> None:
        """Something is owed from now on."""

    def received(self) -> None:
        """The engine answered."""

    async def change(self) -> None:
        """Waits for a connection to come or go."""


class Calls:
    """The calls of one client."""

    def __init__(self, link: Link, loop: asyncio.AbstractEventLoop) -> None:
        self._link: Final = link
        self._loop: Final = loop
        self._deadlines: Final = Deadlines(loop)
        self._unanswered = 0
        self.together: ReadsTogether
        """Of the connection there is."""

    @property
    def owed(self) -> bool:
        """Whether a call waits for an answer."""
        return bool(self._unanswered)

    def connected(self, peer: EnginePeer, *, together: bool) -> None:
        """Calls go here from now on. `together`: the engine takes READS."""
        self.together = ReadsTogether(peer, taken=together)

    def close(self) -> None:
        self._deadlines.close()

    async def call(
        self, opcode: int, body: Sequence[Buffer], timeout_s: float, *, together: tuple[bytes, bytes] | None = None
    ) -> memoryview:
        """One request, repeated on the next connection when one ends, and after a back-off when the engine asks for it.

        Args:
            together: token and query of a linearizable READ, which leaves with others of this turn.

        Raises:
            CallTimeout: no answer within `timeout_s`. Unreachable: no engine could be reached in that time, and none was asked.
            ConnectionLost: the client was closed after somebody was asked for a change. ClosedError: it was closed else. WrongLoop.
        """
        link = self._link
        if asyncio.get_running_loop() is not self._loop:
            link.check_here()
        self._unanswered += 1
        link.watch()
        peer, fault = link.peer, None
        deadline = self._loop.time() + timeout_s
        deadlines = self._deadlines
        future: asyncio.Future[memoryview] | None = None
        try:
            if peer is not None:  # the common case
                future = peer.request(opcode, *body) if together is None else self.together.ask(*together)
                deadlines.due[future] = deadline
                if deadline < deadlines.timer_at:
                    deadlines.set_timer(deadline)
                answer = await future
                link.received()
                return answer
        except BokiError as error:
            if not error.retryable:
                raise
            fault = error
        except TimeoutError as error:
            raise self._timed_out(timeout_s, [peer]) from error
        finally:
            self._unanswered -= 1
            if future is not None:
                del deadlines.due[future]
        self._unanswered += 1
        asked = [] if future is None else [peer]
        try:
            async with asyncio.timeout_at(deadline):
                return await self._call_again(opcode, body, peer, fault, asked)
        except TimeoutError as error:
            raise self._timed_out(timeout_s, asked) from error
        finally:
            self._unanswered -= 1

    async def _call_again(
        self,
        opcode: int,
        body: Sequence[Buffer],
        peer: EnginePeer | None,
        fault: BokiError | None,
        asked: list[EnginePeer | None],
    ) -> memoryview:
        """Goes on with a call: it had this fault on this connection, or there was no connection. Notes who was `asked`."""
        attempt, link = 0, self._link
        while True:
            if peer is not None and peer.closed:
                await self._until_lost(peer)
            elif fault is not None:
                await asyncio.sleep(link.backoff_s(attempt))
                attempt += 1
            if link.closed and asked and opcode in _CHANGES:
                raise ConnectionLost("the client was closed before an answer came: it may have been done")
            link.check_open()
            peer, fault = link.peer, None
            if peer is None:
                await link.change()
                continue
            try:
                future = peer.request(opcode, *body)
                asked[:] = [peer]
                answer = await future
                link.received()
                return answer
            except BokiError as error:
                if not error.retryable:
                    raise
                fault = error

    async def _until_lost(self, peer: EnginePeer) -> None:
        """Requests fail a moment before the connection is reported lost: waits for that."""
        while self._link.peer is peer and not self._link.closed:
            await self._link.change()

    def _timed_out(self, timeout_s: float, asked: Sequence[EnginePeer | None]) -> BokiError:
        """Whoever was asked may have done it, also if it is gone since."""
        last = asked[-1] if asked else None
        if last is None:
            return self.unreachable(timeout_s)
        fault = self._link.attempts.fault
        gone = "" if self._link.peer is last else f", and is lost ({fault or 'connecting again'})"
        return CallTimeout(f"{last.peer} did not answer within {timeout_s} s{gone}")

    def unreachable(self, timeout_s: float) -> Unreachable:
        """The error of a call that could not be sent in its time."""
        fault = self._link.attempts.fault
        reason = "the engine took nothing" if self._link.peer is not None else fault or "no engine is connected"
        return Unreachable(f"nothing could be sent within {timeout_s} s: {reason}")

    def start(self, opcode: int, body: Sequence[Buffer]) -> asyncio.Future[memoryview] | None:
        """One request now, never repeated; None while there is no connection."""
        peer = self._link.peer
        if peer is None:
            return None
        try:
            return peer.request(opcode, *body)
        except NetworkError:
            return None

    async def why(self) -> Why:
        """Return what undecided appends wait for, as far as this client and its engine know. Raises WrongLoop."""
        self._link.check_here()
        peer = self._link.peer
        future = self.start(wire.OP_STATUS, ())
        if peer is None or future is None:
            return Why(
                "connection", f"no engine is connected ({self._link.attempts.fault or 'connecting'}); trying again"
            )
        try:
            async with asyncio.timeout(limits.CALL_TIMEOUT_S):
                status = msgspec.json.decode(await future, type=dict[str, Any])
        except (BokiError, TimeoutError) as error:
            return Why("connection", f"{peer.peer} does not answer ({error}); another engine is tried when it is lost")
        return why_of(peer.peer, status)
