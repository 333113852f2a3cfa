"""Real processes on machines of their own (network namespaces), with ZooKeeper, where packets are dropped.

Faults are drawn by a seed: packets lost at random, two machines cut from each other, one that sends and receives nothing, one
cut from all others, for less and for more than a session's time-out. Histories are checked by the simulator's checkers.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from itests.faults.machines import Machines, cluster_on_hosts
from itests.faults.rounds import last, round_under

pytestmark = [
    pytest.mark.processes,
    pytest.mark.namespaces,
    pytest.mark.alone,
    pytest.mark.zookeeper,
    pytest.mark.timeout(300),
]

ROLES = ("bookie-1", "bookie-2", "bookie-3", "bookie-4", "sequencer-1", "sequencer-2", "engine-1", "engine-2")


class Network(Machines):
    """The faults between roles on hosts."""

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
        receives = chance.random() < 0.5
        await self.hosts.cut(one, receives=receives, sends=not receives)
        return await self._last(chance, f"{one} {'sends' if receives else 'receives'} nothing")

    async def isolate(self, chance: random.Random) -> str:
        one = chance.choice(ROLES)
        await self.hosts.cut(one)
        return await self._last(chance, f"{one} cut from all")

    async def _last(self, chance: random.Random, what: str) -> str:
        seconds = chance.choice((0.5, 2.0, 7.0))
        await last(seconds, self.hosts.heal)
        await self.revive()
        return f"{what} for {seconds} s"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Network]:
    async with cluster_on_hosts(tmp_path, ROLES, bookies=4, sequencers=2, engines=2) as made:
        yield Network(*made)


async def test_dropped_packets_break_no_promise(cluster: Network) -> None:
    strikes = [cluster.lose, cluster.part, cluster.deafen, cluster.isolate]
    await round_under(cluster.cluster.url, strikes, seed=1, seconds=15, on_heal=cluster.hosts.heal)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 8))
async def test_random_partitions_break_no_promise(cluster: Network, seed: int) -> None:
    strikes = [cluster.lose, cluster.part, cluster.deafen, cluster.isolate]
    await round_under(cluster.cluster.url, strikes, seed=seed, seconds=90, on_heal=cluster.hosts.heal)
