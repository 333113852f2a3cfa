"""The newest view, whatever the store does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki_common.backoff import Backoff
from boki_common.errors import CorruptData
from boki_common.metadata.memory import MemoryStore
from boki_metalog.terms.metadata_tree import ensure_view
from boki_metalog.terms.view import VIEW_PATH, encode_view, first_view
from boki_metalog.terms.view_feed import ViewFeed

SECOND = first_view().with_term(0, ledger_id=1, sequencer="", token="", start_time_ms=0)


class Fed:
    """A feed, and a way to wait for it."""

    def __init__(self, store: MemoryStore) -> None:
        self.changed = asyncio.Event()
        self.feed = ViewFeed(store, self.changed.set, Backoff(0.001, 0.01))
        self.feed.start()

    async def next(self) -> None:
        await self.changed.wait()
        self.changed.clear()


async def test_it_waits_for_the_first_view_and_sees_the_next(cluster: Any) -> None:
    fed = Fed(await cluster.store())
    store = await cluster.store()
    await ensure_view(store)
    await fed.next()
    assert (fed.feed.view, fed.feed.version) == (first_view(), 0)
    await store.set(VIEW_PATH, encode_view(SECOND), version=0)
    await fed.next()
    assert (fed.feed.view, fed.feed.version) == (SECOND, 1)
    fed.feed.offer(first_view(), 0)
    assert fed.feed.view == SECOND, "versions never go back"
    await fed.feed.close()
    await fed.feed.close()


async def test_a_store_that_is_away(cluster: Any) -> None:
    away, store = await cluster.store(), await cluster.store()
    await ensure_view(store)
    fed = Fed(away)
    await fed.next()
    away.disconnect()
    await store.set(VIEW_PATH, encode_view(SECOND), version=0)
    assert fed.feed.view == first_view()
    away.reconnect()
    await fed.next()
    assert fed.feed.view == SECOND and fed.feed.error is None
    await fed.feed.close()


async def test_a_view_that_cannot_be_read_ends_it(cluster: Any) -> None:
    store = await cluster.store()
    await ensure_view(store)
    fed = Fed(store)
    await fed.next()
    await store.set(VIEW_PATH, b"what is this", version=0)
    await fed.next()
    with pytest.raises(CorruptData):
        raise fed.feed.error or AssertionError
    await fed.feed.close()


class NeverNotified:
    """A watch of a store that tells nothing."""

    async def changed(self) -> None:
        await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        pass


async def test_in_a_hurry_it_looks_before_the_store_notifies(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await cluster.store()
    await ensure_view(store)
    monkeypatch.setattr(store, "watch", lambda path: NeverNotified())
    fed = Fed(store)
    await fed.next()
    fed.feed.hurry()
    await store.set(VIEW_PATH, encode_view(SECOND), version=0)
    await fed.next()
    assert fed.feed.view == SECOND
    await fed.feed.close()
