"""Sessions of simulated processes: order on the way, expiry, and the observer of changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki_common import limits
from boki_common.errors import MetadataUnavailable
from boki_common.metadata.memory import MemoryTree
from boki_sim.world.metadata import ObservedTree, SimStore
from boki_sim.world.randomness import stream


class Owner:
    """A process with a session and one ephemeral node."""

    def __init__(self, simulation: Any, tree: MemoryTree) -> None:
        self.process = simulation.process("owner")
        numbers = stream(1, "metadata")
        self.store = SimStore(simulation.loop, tree, self.process, numbers, simulation.trace, 0.001)
        self.lost = 0

    async def start(self) -> None:
        await self.process.start(self._start())

    async def _start(self) -> None:
        await self.store.start()
        self.store.on_session_lost(self._session_lost)
        await self.store.create("/mine", b"", ephemeral=True)

    def _session_lost(self) -> None:
        self.lost += 1


def test_a_killed_process_leaves_its_ephemerals_for_a_session_time_out(simulation: Any) -> None:
    tree = MemoryTree()

    async def scenario() -> None:
        owner = Owner(simulation, tree)
        await owner.start()
        owner.process.kill()
        await asyncio.sleep(limits.SESSION_TIMEOUT_S - 0.5)
        assert tree.exists("/mine")
        await asyncio.sleep(1)
        assert not tree.exists("/mine")

    simulation.run(scenario())


def test_who_is_paused_or_cut_off_for_long_loses_its_session_and_learns_it_later(simulation: Any) -> None:
    tree = MemoryTree()

    async def scenario() -> None:
        owner = Owner(simulation, tree)
        await owner.start()
        owner.process.pause()
        owner.store.paused()
        await asyncio.sleep(limits.SESSION_TIMEOUT_S + 1)
        assert not tree.exists("/mine")
        assert owner.lost == 0
        owner.process.resume()
        await asyncio.sleep(0.1)
        assert owner.lost == 1
        owner.store.cut_off()
        with pytest.raises(MetadataUnavailable):
            await owner.process.start(owner.store.get("/"))
        await asyncio.sleep(limits.SESSION_TIMEOUT_S + 1)
        assert owner.lost == 1
        owner.store.rejoin()
        await asyncio.sleep(0.1)
        assert owner.lost == 2

    simulation.run(scenario())


def test_a_short_cut_does_not_end_the_session(simulation: Any) -> None:
    tree = MemoryTree()

    async def scenario() -> None:
        owner = Owner(simulation, tree)
        await owner.start()
        owner.store.cut_off()
        await asyncio.sleep(1)
        owner.store.rejoin()
        await asyncio.sleep(10)
        assert tree.exists("/mine")
        assert owner.lost == 0

    simulation.run(scenario())


def test_requests_of_one_session_arrive_in_order(simulation: Any) -> None:
    changes: list[tuple[str, bytes | None, bytes | None]] = []
    tree = ObservedTree(lambda *change: changes.append(change))

    async def scenario() -> None:
        owner = Owner(simulation, tree)
        await owner.start()

        async def many() -> None:
            await asyncio.gather(*(owner.store.create(f"/n{number:02}") for number in range(50)))
            await owner.store.set("/n00", b"new", version=0)
            await owner.store.delete("/n00", version=1)

        await owner.process.start(many())

    simulation.run(scenario())
    paths = [path for path, before, _ in changes if before is None]
    assert paths == ["/mine", *(f"/n{number:02}" for number in range(50))]
    assert changes[-2:] == [("/n00", b"", b"new"), ("/n00", b"new", None)]
