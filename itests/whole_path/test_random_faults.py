"""Random faults on real processes for a minute a seed: kill -9, a clean stop or a pause of any roles, all of them at times.

Each fault hits a cluster under load; after each, appends must go on within 40 s, and at the end everything is accounted for.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import boki
from boki_cli.demo.local_cluster import LocalCluster
from itests.whole_path.load import Load, stop_and_check

pytestmark = [pytest.mark.processes, pytest.mark.nightly, pytest.mark.timeout(300)]

SECONDS = 60.0
RECOVERY_S = 40.0


async def pass_time(load: Load, seconds: float) -> None:
    """Lets appends go on, if they can."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await load.more(10**9)


async def strike(chance: random.Random, cluster: LocalCluster, load: Load) -> tuple[str, Sequence[str]]:
    """One fault, and its end. Returns what it was."""
    roles = chance.sample(cluster.roles, chance.choice([1, 1, 1, 2, 3, len(cluster.roles)]))
    how = chance.choice(["kill", "kill", "stop", "pause"])
    if how == "pause":
        cluster.pause(*roles)
        await pass_time(load, chance.choice([0.2, 1.0, 6.0]))
        cluster.resume(*roles)
    else:
        await (cluster.kill if how == "kill" else cluster.stop)(*roles)
        await pass_time(load, chance.choice([0.0, 0.0, 0.5, 2.0]))
        await cluster.start(*roles)
    return how, roles


@pytest.mark.parametrize("seed", range(1, 11))
async def test_random_faults_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    loop = asyncio.get_running_loop()
    async with (
        LocalCluster(tmp_path, bookies=4, sequencers=2) as cluster,
        boki.connect(cluster.url) as client,
        Load(client.book("faults"), tasks=24) as load,
    ):
        end = loop.time() + SECONDS
        while loop.time() < end:
            await load.more(200)
            fault = await strike(chance, cluster, load)
            try:
                async with asyncio.timeout(RECOVERY_S):
                    await load.more(100)
            except TimeoutError:
                pytest.fail(f"seed {seed}: no append ended within {RECOVERY_S} s after {fault}")
        await stop_and_check(load)
        assert not load.unknown
