"""The door to the simulator, which the SDK does not know: it is found by entry point.

[project.entry-points."boki.simulator"]
simulated = "boki_sim.simulated:simulated"
run = "boki_sim.simulated:run"
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Final

from boki_common.errors import UsageError

GROUP: Final = "boki.simulator"


def simulator(name: str) -> Callable[..., Any]:
    """What the installed simulator offers under a name. Raises UsageError when there is none."""
    for found in entry_points(group=GROUP, name=name):
        loaded: Callable[..., Any] = found.load()
        return loaded
    raise UsageError(
        f"expected an installed simulator (entry point {GROUP!r}, {name!r}), found none: install boki itself, or again"
    )


def simulated(
    *,
    seeds: int = 100,
    faults: str = "harsh",
    first_seed: int = 1,
    seconds: float = 20.0,
    model: bool = False,
    steady: bool = False,
    timeout: float = 300.0,
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Makes a simulated test of a coroutine function that takes `cluster` (`boki.sim.Cluster`): it runs once for each seed.

        @boki.testing.simulated(seeds=200, faults="harsh")
        async def test_transfers(cluster):
            async with await cluster.connect() as client: ...

    The cluster is a real one (bookies, sequencers, engines) on virtual time, network, disks and metadata store; while the
    test runs, it meets the faults that the seed drew. Everything in the test runs on virtual time too; wall clock, unseeded
    randomness, threads, files and sockets are refused. A failure names the seed, and `pytest --sim-seed N` runs it alone.

    Args:
        seeds: how many runs.
        faults: calm, network, disk, metadata or harsh.
        first_seed: of the runs.
        seconds: of virtual time in which faults happen; then all are over.
        model: the cluster is a model of one, without roles, as `virtual_time` has it.
        steady: no cluster whose clocks run faster than time, which some seeds have.
        timeout: seconds of virtual time that the test has after the faults are over.
    """
    made: Callable[[Callable[..., Any]], Callable[..., None]] = simulator("simulated")(
        seeds=seeds,
        faults=faults,
        first_seed=first_seed,
        seconds=seconds,
        model=model,
        steady=steady,
        timeout=timeout,
    )
    return made


def virtual_time(
    *, seeds: int = 1, faults: str = "calm", first_seed: int = 1, seconds: float = 20.0, timeout: float = 604_800.0
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Makes a test of a coroutine function that takes `cluster`, in virtual time, on a model of a cluster: an hour takes milliseconds.

        @boki.testing.virtual_time(seeds=20)
        async def test_reminders(cluster):
            host = cluster.host("reminder", main)
            await cluster.rest(3 * 86_400)

    As `simulated`, with a model in the place of bookies, sequencers and engines. A `MemoryCluster` that the test opens itself is in
    virtual time too. The test must end within a week (`timeout`) after the faults.
    """
    return simulated(seeds=seeds, faults=faults, first_seed=first_seed, seconds=seconds, model=True, timeout=timeout)
