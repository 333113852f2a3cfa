"""Transactions with locks, as a model: two workflows that lock two rows in opposite orders, read them, and change both in one record;
their processes die and are taken over between any two steps, an old one still runs, and another writer takes no locks at all. No update is
lost, no change is partial, and every execution ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from libs.tests.models.search import search

ROWS = (0, 1)
ORDERS = ((0, 1), (1, 0))


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off.

    Attributes:
        dies: a workflow with a lock waits for younger ones only, and else releases its locks. fence: records expect that no other process
            runs the workflow. unmoved: the record expects the rows as they were read. together: it has all writes.
    """

    dies: bool = True
    fence: bool = True
    unmoved: bool = True
    together: bool = True


@dataclass(frozen=True)
class Flow:
    """A workflow, as recorded in the log.

    Attributes:
        locked: the locks that it holds or waits for, in order.
        read: versions of rows.
        written: number of rows.
    """

    state: str = "work"
    locked: tuple[int, ...] = ()
    read: tuple[tuple[int, int], ...] = ()
    first: int = -1
    """The lock that it could not have, and takes first the next time."""
    written: int = 0
    owner: int = 0


@dataclass(frozen=True)
class World:
    """Versions of two rows; queues of two locks; two workflows, the first one is older. `stale`: an old process's idea of workflow 0,
    from when it was its own."""

    rules: Rules
    deaths: int
    foreign: int
    versions: tuple[int, int] = (0, 0)
    lost: bool = False
    half: bool = False
    queues: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    flows: tuple[Flow, Flow] = (Flow(), Flow())
    stale: Flow | None = None
    commits: tuple[int, ...] = ()

    def fault(self) -> str | None:
        if self.lost:
            return "a row was changed by who had not seen its last change"
        if len(self.commits) != len(set(self.commits)):
            return "a workflow changed its rows twice"
        if self.half:
            return "half of it was written, and the rest cannot be any more"
        if not any(True for _ in self.moves()) and any(flow.state != "done" for flow in self.flows):
            return f"it never ends: {self.queues}"
        return None

    def moves(self) -> Iterator[tuple[str, World]]:
        for at, flow in enumerate(self.flows):
            yield from self._moves_of(at, flow)
        if self.deaths and self.stale is None and self.flows[0].state != "done":
            flow = self.flows[0]
            yield (
                "workflow 0 is taken over",
                replace(self._with(0, replace(flow, owner=1)), stale=flow, deaths=self.deaths - 1),
            )
        if self.stale is not None and len(self.stale.read) == len(ROWS) and self.stale.state == "work":
            if not self.rules.fence:
                yield "its old process writes", self._committed(0, self.stale, stale=None)
            yield "its old process gives up", replace(self, stale=None)
        if self.foreign:
            yield (
                "somebody without locks writes",
                replace(self, versions=(self.versions[0] + 1, self.versions[1]), foreign=self.foreign - 1),
            )

    def _with(self, at: int, flow: Flow) -> World:
        return replace(self, flows=(flow, self.flows[1]) if at == 0 else (self.flows[0], flow))

    def _queue(self, row: int, queue: tuple[int, ...]) -> World:
        return replace(self, queues=(queue, self.queues[1]) if row == 0 else (self.queues[0], queue))

    def _moves_of(self, at: int, flow: Flow) -> Iterator[tuple[str, World]]:
        if flow.state == "done":
            return
        order = ORDERS[at] if flow.first < 0 else (flow.first, 1 - flow.first)
        waiting = [row for row in flow.locked if self.queues[row][:1] != (at,)]
        if waiting:
            return
        for row in order:
            if row not in flow.locked and flow.state == "work":
                yield from self._locks(at, flow, row)
                return
            if row not in dict(flow.read) and flow.state == "work":
                read = (*flow.read, (row, self.versions[row]))
                yield f"{at} reads {row}", self._with(at, replace(flow, read=read))
                return
        if flow.state == "work":
            yield from self._commits(at, flow)
        else:
            yield f"{at} releases all", self._released(at, replace(flow, state="done"))

    def _locks(self, at: int, flow: Flow, row: int) -> Iterator[tuple[str, World]]:
        queue = self.queues[row]
        older = any(one < at for one in queue)
        if queue and flow.locked and older and self.rules.dies:
            again = Flow(first=row, owner=flow.owner)
            yield f"{at} releases all and begins again", self._released(at, again)
            return
        taken = replace(flow, locked=(*flow.locked, row))
        yield f"{at} asks for {row}", self._queue(row, (*queue, at))._with(at, taken)

    def _released(self, at: int, flow: Flow) -> World:
        world = self
        for row in ROWS:
            world = world._queue(row, tuple(one for one in world.queues[row] if one != at))
        return world._with(at, replace(flow, locked=()))

    def _commits(self, at: int, flow: Flow) -> Iterator[tuple[str, World]]:
        if self.rules.unmoved and any(self.versions[row] != version for row, version in flow.read):
            again = self._released(at, Flow(first=flow.first, owner=flow.owner))
            yield f"{at} may not write, and begins again", replace(again, half=flow.written > 0)
            return
        yield f"{at} writes", self._committed(at, flow)

    def _committed(self, at: int, flow: Flow, **changes: object) -> World:
        rows = ROWS if self.rules.together else (ROWS[flow.written],)
        versions = list(self.versions)
        lost = self.lost
        for row in rows:
            lost = lost or versions[row] != dict(flow.read)[row]
            versions[row] += 1
        written = flow.written + len(rows)
        state = "over" if written == len(ROWS) else "work"
        after = replace(self.flows[at], state=state, written=written, read=flow.read)
        commits = (*self.commits, at) if written == len(ROWS) else self.commits
        made = replace(self, versions=(versions[0], versions[1]), lost=lost, commits=commits, **changes)  # type: ignore[arg-type]
        return made._with(at, after)


START = World(Rules(), deaths=1, foreign=1)


def test_two_that_lock_in_opposite_orders_lose_nothing_and_end() -> None:
    found = search(START)
    assert (found.fault, found.path) == (None, [])
    assert found.states > 300


@pytest.mark.parametrize("broken", ["dies", "fence", "unmoved", "together"])
def test_each_rule_is_needed(broken: str) -> None:
    found = search(replace(START, rules=Rules(**{broken: False})))
    assert found.fault is not None, f"nothing was found without {broken}"


@pytest.mark.parametrize("broken", ["unmoved"])
def test_among_those_who_lock_the_record_finds_nothing_moved(broken: str) -> None:
    found = search(replace(START, foreign=0, rules=Rules(**{broken: False})))
    assert found.fault is None, "it is for those who take no locks"
