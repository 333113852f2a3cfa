"""Which bookies take writes and where they listen, also while the metadata store is away."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from boki_common.bookkeeper import layout
from boki_common.errors import MetadataUnavailable, Unreachable
from boki_common.ids import BookieId
from boki_common.metadata.memory import MemoryStore
from boki_common.net.connection import Address
from boki_ledger.bookies.bookie_directory import BookieDirectory
from boki_ledger.testing.ledgers import turns, until

B1, B2 = BookieId("b1"), BookieId("b2")


@pytest.fixture
async def directory(store: MemoryStore) -> AsyncIterator[BookieDirectory]:
    made = BookieDirectory(store, retry_s=0.001)
    await made.start()
    yield made
    await made.close()


async def register(store: MemoryStore, bookie: BookieId, port: int, *, read_only: bool = False) -> None:
    value = layout.encode_bookie_service(Address("host", port))
    await store.create(layout.bookie_path(bookie, read_only=read_only), value, ephemeral=True)


async def test_registrations_come_and_go(store: MemoryStore, directory: BookieDirectory) -> None:
    changes: list[tuple[BookieId, ...]] = []
    stop = directory.on_change(lambda: changes.append(directory.writable()))
    await register(store, B2, 1)
    await turns()
    await register(store, B1, 2)
    await turns()
    await store.delete(layout.bookie_path(B2), version=0)
    await turns()
    assert changes == [(B2,), (B1, B2), (B1,)]
    stop()
    await store.delete(layout.bookie_path(B1), version=0)
    await turns()
    assert len(changes) == 3 and directory.writable() == ()


async def test_read_only_bookies_can_be_reached_but_take_no_writes(
    store: MemoryStore, directory: BookieDirectory
) -> None:
    await register(store, B1, 7, read_only=True)
    await turns()
    assert directory.writable() == ()
    assert await directory.address(B1) == Address("host", 7)


async def test_the_last_known_address_serves_while_the_store_or_the_registration_is_away(
    store: MemoryStore, directory: BookieDirectory
) -> None:
    await register(store, B1, 7)
    assert await directory.address(B1) == Address("host", 7)
    store.disconnect()
    assert await directory.address(B1) == Address("host", 7)
    with pytest.raises(Unreachable, match="b2"):
        await directory.address(B2)
    store.reconnect()
    await store.delete(layout.bookie_path(B1), version=0)
    assert await directory.address(B1) == Address("host", 7)


async def test_an_id_that_is_an_address_needs_no_registration(directory: BookieDirectory) -> None:
    assert await directory.address(BookieId("10.0.0.1:3181")) == Address("10.0.0.1", 3181)


async def test_following_goes_on_after_the_store_was_away(store: MemoryStore, directory: BookieDirectory) -> None:
    await register(store, B1, 7)
    store.disconnect()
    await turns()
    store.reconnect()
    await until(lambda: directory.writable() == (B1,))


async def test_starting_without_the_store_says_so(store: MemoryStore) -> None:
    store.disconnect()
    made = BookieDirectory(store, retry_s=0.001)
    with pytest.raises(MetadataUnavailable):
        await made.start()
    await made.close()


async def test_a_store_closed_first_is_no_error(store: MemoryStore, directory: BookieDirectory) -> None:
    await store.close()
    await turns()
    await directory.close()
