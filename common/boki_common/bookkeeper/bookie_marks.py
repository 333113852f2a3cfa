"""Marks of bookies in the metadata store: read, and written at the version that was seen (`bookie_mark`)."""

from __future__ import annotations

from typing import Final

import msgspec

from boki_common.bookkeeper.bookie_mark import MARKS, NO_MARK, UNMARKED, BookieMark, SeenMark, decode_mark, mark_path
from boki_common.errors import BadVersion, NodeExists, NoNode
from boki_common.ids import BookieId
from boki_common.metadata.settle import compare_and_set, create_settled
from boki_common.metadata.store import MetadataStore, ensure_path, names_below
from boki_common.runtime.ports import Random

TOKEN_BYTES: Final = 8


async def read_mark(store: MetadataStore, bookie_id: str) -> SeenMark:
    """Return the mark of a bookie, with the version to change it at. Raises CorruptData, MetadataUnavailable."""
    path = mark_path(bookie_id)
    try:
        found = await store.get(path)
    except NoNode:
        return UNMARKED
    return SeenMark(decode_mark(found.value, path), found.version)


async def read_marks(store: MetadataStore) -> dict[BookieId, SeenMark]:
    """Return all marks by bookie, sorted. Raises CorruptData, MetadataUnavailable."""
    return {BookieId(name): await read_mark(store, name) for name in await names_below(store, MARKS)}


async def write_mark(
    store: MetadataStore, bookie_id: str, wanted: BookieMark, *, seen: SeenMark, rng: Random
) -> SeenMark:
    """Write a mark at exactly the version that was seen.

    Raises:
        BadVersion: another write took that version. MetadataUnavailable: nothing was sent. MetadataUnknown: it may land later.
    """
    wanted = msgspec.structs.replace(wanted, token=rng.token(TOKEN_BYTES).hex())
    path, value = mark_path(bookie_id), msgspec.json.encode(wanted)
    if seen.version != NO_MARK:
        return SeenMark(wanted, await compare_and_set(store, path, value, version=seen.version))
    await ensure_path(store, MARKS)
    try:
        await create_settled(store, path, value)
    except NodeExists as error:
        raise BadVersion(f"another write made {path}: read it again", path=path) from error
    return SeenMark(wanted, 0)
