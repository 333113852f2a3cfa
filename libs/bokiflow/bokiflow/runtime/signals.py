"""What was sent to one workflow, by topic: values that nobody has received yet, and who waits for one. It knows no log.

Each value is received once, in the order in which values came and others began to wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, Final


class SignalQueue:
    """See the module. Attributes: values: that nobody has received. receivers: who waits, and perhaps was cancelled meanwhile."""

    def __init__(self, unreceived: Iterable[tuple[str, Any]] = ()) -> None:
        """`unreceived`: of the run before, (topic, value)."""
        self.values: Final[dict[str, deque[Any]]] = {}
        self.receivers: Final[dict[str, deque[asyncio.Future[Any]]]] = {}
        for topic, value in unreceived:
            self._keep(topic).append(value)

    def _keep(self, topic: str) -> deque[Any]:
        return self.values.setdefault(topic, deque())

    @property
    def topics(self) -> list[str]:
        """Under which somebody waits for something."""
        return [topic for topic, waiting in self.receivers.items() if waiting]

    @property
    def unreceived(self) -> list[tuple[str, Any]]:
        """What was sent, and nobody has received: (topic, value)."""
        return [(topic, value) for topic, values in self.values.items() for value in values]

    def deliver(self, topic: str, value: Any) -> asyncio.Future[Any] | None:
        """Takes a value that was sent. Returns the receiver that is to be given it; None: nobody waits, and it is kept."""
        receivers = self.receivers.get(topic)
        while receivers:
            receiver = receivers.popleft()
            if not receiver.done():
                return receiver
        self._keep(topic).append(value)
        return None

    async def receive(self, topic: str, loop: asyncio.AbstractEventLoop) -> Any:
        """The next value of a topic."""
        values = self.values.get(topic)
        if values:
            return values.popleft()
        receiver: asyncio.Future[Any] = loop.create_future()
        self.receivers.setdefault(topic, deque()).append(receiver)
        try:
            return await receiver
        except asyncio.CancelledError:
            if (
                receiver.done() and not receiver.cancelled()
            ):  # it came, and who waited for it was cancelled at the same time
                self._keep(topic).appendleft(receiver.result())
            raise
