"""A program on a simulated cluster, one seed at a time: `boki.testing.simulated` without pytest.

    import boki.sim

    async def program(cluster):
        async with await cluster.connect() as client:
            return await client.book("orders").append(b"...")

    seqnum = boki.sim.run(program, seed=7, faults="harsh")

The same seed is the same run, event by event, on every machine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from boki.testing._simulated import simulator

T = TypeVar("T")

__all__ = ["run"]


def run(program: Callable[[Any], Awaitable[T]], *, seed: int, faults: str = "harsh", seconds: float = 20.0) -> T:
    """Runs a coroutine function under one seed; returns what it returns, raises what it raises.

    Args:
        program: takes the cluster: `url`, `connect()`, `process(name)`.
        faults: calm, network, disk, metadata or harsh.
        seconds: of virtual time in which faults happen.
    """
    result: T = simulator("run")(program, seed=seed, faults=faults, seconds=seconds)
    return result
