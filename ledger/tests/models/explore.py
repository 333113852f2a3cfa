"""Breadth-first search over all states of a model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

S = TypeVar("S")


class Explored(NamedTuple):
    """What a search found."""

    states: int
    way: list[str]
    """The shortest way to a state that breaks the invariant; empty, if there is none."""


def explore(start: S, steps: Callable[[S], Iterator[tuple[str, S]]], broken: Callable[[S], bool]) -> Explored:
    """Visits every state that can be reached from `start`."""
    came: dict[S, tuple[S, str] | None] = {start: None}
    waiting = deque((start,))
    while waiting:
        state = waiting.popleft()
        if broken(state):
            way: list[str] = []
            while (before := came[state]) is not None:
                state, what = before
                way.append(what)
            return Explored(len(came), way[::-1])
        for what, following in steps(state):
            if following not in came:
                came[following] = (state, what)
                waiting.append(following)
    return Explored(len(came), [])
