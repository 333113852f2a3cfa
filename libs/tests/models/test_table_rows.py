"""A model of a row of a table whose order the log decides: processes read the stored row and the records above it, append a record, and
write its result over the stored row. Writes arrive late and twice, processes die, the log is trimmed. Every record is computed from the
fold of all records before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from libs.tests.models.search import search


@dataclass(frozen=True)
class Rules:
    """Each broken variant turns one off.

    Attributes:
        fold: records above the stored version are added to it.
        chain: a record is written only once the one before it is stored.
        stamps: a write has its record's seqnum as time stamp.
        expect: a record expects that the row has not moved since it was read.
        settled: the log is trimmed only up to the records known to be stored.
    """

    fold: bool = True
    chain: bool = True
    stamps: bool = True
    expect: bool = True
    settled: bool = True


@dataclass(frozen=True)
class Process:
    """A process that reads, appends and writes in a loop. `todo`: records to write, ascending."""

    state: str = "idle"
    known: tuple[int, ...] = ()
    """The stored cells, as it read them: record of each."""
    version: int = 0
    at: int = 0
    todo: tuple[int, ...] = ()
    acked: int = 0
    """Up to here it knows that records are stored."""


@dataclass(frozen=True)
class Table:
    """A row of two cells. Record n sets the cell n % 2; a cell holds the number of the record that set it, a stamp beside it."""

    rules: Rules
    appends: int
    deaths: int
    records: tuple[bool, ...] = ()
    """For each record, whether it was computed from the fold of all records before it."""
    cells: tuple[tuple[int, int], ...] = ((0, 0), (0, 0))
    version: int = 0
    flying: frozenset[int] = frozenset()
    """Writes that may arrive, also repeatedly, while a process lives."""
    arrivals: int = 0
    trimmed: int = 0
    processes: tuple[Process, ...] = (Process(), Process())

    def truth(self, upto: int) -> tuple[int, ...]:
        return tuple(max((n for n in range(1, upto + 1) if n % 2 == cell), default=0) for cell in (0, 1))

    def fault(self) -> str | None:
        if not all(self.records):
            return "a record was computed from what never was"
        for process in self.processes:
            if process.state == "read" and process.known != self.truth(process.at):
                return f"read {process.known} as of {process.at}"
            if process.state == "lost":
                return "what is not stored was trimmed"
        return None

    def _with(self, index: int, process: Process, **changes: object) -> Table:
        processes = tuple(process if at == index else one for at, one in enumerate(self.processes))
        return replace(self, processes=processes, **changes)  # type: ignore[arg-type]

    def moves(self) -> Iterator[tuple[str, Table]]:
        for index, process in enumerate(self.processes):
            yield from self._moves_of(index, process)
        for number in self.flying:
            if self.arrivals:
                yield f"the write of {number} arrives late", replace(self._arrived(number), arrivals=self.arrivals - 1)
        stored = max(process.acked for process in self.processes) if self.rules.settled else len(self.records)
        if stored > self.trimmed:
            yield f"the log is trimmed up to {stored}", replace(self, trimmed=stored)

    def _moves_of(self, index: int, process: Process) -> Iterator[tuple[str, Table]]:
        if process.state == "idle" and self.appends:
            stored = tuple(value for value, _ in self.cells)
            yield (
                f"{index} reads the row",
                self._with(index, replace(process, state="stored", known=stored, version=self.version)),
            )
        if process.state == "stored":
            yield f"{index} asks the log", self._asked(index, process)
        if process.state == "read" and self.appends:
            yield f"{index} appends", self._appended(index, process)
        if process.todo:
            number = process.todo[0]
            after = replace(
                process, todo=process.todo[1:], acked=max(process.acked, number) if self.rules.chain else process.acked
            )
            yield f"{index} writes {number}", self._arrived(number)._with(index, after, flying=self.flying | {number})
        if self.deaths and process != Process():
            yield f"{index} dies", self._with(index, Process(), deaths=self.deaths - 1)

    def _asked(self, index: int, process: Process) -> Table:
        newest = len(self.records)
        if process.version < self.trimmed:  # it reads the row again; if that does not help, it is lost
            again = "lost" if self.version < self.trimmed else "idle"
            return self._with(index, replace(process, state=again, known=(), version=0))
        known = process.known
        if self.rules.fold:
            for number in range(process.version + 1, newest + 1):
                known = tuple(number if number % 2 == cell else value for cell, value in enumerate(known))
        missing = tuple(range(process.version + 1, newest + 1)) if self.rules.chain else ()
        todo = tuple(dict.fromkeys((*process.todo, *missing)))
        acked = max(process.acked, process.version) if not todo or todo[0] > process.version else process.acked
        return self._with(
            index, replace(process, state="read", known=known, at=newest, todo=tuple(sorted(todo)), acked=acked)
        )

    def _appended(self, index: int, process: Process) -> Table:
        right = process.known == self.truth(len(self.records))
        number = len(self.records) + 1
        idle = replace(process, state="idle", known=(), version=0, at=0)
        if self.rules.expect and process.at != len(self.records):
            return self._with(index, idle)
        records = (*self.records, right)
        return self._with(index, replace(idle, todo=(*process.todo, number)), records=records, appends=self.appends - 1)

    def _arrived(self, number: int) -> Table:
        cell = number % 2
        cells = list(self.cells)
        if not self.rules.stamps or number > cells[cell][1]:
            cells[cell] = (number, number)
        version = max(self.version, number) if self.rules.stamps else number
        return replace(self, cells=tuple(cells), version=version)


START = Table(Rules(), appends=3, deaths=1, arrivals=1)


def test_nobody_computes_from_what_never_was() -> None:
    found = search(START)
    assert (found.fault, found.path) == (None, [])
    assert found.states > 2_000


@pytest.mark.parametrize("broken", ["fold", "chain", "stamps", "expect", "settled"])
def test_each_rule_is_needed(broken: str) -> None:
    found = search(replace(START, rules=Rules(**{broken: False})))
    assert found.fault is not None, f"nothing was found without {broken}"
