"""Which of the messages that are ready comes next. Pure.

- The higher priority first; of one priority the oldest first.
- Nothing waits for ever: of eight messages that are taken one is the oldest that is ready, whatever its priority. So what is ready, and
  the oldest, waits for seven others at most, and old messages get an eighth of what is handed out.
- A message is added again when it is ready at another priority, and is not taken out when it is over: who takes one looks whether it is
  ready still, and then calls `taken`.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from boki_common.errors import InvalidArgument
from bokiqueue.events import Id

HIGHEST: Final = 9
OLDEST_EVERY: Final = 8


def check_priority(priority: int) -> int:
    """Raises InvalidArgument."""
    if type(priority) is not int or not 0 <= priority <= HIGHEST:
        raise InvalidArgument(
            f"expected a priority of 0 (as usual) to {HIGHEST} (first), found {priority!r}", found=priority
        )
    return priority


class Ready:
    """See the module.

    Attributes:
        passed: how many were taken since the oldest was.
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

    def add(self, id: Id, priority: int) -> None:
        """A message is ready."""
        heappush(self._usual if not priority else self._urgent.setdefault(priority, []), id)

    def discard(self, id: Id) -> None:
        """It is not."""
        for waiting in (self._usual, *self._urgent.values()):
            if id in waiting:
                waiting[:] = [one for one in waiting if one != id]
                heapify(waiting)
        self._urgent = {priority: waiting for priority, waiting in self._urgent.items() if waiting}

    def next(self) -> Id | None:
        """Takes the next one out; None: there is none."""
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
        """Whose turn it is."""
        heads = {priority: waiting[0] for priority, waiting in self._urgent.items()}
        if self._usual:
            heads[0] = self._usual[0]
        oldest = min(heads, key=lambda priority: heads[priority])
        chosen = oldest if self.passed + 1 >= self._oldest_every else max(heads)
        self._old = chosen == oldest
        return chosen

    def taken(self) -> None:
        """What `next` gave last is taken."""
        self.passed = 0 if self._old else self.passed + 1
