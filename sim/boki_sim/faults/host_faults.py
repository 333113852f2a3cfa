"""What a seed does to a host of a user: drawn when the host is made, by numbers of its name.

So a host more or less changes no fault of anybody else, and what a script says of a host is all that befalls it: a script that is
shrunk gives each host its part again (`of_host`). A host that a script calls `absent` is never started.

| kind | what |
|---|---|
| kill, power | its process ends in the middle of whatever it does; its machine goes without a word |
| stop | it is asked to end, as by SIGTERM |
| pause, sleep | its process stands still, or its machine is suspended |
| isolate, clog, slow-link, reset | its connections: both ways, or one |
| clock, step | its wall clock jumps, by a minute or by days |

Pure.
"""

from __future__ import annotations

import random  # noqa: TID251 - the type; the generators come from the seed
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from boki_sim.faults.faults import PROFILES, Fault
from boki_sim.world.errors import SimulationError

ABSENT: Final = "absent"
_CONNECTIONS: Final = ("isolate", "clog", "slow-link", "reset")
HOST_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "calm": (),
    "network": (*_CONNECTIONS, "pause", "kill"),
    "disk": ("kill", "power"),
    "metadata": ("kill", "pause", "stop"),
    "harsh": ("kill", "power", "stop", "pause", "sleep", *_CONNECTIONS, "clock", "step"),
    "full-disks": ("kill", "power", "stop", "pause"),
}
"""Kinds by profile. Each host meets some of them."""
MEETS_HOSTS: Final = frozenset(HOST_KINDS["harsh"])
"""Kinds that a host can meet at all."""
STEPS: Final = ("append", "append answer", "read", "read answer", "connects")
"""A host takes part in these: half of its faults wait for one."""
MEAN_GAP_S: Final = (1.0, 2.0, 4.0, 8.0)
"""One of these is a host's mean time between two faults."""
CALLBACKS: Final = 200
"""Who is killed then still runs up to so many."""


def draw(
    numbers: random.Random, profile: str, name: str, others: Sequence[str], *, begun: float, seconds: float
) -> list[Fault]:
    """A host's faults.

    Args:
        others: machines that it may be cut off from.
        begun: seconds into the run, when the host is made; `seconds`: of the run in which faults happen.

    Raises:
        SimulationError: no such profile.
    """
    if profile not in PROFILES:
        raise SimulationError(f"expected a profile of {', '.join(PROFILES)}, found {profile!r}")
    kinds = [kind for kind in HOST_KINDS[profile] if numbers.random() < 0.6]
    kinds = [kind for kind in kinds if others or kind not in ("clog", "reset")]
    gap_s = numbers.choice(MEAN_GAP_S)
    script = []
    at = begun + numbers.expovariate(1 / gap_s)
    while kinds and at < seconds:
        script.append(_fault(numbers, round(at, 4), numbers.choice(kinds), name, others))
        at += numbers.expovariate(1 / gap_s)
    return script


def _fault(numbers: random.Random, at: float, kind: str, name: str, others: Sequence[str]) -> Fault:
    target, amount = name, 0.0
    lasting = round(min(15.0, numbers.expovariate(1 / 2.5)), 3)
    if kind == "kill":
        amount = float(numbers.randrange(CALLBACKS))
    elif kind == "isolate":
        amount = float(numbers.randrange(3))
    elif kind in ("clog", "reset"):
        target = f"{name}>{numbers.choice(others)}"
    elif kind == "slow-link":
        amount = round(numbers.uniform(2, 400), 1)
    elif kind == "clock":
        amount = round(numbers.gauss(0, 60_000), 0)
    elif kind == "step":
        amount = numbers.choice((-1, 1, 1)) * round(10 ** numbers.uniform(-0.3, 2.8) * 3_600_000)
    if kind not in ("clock", "step", "clog", "reset") and numbers.random() < 0.5:
        return Fault(at, kind, target, lasting, amount, numbers.choice(STEPS), numbers.randrange(6) + 1)
    return Fault(at, kind, target, lasting, amount)


def host_of(fault: Fault) -> str:
    """Whose fault it is, if it is a host's."""
    return fault.target.split(",")[0].split(">")[0]


def of_host(script: Iterable[Fault], name: str) -> list[Fault]:
    """What a script says of a host."""
    return [fault for fault in script if host_of(fault) == name]
