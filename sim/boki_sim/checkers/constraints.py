"""A graph of what must have happened before what, and the shortest contradiction in it. Knows nothing of logs.

Nodes are calls, by number, and instants that hold real time together: a call leads to the instant at which it ended, each
instant leads to the next, and an instant leads to the calls that began at it or later. So "this one had returned before that
one began" costs one edge a call, not one a pair. There may be several clocks: one for all calls, one for each session.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Final, NamedTuple

from boki_sim.checkers.history import Operation

_FOLLOWING: Final = itemgetter(0)
_STARTS: Final = 16
"""Calls of a component from which a cycle is looked for."""


class Step(NamedTuple):
    """One edge between two calls of a cycle."""

    before: int
    reason: str
    after: int


class Constraints:
    """See the module. Reasons are words between two calls: `A <reason> B`."""

    def __init__(self, calls: int) -> None:
        """Calls are numbered as they began, so that every cycle has an edge to a lower number."""
        self._edges: list[list[tuple[int, str]]] = [[] for _ in range(calls)]
        self._calls = calls

    def before(self, first: int, reason: str, second: int) -> None:
        """`first` took effect before `second`."""
        self._edges[first].append((second, reason))

    def clock(
        self, operations: Sequence[Operation], reason: str, *, entering: Iterable[int], leaving: Iterable[int]
    ) -> None:
        """Holds calls to real time: one of `leaving` that ended before one of `entering` began is before it."""
        events = [(operations[call].start, 0, call) for call in entering]
        for call in leaving:
            end = operations[call].end
            if end is not None:
                events.append((end, 1, call))
        events.sort()
        previous = -1
        for _, ends, call in events:
            if ends:
                instant = len(self._edges)
                self._edges.append([])
                if previous >= 0:
                    self._edges[previous].append((instant, reason))
                self._edges[call].append((instant, reason))
                previous = instant
            elif previous >= 0:
                self._edges[previous].append((call, reason))

    def forget(self, call: int) -> None:
        """Takes a call out, to look for contradictions without it."""
        self._edges[call] = []
        for edges in self._edges:
            edges[:] = [edge for edge in edges if edge[0] != call]

    def cycle(self) -> list[Step]:
        """A shortest cycle through one of the calls that are on one, as steps between calls; empty if there is none."""
        if self._is_ordered():
            return []
        component = self._component()
        inside = set(component)
        best: list[tuple[int, str]] = []
        for call in self._starts(inside):
            path = self._way_back(call, inside)
            if path and (not best or _calls_on(path, self._calls) < _calls_on(best, self._calls)):
                best = path
        return self._steps(best)

    def _is_ordered(self) -> bool:
        """Whether all nodes can be put in an order that no edge contradicts, as a rule; quicker than `_component`."""
        edges = self._edges
        before = [0] * len(edges)
        for node, count in Counter(map(_FOLLOWING, chain.from_iterable(edges))).items():
            before[node] = count
        ordered = [node for node, count in enumerate(before) if not count]
        for node in ordered:  # grows meanwhile
            for following, _ in edges[node]:
                before[following] -= 1
                if not before[following]:
                    ordered.append(following)
        return len(ordered) == len(edges)

    def _component(self) -> list[int]:
        """The first strongly connected component of more than one node (Tarjan, without recursion); empty if none."""
        count = len(self._edges)
        index, low = [0] * count, [0] * count
        on_stack = bytearray(count)
        stack: list[int] = []
        number = 0
        for root in range(count):
            if index[root]:
                continue
            number += 1
            index[root] = low[root] = number
            stack.append(root)
            on_stack[root] = 1
            work = [(root, iter(self._edges[root]))]
            while work:
                node, edges = work[-1]
                for following, _ in edges:
                    if not index[following]:
                        number += 1
                        index[following] = low[following] = number
                        stack.append(following)
                        on_stack[following] = 1
                        work.append((following, iter(self._edges[following])))
                        break
                    if on_stack[following]:
                        low[node] = min(low[node], index[following])
                else:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[node])
                    if low[node] == index[node]:
                        at = len(stack) - 1
                        while stack[at] != node:
                            at -= 1
                        found = stack[at:]
                        del stack[at:]
                        for member in found:
                            on_stack[member] = 0
                        if len(found) > 1:
                            return found
        return []

    def _starts(self, inside: set[int]) -> list[int]:
        """Calls with an edge to an earlier one, the longest way back first: calls are numbered as they began."""
        back: dict[int, int] = {}
        for call in sorted(node for node in inside if node < self._calls):
            for following, _ in self._edges[call]:
                if following < call and following in inside:
                    back[call] = max(back.get(call, 0), call - following)
        return sorted(back, key=lambda call: -back[call])[:_STARTS]

    def _way_back(self, call: int, inside: set[int]) -> list[tuple[int, str]]:
        """A path from a call to itself over the fewest calls: (node, reason of the edge that leads on)."""
        came: dict[int, tuple[int, str]] = {}
        done: set[int] = set()
        queue = deque([call])
        while queue:
            node = queue.popleft()
            if node in done:
                continue
            done.add(node)
            for following, reason in self._edges[node]:
                if following == call:
                    path = [(node, reason)]
                    while path[-1][0] != call:
                        path.append(came[path[-1][0]])
                    return path[::-1]
                if following in done or following not in inside:
                    continue
                if following >= self._calls:  # an instant is free: it goes first, whoever found it before
                    came[following] = (node, reason)
                    queue.appendleft(following)
                elif following not in came:
                    came[following] = (node, reason)
                    queue.append(following)
        return []

    def _steps(self, path: list[tuple[int, str]]) -> list[Step]:
        """The path without its instants, and without what lies between two ends of one reason."""
        calls = [(node, reason) for node, reason in path if node < self._calls]
        kept = (
            [at for at in range(len(calls)) if calls[at][1] != calls[at - 1][1]]
            if len(calls) > 2
            else range(len(calls))
        )
        chosen = [calls[at] for at in kept]
        return [Step(node, reason, chosen[(at + 1) % len(chosen)][0]) for at, (node, reason) in enumerate(chosen)]


def _calls_on(path: list[tuple[int, str]], calls: int) -> int:
    return sum(node < calls for node, _ in path)
