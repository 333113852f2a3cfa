"""Addresses of metadata stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from boki_common.errors import SettingsError
from boki_common.metadata.memory import MemoryStore
from boki_common.metadata.open import open_store
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
