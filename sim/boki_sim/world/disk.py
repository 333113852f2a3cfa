"""The disks of simulated bookies: the one in memory, with latencies and faults that a seed chooses.

`DiskPlan` is asked before every operation: how long it takes, or what it fails with. Damage at rest (flipped bits,
misdirected writes) is done to a disk from outside. Torn and lost unsynced writes are what `MemoryDisk.crash` leaves.
"""

from __future__ import annotations

import random  # noqa: TID251 - the type; the generators come from the seed
from collections.abc import Awaitable
from math import log

from boki_common.errors import DiskFailed
from boki_common.runtime.memory_content import SECTOR_BYTES
from boki_common.runtime.memory_disk import EIO, MemoryDisk
from boki_sim.world.loop import SimLoop
from boki_sim.world.process import SimProcess
from boki_sim.world.steps import Steps, of_disk
from boki_sim.world.trace import Trace

FLUSHES = frozenset(("sync", "replace", "rename", "remove"))


class DiskPlan:
    """What becomes of the operations of one disk.

    Attributes:
        flush_s, other_s: mean latency of what waits for the medium, and of the rest.
        slowness: all of them times so much.
        failing: kinds whose next operations fail with EIO → how many.
    """

    def __init__(
        self,
        loop: SimLoop,
        process: SimProcess,
        numbers: random.Random,
        trace: Trace,
        *,
        flush_s: float,
        other_s: float,
        steps: Steps | None = None,
    ) -> None:
        self.flush_s = flush_s
        self.other_s = other_s
        self.slowness = 1.0
        self.failing: dict[str, int] = {}
        self.operations = 0
        self._steps = steps
        self._loop = loop
        self._process = process
        self._trace = trace
        self._note = trace.note
        self._random = numbers.random

    def __call__(self, kind: str, name: str) -> float:
        self.operations += 1
        process = self._process
        if self.failing and self.failing.get(kind, 0) > 0:
            self.failing[kind] -= 1
            self._trace.add(process.name, "disk", kind, name, "fails")
            raise DiskFailed(f"the disk failed {kind} of {name}: input/output error (errno {EIO})", errno=EIO)
        if self._steps is not None and (step := of_disk(kind, name)):
            self._steps.met(step, process)
        mean = self.flush_s if kind in FLUSHES else self.other_s
        seconds = -log(1.0 - self._random()) * mean * self.slowness
        self._note((self._loop.now, process.name, "disk", kind, name, seconds))
        return seconds

    def wait(self, seconds: float) -> Awaitable[object]:
        """Lets the time of an operation pass."""
        loop = self._loop
        return loop.settled_at(loop.now + seconds, self._process)


def flip_bits(disk: MemoryDisk, numbers: random.Random, *, count: int) -> list[str]:
    """Flips bits anywhere on the disk; returns where."""
    places = []
    for _ in range(count):
        found = _any_place(disk, numbers)
        if found is None:
            break
        name, offset = found
        bit = numbers.randrange(8)
        disk.flip_bit(name, offset, bit)
        places.append(f"{name}:{offset}.{bit}")
    return places


def misdirect(disk: MemoryDisk, numbers: random.Random) -> list[str]:
    """A sector's content lands on another sector, of the same file or another; returns which."""
    source, target = _any_place(disk, numbers), _any_place(disk, numbers)
    if source is None or target is None:
        return []
    (from_name, from_offset), (name, offset) = source, target
    from_offset -= from_offset % SECTOR_BYTES
    offset -= offset % SECTOR_BYTES
    room = min(SECTOR_BYTES, disk.size_of(name) - offset)
    disk.overwrite(name, offset, disk.contents(from_name)[from_offset : from_offset + room])
    return [f"{from_name}:{from_offset} on {name}:{offset}"]


def _any_place(disk: MemoryDisk, numbers: random.Random) -> tuple[str, int] | None:
    """A byte of the disk; each file is as likely as any other, so small ones are met too."""
    names = [name for name in disk.all_names() if disk.size_of(name)]
    if not names:
        return None
    name = numbers.choice(names)
    return name, numbers.randrange(disk.size_of(name))
