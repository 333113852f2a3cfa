"""Whether an SDK is read from: its appends slow down before they are refused, and before their answers fill the memory.

- Nothing is read while the append queue is crowded and the SDK appends (`hold_back`).
- Nothing is read while the SDK does not take its answers (`answering`). So there is no more to answer than what it had appended, which
  the append queue bounds: an SDK that is only slower than the log is never dropped, one that takes nothing for long is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from boki_common import limits
from boki_common.errors import BokiError, Overloaded
from boki_common.net.connection import FrameConnection


class Intake:
    """See the module. Invariant: the connection is paused exactly while there is a reason."""

    def __init__(self, connection: FrameConnection) -> None:
        self.held_back = False
        """Whether the append queue is a reason."""
        self._connection: Final = connection
        self._taking: asyncio.Task[None] | None = None
        """Waits until the answers are taken."""

    def hold_back(self, when_room: Callable[[Callable[[], None]], None]) -> None:
        """Read nothing until `when_room` calls back."""
        if not self.held_back:
            self.held_back = True
            self._connection.pause_reading()
            when_room(self._room)

    def answering(self) -> None:
        """Answers are about to be sent: read nothing until earlier ones are taken, where these are too many."""
        connection = self._connection
        if connection.paused and self._taking is None and connection.unsent_bytes > limits.CONNECTION_UNSENT_BYTES:
            connection.pause_reading()
            self._taking = asyncio.ensure_future(self._until_taken())

    async def _until_taken(self) -> None:
        connection = self._connection
        try:
            async with asyncio.timeout(limits.REQUEST_AGE_S):
                await connection.drain()
        except TimeoutError:
            waiting = f"{connection.unsent_bytes} bytes wait"
            connection.abort(Overloaded(f"{connection.peer} takes no answers: {waiting}; it may connect again"))
        except BokiError:
            return  # it ended, and its handler knows
        self._taking = None
        self._read_on()

    def _room(self) -> None:
        self.held_back = False
        self._read_on()

    def _read_on(self) -> None:
        if not self.held_back and self._taking is None:
            self._connection.resume_reading()

    def close(self) -> None:
        """The connection has ended."""
        if self._taking is not None:
            self._taking.cancel()
