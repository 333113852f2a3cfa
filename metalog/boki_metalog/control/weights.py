"""The weights that an administrator wants kept: `/boki/weights`, which the leading controller follows (`controller_rules`)."""

from __future__ import annotations

from collections.abc import Mapping

from boki_common.errors import BadVersion, NodeExists, NoNode
from boki_common.metadata.store import MetadataStore
from boki_metalog.control.controller_rules import WEIGHTS_PATH, decode_weights, encode_weights


async def kept_weights(store: MetadataStore) -> dict[int, int] | None:
    """None: nobody asked for any. Raises MetadataUnavailable, CorruptData, VersionMismatch."""
    try:
        return decode_weights((await store.get(WEIGHTS_PATH)).value)
    except NoNode:
        return None


async def keep_weights(store: MetadataStore, weights: Mapping[int, int]) -> None:
    """From now on these. The last one who says so is right. Raises MetadataUnavailable, MetadataUnknown."""
    value = encode_weights(weights)
    while True:
        try:
            await store.set(WEIGHTS_PATH, value, version=(await store.get(WEIGHTS_PATH)).version)
        except NoNode:
            try:
                await store.create(WEIGHTS_PATH, value)
            except NodeExists:
                continue
        except BadVersion:
            continue
        return


async def drop_weights(store: MetadataStore) -> None:
    """From now on none. Raises MetadataUnavailable, MetadataUnknown."""
    while True:
        try:
            await store.delete(WEIGHTS_PATH, version=(await store.get(WEIGHTS_PATH)).version)
        except NoNode:
            return
        except BadVersion:
            continue
