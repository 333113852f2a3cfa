"""The suite's cluster, by its short name."""

from __future__ import annotations

import pytest

from boki.testing.containers import BokiCluster


@pytest.fixture(scope="session")
def cluster(containers: BokiCluster) -> BokiCluster:
    return containers
