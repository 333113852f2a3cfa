"""Stores on a cluster in memory. Another store is another process: another session, another incarnation, nothing cached."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

import boki
from boki.testing import MemoryCluster
from bokilib.ports import PayloadHook
from bokistore import BokiStore, StoreSettings
from libs.tests.conftest import SetClock as SetClock


def book_of(store: BokiStore) -> boki.Book:
    """All of a store's book, and not only what libraries need of it."""
    assert isinstance(store.log.book, boki.Book)
    return store.log.book


Another = Callable[..., Awaitable[BokiStore]]


@pytest.fixture
def another(cluster: MemoryCluster) -> Another:
    """Another process's store."""

    async def make(settings: StoreSettings | None = None, hook: PayloadHook | None = None) -> BokiStore:
        book = (await cluster.connect()).book("shop")
        return BokiStore(book, settings=settings or StoreSettings(checkpoints=False), hook=hook)

    return make


@pytest.fixture
async def store(another: Another) -> BokiStore:
    return await another()
