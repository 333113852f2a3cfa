"""Who is connected to a server, and for how long: strangers by `strangers`, all others until they are silent for too long.

- A peer that introduced itself is bounded in number only. When the server is full, a newcomer takes the place of the oldest
  stranger; where there is none it is dropped.
- A connection over which nobody sent anything for `idle_s`, and up to half as long again, is closed. Our clients send something
  before (`messages.MessagePeer`); others connect again when they need it. A machine that vanished is found by the
  kernel, in `limits.CONNECTION_VANISHED_S`.
- Drops are logged in one line a minute, however many connections there are.
"""

from __future__ import annotations

import asyncio
from typing import Final, Generic, Protocol, TypeVar

from boki_common.errors import BokiError, CallTimeout, ConnectionLost, Overloaded
from boki_common.logs import get_logger
from boki_common.net.strangers import StrangerLimits, Strangers

_LOOKS_A_PERIOD: Final = 2
_REPORT_EVERY_S: Final = 60.0

_log = get_logger("net")


class Guest(Protocol):
    """A connection, as far as this module is concerned."""

    peer: str
    active: bool
    """Whether anything was sent or received on it; set by the connection, reset here."""

    def abort(self, error: BokiError) -> None: ...

    def rest(self) -> None:
        """The connection was idle for a while: it may release memory."""

    def __hash__(self) -> int: ...


G = TypeVar("G", bound=Guest)


class Doorkeeper(Generic[G]):
    """Of one server."""

    def __init__(self, *, connections: int | None, strangers: StrangerLimits, idle_s: float) -> None:
        self.address = "a server"
        """As errors name it."""
        self.guests: dict[G, None] = {}
        """All connections, strangers too."""
        self._connections_limit = connections
        self._strangers: Strangers[G] = Strangers(strangers)
        self._idle_s = idle_s
        self._quiet: dict[G, int] = {}
        """How many looks in a row found no traffic."""
        self._loop = asyncio.get_running_loop()
        self._next_end: asyncio.TimerHandle | None = None
        self._next_look: asyncio.TimerHandle | None = None
        self._dropped = 0
        self._reported_at: float | None = None
        self._closed = False

    def close(self) -> None:
        """Refuse every guest from now on."""
        self._closed = True

    def came(self, guest: G) -> None:
        """A connection was made."""
        if self._closed:
            guest.abort(ConnectionLost(f"{self.address} was closed", peer=guest.peer))
            return
        limit = self._connections_limit
        if limit is not None and len(self.guests) >= limit:
            oldest = self._strangers.oldest
            full = Overloaded(
                f"expected at most {limit} connections to {self.address}, found one more of {guest.peer}",
                peer=guest.peer,
            )
            if oldest is None:
                self._drop(guest, full)
                return
            self._drop(oldest, full)
        self.guests[guest] = None
        one_too_many = self._strangers.came(guest, self._loop.time())
        if one_too_many is not None:
            self._drop(
                one_too_many,
                Overloaded(
                    f"expected at most {self._strangers.allowed.connections} connections to {self.address} that have not "
                    f"introduced themselves, found one more: dropped the oldest, of {one_too_many.peer}",
                    peer=one_too_many.peer,
                ),
            )
        if self._next_end is None:
            self._next_end = self._loop.call_later(self._strangers.allowed.wait_s, self._end_overdue)
        if self._next_look is None:
            self._next_look = self._loop.call_later(self._idle_s / _LOOKS_A_PERIOD, self.look)

    def introduced(self, guest: G) -> None:
        """It is no stranger any more."""
        self._strangers.left(guest)
        self._stop_if_empty()

    def may_hold(self, guest: G, size: int) -> bool:
        """Whether a stranger may have a buffer of so many bytes; if not, it is dropped in the next turn."""
        if self._strangers.grew(guest, size):
            return True
        allowed = self._strangers.allowed.buffered_bytes
        self._loop.call_soon(
            self._drop,
            guest,
            Overloaded(
                f"connections to {self.address} that have not introduced themselves hold more than {allowed} bytes",
                peer=guest.peer,
            ),
        )
        return False

    def lost(self, guest: G) -> None:
        """The connection ended."""
        self._strangers.left(guest)
        self.guests.pop(guest, None)
        self._quiet.pop(guest, None)
        self._stop_if_empty()

    def _drop(self, guest: G, error: BokiError) -> None:
        self._strangers.left(guest)
        self._dropped += 1
        now = self._loop.time()
        if self._reported_at is None or now - self._reported_at >= _REPORT_EVERY_S:
            self._reported_at = now
            _log.warning("dropped connections", address=self.address, count=self._dropped, error=error)
            self._dropped = 0
        guest.abort(error)

    def _end_overdue(self) -> None:
        self._next_end = None
        wait_s = self._strangers.allowed.wait_s
        now = self._loop.time()
        for guest in self._strangers.overdue(now):
            self._drop(
                guest, CallTimeout(f"{guest.peer} did not introduce itself within {wait_s:g} s", peer=guest.peer)
            )
        next_end = self._strangers.next_end
        if next_end is not None:
            self._next_end = self._loop.call_later(max(0.0, next_end - now), self._end_overdue)

    def look(self) -> None:
        """Ends who was silent since the look before the last one. Called by its own timer."""
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None
        for guest in list(self.guests):
            if guest.active:
                guest.active = False
                self._quiet.pop(guest, None)
                continue
            looks = self._quiet[guest] = self._quiet.get(guest, 0) + 1
            if looks >= _LOOKS_A_PERIOD:
                guest.abort(ConnectionLost(f"nothing was said to or by {guest.peer} for {self._idle_s:g} s"))
            else:
                guest.rest()
        if self.guests:
            self._next_look = self._loop.call_later(self._idle_s / _LOOKS_A_PERIOD, self.look)

    def _stop_if_empty(self) -> None:
        """No timer runs for nobody."""
        if self._next_end is not None and not len(self._strangers):
            self._next_end.cancel()
            self._next_end = None
        if self._next_look is not None and not self.guests:
            self._next_look.cancel()
            self._next_look = None
