"""The whole path under kill -9 and SIGSTOP: whatever was acknowledged is there once, whatever else dies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

import boki
from boki_cli.demo.local_cluster import LocalCluster
from itests.support.fixtures import own_zookeeper  # noqa: F401 - a fixture
from itests.support.processes import command
from itests.support.zookeeper import ZookeeperServer
from itests.whole_path.load import Load, stop_and_check

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]


async def test_bookie_killed_in_mid_stream_loses_and_stops_nothing(processes: LocalCluster) -> None:
    async with boki.connect(processes.url) as client, Load(client.book("faults")) as load:
        await load.more(300)
        await processes.kill("bookie-2")
        await load.more(300)  # two of three are enough
        await processes.start("bookie-2")
        await load.more(300)
        await stop_and_check(load)


async def test_two_of_three_bookies_gone_stop_appends_until_one_is_back(processes: LocalCluster) -> None:
    async with boki.connect(processes.url) as client, Load(client.book("faults")) as load:
        await load.more(200)
        await processes.kill("bookie-1", "bookie-3")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await load.more(load.tasks * 8)  # what was under way may still end, new ones cannot
        await processes.start("bookie-3")
        await load.more(200)
        await processes.start("bookie-1")
        await stop_and_check(load)


async def test_engine_killed_with_appends_in_flight_then_each_is_there_once_or_never(processes: LocalCluster) -> None:
    async with boki.connect(processes.url) as client, Load(client.book("faults"), tasks=64) as load:
        for _ in range(3):
            await load.more(200)
            await processes.kill("engine-1")
            await processes.start("engine-1")
        await load.more(200)
        await stop_and_check(load)
        assert not load.unknown  # the SDK found out what became of each


async def test_sequencer_killed_then_a_new_term_goes_on_where_the_old_one_ended(processes: LocalCluster) -> None:
    async with boki.connect(processes.url) as client, Load(client.book("faults")) as load:
        for _ in range(2):
            await load.more(200)
            await processes.restart("sequencer-1")
        await load.more(200)
        await stop_and_check(load)
        terms = {seqnum >> 35 for seqnum in load.acked.values()}
        assert len(terms) >= 3


async def test_everything_killed_at_once_and_started_again(processes: LocalCluster) -> None:
    async with boki.connect(processes.url) as client, Load(client.book("faults")) as load:
        await load.more(300)
        await processes.kill(*processes.roles)
        await processes.start()
        await load.more(100)
        await stop_and_check(load)


async def test_paused_sequencer_that_was_replaced_orders_nothing_when_it_wakes(tmp_path: Path) -> None:
    async with (
        LocalCluster(tmp_path, bookies=3, sequencers=2) as cluster,
        boki.connect(cluster.url) as client,
        Load(client.book("faults")) as load,
    ):
        await load.more(200)
        logs = {name: await asyncio.to_thread(cluster.log_tail, name) for name in ("sequencer-1", "sequencer-2")}
        (serving,) = [name for name, log in logs.items() if "term begins" in log]  # the other stands by
        cluster.pause(serving)
        await load.more(load.tasks * 8)  # what was under way, and much that only a new term can order
        cluster.resume(serving)
        await load.more(200)
        await stop_and_check(load)


@pytest.mark.zookeeper
async def test_zookeeper_away_for_ten_seconds_stops_no_append(
    tmp_path: Path,
    own_zookeeper: ZookeeperServer,  # noqa: F811
) -> None:
    uri = f"zk://{own_zookeeper.hosts}/boki-test"
    async with (
        LocalCluster(tmp_path, uri, bookies=3) as cluster,
        boki.connect(cluster.url) as client,
        Load(client.book("faults")) as load,
    ):
        await load.more(300)
        own_zookeeper.pause()
        loop = asyncio.get_running_loop()
        until = loop.time() + 10.0
        while loop.time() < until:
            async with asyncio.timeout(3.0):
                await load.more(100)
        own_zookeeper.resume()
        await load.more(300)
        await cluster.kill("bookie-1")
        await load.more(300)
        await stop_and_check(load)


async def test_engine_killed_right_after_one_append_leaves_it_where_others_find_it(tmp_path: Path) -> None:
    """Its data ledger does not have it yet: the metalog does (ADR 21)."""
    acked: dict[int, bytes] = {}
    async with LocalCluster(tmp_path, bookies=3, engines=2) as cluster:
        async with boki.connect(cluster.url) as client:
            book = client.book("lone")
            for victim in ("engine-1", "engine-2"):
                for at in range(6):
                    data = f"{victim} {len(acked)} {at}".encode()
                    acked[await book.append(data)] = data
                os.kill(cluster.pids[victim], signal.SIGKILL)  # in the turn of the loop that brought the answer
                assert [record.data async for record in book.read()] == list(acked.values())
                await cluster.restart(victim)
            acked[await book.append(b"last")] = b"last"
            await cluster.kill(*cluster.roles)
            await cluster.start()
            assert {record.seqnum: record.data async for record in book.read()} == acked
        code, verified, _ = await command("log", "verify", "--json", "--metadata", cluster.metadata_uri)
    assert code == 0, verified
    assert sum(json.loads(term)["entries"] for term in verified.splitlines()) >= len(acked)
