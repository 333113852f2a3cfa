"""A cluster in memory and a gateway on it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from boki.testing import MemoryCluster
from boki_gateway.testing import Requester, running_gateway


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster() as one:
        yield one


@pytest.fixture
async def requester(cluster: MemoryCluster) -> AsyncIterator[Requester]:
    async with running_gateway(cluster) as one:
        yield one
