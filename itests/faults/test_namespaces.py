"""Real processes on machines of their own (network namespaces), with ZooKeeper, where packets are dropped.

Faults are drawn by a seed: packets lost at random, two machines cut from each other, one that sends and receives nothing, one
cut from all others, for less and for more than a session's time-out. Histories are checked by the simulator's checkers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from boki_cli.demo.local_cluster import LocalCluster, Place
from itests.faults.rounds import last, round_under
from itests.support.fixtures import skip_or_fail
from itests.support.hosts import Hosts, HostsMissing
from itests.support.java_server import ServerMissing
from itests.support.tokens import write_token
from itests.support.zookeeper import ZookeeperServer

pytestmark = [
    pytest.mark.processes,
    pytest.mark.namespaces,
    pytest.mark.alone,
    pytest.mark.zookeeper,
    pytest.mark.timeout(300),
]

ROLES = ("bookie-1", "bookie-2", "bookie-3", "bookie-4", "sequencer-1", "sequencer-2", "engine-1", "engine-2")


class Cluster:
    """Roles on hosts, and the faults between these."""

    def __init__(self, cluster: LocalCluster, hosts: Hosts) -> None:
        self.cluster = cluster
        self.hosts = hosts

    async def lose(self, chance: random.Random) -> str:
        names = chance.sample(ROLES, chance.choice((1, 2, len(ROLES))))
        share = chance.choice((0.02, 0.1, 0.3))
        for name in names:
            await self.hosts.lose(name, share)
        return await self._last(chance, f"{share:.0%} of the packets to {', '.join(names)}")

    async def part(self, chance: random.Random) -> str:
        one, *others = chance.sample(ROLES, chance.choice((2, 3, 4)))
        await self.hosts.cut(one, *others)
        return await self._last(chance, f"{one} cut from {', '.join(others)}")

    async def deafen(self, chance: random.Random) -> str:
        one = chance.choice(ROLES)
        hears = chance.random() < 0.5
        await self.hosts.cut(one, hears=hears, says=not hears)
        return await self._last(chance, f"{one} {'says' if hears else 'hears'} nothing")

    async def isolate(self, chance: random.Random) -> str:
        one = chance.choice(ROLES)
        await self.hosts.cut(one)
        return await self._last(chance, f"{one} cut from all")

    async def _last(self, chance: random.Random, what: str) -> str:
        seconds = chance.choice((0.5, 2.0, 7.0))
        await last(seconds, self.hosts.heal)
        await self.revive()
        return f"{what} for {seconds} s"

    async def revive(self) -> None:
        """Starts again what ended itself: a sequencer that lost its term."""
        for role in ROLES:
            if not self.cluster.running(role):
                await self.cluster.start(role)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        try:
            hosts = await stack.enter_async_context(Hosts(ROLES))
        except HostsMissing as error:
            skip_or_fail("namespaces", str(error))
        try:
            zookeeper = await asyncio.to_thread(ZookeeperServer.start, tmp_path / "zookeeper", host=hosts.here)
        except ServerMissing as error:
            skip_or_fail("zookeeper", str(error))
        stack.callback(zookeeper.stop)
        places = {role: Place(f"{hosts[role].address}:0", hosts[role].command(())) for role in ROLES}
        yield Cluster(
            await stack.enter_async_context(
                LocalCluster(
                    tmp_path,
                    f"zk://{zookeeper.hosts}/boki",
                    bookies=4,
                    sequencers=2,
                    engines=2,
                    places=places,
                    token_file=write_token(tmp_path / "token"),
                )
            ),
            hosts,
        )


async def test_dropped_packets_break_no_promise(cluster: Cluster) -> None:
    strikes = [cluster.lose, cluster.part, cluster.deafen, cluster.isolate]
    await round_under(cluster.cluster.url, strikes, seed=1, seconds=15, on_heal=cluster.hosts.heal)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 8))
async def test_random_partitions_break_no_promise(cluster: Cluster, seed: int) -> None:
    strikes = [cluster.lose, cluster.part, cluster.deafen, cluster.isolate]
    await round_under(cluster.cluster.url, strikes, seed=seed, seconds=90, on_heal=cluster.hosts.heal)
