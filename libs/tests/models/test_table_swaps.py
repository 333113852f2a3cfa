"""A model of a row of a table that other programs write too: operations with names, of workflows that are taken over while their old
executors still run and of other programs, and statements that are lost, answered late, or applied after their time-out. Each operation
takes effect at most once, and its workflow notes its real outcome.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from libs.tests.models.search import search

MINE = "p"
"""The operation of a workflow, which a zombie and a new owner run."""
OTHERS = ("q", "r")


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off.

    Attributes:
        condition: a swap expects the operation that was seen. help: an operation is noted before it is overwritten.
        row_first: the notes are read after the row. held: an executor checks that it still runs the workflow, after it read the row.
        unknown: a time-out is not taken for a no. refused: an operation that writes nothing is swapped in too.
    """

    condition: bool = True
    help: bool = True
    row_first: bool = True
    held: bool = True
    unknown: bool = True
    refused: bool = True


Swap = tuple[str | None, str, str]
"""What it expects, its operation, how that ended."""


@dataclass(frozen=True)
class Process:
    """An executor of an operation. `state`: the next step. `seen`: the operation in the row. `outcome`: of its own, as far as it knows."""

    op: str
    state: str = "look"
    seen: str | None = None
    noted: str = ""
    """The note about its own operation, when it looked."""
    outcome: str = ""
    made: str = ""
    """The result of its body."""


@dataclass(frozen=True)
class Table:
    """A row. `applied`: operations that changed it, in order. `noted`: those that were noted. `logged`: how the workflow's ended."""

    rules: Rules
    lost: int
    op: str | None = None
    outcome: str = ""
    applied: tuple[tuple[str, str], ...] = ()
    noted: frozenset[tuple[str, str]] = frozenset()
    flying: frozenset[Swap] = frozenset()
    logged: str = ""
    forgotten: bool = False
    owner: int = 0
    """The process that runs the workflow, by the log."""
    processes: tuple[Process, ...] = (
        Process(MINE),
        Process(MINE, "idle"),
        Process(OTHERS[0]),
        Process(OTHERS[1], "idle"),
    )

    def fault(self) -> str | None:
        names = [op for op, _ in self.applied]
        if len(names) != len(set(names)):
            return f"{names}: an operation was applied twice"
        truth = dict(self.applied).get(MINE)
        if self.logged and truth is not None and truth != self.logged:
            return f"the workflow noted {self.logged}, and its operation was {truth}"
        if self.logged == "ok" and truth is None:
            return "the workflow noted an operation that never was"
        return None

    def _with(self, index: int, process: Process, **changes: object) -> Table:
        processes = tuple(process if at == index else one for at, one in enumerate(self.processes))
        return replace(self, processes=processes, **changes)  # type: ignore[arg-type]

    def moves(self) -> Iterator[tuple[str, Table]]:
        for index, process in enumerate(self.processes):
            yield from self._moves_of(index, process)
        for swap in self.flying:
            yield f"{swap} comes late", replace(self._swapped(swap)[1], flying=self.flying - {swap})
        if self.owner == 0 and not self.logged:  # else its history has it
            yield "the workflow is taken over", self._with(1, replace(self.processes[1], state="look"), owner=1)
        if self.processes[3].state == "idle" and self.processes[2].state == "done":
            yield "r comes", self._with(3, replace(self.processes[3], state="look"))
        if self.logged and not self.forgotten:
            noted = frozenset(one for one in self.noted if one[0] != MINE)
            yield "what was noted of p is forgotten", replace(self, noted=noted, forgotten=True)

    def _moves_of(self, index: int, process: Process) -> Iterator[tuple[str, Table]]:
        name = f"{process.op}{index}"
        if process.state == "look":
            if self.rules.row_first:
                yield f"{name} reads the row", self._with(index, self._with_row(process, "notes"))
            else:
                yield f"{name} reads what was noted", self._with(index, self._with_notes(process, "row"))
        elif process.state == "row":
            yield f"{name} reads the row", self._decided(index, self._with_row(process, ""))
        elif process.state == "notes":
            yield f"{name} reads what was noted", self._decided(index, self._with_notes(process, ""))
        elif process.state == "held":
            held = index != 0 or self.owner == 0 or not self.rules.held
            yield (
                f"{name} looks whether it is its own",
                self._with(index, replace(process, state="run" if held else "done")),
            )
        elif process.state == "run":
            yield from self._runs(index, process, name)
        elif process.state == "help":
            noted = self.noted | {(process.seen, process.outcome)} if process.seen else self.noted
            yield f"{name} notes {process.seen}", self._with(index, replace(process, state="swap"), noted=noted)
        elif process.state == "swap":
            yield from self._swaps(index, process, name)
        elif process.state == "known":
            yield from self._logs(index, process, name)

    def _with_row(self, process: Process, state: str) -> Process:
        return replace(process, state=state, seen=self.op, outcome=self.outcome)

    def _with_notes(self, process: Process, state: str) -> Process:
        return replace(process, state=state, noted=dict(self.noted).get(process.op, ""))

    def _decided(self, index: int, process: Process) -> Table:
        if process.seen == process.op:
            return self._with(index, replace(process, state="known"))
        if process.noted:
            return self._with(index, replace(process, state="known", outcome=process.noted))
        return self._with(index, replace(process, state="held"))

    def _runs(self, index: int, process: Process, name: str) -> Iterator[tuple[str, Table]]:
        """A body may come to anything: it may depend on its clock. What was seen is noted with how it ended."""
        after = "help" if self.rules.help else "swap"
        for made in ("ok", "no"):
            if made == "no" and (process.op != MINE or not self.rules.refused):
                continue
            yield f"{name} comes to {made}", self._with(index, replace(process, state=after, made=made))
        if process.op == MINE and not self.rules.refused:
            yield f"{name} comes to no", self._with(index, replace(process, state="known", outcome="no"))

    def _swaps(self, index: int, process: Process, name: str) -> Iterator[tuple[str, Table]]:
        made, swap = process.made, (process.seen, process.op, process.made)
        again = Process(process.op)
        done, after = self._swapped(swap)
        yield (
            f"{name} swaps",
            after._with(index, replace(process, state="known", outcome=made) if done else again),
        )
        if self.lost:
            unsure = again if self.rules.unknown else replace(process, state="known", outcome="no")
            yield f"{name} swaps, no answer", replace(after, lost=self.lost - 1)._with(index, unsure)
            flying = replace(self, lost=self.lost - 1, flying=self.flying | {swap})
            yield f"{name} swaps, no answer, and it is late", flying._with(index, unsure)

    def _swapped(self, swap: Swap) -> tuple[bool, Table]:
        seen, op, made = swap
        if self.rules.condition and self.op != seen:
            return False, self
        return True, replace(self, op=op, outcome=made, applied=(*self.applied, (op, made)))

    def _logs(self, index: int, process: Process, name: str) -> Iterator[tuple[str, Table]]:
        done = replace(process, state="done")
        if process.op == MINE and index == self.owner:
            yield f"{name} logs {process.outcome}", self._with(index, done, logged=process.outcome)
        else:
            yield f"{name} is over", self._with(index, done)


START = Table(Rules(), lost=1)


def test_an_operation_happens_once_and_is_noted_as_it_was() -> None:
    found = search(START)
    assert (found.fault, found.path) == (None, [])
    assert found.states > 5_000


@pytest.mark.parametrize("broken", ["condition", "help", "row_first", "held", "unknown", "refused"])
def test_each_rule_is_needed(broken: str) -> None:
    found = search(replace(START, rules=Rules(**{broken: False})))
    assert found.fault is not None, f"nothing was found without {broken}"
