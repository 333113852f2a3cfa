"""Machines of a test: packets are dropped where it says, and nowhere else."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from itests.support.fixtures import skip_or_fail
from itests.support.hosts import Host, Hosts, HostsMissing

pytestmark = [pytest.mark.namespaces, pytest.mark.alone]

SERVER = """
import socket, sys
server = socket.create_server((sys.argv[1], 7))
print("up", flush=True)
while True:
    peer, _ = server.accept()
    peer.sendall(b"hello")
    peer.close()
"""
CLIENT = """
import socket, sys
peer = socket.create_connection((sys.argv[1], 7), timeout=float(sys.argv[2]))
sys.exit(peer.recv(5) != b"hello")
"""


@pytest.fixture
async def hosts() -> AsyncIterator[Hosts]:
    """Three machines, each with a server."""
    try:
        async with Hosts(["a", "b", "c"]) as hosts:
            servers = [await serve(hosts[name]) for name in ("a", "b", "c")]
            yield hosts
            for server in servers:
                server.kill()
                await server.wait()
    except HostsMissing as error:
        skip_or_fail("namespaces", str(error))


async def serve(host: Host) -> asyncio.subprocess.Process:
    server = await asyncio.create_subprocess_exec(
        *host.command([sys.executable, "-c", SERVER, host.address]), stdout=asyncio.subprocess.PIPE
    )
    assert server.stdout is not None
    assert await server.stdout.readline() == b"up\n"
    return server


async def reaches(hosts: Hosts, source: str | None, target: str, seconds: float = 0.3) -> bool:
    """Whether a connection from a machine (None: this process's) to another's server is answered in time."""
    command = [sys.executable, "-c", CLIENT, hosts[target].address, str(seconds)]
    process = await asyncio.create_subprocess_exec(
        *(command if source is None else hosts[source].command(command)), stderr=asyncio.subprocess.DEVNULL
    )
    return await process.wait() == 0


async def test_machines_reach_each_other_but_where_they_are_cut(hosts: Hosts) -> None:
    assert await reaches(hosts, "a", "b", 5)
    assert await reaches(hosts, None, "a", 5)
    await hosts.cut("a", "b")
    assert not await reaches(hosts, "a", "b")
    assert not await reaches(hosts, "b", "a")
    assert await reaches(hosts, "a", "c", 5)
    await hosts.heal()
    assert await reaches(hosts, "b", "a", 5)


async def test_a_machine_that_receives_from_nobody_is_cut_from_all(hosts: Hosts) -> None:
    await hosts.cut("c", receives=False)
    assert not await reaches(hosts, "c", "a")
    assert not await reaches(hosts, None, "c")
    assert await reaches(hosts, "a", "b", 5)


async def test_lost_packets_slow_a_connection_down_and_do_not_end_it(hosts: Hosts) -> None:
    await hosts.lose("b", 0.2)
    assert await reaches(hosts, "a", "b", 20)
