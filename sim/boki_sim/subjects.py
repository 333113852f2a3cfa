"""Programs with a check at their end, of whoever is installed: `boki sim run --profile NAME` runs each seed of one.

    [project.entry-points."boki.simulated"]
    store = "bokistore.testing.simulated:STORE"        # a `boki.sim.Subject`

They are found by entry point: nothing here knows a library. What comes of a seed is an `Outcome`, as of any other profile.
"""

from __future__ import annotations

import time  # noqa: TID251 - how long the machine took for a run
import traceback
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Final

import boki.sim
from boki_common.errors import InvalidArgument
from boki_sim.faults.faults import PROFILES, Fault
from boki_sim.outcome import Outcome
from boki_sim.simulated import How, ProgramRun, Runs, smallest_script

GROUP: Final = "boki.simulated"
KEPT: Final = 2_000
"""Characters of what failed."""


def names() -> list[str]:
    """Of all that are installed."""
    return sorted({found.name for found in entry_points(group=GROUP)})


def subject(name: str) -> boki.sim.Subject:
    """Raises InvalidArgument: there is none of that name, or it is none."""
    for found in entry_points(group=GROUP, name=name):
        loaded = found.load()
        if not isinstance(loaded, boki.sim.Subject):
            raise InvalidArgument(f"expected a boki.sim.Subject at {found.value}, found {type(loaded).__name__}")
        return loaded
    known = ", ".join([*PROFILES, *names()])
    raise InvalidArgument(f"expected a profile of {known}, found {name!r}")


def run_subject(
    name: str, seed: int, *, script: Sequence[Fault] | None = None, work_s: float = 0.0, keep_trace: bool = False
) -> Outcome:
    """Runs one seed. `work_s`: of faults; 0: as the subject has it."""
    begun = time.process_time()
    chosen = subject(name)
    runs = _runs(chosen, seed, work_s)
    run = runs.under(script)
    if keep_trace:
        run.trace.keep_all()
    violations = []
    try:
        run.go(chosen.program)
    except Exception as error:  # noqa: BLE001 - whatever it is, the seed failed
        violations.append(_violation(name, error))
    script = sorted(run.script, key=lambda fault: fault.at)
    outcome = Outcome(seed, name, script, runs.seconds, violations, usual_s=chosen.seconds)
    run.cluster.report(outcome, run.happened())
    outcome.cpu_s = time.process_time() - begun
    return outcome


def shrink_subject(name: str, seed: int, *, script: Sequence[Fault] | None, work_s: float, tries: int) -> list[Fault]:
    """The fewest faults and hosts with which a failing seed still fails as it did. Raises InvalidArgument: it holds."""
    chosen = subject(name)
    runs = _runs(chosen, seed, work_s)
    run: ProgramRun = runs.under(script)
    try:
        run.go(chosen.program)
    except Exception as error:  # noqa: BLE001 - as above
        return smallest_script(error, run, chosen.program, runs, tries=tries)[0]
    raise InvalidArgument(f"seed {seed} ({name}) holds: there is nothing to shrink; find one with `boki sim run`")


def _runs(chosen: boki.sim.Subject, seed: int, work_s: float) -> Runs:
    how = How(chosen.model, chosen.steady, chosen.timeout)
    return Runs(seed, chosen.faults, work_s or chosen.seconds, how)


def _violation(name: str, error: BaseException) -> str:
    """As a violation: the rule is whose program failed, how and in which function; then the text."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    where = frames[-1].name if frames else "?"
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"[{name}: {type(error).__name__} in {where}] {error}{place}"[:KEPT]
