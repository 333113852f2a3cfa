"""Ids of new ledgers, given out once each, from the same generators as Apache BookKeeper's clients use.

    /ledgers/idgen/ID-0000000007                       ephemeral, sequential, deleted at once: ledger 7
    /ledgers/idgen-long/HOB-0000000001/ID-0000000007   once idgen is used up: ledger 1 * 2^32 + 7

`idgen` gives 31 bits. As soon as `idgen-long` exists, everybody uses that: the number of the greatest HOB folder is the
high half of the id; a folder whose 31 bits are used up is followed by the next one. Of the folders the last three are kept,
so that nobody who is slow makes a lower one again.

An id whose answer was lost is skipped: ids are plenty.
"""

from __future__ import annotations

import re
from typing import Final

from boki_common.bookkeeper.layout import ID_GENERATOR, LEDGERS, SHORT_IDS
from boki_common.errors import (
    BadVersion,
    MetadataUnavailable,
    MetadataUnknown,
    NodeExists,
    NoNode,
    NotEmpty,
    Overloaded,
)
from boki_common.ids import LedgerId
from boki_common.metadata.store import MetadataStore, ensure_path

LONG_ID_GENERATOR: Final = f"{LEDGERS}/idgen-long"
FOLDERS_KEPT: Final = 3
ATTEMPTS: Final = 16
"""Folders that others use up, or delete, while one id is asked for."""

_FOLDER: Final = re.compile(r"HOB-([0-9]{10})")


async def next_ledger_id(store: MetadataStore) -> LedgerId:
    """A ledger id that nobody was given before. After a lost answer an id is skipped.

    Raises:
        MetadataUnavailable, MetadataUnknown: none was given; call again.
        Overloaded: all 2^63 ids are used up, or others use them up faster than this can ask.
    """
    if not await store.exists(LONG_ID_GENERATOR):
        try:
            low = await _next_number(store, ID_GENERATOR)
        except NoNode:
            await ensure_path(store, ID_GENERATOR)
            low = await _next_number(store, ID_GENERATOR)
        if low is not None:
            return LedgerId(low)
        await ensure_path(store, LONG_ID_GENERATOR)
    return await _next_long_id(store)


async def _next_long_id(store: MetadataStore) -> LedgerId:
    for _ in range(ATTEMPTS):
        folders = _numbers(await store.children(LONG_ID_GENERATOR))
        high = folders[-1] if folders else 0
        try:
            low = await _next_number(store, _folder(high)) if folders else None
        except NoNode:
            continue  # others are further; a folder made again would count from 0 again
        await _forget(store, folders[:-FOLDERS_KEPT])
        if low is not None:
            return LedgerId(high << 32 | low)
        if high + 1 >= SHORT_IDS:
            break
        try:
            await store.create(_folder(high + 1))
        except NodeExists:
            continue  # somebody else made it
    raise Overloaded(
        f"no ledger id from {LONG_ID_GENERATOR} in {ATTEMPTS} attempts: all are used up, or all ask at once"
    )


async def _next_number(store: MetadataStore, folder: str) -> int | None:
    """The next number of a sequential child of the folder; None when its 31 bits are used up. Raises NoNode."""
    prefix = f"{folder}/ID-"
    path = await store.create_sequential(prefix, ephemeral=True)
    digits = path.removeprefix(prefix)
    try:
        await store.delete(path, version=0)
    except (NoNode, MetadataUnavailable, MetadataUnknown):
        pass  # an ephemeral node: it goes with the session at the latest
    return int(digits) if digits.isdigit() and int(digits) < SHORT_IDS else None


async def _forget(store: MetadataStore, folders: list[int]) -> None:
    for number in folders:
        try:
            await store.delete(_folder(number), version=0)
        except (NoNode, NotEmpty, BadVersion, MetadataUnavailable, MetadataUnknown):
            pass  # somebody else deleted it, or will; nothing depends on it


def _folder(number: int) -> str:
    return f"{LONG_ID_GENERATOR}/HOB-{number:010d}"


def _numbers(names: list[str]) -> list[int]:
    """The numbers of the HOB folders, ascending."""
    return sorted(int(found[1]) for name in names if (found := _FOLDER.fullmatch(name)))
