"""Reads and writes of nodes that hold one JSON object, which a person or a process changes at the version that it has read.

Each write has a token of its own, so a write whose answer was lost is settled (`settle`). The caller that loses a race decides whether to
read again.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from boki_common.errors import BadVersion, NodeExists, NoNode
from boki_common.json_node import NO_NODE, JsonNode, decode_node
from boki_common.metadata.settle import compare_and_set, create_settled
from boki_common.metadata.store import MetadataStore, ensure_path
from boki_common.runtime.ports import Random

TOKEN_BYTES: Final = 8

N = TypeVar("N", bound=JsonNode)


async def read_node(store: MetadataStore, kind: type[N], path: str, *, what: str) -> tuple[N, int]:
    """Return a node with the version to change it at; without one the default, and `NO_NODE`.

    Raises:
        CorruptData, MetadataUnavailable.
    """
    try:
        found = await store.get(path)
    except NoNode:
        return kind(), NO_NODE
    return decode_node(kind, found.value, path, what=what), found.version


async def write_node(store: MetadataStore, path: str, wanted: N, *, version: int, rng: Random) -> tuple[N, int]:
    """Write a node at exactly the version that was read; return it with its token, and its version.

    Raises:
        BadVersion: another write took that version. MetadataUnavailable: nothing was sent. MetadataUnknown: it may land later.
    """
    wanted = msgspec.structs.replace(wanted, token=rng.token(TOKEN_BYTES).hex())
    value = msgspec.json.encode(wanted)
    if version != NO_NODE:
        return wanted, await compare_and_set(store, path, value, version=version)
    await ensure_path(store, path.rpartition("/")[0])
    try:
        await create_settled(store, path, value)
    except NodeExists as error:
        raise BadVersion(f"another write made {path}: read it again", path=path) from error
    return wanted, 0
