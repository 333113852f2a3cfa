"""Marks of bookies in the metadata store: read, and written at the version that was seen (`bookie_mark`)."""

from __future__ import annotations

from typing import Final

from boki_common.bookkeeper.bookie_mark import MARKS, BookieMark, SeenMark, mark_path
from boki_common.ids import BookieId
from boki_common.metadata.json_nodes import read_node, write_node
from boki_common.metadata.store import MetadataStore, names_below
from boki_common.runtime.ports import Random

WHAT: Final = "the mark of a bookie"


async def read_mark(store: MetadataStore, bookie_id: str) -> SeenMark:
    """Return the mark of a bookie, with the version to change it at. Raises CorruptData, MetadataUnavailable."""
    return SeenMark(*await read_node(store, BookieMark, mark_path(bookie_id), what=WHAT))


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
    return SeenMark(*await write_node(store, mark_path(bookie_id), wanted, version=seen.version, rng=rng))
