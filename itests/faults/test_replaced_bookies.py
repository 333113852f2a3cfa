"""A bookie whose disk was lost comes back as another one, at the same address: it is never counted as the first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest

from boki_bookie.bookie import Bookie
from boki_bookie.settings import BookieSettings
from boki_common.bookkeeper import layout
from boki_common.errors import LedgerError
from boki_common.ids import BookieId
from boki_common.metadata.memory import MemoryStore
from boki_common.net.connection import Address
from boki_common.net.lasting_ports import lasting_port
from boki_common.runtime.memory_disk import MemoryDisk
from boki_common.runtime.process import SystemClock, SystemRandom
from boki_ledger.client import LedgerClient

ANYWHERE: Final = Address("127.0.0.1", 0)


async def bookie(store: MemoryStore, address: Address, place: str, *, replacing: bool = False) -> Bookie:
    """A bookie on an empty disk, new or instead of the one whose disk that was."""
    return await Bookie.start(
        disk=MemoryDisk(place),
        metadata=store,
        address=address,
        clock=SystemClock(),
        rng=SystemRandom(),
        settings=BookieSettings(replace_lost_disk=replacing),
    )


async def register(store: MemoryStore, name: str, at: Address) -> None:
    """As a registration that outlives its bookie."""
    value = layout.encode_bookie_service(Address(at.host, at.port))
    await store.create(layout.bookie_path(BookieId(name)), value)


class Replaced:
    """A bookie that took the place of another one, both of them registered at its address."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.bookies: list[Bookie] = []
        self.ledgers: LedgerClient

    async def start(self) -> None:
        await self.store.start()
        await layout.init_cluster(self.store, rng=SystemRandom())
        address = Address(ANYWHERE.host, lasting_port())  # one begins there twice
        lost = await bookie(self.store, address, "first")
        lost_id = lost.bookie_id
        await lost.close()
        back = await bookie(self.store, address, "first", replacing=True)
        self.bookies.append(back)
        assert back.bookie_id != lost_id
        await register(self.store, lost_id, address)
        self.ledgers = LedgerClient(metadata=self.store, rng=SystemRandom())
        await self.ledgers.start()

    async def start_another(self) -> None:
        self.bookies.append(await bookie(self.store, ANYWHERE, "second"))

    async def close(self) -> None:
        await self.ledgers.close()
        for one in self.bookies:
            await one.close()
        await self.store.close()


@pytest.fixture
async def replaced() -> AsyncIterator[Replaced]:
    made = Replaced()
    await made.start()
    yield made
    await made.close()


async def test_one_bookie_behind_two_registrations_is_no_ack_quorum(replaced: Replaced) -> None:
    writer = await replaced.ledgers.create(replicas=2, acks=2)
    adding = asyncio.ensure_future(writer.append(b"x"))
    done, _ = await asyncio.wait([adding], timeout=0.5)
    assert not done, "one copy would have been acknowledged as two"
    await replaced.start_another()
    assert await adding == 0, "a second bookie takes the place of the lost one"
    await writer.close()


async def test_nor_is_it_in_v3(replaced: Replaced) -> None:
    """Which adds with deferred sync use; a bookie that failed cannot be replaced there."""
    writer = await replaced.ledgers.create(replicas=2, acks=2, deferred_sync=True)
    with pytest.raises(LedgerError, match="with deferred sync they cannot be replaced"):
        async with asyncio.timeout(20):
            await writer.append(b"x")
    writer.abandon()
