"""A book of a cluster in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

import boki
from boki.testing import MemoryCluster

TURNS_LIMIT = 10_000


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until a condition holds."""
    for _ in range(TURNS_LIMIT):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster() as opened:
        yield opened


@pytest.fixture
async def book(cluster: MemoryCluster) -> boki.Book:
    return (await cluster.connect()).book("b")
