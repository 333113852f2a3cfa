"""A model of an object's whole life: operations, checkpoints by two checkpointers, trims, deletion, forgetting, creation after deletion;
read at snapshots, in two steps, and at once by a new process. Each rule is needed: without it the search finds a wrong read.

The snapshot reads of the store and its checkpointer follow it line by line (`snapshot_reads`, `checkpointer`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from libs.tests.models.search import search


@dataclass(frozen=True)
class Rules:
    """Rules of the store. Each broken variant turns one off."""

    fold_names_its_start: bool = True
    floor: bool = True
    reads_wait_for_the_snapshot: bool = True
    checkpoint_expects: bool = True
    trim_by_the_one_before: bool = True
    deletion_ends_checkpoints: bool = True
    deletion_is_kept: bool = True
    forget_is_seen: bool = True


Row = tuple[int, str, str, int | None, int]
"""seqnum, streams it joins, kind, value and covers of a checkpoint"""


@dataclass(frozen=True)
class Life:
    """The log of one object, and the next step of each process."""

    rules: Rules
    operations: int
    checkpoints: int
    deletions: int
    reads: int
    log: tuple[Row, ...] = ()
    marks: tuple[int, int] = (0, 0)
    gone: tuple[int, int] = (0, 0)
    floor: int = 0
    composing: tuple[tuple[int | None, int], ...] = ()
    reader: tuple[int, int | None, int] | None = None
    """(snapshot, value, covers) of a reader; covers is -1 before it has looked for a checkpoint."""
    forgetting: int = 0
    """The deletion that a process is about to forget, at its second step."""
    wrong: str | None = None

    # -- the log

    def rows(self, stream: str) -> list[Row]:
        at = "oc".index(stream)
        return [row for row in self.log if stream in row[1] and row[0] >= self.marks[at] and row[0] > self.gone[at]]

    def newest(self, stream: str) -> int:
        at = "oc".index(stream)
        return max((row[0] for row in self.log if stream in row[1] and row[0] > self.gone[at]), default=0)

    def trimmed(self, stream: str, before: int, *, forget: bool = False) -> Life:
        at = "oc".index(stream)
        mark = max(self.marks[at], min(before, self.newest(stream) + 1))
        life = replace(self, marks=_with(self.marks, at, mark))
        newest = life.newest(stream)
        if forget and newest and not life.rows(stream):
            gone, marks = _with(life.gone, at, newest), _with(life.marks, at, 0)
            life = replace(life, gone=gone, marks=marks, floor=max(life.floor, newest))
        return life

    def appended(self, streams: str, kind: str, value: int | None = None, covers: int = 0) -> Life:
        return replace(self, log=(*self.log, (len(self.log) + 1, streams, kind, value, covers)))

    def truth(self, snapshot: int) -> int | None:
        return _folded(None, [row for row in self.log if row[0] <= snapshot and row[2] in "+D"])

    # -- reading

    def base(self, snapshot: int) -> tuple[int | None, int] | None:
        """The newest checkpoint; None is Trimmed."""
        if snapshot < self.marks[1]:
            return None
        rows = [row for row in self.rows("c") if row[0] <= snapshot]
        if rows:
            seqnum, _, kind, value, covers = rows[-1]
            return (None, seqnum) if kind == "D" else (value, covers)
        if self.rules.floor and snapshot < self.floor:
            return None
        return None, 0

    def read(self, snapshot: int, value: int | None, covers: int, reached: int) -> tuple[bool, int | None]:
        """Return whether the read raises Trimmed, and the value."""
        start = covers + 1 if covers or self.rules.fold_names_its_start else 0
        rows = [row for row in self.rows("o") if start <= row[0] <= min(snapshot, reached)]
        if start and start < self.marks[0] and start <= snapshot:
            return True, None
        if self.rules.floor and not rows and snapshot < self.floor:
            return True, None
        return False, _folded(value, rows)

    def fault(self) -> str | None:
        """Read the object as a new process does, which has only the log."""
        if self.wrong is not None:
            return self.wrong
        end = len(self.log)
        base = self.base(end) if end else (None, 0)
        if base is None:
            return "a read of now is trimmed"
        trimmed, value = self.read(end, *base, end)
        if trimmed:
            return "a read of now is trimmed"
        return None if value == self.truth(end) else f"a read of now returns {value}, it is {self.truth(end)}"

    # -- steps

    def moves(self) -> Iterator[tuple[str, Life]]:
        end = len(self.log)
        if self.operations:
            yield "operation", replace(self, operations=self.operations - 1).appended("o", "+")
        if self.deletions and self.truth(end) is not None:
            streams = "oc" if self.rules.deletion_ends_checkpoints else "o"
            yield "deletion", replace(self, deletions=self.deletions - 1).appended(streams, "D")
        if self.checkpoints and end and self.truth(end) is not None:
            looked = (*self.composing, (self.truth(end), end))
            yield "a checkpointer looks", replace(self, checkpoints=self.checkpoints - 1, composing=looked)
        for index, (value, snapshot) in enumerate(self.composing):
            life = replace(self, composing=self.composing[:index] + self.composing[index + 1 :])
            if self.newest("c") <= snapshot or not self.rules.checkpoint_expects:
                life = life.appended("c", "K", value, snapshot)
            yield f"the checkpoint of {snapshot} lands", life
        yield from self._lets_go()
        yield from self._reads(end)

    def _lets_go(self) -> Iterator[tuple[str, Life]]:
        """Trims by checkpoints, of deletions, and forgetting."""
        rows = self.rows("c")
        by = rows[-2:-1] if self.rules.trim_by_the_one_before else rows[-1:]
        for seqnum, _, kind, _, covers in by:
            keep = seqnum if kind == "D" else covers
            life = self.trimmed("o", keep + 1).trimmed("c", seqnum)
            if life != self:
                yield "trims by a checkpoint", life
        deleted = self._deleted()
        if deleted:
            last = deleted if self.rules.deletion_is_kept and self.rules.deletion_ends_checkpoints else deleted + 1
            life = self.trimmed("o", deleted + 1).trimmed("c", last)
            if life != self:
                yield "trims what is deleted", life
            idle = self.reader is None and not self.composing  # ages: no reader holds so old a snapshot
            if idle and not self.forgetting and not self.rows("o"):
                if self.rules.forget_is_seen:
                    yield "forgets the object", replace(self.trimmed("o", deleted + 1, forget=True), forgetting=deleted)
                else:
                    yield "looks whether it may be forgotten", replace(self, forgetting=deleted)
        if self.forgetting:
            life = replace(self, forgetting=0)
            if not self.rules.forget_is_seen:
                life = life.trimmed("o", self.forgetting + 1, forget=True)
                yield "forgets both", life.trimmed("c", self.forgetting + 1, forget=True)
            elif self.marks[0] or self.rows("o"):
                yield "it was made anew", life
            else:
                yield "forgets the deletion", life.trimmed("c", self.forgetting + 1, forget=True)

    def _deleted(self) -> int:
        """The deletion behind which nothing came, if that is what the object ends with."""
        rows = self.rows("c") if self.rules.deletion_ends_checkpoints else self.rows("o")
        if rows and rows[-1][2] == "D" and self.newest("o") <= rows[-1][0]:
            return rows[-1][0]
        return 0

    def _reads(self, end: int) -> Iterator[tuple[str, Life]]:
        if self.reader is None:
            if self.reads and end:
                yield f"a snapshot at {end}", replace(self, reads=self.reads - 1, reader=(end, None, -1))
            return
        snapshot, value, covers = self.reader
        if covers < 0:
            base = self.base(snapshot)
            yield "looks for a checkpoint", replace(self, reader=None if base is None else (snapshot, *base))
            return
        reached = [end] if self.rules.reads_wait_for_the_snapshot else [end, snapshot - 1]
        for position in reached:
            trimmed, found = self.read(snapshot, value, covers, position)
            wrong = None
            if not trimmed and found != self.truth(snapshot):
                wrong = f"a read at {snapshot} returns {found}, it was {self.truth(snapshot)}"
            yield "folds", replace(self, reader=None, wrong=wrong)


def _with(pair: tuple[int, int], at: int, value: int) -> tuple[int, int]:
    return (value, pair[1]) if at == 0 else (pair[0], value)


def _folded(value: int | None, rows: list[Row]) -> int | None:
    for row in rows:
        value = None if row[2] == "D" else (value or 0) + 1
    return value


@pytest.mark.parametrize(
    ("operations", "checkpoints", "deletions", "reads"), [(3, 3, 0, 1), (2, 2, 1, 1), (3, 1, 2, 0), (3, 0, 2, 1)]
)
def test_all_rules_together_are_right(operations: int, checkpoints: int, deletions: int, reads: int) -> None:
    found = search(Life(Rules(), operations, checkpoints, deletions, reads))
    assert (found.fault, found.path) == (None, [])
    assert found.states > 500


BROKEN = {
    "fold_names_its_start": (2, 2, 0, 1),
    "reads_wait_for_the_snapshot": (1, 0, 0, 1),
    "checkpoint_expects": (3, 3, 0, 0),
    "deletion_ends_checkpoints": (2, 1, 1, 0),
    "deletion_is_kept": (2, 0, 1, 0),
    "forget_is_seen": (2, 0, 1, 0),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_without_a_rule_something_is_read_that_is_not_so(rule: str) -> None:
    found = search(Life(replace(Rules(), **{rule: False}), *BROKEN[rule]))
    assert found.fault is not None, found
    assert found.path


def test_trimming_by_the_newest_checkpoint_takes_snapshots_away_that_are_in_use() -> None:
    """No read is wrong, but a new snapshot cannot be read: so a trim is by the checkpoint before the newest, and by its age."""

    def lost(rules: Rules) -> bool:
        life = Life(rules, 0, 0, 0, 1).appended("o", "+").appended("c", "K", 1, 1).appended("o", "+")
        then = len(life.log)
        life = life.appended("c", "K", 2, then)
        trims = [after for step, after in life.moves() if step == "trims by a checkpoint"]
        return any(after.base(then) is None for after in trims)

    assert lost(replace(Rules(), trim_by_the_one_before=False))
    assert not lost(Rules())
