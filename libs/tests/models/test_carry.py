"""A model of rewriting old records out of old terms, over the store's own rules (`checkpoint_rules`): one object, two carriers that
may stop between any two steps and resume with old knowledge, a process that makes checkpoints without a fence, deletion, creation after
deletion, forgetting, and a reader with a snapshot. Time advances in ticks.

In every schedule a new reader, and a reader with a snapshot within the grace, reads the right state. From every state one carrier that
runs alone trims everything old. If a rule is turned off, the search finds an execution that breaks this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from bokilib.retention.checkpoint_rules import Ages, WholeCheckpoint, must_rewrite, trim_plan
from libs.tests.models.search import search

AGES = Ages(grace_ms=1, retention_ms=3, forget_ms=1, carry_ms=2)
OLDEST = 2 * AGES.carry_ms + 1
"""Ticks after which every live record has been rewritten."""


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off."""

    checkpoint_expects: bool = True
    carries_what_is_idle: bool = True
    trims_what_is_readable: bool = True
    trims_by_the_one_before: bool = True
    keeps_since_when: bool = True
    ends_to_carry: bool = True
    forget_is_seen: bool = True
    forgets_late: bool = True
    floor: bool = True


@dataclass(frozen=True)
class ModelRecord:
    """A record: of o (the object), of c (its checkpoints), or of both."""

    seqnum: int
    time: int
    streams: str
    kind: str
    value: int | None = None
    covers: int = 0
    ended: int | None = None


@dataclass(frozen=True)
class Worker:
    """A carrier or (without a fence) a checkpointer: its knowledge and its next step."""

    fenced: bool
    claim: int = 0
    step: str = "idle"
    snapshot: int = 0
    value: int | None = None
    ended: int | None = None
    anew: bool = False
    marks: tuple[int, int] = (0, 0)
    forget: bool = False


@dataclass(frozen=True)
class Carried:
    """The log, and the next step of each process. `budget`: operations, deletions, rounds, crashes, reads, ticks."""

    rules: Rules
    operations: int
    deletions: int
    rounds: int
    crashes: int
    reads: int
    ticks: int
    workers: tuple[Worker, ...]
    now: int = 0
    log: tuple[ModelRecord, ...] = ()
    marks: tuple[int, int] = (0, 0)
    gone: tuple[int, int] = (0, 0)
    floor: int = 0
    reader: tuple[int, int, int | None, int] | None = None
    """(snapshot, when it was taken, value, covers) of a reader; covers is -1 before it has found a checkpoint."""
    wrong: str | None = None

    # -- the log

    def rows(self, stream: str) -> list[ModelRecord]:
        at = "oc".find(stream)
        mark, gone = (self.marks[at], self.gone[at]) if at >= 0 else (0, 0)
        return [row for row in self.log if stream in row.streams and row.seqnum >= mark and row.seqnum > gone]

    def newest(self, stream: str) -> int:
        at = "oc".find(stream)
        gone = self.gone[at] if at >= 0 else 0
        return max((row.seqnum for row in self.log if stream in row.streams and row.seqnum > gone), default=0)

    def appended(
        self, streams: str, kind: str, value: int | None = None, covers: int = 0, ended: int | None = None
    ) -> Carried:
        row = ModelRecord(len(self.log) + 1, self.now, streams, kind, value, covers, ended)
        return replace(self, log=(*self.log, row))

    def trimmed(self, stream: str, before: int, *, forget: bool = False) -> Carried:
        at = "oc".index(stream)
        mark = min(before, self.newest(stream) + 1)
        world = replace(self, marks=_with(self.marks, at, mark)) if mark > max(self.marks[at], 1) else self
        newest = world.newest(stream)
        if forget and newest and not world.rows(stream) and self.now - self.log[newest - 1].time > AGES.forget_ms:
            gone, marks = _with(world.gone, at, newest), _with(world.marks, at, 0)
            world = replace(world, gone=gone, marks=marks, floor=max(world.floor, newest))
        return world

    def truth(self, snapshot: int) -> int | None:
        return _folded(None, [row for row in self.log if row.seqnum <= snapshot and row.kind in "+D"])

    def live(self) -> list[ModelRecord]:
        return [row for row in self.log if any(row in self.rows(stream) for stream in row.streams if stream != "f")]

    # -- reading

    def wholes(self) -> list[WholeCheckpoint]:
        return [
            WholeCheckpoint(
                row.seqnum, row.seqnum, row.time, row.seqnum if row.kind == "D" else row.covers, b"", row.ended
            )
            for row in reversed(self.rows("c"))
        ]

    def base(self, snapshot: int) -> tuple[int | None, int] | None:
        """The newest checkpoint; None is Trimmed."""
        if snapshot < self.marks[1]:
            return None
        rows = [row for row in self.rows("c") if row.seqnum <= snapshot]
        if rows:
            return (None, rows[-1].seqnum) if rows[-1].kind == "D" else (rows[-1].value, rows[-1].covers)
        return None if snapshot < self.floor else (None, 0)

    def read(self, snapshot: int, value: int | None, covers: int) -> tuple[bool, int | None]:
        """Return whether the read raises Trimmed, and the value."""
        rows = [row for row in self.rows("o") if covers < row.seqnum <= snapshot]
        if (covers + 1 < self.marks[0] and covers + 1 <= snapshot) or (not rows and snapshot < self.floor):
            return True, None
        return False, _folded(value, rows)

    def fault(self) -> str | None:
        if self.wrong is not None:
            return self.wrong
        end = len(self.log)
        base = self.base(end) if end else (None, 0)
        trimmed, value = (True, None) if base is None else self.read(end, *base)
        if trimmed:
            return "a read of now is trimmed"
        if value != self.truth(end):
            return f"a read of now returns {value}, it is {self.truth(end)}"
        if self.log and not self.ticks and not self.reader and all(worker.step == "idle" for worker in self.workers):
            return self._what_stays()
        return None

    def _what_stays(self) -> str | None:
        """Return the records that a carrier leaves if it runs alone from here on."""
        world = replace(self, crashes=0, workers=(Worker(fenced=True),))
        for _ in range(OLDEST + AGES.retention_ms + AGES.forget_ms + 3):
            world = replace(world, now=world.now + 1, rounds=1)
            while world.rounds or world.workers[0].step != "idle":
                world = next(after for name, after in world._works(0) if "dies" not in name)
            if (wrong := replace(world, ticks=1).fault()) is not None:
                return wrong
        if any(world.now - row.time > OLDEST for row in world.live()):
            return "an old record stays for ever"
        if world.truth(len(world.log)) is None and (world.live() or world.newest("o") or world.newest("c")):
            return "what was deleted is never forgotten"
        return None

    # -- steps

    def moves(self) -> Iterator[tuple[str, Carried]]:
        exists = self.truth(len(self.log)) is not None
        if self.ticks:
            yield "time goes by", replace(self, ticks=self.ticks - 1, now=self.now + 1)
        if self.operations:
            yield "operation", replace(self, operations=self.operations - 1).appended("o", "+")
        if self.deletions and exists:
            yield "deletion", replace(self, deletions=self.deletions - 1).appended("oc", "D", ended=self.now)
        for index in range(len(self.workers)):
            yield from self._works(index)
        yield from self._reads()

    def _works(self, index: int) -> Iterator[tuple[str, Carried]]:
        worker, name = self.workers[index], f"worker {index}"
        if worker.step == "idle":
            if self.rounds and self.log:
                world = replace(self, rounds=self.rounds - 1)
                if worker.fenced:
                    world = world.appended("f", "F")
                yield f"{name} begins", world._does(index, replace(worker, step="look", claim=len(world.log)))
            return
        if self.crashes:
            yield f"{name} dies", replace(self, crashes=self.crashes - 1)._does(index, Worker(worker.fenced))
        step = getattr(self, f"_step_{worker.step}")
        yield f"{name}: {worker.step}", step(index, worker)

    def _does(self, index: int, worker: Worker) -> Carried:
        if worker.step == "idle":
            worker = Worker(worker.fenced)
        return replace(self, workers=(*self.workers[:index], worker, *self.workers[index + 1 :]))

    def _step_look(self, index: int, worker: Worker) -> Carried:
        """Fold the object, and decide whether it is rewritten."""
        wholes, newest = self.wholes(), max((row.seqnum for row in self.rows("o")), default=0)
        if worker.fenced:
            due = must_rewrite(wholes, newest, self.now, AGES)
            if not self.rules.carries_what_is_idle:
                due = due and newest > (wholes[0].covers if wholes else 0)
            if not self.rules.ends_to_carry and wholes:
                due = self.now - wholes[0].time_ms >= AGES.carry_ms
        else:
            due = newest > (wholes[0].covers if wholes else 0)
        value = self.truth(len(self.log))
        since = wholes[0].ended_ms if wholes and self.rules.keeps_since_when else None
        ended = None if value is not None else self.now if since is None or newest > wholes[0].covers else since
        looked = replace(worker, snapshot=len(self.log), value=value, ended=ended, anew=due)
        return self._does(index, replace(looked, step="append" if due else "plan"))

    def _step_append(self, index: int, worker: Worker) -> Carried:
        fenced_out = worker.fenced and self.newest("f") > worker.claim
        newest = self.newest("c")
        late = newest > worker.snapshot or (not newest and worker.snapshot < self.floor and self.rules.floor)
        late = late and self.rules.checkpoint_expects
        if fenced_out or late:
            return self._does(index, replace(worker, step="idle"))
        world = self.appended("c", "K", worker.value, worker.snapshot, worker.ended)
        return world._does(index, replace(worker, step="plan"))

    def _step_plan(self, index: int, worker: Worker) -> Carried:
        wholes, newest = self.wholes(), max((row.seqnum for row in self.rows("o")), default=0)
        if not self.rules.trims_what_is_readable and worker.anew:
            ck = max((row.seqnum for row in self.rows("c")), default=0)
            marks, forget = (worker.snapshot + 1, ck + 1), False
        else:
            ages = AGES if self.rules.forgets_late else AGES._replace(retention_ms=0, forget_ms=0)
            one = trim_plan(wholes, newest, self.now, ages)
            marks, forget = (one.marks.records, one.marks.checkpoints), one.forget
            if not self.rules.trims_by_the_one_before and wholes and wholes[0].ended_ms is None:
                marks = (wholes[0].covers + 1, wholes[0].first)
        return self._does(index, replace(worker, step="trim_o" if any(marks) else "idle", marks=marks, forget=forget))

    def _step_trim_o(self, index: int, worker: Worker) -> Carried:
        return self.trimmed("o", worker.marks[0])._does(index, replace(worker, step="trim_c"))

    def _step_trim_c(self, index: int, worker: Worker) -> Carried:
        after = "forget_o" if worker.forget else "idle"
        return self.trimmed("c", worker.marks[1])._does(index, replace(worker, step=after))

    def _step_forget_o(self, index: int, worker: Worker) -> Carried:
        world = self.trimmed("o", worker.marks[0], forget=True)
        return world._does(index, replace(worker, step="see"))

    def _step_see(self, index: int, worker: Worker) -> Carried:
        seen = not self.marks[0] and not self.rows("o")
        return self._does(index, replace(worker, step="forget_c" if seen or not self.rules.forget_is_seen else "idle"))

    def _step_forget_c(self, index: int, worker: Worker) -> Carried:
        return self.trimmed("c", worker.marks[1] + 1, forget=True)._does(index, replace(worker, step="idle"))

    def _reads(self) -> Iterator[tuple[str, Carried]]:
        if self.reader is None:
            if self.reads and self.log:
                yield "a snapshot", replace(self, reads=self.reads - 1, reader=(len(self.log), self.now, None, -1))
            return
        snapshot, taken, value, covers = self.reader
        young = self.now - taken < AGES.grace_ms
        if covers < 0:
            base = self.base(snapshot)
            world = replace(self, reader=None if base is None else (snapshot, taken, *base))
            wrong = f"a snapshot at {snapshot} within the grace is gone" if base is None and young else None
            yield "looks for a checkpoint", replace(world, wrong=wrong)
            return
        trimmed, found = self.read(snapshot, value, covers)
        wrong = f"a snapshot at {snapshot} within the grace is gone" if trimmed and young else None
        if not trimmed and found != self.truth(snapshot):
            wrong = f"a read at {snapshot} returns {found}, it was {self.truth(snapshot)}"
        yield "folds", replace(self, reader=None, wrong=wrong)


def _with(pair: tuple[int, int], at: int, value: int) -> tuple[int, int]:
    return (value, pair[1]) if at == 0 else (pair[0], value)


def _folded(value: int | None, rows: list[ModelRecord]) -> int | None:
    for row in rows:
        value = None if row.kind == "D" else (value or 0) + 1
    return value


def world(
    rules: Rules, operations: int, deletions: int, rounds: int, crashes: int, reads: int, ticks: int, *fenced: int
) -> Carried:
    return Carried(
        rules, operations, deletions, rounds, crashes, reads, ticks, tuple(Worker(bool(one)) for one in fenced)
    )


BOUNDS = {
    "two carriers, one dies": (1, 0, 2, 1, 0, 4, True, True),
    "a carrier and a snapshot": (1, 0, 2, 0, 1, 4, True),
    "a carrier beside who makes checkpoints": (2, 0, 2, 0, 0, 3, True, False),
    "deleted and made anew": (2, 1, 1, 1, 0, 3, True),
    "deleted, two carriers": (1, 1, 2, 0, 0, 3, True, True),
}


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=lambda bounds: "-".join(map(str, bounds)))
def test_all_rules_together_are_right(bounds: tuple[int, int, int, int, int, int, int]) -> None:
    found = search(world(Rules(), *bounds))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 500


BROKEN = {
    "checkpoint_expects": (3, 0, 2, 0, 0, 1, False, False),
    "carries_what_is_idle": (1, 0, 2, 0, 0, 4, True),
    "trims_what_is_readable": (1, 0, 2, 0, 1, 2, True, False),
    "trims_by_the_one_before": (2, 0, 2, 0, 1, 3, True),
    "keeps_since_when": (1, 1, 1, 0, 0, 4, True),
    "ends_to_carry": (1, 1, 1, 0, 0, 4, True),
    "forget_is_seen": (2, 1, 1, 0, 0, 3, True),
    "forgets_late": (1, 1, 1, 0, 0, 3, True),
    "floor": (1, 1, 2, 0, 0, 3, True, True),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_without_a_rule_something_is_lost_or_stays_for_ever(rule: str) -> None:
    found = search(world(replace(Rules(), **{rule: False}), *BROKEN[rule]))
    assert found.fault is not None, found
    assert found.path
