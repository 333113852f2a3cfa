"""Real processes: started, killed, restarted one by one; one that cannot start says why."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest

import boki
from boki_cli.demo.local_cluster import LocalCluster, RoleFailed
from boki_cli.testing.logs import ledgers_of
from boki_common.errors import InvalidArgument
from boki_metalog.follow.sequencer_member import sequencer_members
from boki_metalog.terms.metadata_tree import read_view

pytestmark = pytest.mark.processes


def test_names_and_addresses(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, bookies=2, engines=2, unix_sockets=True)
    assert cluster.roles == ["bookie-1", "bookie-2", "sequencer-1", "engine-1", "engine-2"]
    assert cluster.url == f"unix://{tmp_path}/engine-1.sock,unix://{tmp_path}/engine-2.sock"
    assert cluster.metadata_uri == f"sqlite:///{tmp_path}/metadata.db"
    assert (cluster.pids, cluster.running("engine"), cluster.log_tail("engine")) == ({}, False, "")
    with pytest.raises(InvalidArgument, match="this cluster has no role 'enginee'; it has bookie-1, bookie-2"):
        cluster.running("enginee")


async def test_roles_are_killed_and_restarted_on_their_data_and_addresses(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, bookies=3, unix_sockets=True) as cluster:
        pids = cluster.pids
        assert sorted(pids) == sorted(cluster.roles)
        async with boki.connect(cluster.url) as client:
            first = await client.book("b").append(b"one")
            await cluster.kill("bookie-2")
            assert not cluster.running("bookie-2")
            assert await client.book("b").append(b"two") > first
        addresses = [cluster.address(role) for role in cluster.roles]
        await cluster.restart(*cluster.roles)
        assert [cluster.address(role) for role in cluster.roles] == addresses
        assert not set(pids.values()) & set(cluster.pids.values())
        async with boki.connect(cluster.url) as client:
            assert [record.data async for record in client.book("b").read()] == [b"one", b"two"]
        await cluster.check()
    assert cluster.pids == {}


async def test_a_role_that_ends_by_itself_is_noticed(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, bookies=1, sequencers=0, engines=0) as cluster:
        os.kill(cluster.pids["bookie-1"], signal.SIGKILL)
        while cluster.running("bookie-1"):
            await asyncio.sleep(0)
        with pytest.raises(RoleFailed, match=r"bookie-1 ended by itself \(killed by signal 9\)"):
            await cluster.check()


async def test_a_role_that_cannot_start_says_why(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, "nonsense://x", bookies=1)
    with pytest.raises(
        RoleFailed, match=r"(?s)bookie-1 ended before it was ready \(exit code 2\).*expected a metadata address"
    ):
        await cluster.start()
    assert cluster.pids == {}


async def test_several_logs_and_a_standby_that_takes_over(tmp_path: Path) -> None:
    copies = {"BOKI_SEQUENCER_REPLICAS": "1", "BOKI_SEQUENCER_ACKS": "1"}
    cluster = LocalCluster(tmp_path, bookies=1, sequencers=3, engines=0, controllers=2, logs=2, settings=copies)
    assert cluster.roles_of("controller") == ["controller-1", "controller-2"]
    async with cluster, ledgers_of(cluster.metadata_uri) as (store, _):
        while len((view := (await read_view(store)).view).sequencers) < 2:
            await asyncio.sleep(0)
        assert view.per_slot == (*[0] * 512, *[1] * 512) and view.next_term == 3
        listed = await sequencer_members(store)
        lost = listed[view.logs[1].sequencer].address  # type: ignore[union-attr]
        (name,) = [one for one in cluster.roles_of("sequencer") if cluster.address(one) == lost]
        cluster.pause(name)
        cluster.resume(name)
        await cluster.kill(name)
        while (now := (await read_view(store)).view).term_of(1) == view.term_of(1):
            await asyncio.sleep(0)
        assert now.installed(0) == view.installed(0), "the other log goes on"
        assert now.installed(1).sequencer != view.installed(1).sequencer  # type: ignore[union-attr]
        await cluster.check()
        with pytest.raises(InvalidArgument, match="SIGSTOP"):
            cluster.pause(name)
        await store.close()


@pytest.mark.alone
async def test_a_bookie_takes_little_memory_idle_and_under_load(tmp_path: Path) -> None:
    """Generous: 66 MB at its start, and some 90 with all of this on its way to the disk."""
    async with LocalCluster(tmp_path, bookies=1, sequencers=0, engines=0) as cluster:
        bookie = psutil.Process(cluster.pids["bookie-1"])
        assert bookie.memory_info().rss < 85e6
        async with ledgers_of(cluster.metadata_uri) as (_, client):
            writer = await client.create(replicas=1, acks=1)
            most = 0
            for _ in range(40):
                await asyncio.gather(*(writer.append(bytes(1_000)) for _ in range(1_000)))
                most = max(most, bookie.memory_info().rss)
            await writer.close()
        assert most < 130e6
