"""A book of a cluster in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import boki
from boki.testing import MemoryCluster


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster() as opened:
        yield opened


@pytest.fixture
async def book(cluster: MemoryCluster) -> boki.Book:
    return (await cluster.connect()).book("b")
