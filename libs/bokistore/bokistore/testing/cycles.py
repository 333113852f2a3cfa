"""Histories of transactions that append to lists and read them, checked for cycles (after Adya, and Elle by Kingsbury and Alvaro).

Each append is of a value that is used once, so a list that was read tells which versions there were. Edges between transactions:
ww (one appended right behind the other), wr (one read what the other appended), rw (one read up to before what the other appended).

- serializable: no cycle of any edges.
- snapshot isolation: no cycle once each rw edge is taken together with the ww or wr edge before it (Cerone and Gotsman): so lost updates,
  read skew and long forks are found, and write skew, whose two rw edges follow one another, is not.
- both: nothing is read that did not commit (G1a), and no prefix of a list but one (each read is a prefix of the last).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass
class Transacted:
    """A transaction of a history: its reads and the values that it appended. `number` identifies it."""

    number: int
    read: dict[str, list[int]] = field(default_factory=dict)
    appended: dict[str, int] = field(default_factory=dict)


Edges = set[tuple[int, int]]


def anomalies(history: Sequence[Transacted], last: Mapping[str, Sequence[int]], *, serializable: bool) -> list[str]:
    """Return what is wrong with the committed transactions, given the final lists."""
    writer = {(key, value): one.number for one in history for key, value in one.appended.items()}
    found = [
        f"{key} has {value}, which no transaction committed"
        for key in last
        for value in last[key]
        if (key, value) not in writer
    ]
    for (key, value), number in writer.items():
        if list(last.get(key, ())).count(value) != 1:
            found.append(f"{key} has what {number} appended {list(last.get(key, ())).count(value)} times")
    for one in history:
        for key, values in one.read.items():
            own = one.appended.get(key)
            seen = [value for value in values if value != own]
            if seen != list(last.get(key, ()))[: len(seen)]:
                found.append(f"{one.number} read {values} of {key}, which ended as {list(last.get(key, ()))}")
    if found:
        return found
    hard, anti = _edges(history, last, writer)
    edges = hard | anti if serializable else hard | {(a, d) for a, b in hard for c, d in anti if b == c and a != d}
    if not serializable and any((a, b) in anti and (b, a) in hard for a, b in anti):
        found.append("a cycle with one anti-dependency")
    if _cycle(edges):
        found.append("a cycle")
    return found


def _edges(
    history: Sequence[Transacted], last: Mapping[str, Sequence[int]], writer: Mapping[tuple[str, int], int]
) -> tuple[Edges, Edges]:
    hard: Edges = set()
    anti: Edges = set()
    for key, values in last.items():
        for before, after in pairwise(values):
            hard.add((writer[key, before], writer[key, after]))
    for one in history:
        for key, values in one.read.items():
            seen = [value for value in values if value != one.appended.get(key)]
            if seen:
                hard.add((writer[key, seen[-1]], one.number))
            if len(seen) < len(last.get(key, ())):
                anti.add((one.number, writer[key, last[key][len(seen)]]))
    return {(a, b) for a, b in hard if a != b}, {(a, b) for a, b in anti if a != b}


def _cycle(edges: Iterable[tuple[int, int]]) -> bool:
    following: dict[int, list[int]] = {}
    waiting: dict[int, int] = {}
    for before, after in edges:
        following.setdefault(before, []).append(after)
        waiting[after] = waiting.get(after, 0) + 1
        waiting.setdefault(before, 0)
    free = [number for number, count in waiting.items() if not count]
    passed = 0
    while free:
        passed += 1
        for after in following.get(free.pop(), []):
            waiting[after] -= 1
            if not waiting[after]:
                free.append(after)
    return passed < len(waiting)
