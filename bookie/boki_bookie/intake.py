"""Back-pressure of one connection: when it is read from, and when its peer is too slow to be kept.

| reached | what happens |
|---|---|
| `request_bytes` of adds taken and not yet durable | nothing is read from the peer until half of them are |
| `unsent_bytes` of answers that the peer does not take | nothing is read from it until it took half of them |
| the same for `slow_reader_timeout_s` | the connection ends; the error, which is logged, names the peer |

Not reading fills the peer's window, so that it slows down by itself; nothing is refused. What one read brought is always
taken. It knows sizes, not requests.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple, Protocol

from boki_common.errors import BokiError, Overloaded

LOOK_S: Final = 0.02
"""How often a peer is looked at that is not read from because it does not read."""


class IntakeLimits(NamedTuple):
    """See the module."""

    request_bytes: int
    unsent_bytes: int
    slow_reader_timeout_s: float


class Peer(Protocol):
    """What is needed of a connection."""

    peer: str
    closed: bool

    @property
    def unsent_bytes(self) -> int: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def abort(self, error: BokiError) -> None: ...


class Intake:
    """One connection's; `look` after each batch."""

    def __init__(self, peer: Peer, limits: IntakeLimits) -> None:
        self._peer = peer
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._taken_bytes = 0
        self._paused = False
        self._give_up_at: float | None = None
        """While the peer is waited for to read."""

    def took(self, size: int) -> None:
        """Adds of so many bytes wait for the journal; `released` follows."""
        self._taken_bytes += size

    def released(self, size: int, error: BokiError | None = None) -> None:
        """They are durable, or the journal failed."""
        self._taken_bytes -= size
        if self._paused and self._give_up_at is None and self._taken_bytes <= self._limits.request_bytes // 2:
            self._resume()

    def look(self) -> None:
        """Stops reading from a peer that has sent or asked for too much."""
        if self._peer.unsent_bytes > self._limits.unsent_bytes:
            self._pause()
            if self._give_up_at is None:
                self._give_up_at = self._loop.time() + self._limits.slow_reader_timeout_s
                self._loop.call_later(LOOK_S, self._look_again)
        elif self._taken_bytes > self._limits.request_bytes:
            self._pause()

    def _look_again(self) -> None:
        assert self._give_up_at is not None
        peer, unsent = self._peer, self._peer.unsent_bytes
        if peer.closed:
            return
        if unsent <= self._limits.unsent_bytes // 2:
            self._give_up_at = None
            if self._taken_bytes <= self._limits.request_bytes:
                self._resume()
        elif self._loop.time() < self._give_up_at:
            self._loop.call_later(LOOK_S, self._look_again)
        else:
            peer.abort(
                Overloaded(
                    f"expected {peer.peer} to read its answers, found {unsent} bytes unread after "
                    f"{self._limits.slow_reader_timeout_s} s",
                    peer=peer.peer,
                )
            )

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._peer.pause_reading()

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self._peer.resume_reading()
