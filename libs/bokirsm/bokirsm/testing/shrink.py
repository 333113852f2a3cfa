"""Shrinking: fewer and smaller decisions that lead to the same fault. Pure.

A smaller script is tried leniently: what it does not say is the simplest choice (`Scripted`). If its run finds a fault of the same kind and
place, and is smaller, it replaces the witness. A run is smaller if it has fewer steps; then, if it has fewer changes from one machine to
another; then by its numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from bokirsm.testing.errors import Diverged, Fault
from bokirsm.testing.run import Program
from bokirsm.testing.strategies import Decision
from bokirsm.testing.witness import FoundBy, Witness, rerun, witness_of

Size: TypeAlias = tuple[int, int, int]

PAIRS: Final = 64
"""Steps of a run from which two at a time are left out: an event, and what is done for it later."""
SLIDES: Final = 4
"""Parts of so many steps are left out at each place; larger ones one after the other."""


def shrunk(program: Program, witness: Witness, goes_on: Callable[[], bool]) -> Witness:
    """Return a witness of the same fault that is as small as could be found while `goes_on` is true."""
    if not witness.digest:
        return witness
    search = _Search(program, witness)
    while search.improves(goes_on):
        pass
    if search.best == witness.script:
        return witness
    fault = Fault(witness.kind, witness.place, witness.fault)
    by = FoundBy(witness.strategy, witness.seed, witness.fair_from, witness.found_steps)
    made = witness_of(program, search.best, fault, by)
    return msgspec.structs.replace(made, test=witness.test)


class _Search:
    """A search for a smaller script.

    Attributes:
        best: the smallest one so far.
    """

    def __init__(self, program: Program, witness: Witness) -> None:
        self.best: Sequence[Decision] = witness.script
        self._size = _size(witness.script, witness.steps)
        self._program = program
        self._witness: Final = witness

    def improves(self, goes_on: Callable[[], bool]) -> bool:
        """Try smaller scripts, once through. Return whether one was found."""
        before = self._size
        for candidate in self._smaller():
            if not goes_on():
                return False
            self._try(candidate)
        return self._size < before

    def _try(self, decisions: Sequence[Decision]) -> None:
        one = self._witness
        try:
            found = rerun(self._program, decisions, one.kind, strict=False, fair_from=one.fair_from, story=False)
        except Diverged:
            return
        if found.fault is None or found.fault.same != (one.kind, one.place):
            return
        size = _size(found.decisions, found.steps)
        if size >= self._size:
            return
        self.best, self._size = found.decisions, size
        if one.kind != "liveness":  # whose bound is a part of the fault
            self._program = self._program._replace(steps=min(self._program.steps, found.steps + 1))

    def _smaller(self) -> Iterator[list[Decision]]:
        """Yield scripts that are smaller than the best one: without a part, with a smaller number, with fewer changes."""
        size = max(len(_steps(self.best)) // 2, 1)
        while size:
            at = 0
            while at < len(_steps(self.best)):
                now = self.best
                steps = _steps(now)
                yield [one for step in (*steps[:at], *steps[at + size :]) for one in step]
                if self.best is now:
                    at += size if size > SLIDES else 1
            size //= 2
        for at in range(len(self.best)):
            for value in _simpler(self.best, at):
                if at < len(self.best):
                    yield [*self.best[:at], Decision(self.best[at].kind, value), *self.best[at + 1 :]]
        for at in range(min(len(_steps(self.best)), PAIRS)):
            for other in range(at + 1, PAIRS):
                steps = _steps(self.best)
                if other < len(steps):
                    yield [one for number, step in enumerate(steps) if number not in (at, other) for one in step]


def _steps(decisions: Sequence[Decision]) -> list[list[Decision]]:
    """Return the decisions of each step: what runs, and the choices in it."""
    found: list[list[Decision]] = []
    for one in decisions:
        if one.kind == "run" or not found:
            found.append([])
        found[-1].append(one)
    return found


def _simpler(decisions: Sequence[Decision], at: int) -> list[str | int]:
    """Return simpler values of a decision."""
    if at >= len(decisions):
        return []
    kind, value = decisions[at]
    if kind == "run":
        before = next((one.value for one in reversed(decisions[:at]) if one.kind == "run"), value)
        return [before] if before != value else []
    assert isinstance(value, int)
    return sorted({0, value // 2, value - 1}) if value > 0 else []


def _size(decisions: Sequence[Decision], steps: int) -> Size:
    runs = [one.value for one in decisions if one.kind == "run"]
    changes = sum(one != other for one, other in itertools.pairwise(runs))
    return steps, changes, sum(one.value for one in decisions if isinstance(one.value, int)) + len(decisions)
