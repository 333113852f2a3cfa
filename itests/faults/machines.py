"""A cluster whose roles, and a ZooKeeper, are on machines of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from boki_cli.demo.local_cluster import LocalCluster, Place
from itests.support.fixtures import skip_or_fail
from itests.support.hosts import Hosts, HostsMissing
from itests.support.java_server import ServerMissing
from itests.support.tokens import write_token
from itests.support.zookeeper import ZookeeperServer


class Machines:
    """What faults strike."""

    def __init__(self, cluster: LocalCluster, hosts: Hosts, zookeeper: ZookeeperServer) -> None:
        self.cluster = cluster
        self.hosts = hosts
        self.zookeeper = zookeeper

    async def revive(self) -> None:
        """Starts what was killed, and what ended itself: a process whose session expired, say."""
        dead = [role for role in self.cluster.roles if not self.cluster.running(role)]
        if dead:
            await self.cluster.start(*dead)


async def enter_hosts(stack: AsyncExitStack, names: Sequence[str]) -> Hosts:
    """Machines of a test; it is skipped where there are none."""
    try:
        return await stack.enter_async_context(Hosts(names))
    except HostsMissing as error:
        skip_or_fail("namespaces", str(error))


@asynccontextmanager
async def cluster_on_hosts(
    folder: Path, roles: Sequence[str], *, bookies: int, sequencers: int, engines: int, controllers: int = 0
) -> AsyncIterator[tuple[LocalCluster, Hosts, ZookeeperServer]]:
    """All of it serves; its token is in `folder / "token"`. `roles`: their names."""
    async with AsyncExitStack() as stack:
        hosts = await enter_hosts(stack, roles)
        try:
            zookeeper = await asyncio.to_thread(ZookeeperServer.start, folder / "zookeeper", host=hosts.here)
        except ServerMissing as error:
            skip_or_fail("zookeeper", str(error))
        stack.callback(zookeeper.stop)
        cluster = LocalCluster(
            folder,
            f"zk://{zookeeper.hosts}/boki",
            bookies=bookies,
            sequencers=sequencers,
            engines=engines,
            controllers=controllers,
            places={role: Place(f"{hosts[role].address}:0", hosts[role].command(())) for role in roles},
            token_file=write_token(folder / "token"),
        )
        yield await stack.enter_async_context(cluster), hosts, zookeeper
