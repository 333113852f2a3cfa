"""Back-pressure of one connection: when it is read from, and when its peer is too slow to be kept.

| reached | what happens |
|---|---|
| `request_bytes` of adds, or `adds_limit` of them, taken and not answered | nothing is read from the peer until half of them are |
| an acknowledgement waits for room in the write cache | nothing is read from its peer until all it sent is answered |
| `unsent_bytes` of answers that the peer does not take | nothing is read from it until it took half of them |
| the same for `slow_reader_timeout_s` | the connection ends; the error, which is logged, names the peer |

Not reading fills the peer's window, so that it slows down by itself; nothing is refused. That matters to clients for whom
a refusal is a broken bookie, as it is for Apache's: where two of three bookies are fast, the third is sent all that they
acknowledge, however far behind it is. What one read brought is always taken. It knows sizes and numbers, not requests.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple, Protocol

from boki_common.errors import BokiError, Overloaded

LOOK_S: Final = 0.02
"""How often a peer is looked at that is not read from because it does not read."""


class BackpressureLimits(NamedTuple):
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


class Backpressure:
    """One connection's; `look` after each batch that was answered with more than acknowledgements."""

    def __init__(self, peer: Peer, limits: BackpressureLimits, adds_limit: int) -> None:
        self._peer = peer
        self._limits = limits
        self._adds_limit = adds_limit
        self._loop = asyncio.get_running_loop()
        self._taken_bytes = 0
        self._taken_adds = 0
        self._late_bytes = 0
        self._late_adds = 0
        self._paused = False
        self._wants_room = False
        self._give_up_at: float | None = None
        """While the peer is waited for to read."""

    def took(self, size: int, adds: int) -> None:
        """So many adds, of so many bytes, wait for their answer; `released` follows."""
        self._taken_bytes += size
        self._taken_adds += adds
        if self._taken_bytes > self._limits.request_bytes or self._taken_adds > self._adds_limit:
            self._pause()

    def took_late(self, size: int) -> None:
        """One add waits for something else than the journal; `answered_late` follows."""
        self._late_bytes += size
        self._late_adds += 1
        self.took(size, 1)

    def answered_late(self) -> None:
        self._late_adds -= 1
        size = 0
        if not self._late_adds:  # their bytes are released together: the size of each is not kept
            size, self._late_bytes = self._late_bytes, 0
        self.released(size, 1)

    def wait_for_room(self) -> None:
        """What was taken is not answered before there is room for it; if it was not answered meanwhile."""
        self._wants_room = self._taken_adds > 0
        if self._wants_room:
            self._pause()

    def released(self, size: int, adds: int) -> None:
        """They are answered, or the journal failed."""
        self._taken_bytes -= size
        self._taken_adds -= adds
        if self._paused and self._give_up_at is None and self._has_caught_up():
            self._resume()

    def _has_caught_up(self) -> bool:
        if self._wants_room:
            return self._taken_adds == 0
        return self._taken_bytes <= self._limits.request_bytes // 2 and self._taken_adds <= self._adds_limit // 2

    def look(self) -> None:
        """Stops reading from a peer that does not take its answers."""
        if self._peer.unsent_bytes > self._limits.unsent_bytes:
            self._pause()
            if self._give_up_at is None:
                self._give_up_at = self._loop.time() + self._limits.slow_reader_timeout_s
                self._loop.call_later(LOOK_S, self._look_again)

    def _look_again(self) -> None:
        assert self._give_up_at is not None
        peer, unsent = self._peer, self._peer.unsent_bytes
        if peer.closed:
            return
        if unsent <= self._limits.unsent_bytes // 2:
            self._give_up_at = None
            if self._has_caught_up():
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
        self._wants_room = False
        if self._paused:
            self._paused = False
            self._peer.resume_reading()
