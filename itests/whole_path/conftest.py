"""Clusters of real processes, each test its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from boki_cli.demo.local_cluster import LocalCluster


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    """Three bookies, a sequencer and an engine on SQLite metadata."""
    async with LocalCluster(tmp_path, bookies=3) as cluster:
        yield cluster
