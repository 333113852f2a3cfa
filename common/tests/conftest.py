"""Fixtures of the common ground: an empty metadata store, and real components from `itests/support`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from boki_common.metadata.memory import MemoryStore

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))  # `itests` is no installed package

from itests.support.fixtures import own_zookeeper, zookeeper  # noqa: E402  # needs the path above

__all__ = ["own_zookeeper", "store", "zookeeper"]


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    """A metadata store without a node."""
    made = MemoryStore()
    await made.start()
    yield made
    await made.close()
