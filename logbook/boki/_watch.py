"""Watching an engine that owes something: it is asked once when it is silent, then dropped; and what is undecided for too long is
given up. One timer a client, and none while nothing is owed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from boki._dial import EnginePeer
from boki_common.errors import CallTimeout


class Watched(Protocol):
    """What is watched."""

    @property
    def peer(self) -> EnginePeer | None: ...

    @property
    def owed(self) -> bool:
        """Whether somebody waits for the engine."""

    def give_up_old(self) -> None:
        """Gives up what is undecided for too long."""

    def ask_position(self) -> asyncio.Future[memoryview] | None:
        """Something that an engine answers at once."""


class Watch:
    """See the module. Invariant: while something is owed, its timer is set."""

    __slots__ = ("_call_later", "_received", "_look_s", "_probing", "_silence_s", "_timer", "_watched")

    def __init__(
        self,
        watched: Watched,
        call_later: Callable[[float, Callable[[], None]], asyncio.TimerHandle],
        silence_s: float,
        look_s: float,
    ) -> None:
        """`silence_s`: how often an engine that owes something must send something. `look_s`: how often that is checked."""
        self._watched: Final = watched
        self._call_later: Final = call_later
        self._silence_s: Final = silence_s
        self._look_s: Final = look_s
        self._timer: asyncio.TimerHandle | None = None
        self._received = True
        self._probing = False

    def begin(self) -> None:
        """Something is owed from now on."""
        if self._timer is None:
            self._look()

    def connected(self) -> None:
        self._received, self._probing = True, False

    def received(self) -> None:
        self._received = True

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        watched = self._watched
        if not watched.owed:
            return
        watched.give_up_old()
        self._probe()
        self._timer = self._call_later(self._look_s, self._look)

    def _probe(self) -> None:
        peer = self._watched.peer
        if peer is None:
            return
        if self._received:
            self._received = self._probing = False
        elif self._probing:
            silent_s = 2 * self._silence_s
            peer.connection.abort(CallTimeout(f"{peer.peer} has been silent for {silent_s} s", peer=peer.peer))
        else:
            self._probing = True
            future = self._watched.ask_position()
            if future is not None:
                future.add_done_callback(self._probed)

    def _probed(self, future: asyncio.Future[memoryview]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._received = True
