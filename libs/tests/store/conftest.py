"""Stores on a cluster in memory. Another store is another process: another session, another incarnation, nothing cached."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

import boki
from boki.testing import MemoryCluster
from bokistore import BokiStore, StoreSettings


class SetClock:
    """A wall clock that a test moves."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def cluster(clock: SetClock) -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster(clock=clock) as opened:
        yield opened


def book_of(store: BokiStore) -> boki.Book:
    """All of a store's book, and not only what libraries need of it."""
    assert isinstance(store.log.book, boki.Book)
    return store.log.book


Another = Callable[..., Awaitable[BokiStore]]


@pytest.fixture
def another(cluster: MemoryCluster) -> Another:
    """Another process's store."""

    async def make(settings: StoreSettings | None = None) -> BokiStore:
        return BokiStore((await cluster.connect()).book("shop"), settings=settings or StoreSettings(checkpoints=False))

    return make


@pytest.fixture
async def store(another: Another) -> BokiStore:
    return await another()
