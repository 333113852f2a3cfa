"""Ledger ids: each is given once, short ones first, as Apache's clients count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from boki_common.bookkeeper import layout, ledger_ids
from boki_common.bookkeeper.ledger_ids import LONG_ID_GENERATOR, next_ledger_id
from boki_common.errors import MetadataUnknown, Overloaded
from boki_common.metadata.memory import Fault, MemoryStore, MemoryTree
from boki_common.metadata.store import ensure_path

LAST: int = 2**31 - 1


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    made = MemoryStore()
    await made.start()
    await layout.init_cluster(made)
    yield made
    await made.close()


def use_up(store: MemoryStore, folder: str) -> None:
    store.tree._nodes[folder].next_number = LAST


async def test_ledger_ids_are_given_once() -> None:
    tree = MemoryTree()
    stores = [MemoryStore(tree) for _ in range(3)]
    for store in stores:
        await store.start()
    await ensure_path(stores[0], layout.LEDGERS)
    ids = await asyncio.gather(*(next_ledger_id(store) for store in stores for _ in range(10)))
    assert sorted(ids) == list(range(30))
    assert await stores[0].children(layout.ID_GENERATOR) == []
    stores[0].fail_next_write(Fault.ANSWER_LOST)
    with pytest.raises(MetadataUnknown):
        await next_ledger_id(stores[0])
    assert await next_ledger_id(stores[0]) == 31
    stores[0].faults = lambda operation, _path: Fault.ANSWER_LOST if operation == "delete" else Fault.NONE
    assert await next_ledger_id(stores[0]) == 32


async def test_long_ids_follow_the_short_ones(store: MemoryStore) -> None:
    use_up(store, layout.ID_GENERATOR)
    assert [await next_ledger_id(store) for _ in range(3)] == [2**32, 2**32 + 1, 2**32 + 2]
    assert await store.children(LONG_ID_GENERATOR) == ["HOB-0000000001"]


async def test_once_ids_are_long_they_stay_long(store: MemoryStore) -> None:
    await ensure_path(store, f"{LONG_ID_GENERATOR}/HOB-0000000007")
    assert await next_ledger_id(store) == 7 << 32


async def test_a_folder_that_is_used_up_is_followed_by_the_next_and_three_are_kept(store: MemoryStore) -> None:
    await ensure_path(store, LONG_ID_GENERATOR)
    for high in range(1, 6):
        assert await next_ledger_id(store) == high << 32
        use_up(store, f"{LONG_ID_GENERATOR}/HOB-{high:010d}")
    assert await next_ledger_id(store) == 6 << 32
    assert await next_ledger_id(store) == (6 << 32) + 1
    assert [name[-1] for name in await store.children(LONG_ID_GENERATOR)] == ["4", "5", "6"]


async def test_a_folder_deleted_by_others_is_never_made_again(store: MemoryStore) -> None:
    await ensure_path(store, f"{LONG_ID_GENERATOR}/HOB-0000000001")
    assert await next_ledger_id(store) == 1 << 32

    def others_are_further(operation: str, path: str) -> Fault:
        if operation == "create_sequential" and "HOB-0000000001" in path:
            store.tree.create(f"{LONG_ID_GENERATOR}/HOB-0000000002", b"", 0)
            store.tree.delete(f"{LONG_ID_GENERATOR}/HOB-0000000001", 0)
        return Fault.NONE

    store.faults = others_are_further
    assert await next_ledger_id(store) == 2 << 32
    assert await store.children(LONG_ID_GENERATOR) == ["HOB-0000000002"]


async def test_long_ids_are_given_once_to_many_at_a_time() -> None:
    tree = MemoryTree()
    stores = [MemoryStore(tree) for _ in range(3)]
    for store in stores:
        await store.start()
    await layout.init_cluster(stores[0])
    tree._nodes[layout.ID_GENERATOR].next_number = LAST - 5
    ids = await asyncio.gather(*(next_ledger_id(store) for store in stores for _ in range(10)))
    assert len(set(ids)) == 30
    assert {one >> 31 for one in ids} == {0, 2}


async def test_the_generator_ends(store: MemoryStore) -> None:
    await ensure_path(store, f"{LONG_ID_GENERATOR}/HOB-{LAST - 1:010d}")
    use_up(store, f"{LONG_ID_GENERATOR}/HOB-{LAST - 1:010d}")
    with pytest.raises(Overloaded, match=f"{ledger_ids.ATTEMPTS} attempts"):
        await next_ledger_id(store)
