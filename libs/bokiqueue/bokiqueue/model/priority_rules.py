"""The order in which ready messages are delivered. Pure.

- The message of the highest priority comes first, and of one priority the oldest.
- Nothing starves: one of eight messages is the oldest ready one, whatever its priority. So the oldest ready message
  waits for seven others at most, and old messages get an eighth of the deliveries.
- A message that becomes ready at another priority is added again, and a finished message is not removed. The caller
  checks that the message from `next` is still ready, and then calls `taken`.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from boki_common.errors import InvalidArgument
from bokiqueue.model.events import Id

HIGHEST: Final = 9
OLDEST_EVERY: Final = 8


def check_priority(priority: int) -> int:
    """Return a priority; raise InvalidArgument if it is out of range."""
    if type(priority) is not int or not 0 <= priority <= HIGHEST:
        raise InvalidArgument(
            f"expected a priority of 0 (as usual) to {HIGHEST} (first), found {priority!r}", found=priority
        )
    return priority


class ReadyMessages:
    """The ready messages in the order of their delivery. See the module.

    Attributes:
        passed: how many messages were taken since the oldest one was.
    """

    def __init__(self, passed: int = 0, *, oldest_every: int = OLDEST_EVERY) -> None:
        self.passed = passed
        self._oldest_every = oldest_every
        self._usual: list[Id] = []
        self._urgent: dict[int, list[Id]] = {}
        self._old = False

    def __iter__(self) -> Iterator[Id]:
        yield from self._usual
        for waiting in self._urgent.values():
            yield from waiting

    def __bool__(self) -> bool:
        return bool(self._usual or self._urgent)

    def add(self, id: Id, priority: int) -> None:
        """Add a message that is ready at a priority."""
        heappush(self._usual if not priority else self._urgent.setdefault(priority, []), id)

    def discard(self, id: Id) -> None:
        """Remove a message."""
        for waiting in (self._usual, *self._urgent.values()):
            if id in waiting:
                waiting[:] = [one for one in waiting if one != id]
                heapify(waiting)
        self._urgent = {priority: waiting for priority, waiting in self._urgent.items() if waiting}

    def next(self) -> Id | None:
        """Remove and return the next message, or None if there is none."""
        if not self._urgent:
            self._old = True
            return heappop(self._usual) if self._usual else None
        priority = self._next_priority()
        waiting = self._urgent[priority] if priority else self._usual
        found = heappop(waiting)
        if priority and not waiting:
            del self._urgent[priority]
        return found

    def _next_priority(self) -> int:
        """Return the priority whose first message is next."""
        heads = {priority: waiting[0] for priority, waiting in self._urgent.items()}
        if self._usual:
            heads[0] = self._usual[0]
        oldest = min(heads, key=lambda priority: heads[priority])
        chosen = oldest if self.passed + 1 >= self._oldest_every else max(heads)
        self._old = chosen == oldest
        return chosen

    def taken(self) -> None:
        """Count the message that `next` returned last as taken."""
        self.passed = 0 if self._old else self.passed + 1
