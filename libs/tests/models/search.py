"""Exhaustive search over the states of a small model, breadth first: the first bad execution is a shortest one.

A world is a frozen value. `moves` yields each step that can be taken, with its name and the world after it; `fault` describes what is
wrong with a world, or is None. The search is exhaustive for the bounds in the world, unless it reaches `limit`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import NamedTuple, Protocol, TypeVar


class World(Hashable, Protocol):
    """A state of a model."""

    def moves(self) -> Iterator[tuple[str, World]]: ...

    def fault(self) -> str | None: ...


class SearchResult(NamedTuple):
    """The result of a search: the number of states, and the shortest execution that leads to a fault, if there is one."""

    states: int
    fault: str | None
    path: list[str]


W = TypeVar("W", bound=World)


def search(start: World, limit: int = 2_000_000) -> SearchResult:
    """Search all reachable states."""
    parents: dict[World, tuple[World | None, str]] = {start: (None, "")}
    todo = deque([start])
    while todo:
        world = todo.popleft()
        fault = world.fault()
        if fault is not None:
            path = []
            at: World | None = world
            while at is not None:
                at, step = parents[at]
                path.append(step)
            return SearchResult(len(parents), fault, path[-2::-1])
        for step, after in world.moves():
            if after not in parents:
                parents[after] = world, step
                todo.append(after)
        assert len(parents) < limit, "larger than it was meant to be"
    return SearchResult(len(parents), None, [])
