"""Weights that are kept: set, replaced, dropped, by several at once."""

from __future__ import annotations

import asyncio
from typing import Any

from boki_metalog.control.weights import drop_weights, keep_weights, kept_weights
from boki_metalog.terms.metadata_tree import ensure_view


async def test_the_last_one_who_says_so_is_right(cluster: Any) -> None:
    store = await cluster.store()
    await ensure_view(store)
    assert await kept_weights(store) is None
    await drop_weights(store)
    await keep_weights(store, {0: 1, 1: 2})
    assert await kept_weights(store) == {0: 1, 1: 2}
    other = await cluster.store()
    await asyncio.gather(keep_weights(store, {0: 3}), keep_weights(other, {0: 4}))
    assert await kept_weights(store) in ({0: 3}, {0: 4})
    await asyncio.gather(drop_weights(store), drop_weights(other))
    assert await kept_weights(store) is None
