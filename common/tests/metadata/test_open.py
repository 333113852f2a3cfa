"""Addresses of metadata stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from boki_common.backoff import Backoff
from boki_common.errors import MetadataUnavailable, SettingsError
from boki_common.metadata.memory import MemoryStore
from boki_common.metadata.open import open_store, start_within
from boki_common.metadata.sqlite import SqliteStore
from boki_common.metadata.zookeeper import ZookeeperStore


def test_addresses() -> None:
    assert isinstance(open_store("memory://"), MemoryStore)
    file = open_store("sqlite:///var/lib/bo ki/metadata.db")
    assert isinstance(file, SqliteStore)
    assert file.path == "/var/lib/bo ki/metadata.db"
    ensemble = open_store("zk://one:2181,two:2181/boki")
    assert isinstance(ensemble, ZookeeperStore)
    assert ensemble.hosts == "one:2181,two:2181/boki"


@pytest.mark.parametrize(
    "uri",
    ["", "sqlite", "sqlite://", "sqlite://relative.db", "sqlite:///folder/", "zk://", "zk:///chroot", "zk",
     "memory", "memory://name", "etcd://host:1", "/var/lib/metadata.db"],
)  # fmt: skip
def test_what_is_no_address(uri: str) -> None:
    with pytest.raises(SettingsError, match="expected a metadata address sqlite://"):
        open_store(uri)


async def test_two_stores_in_memory_are_apart_and_two_of_a_file_are_not(tmp_path: Path) -> None:
    for uri, shared in (("memory://", False), (f"sqlite://{tmp_path}/metadata.db", True)):
        one, other = open_store(uri), open_store(uri)
        await one.start()
        await other.start()
        await one.create("/a")
        assert await other.exists("/a") == shared
        await one.close()
        await other.close()


class Late(MemoryStore):
    """Nobody answers the first calls of `start`."""

    def __init__(self, unanswered: int) -> None:
        super().__init__()
        self.unanswered = unanswered

    async def start(self) -> None:
        if self.unanswered:
            self.unanswered -= 1
            raise MetadataUnavailable("no ZooKeeper answered")
        await super().start()


async def test_a_store_that_answers_late_is_waited_for() -> None:
    store = Late(5)
    await start_within(60.0, store, backoff=Backoff(0.0, 0.0))
    await store.create("/a")
    await store.close()


async def test_a_store_that_never_answers_is_given_up_when_the_time_is_over() -> None:
    store = Late(10**9)
    for wait_s in (0.0, 0.01):
        with pytest.raises(MetadataUnavailable, match="no ZooKeeper answered"):
            await start_within(wait_s, store, backoff=Backoff(0.0, 0.0))
