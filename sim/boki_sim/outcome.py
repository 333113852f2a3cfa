"""What became of one seed, as a report needs it. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from boki_sim.faults.faults import Fault

WORK_S: Final = 12.0
"""Virtual seconds of work and faults."""


@dataclass(slots=True)
class Outcome:
    """What became of one seed. Everything but `cpu_s` follows from seed, profile and script."""

    seed: int
    profile: str
    script: list[Fault]
    work_s: float = WORK_S
    violations: list[str] = field(default_factory=list)
    digest: str = ""
    happened: dict[str, int] = field(default_factory=dict)
    """"kind × step" → how often."""
    steps: dict[str, int] = field(default_factory=dict)
    """Step → how often it was taken."""
    operations: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    messages: int = 0
    """Frames delivered between processes, operations of disks, answers of the metadata store."""
    callbacks: int = 0
    looks: int = 0
    terms: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    trace: list[str] = field(default_factory=list)
    usual_s: float = WORK_S
    """What `work_s` is of this profile, unless somebody says so."""

    @property
    def ok(self) -> bool:
        return not self.violations

    @property
    def replay(self) -> str:
        """The command that runs it again."""
        seconds = "" if self.work_s == self.usual_s else f" --seconds {self.work_s:g}"
        return f"boki sim replay {self.seed} --profile {self.profile}{seconds}"
