"""A model of locks, over the library's own rules (`bokiflow.model.lock_rules`): workflows of several tasks, children, time-outs, looks that
are outdated when the append lands. No lock has two exclusive holders, and no workflow waits without end, unless a rule is turned off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from bokiflow.model.lock_rules import (
    Enqueued,
    Queue,
    Released,
    enqueued,
    holders,
    is_free,
    may_wait,
    released,
    standing,
)
from libs.tests.models.search import search


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off.

    Attributes:
        condition: the record that takes a free lock expects that the lock did not move. younger: a workflow with a lock waits for younger
            ones only. children: so do children. serial: a workflow asks for one lock after the other. leave: a workflow that stops
            waiting leaves the queue, even if its turn had come meanwhile.
    """

    condition: bool = True
    younger: bool = True
    children: bool = True
    serial: bool = True
    leave: bool = True


@dataclass(frozen=True)
class Task:
    """The steps that are left: "+a" takes a lock exclusively, "*a" shares it, "-a" releases it, ">1" waits for another workflow's end,
    "&a" until another task of its own has that lock, or has ended."""

    todo: tuple[str, ...]
    looked: tuple[int, bool] | None = None
    """The place of the lock at the look, and whether it was free."""
    waits: int = 0

    @property
    def asks(self) -> bool:
        return self.looked is not None or self.waits > 0


@dataclass(frozen=True)
class Flow:
    age: int
    tasks: tuple[Task, ...]
    child: bool = False
    held: tuple[tuple[str, int], ...] = ()

    @property
    def over(self) -> bool:
        return not any(task.todo for task in self.tasks)

    def taken(self) -> bool:
        return bool(self.held) or any(task.waits for task in self.tasks)


@dataclass(frozen=True)
class Locks:
    """The world. `moved`: seqnum of the newest record of each lock."""

    rules: Rules
    flows: tuple[Flow, ...]
    queues: tuple[tuple[str, Queue], ...] = (("a", ()), ("b", ()), ("c", ()))
    moved: tuple[tuple[str, int], ...] = (("a", 0), ("b", 0), ("c", 0))
    seqnum: int = 0
    give_ups: int = 1

    def queue(self, lock: str) -> Queue:
        return dict(self.queues)[lock]

    def fault(self) -> str | None:
        for lock, queue in self.queues:
            have = [number for flow in self.flows for name, number in flow.held if name == lock]
            shared = {entry.number for entry in queue if entry.shared}
            if len(have) > 1 and not set(have) <= shared:
                return f"{lock} is held by several: {sorted(have)}"
            if not set(have) <= {entry.number for entry in holders(queue)}:
                return f"who has {lock} is not its holder by the log"
        if not all(flow.over for flow in self.flows) and next(self.moves(), None) is None:
            return "they wait for ever"
        return None

    def moves(self) -> Iterator[tuple[str, Locks]]:
        for at, flow in enumerate(self.flows):
            for which, task in enumerate(flow.tasks):
                if task.todo:
                    yield from self._moves(at, which, flow, task)

    def _moves(self, at: int, which: int, flow: Flow, task: Task) -> Iterator[tuple[str, Locks]]:
        kind, name = task.todo[0][0], task.todo[0][1:]
        who = f"{at}.{which}"
        if kind == ">":
            if self.flows[int(name)].over:
                yield f"{who} goes on", self._with(at, which, Task(task.todo[1:]))
        elif kind == "&":
            if name in dict(flow.held) or not all(other.todo for other in flow.tasks):
                yield f"{who} goes on", self._with(at, which, Task(task.todo[1:]))
        elif kind == "-":
            yield f"{who} releases {name}", self._released(at, which, name)
        elif task.waits:
            state = standing(self.queue(name), task.waits)
            if state == "held":
                yield f"{who} is granted {name}", self._granted(at, which, name, task.waits)
            elif state == "gone":
                yield f"{who} is refused {name}", self._given_up(at)
            if self.give_ups:
                yield f"{who} waits no more", replace(self._given_up(at, knows=False), give_ups=0)
        elif task.looked is not None:
            yield f"{who} appends", self._appended(at, which, flow, task)
        elif not self.rules.serial or not any(other.asks for other in flow.tasks):
            free = is_free(self.queue(name), kind == "*")
            if free or may_wait(self.queue(name), flow.age, self._waits_for_any(flow)):
                yield f"{who} looks", self._with(at, which, replace(task, looked=(dict(self.moved)[name], free)))
            else:
                yield f"{who} is refused at once", self._given_up(at)

    def _waits_for_any(self, flow: Flow) -> bool:
        return not self.rules.younger or ((not flow.child or not self.rules.children) and not flow.taken())

    def _appended(self, at: int, which: int, flow: Flow, task: Task) -> Locks:
        assert task.looked is not None
        (seen, free), name = task.looked, task.todo[0][1:]
        if free and self.rules.condition and dict(self.moved)[name] != seen:
            return self._with(at, which, replace(task, looked=None))
        number = self.seqnum + 1
        event = Enqueued(name, str(at), str(which), task.todo[0][0] == "*", flow.age, self._waits_for_any(flow))
        after = self._queued(name, enqueued(self.queue(name), number, event))
        if free:
            return after._granted(at, which, name, number)
        return after._with(at, which, replace(task, looked=None, waits=number))

    def _queued(self, name: str, queue: Queue) -> Locks:
        number = self.seqnum + 1
        queues = tuple((lock, queue if lock == name else other) for lock, other in self.queues)
        moved = tuple((lock, number if lock == name else other) for lock, other in self.moved)
        return replace(self, queues=queues, moved=moved, seqnum=number)

    def _granted(self, at: int, which: int, name: str, number: int) -> Locks:
        flow = self.flows[at]
        flow = replace(flow, held=(*flow.held, (name, number)))
        return self._flow(at, flow)._with(at, which, Task(flow.tasks[which].todo[1:]))

    def _released(self, at: int, which: int, name: str) -> Locks:
        flow = self.flows[at]
        number = next((number for lock, number in flow.held if lock == name), 0)
        key = next((entry.key for entry in self.queue(name) if entry.number == number), "")
        after = self._queued(name, released(self.queue(name), Released(name, str(at), key)))
        kept = tuple(pair for pair in flow.held if pair[1] != number)
        return after._flow(at, replace(flow, held=kept))._with(at, which, Task(flow.tasks[which].todo[1:]))

    def _given_up(self, at: int, knows: bool = True) -> Locks:
        """Release all locks, leave all queues, and end. `knows`: whether the workflow has seen each turn that has come."""
        flow, after = self.flows[at], self
        have = {number for _, number in flow.held}
        for name, queue in self.queues:
            for entry in queue:
                held = entry in holders(queue)
                if entry.owner != str(at) or (held and entry.number not in have and not knows and not self.rules.leave):
                    continue
                after = after._queued(name, released(after.queue(name), Released(name, str(at), entry.key)))
        return after._flow(at, replace(flow, held=(), tasks=(Task(()),)))

    def _flow(self, at: int, flow: Flow) -> Locks:
        return replace(self, flows=(*self.flows[:at], flow, *self.flows[at + 1 :]))

    def _with(self, at: int, which: int, task: Task) -> Locks:
        flow = self.flows[at]
        return self._flow(at, replace(flow, tasks=(*flow.tasks[:which], task, *flow.tasks[which + 1 :])))


def flow(age: int, *tasks: str, child: bool = False) -> Flow:
    return Flow(age, tuple(Task(tuple(todo.split())) for todo in tasks), child)


WORLDS = {
    "both ways": (flow(1, "+a +b -a -b"), flow(2, "+b +a -b -a"), flow(3, "+a -a")),
    "the younger first": (flow(2, "+a +b -b -a"), flow(1, "+b +a -a -b")),
    "shared": (flow(1, "*a +b -b -a"), flow(2, "*a -a"), flow(3, "+b +a -a -b")),
    "a child": (flow(2, "+a >1 -a"), flow(2, "+b -b", child=True), flow(1, "+b +a -a -b")),
    "two tasks": (flow(3, "+a -a", "+b &a -b"), flow(1, "+a +c -c -a"), flow(2, "+c +b -b -c")),
}


@pytest.mark.parametrize("name", WORLDS)
def test_locks_are_held_by_one_and_nobody_waits_for_ever(name: str) -> None:
    found = search(Locks(Rules(), WORLDS[name], give_ups=int(name != "two tasks")))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 50


@pytest.mark.parametrize(
    ("rule", "world", "give_ups", "fault"),
    [
        ("condition", "both ways", 0, "held by several"),
        ("younger", "the younger first", 0, "for ever"),
        ("children", "a child", 0, "for ever"),
        ("serial", "two tasks", 0, "for ever"),
        ("leave", "both ways", 1, "for ever"),
    ],
)
def test_without_a_rule_they_are_held_by_two_or_stuck(rule: str, world: str, give_ups: int, fault: str) -> None:
    found = search(Locks(replace(Rules(), **{rule: False}), WORLDS[world], give_ups=give_ups))
    assert found.fault is not None and fault in found.fault, found
