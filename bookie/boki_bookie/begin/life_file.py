"""The file LIFE of one directory (`life_rules` has its bytes), and the number of the directory's last checkpoint."""

from __future__ import annotations

from typing import Final

from boki_bookie.begin.life_rules import SLOT_BYTES, SLOTS, Slot, StoredLife, decode_slot, encode_slot
from boki_bookie.entries.checkpoint import MARK_NAME
from boki_bookie.entries.ledger_index_format import decode_mark
from boki_bookie.open_files import opened
from boki_common.errors import StorageError
from boki_common.runtime.ports import Disk

LIFE_NAME: Final = "LIFE"


async def format_life(disk: Disk) -> None:
    """Puts the space for it aside. Raises DiskFull, DiskFailed."""
    async with opened(disk, LIFE_NAME, create=True) as file:
        await file.write(0, [bytes(SLOTS * SLOT_BYTES)], durable=True)


async def read_life(disk: Disk, bookie_id: bytes) -> StoredLife:
    """Raises VersionMismatch, DiskFailed."""
    data = await disk.read_all(LIFE_NAME) if await disk.exists(LIFE_NAME) else b""
    pages = [data[number * SLOT_BYTES : (number + 1) * SLOT_BYTES] for number in range(SLOTS)]
    slots = tuple(decode_slot(page, bookie_id, name=disk.describe(LIFE_NAME)) for page in pages)
    try:
        checkpoint = decode_mark(await disk.read_all(MARK_NAME), name=disk.describe(MARK_NAME)).number
    except StorageError:
        return StoredLife(slots)  # the store will say what is wrong
    return StoredLife(slots, checkpoint)


async def write_slot(disk: Disk, number: int, slot: Slot, bookie_id: bytes) -> None:
    """In its place, which takes no space once the file is there. Raises DiskFull, DiskFailed."""
    if not await disk.exists(LIFE_NAME):
        await format_life(disk)
    async with opened(disk, LIFE_NAME) as file:
        await file.write(number * SLOT_BYTES, [encode_slot(slot, bookie_id)], durable=True)
