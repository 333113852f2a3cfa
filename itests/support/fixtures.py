"""Fixtures over real components, for the tests of every room: import them in the room's `conftest.py`.

A component that this machine cannot run is skipped with the reason; `BOKI_REQUIRE=zookeeper` makes that a failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NoReturn

import pytest

from itests.support.java_server import ServerMissing
from itests.support.zookeeper import ZookeeperServer


def skip_or_fail(what: str, reason: str) -> NoReturn:
    """Skips the test, or fails it when BOKI_REQUIRE names `what`."""
    required = {name.strip() for name in os.environ.get("BOKI_REQUIRE", "").split(",")}
    if what in required:
        pytest.fail(f"BOKI_REQUIRE demands {what}: {reason}")
    pytest.skip(reason)


def _started(factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    try:
        server = ZookeeperServer.start(factory.mktemp("zookeeper"))
    except ServerMissing as error:
        skip_or_fail("zookeeper", str(error))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    """One running ZooKeeper for the whole run: leave it running, use a chroot of your own."""
    yield from _started(tmp_path_factory)


@pytest.fixture
def own_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    """A ZooKeeper for this test alone, to pause, kill and restart. Tests that use it have the marker `zookeeper`."""
    yield from _started(tmp_path_factory)
