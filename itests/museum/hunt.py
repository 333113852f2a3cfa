"""Runs seeds until one breaks a rule: `python -m itests.museum.hunt WORLD --profile P --rule "1 acked" --seconds 60`.

WORLD is `ledgers` (bookies and ledger clients only, `ledger_world`) or `cluster` (everything, `boki_sim.run`). It prints one
JSON object; the exit code is 1 when a seed broke a rule, 0 when none did. The museum runs it in copies of the sources into
which a bug was planted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Final

from boki_sim.campaign import rules_of
from boki_sim.clusters.shape import draw_shape
from boki_sim.faults.faults import Fault, unaware
from boki_sim.outcome import WORK_S
from boki_sim.run import run_seed
from boki_sim.world.randomness import stream
from itests.museum.exhibit import CLUSTER, LEDGERS
from itests.museum.fence_race import FenceRace
from itests.museum.ledger_world import AIMED, LedgerRun, run_ledgers

FOUND: Final = 1
FAILOVERS: Final = "failovers"
"""A profile of whole clusters: every second all sequencers and an engine die at about the same time."""
UNAWARE: Final = "unaware"
"""Another one: a sequencer does not hear that its term is over, and is asked where the log ends (`faults.unaware`)."""


def script_of(seed: int, profile: str) -> list[Fault] | None:
    """The faults of a profile of ours; None where the simulator draws them."""
    if profile == UNAWARE:
        targets = draw_shape(stream(seed, "shape")).targets(stream(seed, "targets"))
        return unaware(stream(seed, UNAWARE), WORK_S, targets)
    if profile != FAILOVERS:
        return None
    numbers = stream(seed, FAILOVERS)
    script = []
    for second in range(1, 12):
        for target in ("sequencer-1", "sequencer-2", "sequencer-3", f"engine-{numbers.randrange(1, 3)}"):
            at = round(second + numbers.uniform(0.0, 0.05), 4)
            script.append(Fault(at, "kill", target, 0.2, float(numbers.randrange(60))))
    return sorted(script, key=lambda fault: fault.at)


def violations_of(world: str, seed: int, profile: str) -> list[str]:
    """Of one seed."""
    if world == CLUSTER:
        drawn = "harsh" if profile in (FAILOVERS, UNAWARE) else profile
        return run_seed(seed, drawn, script=script_of(seed, profile)).violations
    return run_ledgers(seed, profile, kind=FenceRace if profile == AIMED else LedgerRun).violations


def broken(violations: Sequence[str], rules: Sequence[str]) -> list[str]:
    """The violations of these rules; of all rules if none is named."""
    return [text for text in violations if not rules or rules_of([text]) & set(rules)]


def main() -> int:
    """The command, see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("world", choices=(LEDGERS, CLUSTER))
    parser.add_argument("--profile", default="harsh")
    parser.add_argument("--rule", action="append", default=[], help="count only violations of these")
    parser.add_argument("--seed", action="append", type=int, default=[], help="try these; default all from 1 on")
    parser.add_argument("--seconds", type=float, default=60.0, help="begin no seed after this long")
    options = parser.parse_args()
    begun = time.perf_counter()
    seeds: Iterable[int] = options.seed or itertools.count(1)
    found: list[str] = []
    seed = tried = 0
    for seed in seeds:
        found = broken(violations_of(options.world, seed, options.profile), options.rule)
        tried += 1
        if found or time.perf_counter() - begun > options.seconds:
            break
    report = {
        "seed": seed if found else None,
        "tried": tried,
        "seconds": round(time.perf_counter() - begun, 1),
        "cpu_s": round(time.process_time(), 1),
        "violations": found[:10],
    }
    sys.stdout.write(json.dumps(report) + "\n")
    return FOUND if found else 0


if __name__ == "__main__":
    sys.exit(main())
