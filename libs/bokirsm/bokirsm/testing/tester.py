"""The tester: it runs a program many times, each time by other decisions, and makes a witness of the first fault.

report = run_tests(Program(app, main, monitors=[NoMoneyLost]), Limits(seconds=10), seed=7)
report.witness          # None, or the decisions that lead to a fault, shrunk
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from bokirsm.machine.declaration import Reaction
from bokirsm.testing.errors import Fault
from bokirsm.testing.mocks import Mock
from bokirsm.testing.run import Program, Reached, Run
from bokirsm.testing.shrink import shrunk
from bokirsm.testing.strategies import Exhaustive, Strategy, portfolio
from bokirsm.testing.witness import FoundBy, Witness, witness_of

ITERATIONS: Final = 1_000
SECONDS: Final = 10.0


class Limits(NamedTuple):
    """The size of a test.

    Attributes:
        iterations: runs, at most.
        seconds: after which no run begins.
        shrink_s: seconds for making a fault's run smaller.
    """

    iterations: int = ITERATIONS
    seconds: float = SECONDS
    shrink_s: float = 5.0


class Report(NamedTuple):
    """The result of a test.

    Attributes:
        runs: that were made.
        steps: handlers that ran, and calls of programs.
        seconds: that the runs took.
        longest: the steps of the longest run.
        complete: a strategy has made all runs that there are.
        reached: handlers that ran.
        missed: handlers that no run reached.
        witness: of the fault that was found, or None.
    """

    runs: int
    steps: int
    seconds: float
    longest: int
    complete: bool
    reached: frozenset[Reached]
    missed: tuple[Reached, ...]
    witness: Witness | None

    @property
    def steps_per_second(self) -> int:
        """The speed of the runs."""
        return round(self.steps / self.seconds) if self.seconds else 0


def run_tests(
    program: Program, limits: Limits | None = None, *, seed: int = 1, strategies: Sequence[Strategy] | None = None
) -> Report:
    """Run a program by one strategy after the other, until a fault is found or a limit is reached.

    Args:
        program: the subject.
        limits: of the test.
        seed: of the first run; each run has the next one. It says which strategy decides the run.
        strategies: by default the portfolio.

    Raises:
        Diverged: the program does otherwise when a run with a fault is repeated: it makes choices that the tester does not control.
    """
    bounds = limits or Limits()
    chosen = list(strategies or portfolio())
    began_s = time.monotonic()
    totals, witness = _Totals(), None
    while totals.runs < bounds.iterations and (totals.runs == 0 or time.monotonic() - began_s < bounds.seconds):
        number = seed + totals.runs
        strategy = chosen[number % len(chosen)]
        witness = _run_once(program, strategy, number, totals)
        if witness is not None or _has_made_all(strategy):
            break
    seconds = time.monotonic() - began_s
    if witness is not None and bounds.shrink_s > 0:
        witness = shrunk_within(program, witness, bounds.shrink_s)
    complete = any(strategy.complete for strategy in chosen)
    return totals.report(program, seconds, complete, witness)


class _Totals:
    """The runs that were made, added up; see `Report`."""

    def __init__(self) -> None:
        self.runs = self.steps = self.longest = 0
        self.reached: Final = set[Reached]()

    def add(self, run: Run) -> None:
        """Add a run that has ended."""
        self.runs, self.steps, self.longest = self.runs + 1, self.steps + run.steps, max(self.longest, run.steps)
        self.reached.update(run.reached)

    def report(self, program: Program, seconds: float, complete: bool, witness: Witness | None) -> Report:
        """Return the report of a test that made these runs."""
        left = missed(program, self.reached)
        return Report(self.runs, self.steps, seconds, self.longest, complete, frozenset(self.reached), left, witness)


def _run_once(program: Program, strategy: Strategy, seed: int, totals: _Totals) -> Witness | None:
    """Run a program once, as a strategy decides, and add the run to the totals. Return the witness of its fault, or None."""
    strategy.begin(seed)
    run = Run(program, strategy)
    witness = None
    try:
        run.go()
    except Fault as fault:
        witness = witness_of(program, run.decisions, fault, FoundBy(strategy.name, seed, strategy.fair_from))
    totals.add(run)
    return witness


def _has_made_all(strategy: Strategy) -> bool:
    """End a run without a fault of a strategy. Return whether the strategy has made all runs that there are."""
    if not isinstance(strategy, Exhaustive):
        return False
    strategy.ended()
    return strategy.complete


def shrunk_within(program: Program, witness: Witness, seconds: float) -> Witness:
    """Return a witness of the same fault that is as small as could be found in so many seconds."""
    until_s = time.monotonic() + seconds
    return shrunk(program, witness, lambda: time.monotonic() < until_s)


def missed(program: Program, reached: set[Reached]) -> tuple[Reached, ...]:
    """Return the handlers of an app that no run reached, by class, state and event."""
    found = []
    for kind, one in program.app.machines.items():
        if issubclass(one.cls, Mock):
            continue
        for state in one.states:
            for event in one.accepts:
                place = Reached(kind, state, event)
                begins = state == one.start.stored and Reached(kind, "", event) in reached
                if one.reaction(state, event) is Reaction.HANDLE and place not in reached and not begins:
                    found.append(place)
    return tuple(found)
