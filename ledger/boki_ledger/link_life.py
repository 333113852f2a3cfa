"""The life of one connection to one bookie: connects, tells a hung bookie from a slow one, connects again after a loss.

- The user's `connection` is set, by this module alone, exactly while frames may be sent on it. After a loss, or an attempt
  that failed or brought no frame, the next attempt follows after growing pauses, for as long as somebody wants the link (`LinkUser.idle`);
  `poke` ends a pause.
- Requests outstanding and no frame for `answer_timeout_s`: the connection is dropped.
- A bookie whose id is an incarnation is asked for it before anything else: another one may listen at its address by now,
  whose acknowledgements would count as copies of the first. Bookies whose id is their address, Apache's, are not asked.
- It knows nothing of what frames mean; its user does, gets them from the connection, and says what is outstanding.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final, Protocol

from boki_common.bookkeeper import auth
from boki_common.bookkeeper.auth import AuthMessage
from boki_common.errors import BokiError, CallTimeout, ConnectionLost, ProtocolError, Unreachable
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_common.net.connection import Address, FrameConnection, FrameHandler, connect
from boki_common.runtime.ports import Buffer
from boki_ledger.bookie_directory import BookieDirectory
from boki_ledger.settings import LedgerSettings

_INCARNATION: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Ids of our bookies."""

_log = get_logger("ledger")


class LinkUser(FrameHandler, Protocol):
    """Who sends requests over the link, and handles its frames: each read counts in `reads_seen`, a ProtocolError that one
    raises goes to `drop`, and the end of the connection to `connection_lost`.
    """

    connection: FrameConnection | None

    @property
    def idle(self) -> bool:
        """Nobody wants anything of the link."""

    def outstanding(self) -> bool:
        """Whether the bookie owes an answer by now."""

    def greeting(self, message: AuthMessage) -> Buffer:
        """The frame of the first request of a connection."""

    def welcome(self, frame: memoryview) -> AuthMessage:
        """What was answered to it. Raises ProtocolError."""

    def link_up(self) -> None:
        """Frames can be sent now."""

    def link_down(self, error: BokiError, *, known: bool) -> None:
        """The connection ended, or an attempt to make one failed; `known`: after one that failed before. Not after `close`."""


class _Greeter:
    """Has a connection until it is known who is there. A `FrameHandler`."""

    def __init__(self, answer: asyncio.Future[memoryview]) -> None:
        self.answer = answer

    def frames_received(self, frames: list[memoryview]) -> None:
        if self.answer.done() or len(frames) != 1:
            raise ProtocolError(f"expected one answer to a greeting, found {len(frames)} frames")
        self.answer.set_result(frames[0])

    def connection_lost(self, error: BokiError | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(error or ConnectionLost("closed before an answer to the greeting came"))
            self.answer.exception()  # who gave up needs no warning


class LinkLife:
    """See the module."""

    def __init__(self, bookie: BookieId, user: LinkUser, directory: BookieDirectory, settings: LedgerSettings) -> None:
        self.error: BokiError | None = None
        self.closed = False
        self.reads_seen = 0
        """Network reads that brought frames; the user counts them."""
        self.ticking: asyncio.TimerHandle | None = None
        self._bookie = bookie
        self._user = user
        self._directory = directory
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._lost: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._poked = asyncio.Event()
        self._reads_at_tick = 0
        self._quiet_since = 0.0

    def want(self) -> None:
        """Somebody wants the link: it connects, unless it is at it."""
        if self._task is None and not self.closed:
            self.error = None
            self._task = asyncio.create_task(self._run(), name=f"link to bookie {self._bookie}")

    def refusal(self) -> BokiError | None:
        """Why nothing can be asked now, if so; the next attempt to connect is then made at once."""
        if self._user.connection is None and self.error is not None and self._task is not None:
            self._poked.set()
            return self.error
        return None

    def poke(self) -> None:
        """Ends a pause between two attempts to connect."""
        self._poked.set()

    def drop(self, error: BokiError) -> None:
        """Ends the connection; the user hears `error`."""
        connection, self._user.connection = self._user.connection, None
        if connection is not None:
            connection.abort(error)

    async def close(self, error: BokiError) -> None:
        """Ends the link for good; the user is not told. Idempotent."""
        self.closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self.drop(error)
        if self._lost is not None:
            await self._lost
        self._stop_ticking()

    def start_ticking(self) -> None:
        """Something was sent: from now on the bookie may be found to hang."""
        self._quiet_since = self._loop.time()
        self._reads_at_tick = self.reads_seen
        self.ticking = self._loop.call_later(self._settings.answer_timeout_s / 4, self._check_progress)

    def connection_lost(self, error: BokiError | None) -> None:
        """The connection ended; the user passes it on."""
        self._user.connection = None
        self.error = error or ConnectionLost(
            f"the connection to bookie {self._bookie} was closed", bookie_id=self._bookie
        )
        self._stop_ticking()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)
        if not self.closed:
            _log.info("bookie lost", bookie_id=self._bookie, error=self.error)
            self._user.link_down(self.error, known=False)

    # -- inside

    async def _run(self) -> None:
        """Connects, waits for the loss, connects again: while somebody wants the link."""
        pause = self._settings.retry_least_s
        while not self._user.idle:
            reads_seen = self.reads_seen
            if await self._connect():
                assert self._lost is not None
                await asyncio.shield(self._lost)
                if self.reads_seen != reads_seen:  # else it was no better than a refused one: a proxy's, say
                    pause = self._settings.retry_least_s
            self._poked.clear()
            try:
                async with asyncio.timeout(pause):
                    await self._poked.wait()
            except TimeoutError:
                pause = min(2 * pause, self._settings.retry_most_s)
        self._task = None

    async def _connect(self) -> bool:
        try:
            address = await self._directory.address(self._bookie)
            connection = await self._introduced(address)
        except BokiError as error:
            known = self.error is not None
            self.error = error
            if not known:
                _log.info("bookie unreachable", bookie_id=self._bookie, error=error)
            self._user.link_down(error, known=known)
            return False
        if connection.closed:
            return False
        self._lost = self._loop.create_future()
        self._user.connection, self.error = connection, None
        _log.info("bookie connected", bookie_id=self._bookie, peer=connection.peer)
        self._user.link_up()
        return True

    async def _introduced(self, address: Address) -> FrameConnection:
        """A connection to the bookie that is meant. Raises Unreachable, NetworkError, ProtocolError."""
        timeout_s = self._settings.connect_timeout_s
        if not _INCARNATION.fullmatch(self._bookie):
            return await connect(address, lambda _: self._user, timeout_s=timeout_s)
        greeter = _Greeter(asyncio.get_running_loop().create_future())
        connection = await connect(address, lambda _: greeter, timeout_s=timeout_s)
        try:
            connection.send(self._user.greeting(auth.greeting(self._bookie)))
            async with asyncio.timeout(timeout_s):
                answered = self._user.welcome(await greeter.answer)
            if auth.is_other(answered, self._bookie):
                raise Unreachable(
                    f"expected bookie {self._bookie} at {address}, found {answered.token.decode(errors='replace')}: "
                    "it was replaced, or its registration is out of date",
                    bookie_id=self._bookie,
                )
            if connection.closed:
                raise ConnectionLost(f"bookie {self._bookie} hung up after its greeting", bookie_id=self._bookie)
        except TimeoutError as error:
            fault = CallTimeout(
                f"bookie {self._bookie} did not say who it is within {timeout_s} s", bookie_id=self._bookie
            )
            connection.abort(fault)
            raise fault from error
        except BaseException:
            connection.abort(ConnectionLost(f"bookie {self._bookie} was not made sure of", bookie_id=self._bookie))
            raise
        connection.handler = self._user
        return connection

    def _stop_ticking(self) -> None:
        if self.ticking is not None:
            self.ticking.cancel()
            self.ticking = None

    def _check_progress(self) -> None:
        self.ticking = None
        if self._user.connection is None or not self._user.outstanding():
            return
        now, limit = self._loop.time(), self._settings.answer_timeout_s
        if self.reads_seen != self._reads_at_tick:
            self._reads_at_tick, self._quiet_since = self.reads_seen, now
        elif now - self._quiet_since >= limit:
            self.drop(CallTimeout(f"bookie {self._bookie} has answered nothing for {limit} s", bookie_id=self._bookie))
            return
        self.ticking = self._loop.call_later(limit / 4, self._check_progress)
