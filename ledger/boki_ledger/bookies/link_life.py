"""The life of one connection to one bookie: connects, distinguishes a hung bookie from a slow one, connects again after a loss.

- The user's `connection` is set, by this module alone, exactly while frames may be sent on it. After a loss, or an attempt
  that failed or brought no frame, the next attempt follows after growing pauses, for as long as somebody wants the link (`LinkUser.idle`);
  `poke` ends a pause.
- Requests outstanding and no frame for `answer_timeout_s`: the connection is dropped.
- Who is at the other end, and whether it lets us in, is made sure of before anything is sent: see `introduction`.
- It knows nothing of what frames mean; its user does, gets them from the connection, and says what is outstanding.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import (
    AccessError,
    BokiError,
    CallTimeout,
    ConnectionLost,
)
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_common.net.connection import FrameConnection
from boki_common.retry import event_or_timeout
from boki_ledger.bookies.bookie_directory import BookieDirectory
from boki_ledger.bookies.introduction import Newcomer, introduce
from boki_ledger.settings import LedgerSettings

_log = get_logger("ledger")


class LinkUser(Newcomer, Protocol):
    """The user of the link, which sends requests over it and handles its frames: each read counts in `reads_seen`, a ProtocolError that one
    raises goes to `drop`, and the end of the connection to `connection_lost`.
    """

    connection: FrameConnection | None

    @property
    def idle(self) -> bool:
        """Nobody wants anything of the link."""

    def outstanding(self) -> bool:
        """Whether the bookie owes an answer by now."""

    def link_up(self) -> None:
        """Frames can be sent now."""

    def link_down(self, error: BokiError, *, known: bool) -> None:
        """The connection ended, or an attempt to make one failed; `known`: after one that failed before. Not after `close`."""


class LinkLife:
    """See the module."""

    def __init__(
        self,
        bookie: BookieId,
        user: LinkUser,
        directory: BookieDirectory,
        settings: LedgerSettings,
        token: ClusterToken = NO_TOKEN,
    ) -> None:
        self._token = token
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
        self._logged: type[BokiError] | None = None
        """Kind of error of the last failed attempt since a connection was made: each kind is logged once."""

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
        """Ends the connection; the user gets `error`."""
        connection, self._user.connection = self._user.connection, None
        if connection is not None:
            connection.abort(error)

    async def close(self, error: BokiError) -> None:
        """Ends the link for good, without a call of the user. Idempotent."""
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
        backoff = self._settings.backoff()
        pause_s = backoff.next()
        while not self._user.idle:
            reads_seen = self.reads_seen
            if await self._connect():
                assert self._lost is not None
                await asyncio.shield(self._lost)
                if self.reads_seen != reads_seen:  # else it was no better than a refused one: a proxy's, say
                    backoff.reset()
                    pause_s = backoff.next()
            self._poked.clear()
            if not await event_or_timeout(self._poked, pause_s):
                pause_s = backoff.next()
        self._task = None

    async def _connect(self) -> bool:
        try:
            address = await self._directory.address(self._bookie)
            connection = await introduce(self._bookie, address, self._user, self._settings, self._token)
        except BokiError as error:
            known = self.error is not None
            self.error = error
            self._log_failure(error)
            self._user.link_down(error, known=known)
            return False
        if connection.closed:
            return False
        self._lost = self._loop.create_future()
        self._user.connection, self.error, self._logged = connection, None, None
        _log.info("bookie connected", bookie_id=self._bookie, peer=connection.peer)
        self._user.link_up()
        return True

    def _log_failure(self, error: BokiError) -> None:
        """Log that the bookie cannot be used, once for each kind of error until it can: reads try it again and again."""
        if self._logged is type(error):
            return
        self._logged = type(error)
        if isinstance(error, AccessError):
            _log.warning("bookie not used", bookie_id=self._bookie, error=error)
        else:
            _log.info("bookie unreachable", bookie_id=self._bookie, error=error)

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
