"""What sessions knew of one book, by time: the highest seqnum that they were answered, and what they took over. Pure.

A session that takes over the position of another knows what that one had been answered before. Reads with consistency `any` teach
nothing: they raise no position.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable

from boki_sim.checkers.history import Operation
from boki_sim.work.operations import ANY, OK, TOKEN


class Known:
    """The highest seqnum that somebody knew, by time."""

    def __init__(self) -> None:
        self._ends: list[float] = []
        self._highest: list[int] = []

    def learn(self, end: float, seqnum: int) -> None:
        """Calls come in the order of their ends."""
        self._ends.append(end)
        highest = self._highest
        highest.append(highest[-1] if highest and highest[-1] > seqnum else seqnum)

    def upto(self, end: float) -> int:
        """By answers that came at this time or before."""
        at = bisect_right(self._ends, end)
        return self._highest[at - 1] if at else 0

    def before(self, start: float) -> int:
        """By answers that came before this time."""
        at = bisect_left(self._ends, start)
        return self._highest[at - 1] if at else 0


class WhatIsKnown:
    """By each session, and by anybody: from all calls on a book, and all tokens."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.anybody = Known()
        self._sessions: dict[str, Known] = defaultdict(Known)
        for one in sorted((one for one in operations if one.outcome == OK), key=lambda one: one.until):
            if one.kind == TOKEN:
                self._sessions[one.client].learn(one.until, self._sessions[one.of].before(one.until))
            elif one.place is not None:
                self.anybody.learn(one.until, one.place)
                if one.consistency != ANY:
                    self._sessions[one.client].learn(one.until, one.place)

    def by(self, session: str, start: float) -> int:
        """What a session knew when it began a call."""
        return self._sessions[session].before(start)
