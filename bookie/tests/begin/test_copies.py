"""A copy of a directory is read as a start reads it, and not changed by it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from boki_bookie.begin.copies import DirectoryCopy, look, move_to_cluster
from boki_bookie.begin.identity import IdentityFile, read_identity, write_identity
from boki_common.errors import CorruptData
from boki_common.runtime.memory_disk import MemoryDisk


async def filled(world: Any, disk: MemoryDisk, storage: Any) -> None:
    """Entries of the index, and others of the journal alone."""
    identity = IdentityFile(2, "ready", str(UUID(bytes=world.raw_id)), "one", "here:/disk")
    await write_identity(disk, identity)
    await world.put(storage, *(world.add(7, entry) for entry in (0, 1, 2)))
    await storage.checkpoint()
    await world.put(storage, *(world.add(7, entry) for entry in (3, 5)), world.add(9, 0))


async def looked(world: Any, disk: MemoryDisk) -> DirectoryCopy:
    return await look(disk, rng=world.rng, settings=world.settings)


async def test_a_copy_has_what_the_index_and_the_journal_have(world: Any, disk: MemoryDisk, storage: Any) -> None:
    await filled(world, disk, storage)
    copy = disk.crash(world.seeded(1))
    before = {name: await copy.read_all(name) for name in copy.all_names()}
    found = await looked(world, copy)
    assert found.ledgers == {7: [(0, 3), (5, 5)], 9: [(0, 0)]} and found.identity.instance_id == "one"
    assert {name: await copy.read_all(name) for name in copy.all_names()} == before
    await move_to_cluster(copy, "two")
    await move_to_cluster(copy, "two")
    assert (await read_identity(copy)).instance_id == "two" and (await looked(world, copy)).ledgers == found.ledgers
    again = await world.open(copy)
    assert await world.read(again, 7, 5) == bytes(world.body(7, 5))


@pytest.mark.parametrize("folder", ["journal/", "index/", "CHECKPOINT", "identity"])
async def test_what_a_bookie_would_not_start_on_is_damaged(
    world: Any, disk: MemoryDisk, storage: Any, folder: str
) -> None:
    await filled(world, disk, storage)
    copy = disk.crash(world.seeded(1))
    name = max(name for name in copy.all_names() if name.startswith(folder) and not name.endswith(".spare"))
    if folder == "journal/":
        name = min(name for name in copy.all_names() if name.endswith(".segment"))
        await copy.remove(name)
    else:
        await copy.replace_all(name, b"\0" * 8)
    with pytest.raises(CorruptData):
        await looked(world, copy)
