"""Signals of one workflow by topic: values that were not received yet, and tasks that wait for one. It does not know the log.

Each value is received once. Both values and waiting tasks are served in order of arrival.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any, Final


class SignalQueue:
    """The signals of one workflow.

    Attributes:
        values: values that were not received.
        receivers: futures of tasks that wait; some may be cancelled.
    """

    def __init__(self, unreceived: Iterable[tuple[str, Any]] = ()) -> None:
        """`unreceived`: (topic, value) pairs that the run before a restart did not receive."""
        self.values: Final[defaultdict[str, deque[Any]]] = defaultdict(deque)
        self.receivers: Final[dict[str, deque[asyncio.Future[Any]]]] = {}
        for topic, value in unreceived:
            self.values[topic].append(value)

    @property
    def topics(self) -> list[str]:
        """The topics that a task waits for."""
        return [topic for topic, waiting in self.receivers.items() if waiting]

    @property
    def unreceived(self) -> list[tuple[str, Any]]:
        """The (topic, value) pairs that were not received."""
        return [(topic, value) for topic, values in self.values.items() for value in values]

    def deliver(self, topic: str, value: Any) -> asyncio.Future[Any] | None:
        """Return the future that gets a value; None if no task waits, then the value is kept."""
        receivers = self.receivers.get(topic)
        while receivers:
            receiver = receivers.popleft()
            if not receiver.done():
                return receiver
        self.values[topic].append(value)
        return None

    async def receive(self, topic: str, loop: asyncio.AbstractEventLoop) -> Any:
        """Wait for the next value of a topic."""
        values = self.values.get(topic)
        if values:
            return values.popleft()
        receiver: asyncio.Future[Any] = loop.create_future()
        self.receivers.setdefault(topic, deque()).append(receiver)
        try:
            return await receiver
        except asyncio.CancelledError:
            if receiver.done() and not receiver.cancelled():  # the value came at the moment of the cancellation
                self.values[topic].appendleft(receiver.result())
            raise
