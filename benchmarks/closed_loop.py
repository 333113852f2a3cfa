"""A closed loop: N tasks, each doing one thing after another, and what it took: rate, latencies, processor time by process.

Processor time counts all processes of the cluster, this one and its loop included.
"""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any, Final, NamedTuple

from benchmarks import machine
from benchmarks.report import Row

WARM_UP_S: Final = 0.15

Once = Callable[[int], Awaitable[int]]
"""Does one step of a task; returns how many records it was."""


class Workload(NamedTuple):
    """A closed loop of `tasks` tasks."""

    name: str
    tasks: int
    make: Callable[[Any], Once]


async def closed_loop(workload: Workload, client: Any, pids: Mapping[str, int], seconds: float) -> Row:
    """Runs one workload for a while; the row of this round."""
    once = workload.make(client)
    taken = array("d")
    records = 0
    end = 0.0
    measured = False

    async def task(number: int) -> None:
        nonlocal records
        while True:
            started = perf_counter()
            if started >= end:
                return
            count = await once(number)
            if measured:
                records += count
                taken.append(perf_counter() - started)

    end = perf_counter() + WARM_UP_S
    await asyncio.gather(*(task(number) for number in range(workload.tasks)))
    measured = True
    groups = cpu_groups(pids)
    before = {name: machine.cpu_seconds(group) for name, group in groups.items()}
    started = perf_counter()
    end = started + seconds
    await asyncio.gather(*(task(number) for number in range(workload.tasks)))
    elapsed = perf_counter() - started
    used = {name: machine.cpu_seconds(group) - before[name] for name, group in groups.items()}
    return Row.of(workload.name, records / elapsed, taken, {name: one * 1e6 / records for name, one in used.items()})


def cpu_groups(pids: Mapping[str, int]) -> dict[str, list[int]]:
    """Processes whose time is counted together, this one among them."""
    groups: dict[str, list[int]] = {"sdk": [os.getpid()], "engine": [], "sequencer": [], "bookies": []}
    for name, pid in pids.items():
        kind = name.partition("-")[0]
        groups.setdefault("bookies" if kind == "bookie" else kind, []).append(pid)
    return groups
