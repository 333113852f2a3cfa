"""Bookies that are restarted while their disks are full: faults beside all others, by numbers of their own.

A disk fills up to the last byte, or nearly; while it is full its bookie is killed, loses power or is stopped, once or
several times in a row, now and then because a flush failed (what it should have written is lost: `MemoryDisk.forgets_failed`).
Some runs fill all disks at once: nobody takes a new ledger then, and what was acknowledged has to be there afterwards.

Pure.
"""

from __future__ import annotations

import random  # noqa: TID251 - the type; the generators come from the seed
from collections.abc import Mapping
from typing import Final

from boki_sim.faults.faults import FAILING, PROFILES, Fault, Targets

PROFILE: Final = "full-disks"
SHARES: Final[Mapping[str, float]] = {PROFILE: 1.0, "disk": 0.5, "harsh": 0.25}
"""Of the runs of a profile."""
RESTARTS_MOST: Final = 4
"""Of one bookie while its disk is full."""
ENDINGS: Final = ("kill", "kill", "power", "stop", "disk-error")
ROOM_BYTES: Final = (0, 0, 600, 9_000, 70_000)
"""One of these is left at most: nothing, less than a page, some pages, more than a journal segment."""


def while_full(numbers: random.Random, profile: str, targets: Targets, *, seconds: float) -> list[Fault]:
    """Full disks, and what ends their bookies meanwhile."""
    if numbers.random() >= SHARES.get(profile, 0.0):
        return []
    endings = [kind for kind in ENDINGS if kind in PROFILES[profile]]
    bookies = list(targets.bookies)
    numbers.shuffle(bookies)
    at_once = numbers.random() < 0.3
    at, lasting = numbers.uniform(0.0, 0.5) * seconds, numbers.uniform(0.2, 0.5) * seconds
    script = []
    for bookie in bookies if at_once else bookies[: numbers.randrange(1, len(bookies) + 1)]:
        if not at_once:
            at, lasting = numbers.uniform(0.0, 0.6) * seconds, numbers.uniform(0.1, 0.5) * seconds
        room = numbers.choice(ROOM_BYTES)
        script.append(Fault(round(at, 4), "disk-full", bookie, round(lasting, 3), float(numbers.randrange(room + 1))))
        for _ in range(numbers.randrange(RESTARTS_MOST + 1)):
            script.append(_ending(numbers, at + numbers.random() * lasting, numbers.choice(endings), bookie))
    return sorted(script, key=lambda fault: fault.at)


def _ending(numbers: random.Random, at: float, kind: str, bookie: str) -> Fault:
    if kind == "disk-error":
        return Fault(round(at, 4), kind, bookie, 0.0, float(FAILING.index("sync")))
    return Fault(round(at, 4), kind, bookie, round(numbers.uniform(0.05, 1.0), 3), float(numbers.randrange(60)))
