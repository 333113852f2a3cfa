"""A model of locks that are held for days, over the library's own rules (`bokiflow.model.lock_rules`): workflows hold, wait and look while
two carriers rewrite the lock, each of which may stop between any two steps and resume with old knowledge. A read goes in pages, and
records may be trimmed between two of them. Time advances in ticks. No fence is modelled, so two carriers need none.

In every schedule a granted workflow holds the lock, a held lock is not granted to another, and no waiting workflow is forgotten. From every
state a carrier that runs alone trims all old records, and the stream of a lock without holders. If a rule is turned off, the search finds
an execution that breaks this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest

from bokiflow.model import lock_rules
from bokiflow.model.lock_rules import (
    Checkpoint,
    Enqueued,
    LockEvent,
    LockRecord,
    LockTrim,
    LockView,
    Queue,
    Released,
    holders,
    is_free,
    standing,
)
from bokilib.retention.checkpoint_rules import FORGET_MS
from libs.tests.models.search import search

CARRY = 2
"""Ticks, of which each is as long as the log takes to forget."""
OLDEST = 2 * CARRY + 1
NOTHING = LockView((), 0)
NOT_YET = LockTrim()


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off.

    Attributes:
        expects: a checkpoint expects that there is no newer one than its writer saw.
        again: a reader that saw a gap looks for the checkpoint that explains it.
        readable: records are trimmed after the checkpoint that replaces them is in the log.
        idle: an idle lock is rewritten.
        state: its checkpoint is rewritten, and not the entries of its queue, which would get other places.
        last: the newest record of a lock without holders stays.
        empties: a lock is forgotten only after a checkpoint of its empty queue.
        floor: the log refuses an expectation about records of a stream that it has forgotten.
    """

    expects: bool = True
    again: bool = True
    readable: bool = True
    idle: bool = True
    state: bool = True
    last: bool = True
    empties: bool = True
    floor: bool = True


@dataclass(frozen=True)
class ModelRecord:
    """A record, of the lock ("l") or of its checkpoints ("c")."""

    seqnum: int
    tick: int
    event: LockEvent

    @property
    def stream(self) -> str:
        return "c" if isinstance(self.event, Checkpoint) else "l"

    def found(self) -> LockRecord:
        return LockRecord(self.seqnum, self.tick * FORGET_MS, (self.event,))


@dataclass(frozen=True)
class Actor:
    """A process that reads the lock, and then takes a step.

    Attributes:
        kind: "takes" and "waits" are workflows, "carries" and "tidies" are rounds of carriers. step: the next one. number: of its place.
    """

    kind: str
    step: str = "idle"
    snapshot: int = 0
    found: tuple[ModelRecord, ...] = ()
    trimmed: int = 0
    view: LockView = NOTHING
    number: int = 0
    marks: LockTrim = NOT_YET

    @property
    def workflow(self) -> bool:
        return self.kind in ("takes", "waits")


@dataclass(frozen=True)
class Carried:
    """The log, and the next step of each process. `rounds`, `crashes`, `ticks`: how many more there may be. pages: a read takes two."""

    rules: Rules
    rounds: int
    crashes: int
    ticks: int
    actors: tuple[Actor, ...]
    now: int = 0
    log: tuple[ModelRecord, ...] = ()
    marks: tuple[int, int] = (0, 0)
    gone: tuple[int, int] = (0, 0)
    floor: int = 0
    wrong: str | None = None
    pages: bool = True

    # -- the log

    def mark(self, stream: str) -> int:
        return self.marks["lc".index(stream)]

    def rows(self, stream: str) -> list[ModelRecord]:
        gone = self.gone["lc".index(stream)]
        return [
            row for row in self.log if row.stream == stream and row.seqnum > gone and row.seqnum >= self.mark(stream)
        ]

    def newest(self, stream: str) -> int:
        """0: the log knows of none."""
        gone = self.gone["lc".index(stream)]
        return max((row.seqnum for row in self.log if row.stream == stream and row.seqnum > gone), default=0)

    def appended(self, event: LockEvent) -> Carried:
        return replace(self, log=(*self.log, ModelRecord(len(self.log) + 1, self.now, event)))

    def holds(self, stream: str, snapshot: int) -> bool:
        """Return whether an expectation of a stream holds."""
        newest = self.newest(stream)
        if not newest and self.rules.floor:
            return snapshot >= self.floor
        return newest <= snapshot

    def trimmed(self, marks: LockTrim) -> Carried:
        world = self
        for at, (stream, before) in enumerate(zip("lc", marks[:2], strict=True)):
            newest = world.newest(stream)
            mark = min(before, newest + 1)
            if newest and mark > max(world.mark(stream), 1):
                world = replace(world, marks=_with(world.marks, at, mark))
            if marks.forget and newest and not world.rows(stream) and world.now - world.log[newest - 1].tick > 1:
                world = replace(world, gone=_with(world.gone, at, newest), marks=_with(world.marks, at, 0))
                world = replace(world, floor=max(world.floor, newest))
        return world

    def truth(self) -> Queue:
        queue: Queue = ()
        for row in self.log:
            if row.stream == "l":
                queue = lock_rules.after(queue, row.seqnum, [row.event])
        return queue

    def live(self) -> list[ModelRecord]:
        return [*self.rows("l"), *self.rows("c")]

    def old(self) -> bool:
        """Return whether a carrier can find the lock by its records."""
        return any(self.now - row.tick >= CARRY for row in self.live())

    # -- what is wrong

    def fault(self) -> str | None:
        if self.wrong is not None:
            return self.wrong
        if self.log and not self.ticks and all(actor.step in ("idle", "over", "has", "wait") for actor in self.actors):
            return self._what_stays()
        return None

    def _what_stays(self) -> str | None:
        """Return the world after a carrier that runs alone from here on, and a workflow that comes then."""
        world = replace(self, crashes=0, actors=(Actor("carries"),))
        for _ in range(2 * OLDEST):
            world = replace(world, now=world.now + 1, rounds=1)
            while step := next(world._acts(0), None):
                world = step[1]
        queue = world.truth()
        found = sorted((row for row in world.live()), key=lambda row: row.seqnum)
        view = lock_rules.viewed(len(world.log), [row.found() for row in found], max(0, world.mark("l") - 1))
        if view.queue != queue:
            return f"it is {queue}, and is read as {view.queue}"
        if any(world.now - row.tick > OLDEST for row in world.live()):
            return "an old record stays for ever"
        if not queue and (world.live() or world.newest("l") or world.newest("c")):
            return "that there was a lock is never forgotten"
        return None

    # -- steps

    def moves(self) -> Iterator[tuple[str, Carried]]:
        if self.ticks:
            yield "time goes by", replace(self, ticks=self.ticks - 1, now=self.now + 1)
        for index, actor in enumerate(self.actors):
            for name, after in self._acts(index):
                yield f"{actor.kind} {index} {name}", after
            if self.crashes and not actor.workflow and actor.step != "idle":
                yield (
                    f"{actor.kind} {index} dies",
                    replace(self, crashes=self.crashes - 1)._does(index, Actor(actor.kind)),
                )

    def _does(self, index: int, actor: Actor) -> Carried:
        if actor.step == "idle" and not actor.workflow:
            actor = Actor(actor.kind)
        return replace(self, actors=(*self.actors[:index], actor, *self.actors[index + 1 :]))

    def _acts(self, index: int) -> Iterator[tuple[str, Carried]]:
        actor = self.actors[index]
        if actor.step == "idle":
            if actor.kind == "waits":
                yield "joins", self._joins(index, actor)
            elif actor.workflow:
                yield "looks", self._does(index, replace(actor, step="first page", snapshot=len(self.log)))
            elif self.rounds and self.log and (actor.kind == "tidies" or self.old()):
                looks = replace(actor, step="first page", snapshot=len(self.log))
                yield "looks", replace(self, rounds=self.rounds - 1)._does(index, looks)
        elif actor.step == "first page" and not self.pages:
            yield "reads", self._read(index, self._page(actor, 1, actor.snapshot, ""))
        elif actor.step == "first page":
            yield "reads", self._does(index, self._page(actor, 1, actor.snapshot // 2, "second page"))
        elif actor.step == "second page":
            yield "reads on", self._read(index, self._page(actor, actor.snapshot // 2 + 1, actor.snapshot, ""))
        elif actor.step == "again":
            newest = max((row.seqnum for row in self.rows("c")), default=0)
            anew = replace(actor, step="first page", snapshot=len(self.log), found=(), trimmed=0)
            yield "looks again", self._does(index, anew) if newest > actor.snapshot else self._viewed(index, actor)
        elif actor.step == "has":
            yield "releases", self.appended(Released("a", f"{index}", "k"))._does(index, replace(actor, step="over"))
        elif actor.step != "over":
            yield actor.step, getattr(self, f"_step_{actor.step}")(index, actor)

    def _page(self, actor: Actor, first: int, last: int, then: str) -> Actor:
        """Return one page of a read, also if records of earlier pages are trimmed or forgotten by now."""
        found = [row for stream in "lc" for row in self.rows(stream) if first <= row.seqnum <= last]
        gap = min(self.mark("l") - 1, last)
        before = actor.trimmed or any(row.stream == "l" for row in actor.found)
        if not self.mark("l") and before and first <= self.floor and not 0 < self.newest("l") < first:
            gap = min([self.floor, last, *(row.seqnum - 1 for row in self.rows("l"))])
        rows = tuple(sorted((*actor.found, *found), key=lambda row: row.seqnum))
        return replace(actor, step=then, found=rows, trimmed=max(actor.trimmed, gap if gap >= first else 0))

    def _read(self, index: int, actor: Actor) -> Carried:
        hides = lock_rules.hides_some([row.found() for row in actor.found], actor.trimmed)
        if hides and self.rules.again:
            return self._does(index, replace(actor, step="again"))
        return self._viewed(index, actor)

    def _viewed(self, index: int, actor: Actor) -> Carried:
        view = lock_rules.viewed(actor.snapshot, [row.found() for row in actor.found], actor.trimmed)
        actor = replace(actor, view=view, found=(), trimmed=0)
        if actor.kind == "takes" and not actor.number:
            return self._takes(index, actor)
        if actor.workflow:
            return self._stands(index, actor)
        due = lock_rules.must_rewrite(view, self.now * FORGET_MS, CARRY * FORGET_MS) and self.rules.idle
        if actor.kind == "tidies":
            due = bool(view.queue and view.records)
        long_ago = self.now * FORGET_MS - view.newest_ms > FORGET_MS
        if not self.rules.empties and not view.queue and actor.kind == "carries" and long_ago:
            everything = LockTrim(view.position + 1, view.position + 1, True)
            return self._does(index, replace(actor, step="trim", marks=everything))
        if due and (view.queue or self.rules.empties):
            return self._does(index, replace(actor, step="append"))
        marks = lock_rules.trim_marks(view, 0 if actor.kind == "tidies" else self.now * FORGET_MS)
        if not self.rules.last and not view.queue:
            marks = marks._replace(records=view.newest + 1)
        return self._does(index, replace(actor, step="trim", marks=marks))

    def _takes(self, index: int, actor: Actor) -> Carried:
        """Take the lock, which was free when the workflow looked, in a later step."""
        return self._does(index, replace(actor, step="take" if is_free(actor.view.queue, False) else "join"))

    def _step_take(self, index: int, actor: Actor) -> Carried:
        if not self.holds("l", actor.snapshot):
            return self._does(index, replace(actor, step="idle"))
        wrong = f"taken, and {self.truth()} hold it" if self.truth() else None
        world = self.appended(Enqueued("a", f"{index}", "k", False, index, True))
        return replace(world, wrong=wrong)._does(index, replace(actor, step="has", number=len(world.log)))

    def _step_join(self, index: int, actor: Actor) -> Carried:
        return self._joins(index, actor)

    def _joins(self, index: int, actor: Actor) -> Carried:
        world = self.appended(Enqueued("a", f"{index}", "k", False, index, True))
        number = len(world.log)
        return world._does(index, replace(actor, step="first page", snapshot=number, number=number))

    def _stands(self, index: int, actor: Actor) -> Carried:
        """Decide for a waiting workflow that has read the lock's state."""
        state = standing(actor.view.queue, actor.number)
        if state == "gone":
            return replace(self, wrong=f"{actor.number} waits, and is forgotten")
        if state == "waiting":
            return self._does(index, replace(actor, step="wait"))
        holds = [entry.number for entry in holders(self.truth())] == [actor.number]
        wrong = None if holds else f"{actor.number} is granted it, it is held by {self.truth()}"
        return replace(self, wrong=wrong)._does(index, replace(actor, step="has"))

    def _step_wait(self, index: int, actor: Actor) -> Carried:
        if len(self.log) == actor.snapshot:
            return self
        return self._does(index, replace(actor, step="first page", snapshot=len(self.log)))

    def _step_append(self, index: int, actor: Actor) -> Carried:
        view, then = actor.view, "trim"
        world = self
        if not self.rules.state:
            for entry in view.queue:
                world = world.appended(Enqueued("a", entry.owner, entry.key, entry.shared, entry.age, True))
        elif self.holds("c", view.position) or not self.rules.expects:
            world = self.appended(Checkpoint("a", view.position, view.queue))
        elif self.rules.readable:
            then = "idle"
        marks = lock_rules.trim_marks_under(view, len(world.log))
        return world._does(index, replace(actor, step=then, marks=marks))

    def _step_trim(self, index: int, actor: Actor) -> Carried:
        return self.trimmed(actor.marks)._does(index, replace(actor, step="idle"))


def _with(pair: tuple[int, int], at: int, value: int) -> tuple[int, int]:
    return (value, pair[1]) if at == 0 else (pair[0], value)


class Bounds(NamedTuple):
    """The bounds of a search; see `Carried`."""

    rounds: int
    crashes: int
    ticks: int
    kinds: tuple[str, ...]
    pages: bool = False


def world(rules: Rules, bounds: Bounds) -> Carried:
    rounds, crashes, ticks, kinds, pages = bounds
    return Carried(rules, rounds, crashes, ticks, tuple(Actor(kind) for kind in kinds), pages=pages)


BOUNDS = {
    "two carry, one dies": Bounds(2, 1, 4, ("waits", "carries", "carries"), pages=True),
    "released and taken again while it is carried": Bounds(2, 0, 2, ("waits", "takes", "carries"), pages=True),
    "somebody joins while two make checkpoints": Bounds(2, 0, 0, ("waits", "waits", "tidies", "tidies")),
    "carried, and let go by who saw it end": Bounds(2, 1, 3, ("waits", "carries", "tidies"), pages=True),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_lock_that_is_carried_is_held_by_who_held_it(name: str) -> None:
    found = search(world(Rules(), BOUNDS[name]))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 500


BROKEN = {
    "expects": (Bounds(2, 0, 0, ("waits", "waits", "tidies", "tidies")), "is read as"),
    "again": (Bounds(1, 0, 0, ("waits", "takes", "tidies")), "is forgotten"),
    "readable": (Bounds(2, 0, 0, ("waits", "waits", "tidies", "tidies")), "is forgotten"),
    "idle": (Bounds(2, 0, 2, ("waits", "carries")), "stays for ever"),
    "state": (Bounds(1, 0, 2, ("waits", "waits", "carries")), "is read as"),
    "last": (Bounds(1, 0, 0, ("waits", "tidies")), "never forgotten"),
    "empties": (Bounds(2, 1, 4, ("waits", "carries", "carries")), "is read as"),
    "floor": (Bounds(3, 0, 4, ("waits", "tidies", "carries")), "is read as"),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_without_a_rule_it_is_forgotten_held_by_nobody_or_stays(rule: str) -> None:
    bounds, fault = BROKEN[rule]
    found = search(world(replace(Rules(), **{rule: False}), bounds))
    assert found.fault is not None and fault in found.fault, found
    assert found.path
