"""Real processes behind TCP proxies that delay, throttle, stall, half-open, reset and refuse.

Four bookies and the engine are each reached through a proxy of their own; faults strike some of them at a time, drawn by a
seed. Histories are checked by the checkers of the simulator.
"""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from boki_cli.demo.local_cluster import LocalCluster, Place
from itests.faults.rounds import last, round_under
from itests.support.fault_proxy import BOTH, FaultProxy

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

BOOKIES = 4
FAULTS = ("delay", "throttle", "stall", "half open", "reset", "refuse")


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        return f"{host}:{port}"


class Proxied:
    """A cluster whose bookies and engine are behind proxies."""

    def __init__(self, cluster: LocalCluster, proxies: dict[str, FaultProxy]) -> None:
        self.cluster = cluster
        self.proxies = proxies
        self.url = f"boki://{proxies['engine-1'].address}"

    async def strike(self, chance: random.Random) -> str:
        """One fault on one to three proxies, for a while, then it heals."""
        roles = chance.sample(list(self.proxies), chance.choice((1, 1, 2, 3)))
        fault = chance.choice(FAULTS)
        direction = chance.choice((*BOTH, None))
        for role in roles:
            proxy = self.proxies[role]
            if fault == "delay":
                proxy.delay(chance.choice((0.005, 0.05, 0.4)), direction=direction)
            elif fault == "throttle":
                proxy.throttle(chance.choice((5_000, 50_000, 500_000)), direction=direction)
            elif fault == "stall":
                proxy.stall(direction=direction)
            elif fault == "half open":
                proxy.half_open(direction=direction)
            elif fault == "reset":
                proxy.reset()
            else:
                proxy.refuse()
                proxy.reset()
        await last(chance.choice((0.3, 1.5, 6.0)), self.heal)
        return f"{fault} of {', '.join(sorted(roles))}, {direction or 'both ways'}"

    async def heal(self) -> None:
        for proxy in self.proxies.values():
            proxy.heal()


@pytest.fixture
async def proxied(tmp_path: Path) -> AsyncIterator[Proxied]:
    async with AsyncExitStack() as stack:
        proxies = {}
        places = {}
        for role in (*(f"bookie-{number}" for number in range(1, BOOKIES + 1)), "engine-1"):
            listen = free_address()
            proxies[role] = await stack.enter_async_context(FaultProxy(listen))
            host, _, port = proxies[role].address.rpartition(":")
            settings = {"BOKI_BOOKIE_HOST": host, "BOKI_BOOKIE_PORT": port} if role != "engine-1" else {}
            places[role] = Place(listen, settings=settings)
        cluster = await stack.enter_async_context(LocalCluster(tmp_path, bookies=BOOKIES, places=places))
        yield Proxied(cluster, proxies)


async def test_faults_of_connections_break_no_promise(proxied: Proxied) -> None:
    await round_under(proxied.url, [proxied.strike], seed=1, seconds=12, on_heal=proxied.heal)
    reached = [role for role, proxy in proxied.proxies.items() if proxy.accepted]
    assert "engine-1" in reached and len(reached) > 3, f"only {reached} were reached through their proxies"


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 8))
async def test_random_faults_of_connections_break_no_promise(proxied: Proxied, seed: int) -> None:
    await round_under(proxied.url, [proxied.strike], seed=seed, seconds=60, on_heal=proxied.heal)
