"""Many seeds: which to run, what came of all of them, and whether a failure is the same failure again.

A campaign goes through the seeds from `first_seed` on and, where several profiles are asked for, through the profiles in
turn. `Summary` adds up outcomes: seeds, messages, and how often each kind of fault met each step of the protocol.

Pure: running, and in how many processes, is the caller's business.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from boki_sim.faults.faults import KINDS, PROFILES
from boki_sim.outcome import Outcome
from boki_sim.world.steps import STEPS

FAILURES_KEPT: Final = 100

_RULE: Final = re.compile(r"\[([^\]]+)\]")


def jobs(first_seed: int, seeds: int | None, profiles: Sequence[str]) -> Iterator[tuple[int, str]]:
    """(seed, profile), each seed under one profile; without end when `seeds` is None."""
    numbers = itertools.count() if seeds is None else range(seeds)
    yield from ((first_seed + number, profiles[number % len(profiles)]) for number in numbers)


def rules_of(violations: Sequence[str]) -> set[str]:
    """What was broken, without times and names: two runs with a rule in common fail alike."""
    return {match[1] for text in violations if (match := _RULE.search(text))}


@dataclass(slots=True)
class Summary:
    """All outcomes so far.

    Attributes:
        faults: "kind × the step that its target took part in" → how often.
        steps: step → how often it was taken, whether a fault met it or not.
        outcomes: outcomes of calls → how often.
    """

    seeds: int = 0
    failed: int = 0
    messages: int = 0
    operations: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    profiles: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.messages += outcome.messages
        self.operations += outcome.operations
        self.virtual_s += outcome.virtual_s
        self.cpu_s += outcome.cpu_s
        self.profiles[outcome.profile] += 1
        self.faults.update(outcome.happened)
        self.steps.update(outcome.steps)
        self.outcomes.update(outcome.outcomes)
        if not outcome.ok:
            self.failed += 1
            if len(self.failures) < FAILURES_KEPT:
                self.failures.append(outcome)

    def fault_table(self) -> dict[str, dict[str, int]]:
        """Kind → step → how often, in the order of their lists; a kind that never happened has an empty row."""
        table: dict[str, dict[str, int]] = {kind: {} for kind in KINDS if self._drawn(kind)}
        for kind, step, count in self._cells():
            table.setdefault(kind, {})[step] = count
        return table

    def step_table(self) -> dict[str, dict[str, int]]:
        """Step → kind → how often; a step that no fault met has an empty row."""
        table: dict[str, dict[str, int]] = {step: {} for step in STEPS}
        for kind, step, count in self._cells():
            table[step][kind] = count
        return table

    def coverage(self) -> tuple[int, int]:
        """Cells of the table that are not empty, and all of them."""
        return len(self.faults), len(self.fault_table()) * len(STEPS)

    def messages_per_s(self) -> float:
        """Simulated messages for each second of a core."""
        return self.messages / self.cpu_s if self.cpu_s else 0.0

    def _drawn(self, kind: str) -> bool:
        return any(kind in PROFILES.get(profile, ()) for profile in self.profiles)

    def _cells(self) -> Iterator[tuple[str, str, int]]:
        for name, count in sorted(self.faults.items()):
            kind, _, step = name.partition(" × ")
            yield kind, step, count

    def as_json(self, wall_s: float) -> dict[str, Any]:
        """For `--json`."""
        return {
            "seeds": self.seeds,
            "failed": self.failed,
            "profiles": dict(sorted(self.profiles.items())),
            "messages": self.messages,
            "messages_per_s": round(self.messages_per_s()),
            "operations": self.operations,
            "outcomes": dict(sorted(self.outcomes.items())),
            "virtual_s": round(self.virtual_s, 1),
            "wall_s": round(wall_s, 1),
            "seeds_per_s": round(self.seeds / wall_s, 2) if wall_s else 0.0,
            "faults": self.fault_table(),
            "faults_by_step": self.step_table(),
            "steps": dict(sorted(self.steps.items())),
            "failures": [
                {"seed": one.seed, "profile": one.profile, "violations": one.violations, "replay": one.replay}
                for one in self.failures
            ],
        }
