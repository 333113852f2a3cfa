"""Fixtures of pytest for tests against a real cluster in Docker: extra `boki[containers]`, see `boki.testing.containers`.

    pytest_plugins = "boki.testing.container_fixtures"      # in conftest.py, or in the module of the tests

    def test_mine(boki_cluster): ... boki.sync.connect(boki_cluster.url) ... boki_cluster.kill("engine-1") ...

`boki_cluster` is one cluster for all tests of a run; a test that harms it mends it, or takes `BokiCluster` by itself. Where no Docker
engine answers, or the images are missing, tests that take it are skipped, and the reason says what to do.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from boki.testing.containers import BokiCluster, unavailable


@pytest.fixture(scope="session")
def boki_cluster() -> Iterator[BokiCluster]:
    """A whole cluster: three bookies, two sequencers, two engines, a controller, ZooKeeper."""
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    with BokiCluster() as cluster:
        yield cluster


@pytest.fixture
def boki_url(boki_cluster: BokiCluster) -> str:
    """For `boki.connect` and `boki.sync.connect`."""
    return boki_cluster.url
