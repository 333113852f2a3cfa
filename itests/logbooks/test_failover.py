"""Loss of every role under load, on machines of their own with ZooKeeper: kill -9 one by one and in pairs, SIGSTOP for longer
than a session, ZooKeeper away for longer than a session, partitions. Two logs, standbys, two engines, two controllers.

What is lost, doubled, answered wrongly or out of order is found in the history of all calls (`itests/faults/rounds.py`); appends
must go on after each fault, before anything that was killed is started again.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from boki_cli.demo.local_cluster import LocalCluster, Place
from itests.faults.rounds import Strike, last, round_under
from itests.logbooks.administration import administrator
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
    pytest.mark.timeout(600),
]

BOOKIES, SEQUENCERS, ENGINES, CONTROLLERS = 4, 4, 2, 2
KINDS: Final = ("bookie", "sequencer", "engine", "controller")
ROLES: Final = tuple(
    f"{kind}-{number}"
    for kind, count in zip(KINDS, (BOOKIES, SEQUENCERS, ENGINES, CONTROLLERS), strict=True)
    for number in range(1, count + 1)
)
SESSION_S: Final = 4.0
LONGER_S: Final = 1.5 * SESSION_S


class Faults:
    """What strikes a cluster. Each fault lasts, heals, and leaves every role running."""

    def __init__(self, cluster: LocalCluster, hosts: Hosts, zookeeper: ZookeeperServer) -> None:
        self.cluster = cluster
        self.hosts = hosts
        self.zookeeper = zookeeper

    async def kill(self, roles: Sequence[str], seconds: float) -> str:
        await self.cluster.kill(*roles)
        await last(seconds, self.revive)
        return f"{' and '.join(roles)} killed"

    async def pause(self, roles: Sequence[str], seconds: float) -> str:
        pids = [self.cluster.pids[role] for role in roles]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

        async def go_on() -> None:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

        await last(seconds, go_on)
        await self.revive()
        return f"{' and '.join(roles)} stopped for {seconds} s"

    async def part(self, roles: Sequence[str], seconds: float) -> str:
        for role in roles:
            await self.hosts.cut(role)
        await last(seconds, self.hosts.heal)
        await self.revive()
        return f"{' and '.join(roles)} cut from all for {seconds} s"

    async def lose_zookeeper(self, seconds: float) -> str:
        self.zookeeper.pause()

        async def go_on() -> None:
            self.zookeeper.resume()

        await last(seconds, go_on)
        await self.revive()
        return f"ZooKeeper away for {seconds} s"

    async def revive(self) -> None:
        """Starts what was killed, and what ended itself: a process whose session expired, say."""
        dead = [role for role in ROLES if not self.cluster.running(role)]
        if dead:
            await self.cluster.start(*dead)

    async def heal(self) -> None:
        await self.hosts.heal()
        await self.revive()

    async def describe(self) -> str:
        """What `boki status` says."""
        command = (sys.executable, "-m", "boki_cli.main", "status", "--json", "--metadata", self.cluster.metadata_uri)
        process = await asyncio.create_subprocess_exec(
            *command, "--url", self.cluster.url, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()
        return said.decode()

    def any(self) -> list[Strike]:
        """Faults drawn by chance, of one role or two of different kinds."""

        def roles(chance: random.Random) -> list[str]:
            kinds = chance.sample(KINDS, chance.choice((1, 1, 2)))
            return [chance.choice([role for role in ROLES if role.startswith(kind)]) for kind in kinds]

        return [
            lambda chance: self.kill(roles(chance), chance.choice((0.5, 3.0))),
            lambda chance: self.pause(roles(chance), chance.choice((1.0, LONGER_S))),
            lambda chance: self.part(roles(chance), chance.choice((1.0, LONGER_S))),
        ]

    def all(self) -> list[Callable[[], Awaitable[str]]]:
        """Each role of each kind, each pair of kinds, each way: the whole list."""
        one_each = [f"{kind}-1" for kind in KINDS]
        pairs = [list(pair) for pair in itertools.combinations(one_each, 2)]
        return [
            *(partial(self.kill, [role], 3.0) for role in one_each),
            *(partial(self.kill, pair, 3.0) for pair in pairs),
            *(partial(self.pause, [role], LONGER_S) for role in one_each),
            *(partial(self.part, [role], LONGER_S) for role in one_each),
            partial(self.lose_zookeeper, LONGER_S),
        ]


@pytest.fixture
async def faults(tmp_path: Path) -> AsyncIterator[Faults]:
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
        token_file = write_token(tmp_path / "token")
        cluster = LocalCluster(
            tmp_path,
            f"zk://{zookeeper.hosts}/boki",
            bookies=BOOKIES,
            sequencers=SEQUENCERS,
            engines=ENGINES,
            controllers=CONTROLLERS,
            places={role: Place(f"{hosts[role].address}:0", hosts[role].command(())) for role in ROLES},
            token_file=token_file,
        )
        await stack.enter_async_context(cluster)
        admin = await stack.enter_async_context(administrator(cluster.metadata_uri, token_file=token_file))
        await admin.changes.add(1)
        await admin.changes.spread({0: 1, 1: 1})
        yield Faults(cluster, hosts, zookeeper)


async def test_random_losses_break_no_promise(faults: Faults) -> None:
    await round_under(
        faults.cluster.url, faults.any(), seed=1, seconds=20, on_heal=faults.heal, describe=faults.describe
    )


async def test_zookeeper_away_for_longer_than_a_session_breaks_no_promise(faults: Faults) -> None:
    strikes: list[Strike] = [lambda _: faults.lose_zookeeper(LONGER_S)]
    await round_under(faults.cluster.url, strikes, seed=2, seconds=1, on_heal=faults.heal, describe=faults.describe)


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_every_loss_in_turn_breaks_no_promise(faults: Faults) -> None:
    left = faults.all()

    async def next_one(_: random.Random) -> str:
        if left:
            return await left.pop(0)()
        await last(1.0, faults.heal)
        return "nothing"

    await round_under(
        faults.cluster.url,
        [next_one],
        seed=100,
        seconds=len(left) * SESSION_S * 3,
        on_heal=faults.heal,
        describe=faults.describe,
    )
    assert not left, f"no time for {len(left)} of the faults"


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3, 8))
async def test_more_random_losses_break_no_promise(faults: Faults, seed: int) -> None:
    await round_under(
        faults.cluster.url, faults.any(), seed=seed, seconds=120, on_heal=faults.heal, describe=faults.describe
    )
