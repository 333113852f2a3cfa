"""A whole cluster in containers: it serves, it survives faults, and every role is restarted under load without a lost record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

import boki
from boki.testing.containers import BokiCluster, Cassandra, unavailable
from itests.support.processes import BOKI
from itests.whole_path.load import Load, stop_and_check

pytestmark = [pytest.mark.containers, pytest.mark.alone, pytest.mark.blocking_allowed, pytest.mark.timeout(600)]

WORKERS = 4
Started = TypeVar("Started", BokiCluster, Cassandra)


@asynccontextmanager
async def under_load(url: str, name: str) -> AsyncIterator[Load]:
    """Appends go on in the block; after it, every acknowledged record is there once, at its number, in the order of its worker."""
    async with boki.connect(url, timeout=120.0) as client, Load(client.book(name), tasks=WORKERS) as load:
        yield load
        await stop_and_check(load)
    assert not load.unknown
    assert all(b"%d/1" % worker in load.acked for worker in range(WORKERS))


@asynccontextmanager
async def started(make: Callable[[], Started], *images: str) -> AsyncIterator[Started]:
    """A cluster, or a server, of a test's own, made where there are containers and the images; else the test is skipped."""
    reason = unavailable(*images)
    if reason:
        pytest.skip(reason)
    made = make()
    try:
        await asyncio.to_thread(made.start)
        yield made
    finally:
        await asyncio.to_thread(made.stop)


async def more(load: Load, records: int = 20) -> None:
    """Waits until so many more appends were acknowledged: the cluster goes on."""
    async with asyncio.timeout(120):
        await load.more(records)


async def test_every_role_is_restarted_under_load_and_nothing_is_lost(cluster: BokiCluster) -> None:
    async with under_load(cluster.url, "rolling") as load:
        await more(load)
        for name in cluster.names:
            await asyncio.to_thread(cluster.end, name)
            await more(load)
            await asyncio.to_thread(cluster.start_again, name)
            await more(load)
        assert any("log handed over" in cluster.log(name) for name in cluster.names if name.startswith("sequencer"))


async def test_what_clients_are_answered_while_roles_are_killed_is_what_a_log_may_do(
    cluster: BokiCluster,
) -> None:
    arguments = ("soak", "--url", cluster.url, "--timeout", "120", "--clients", "4", "--minutes", "0.5")
    soak = await asyncio.create_subprocess_exec(
        *BOKI, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    for name in ("engine-1", "sequencer-1", "bookie-1", "sequencer-2", "engine-2"):
        await asyncio.to_thread(cluster.kill if name.endswith("1") else cluster.end, name)
        await asyncio.to_thread(cluster.start_again, name)
    said, _ = await soak.communicate()
    assert soak.returncode == 0, said.decode()


@pytest.mark.parametrize("name", ["engine-1", "bookie-2", "sequencer-1", "sequencer-2", "controller-1"])
async def test_a_role_that_is_killed_stops_nobody(cluster: BokiCluster, name: str) -> None:
    async with under_load(cluster.url, f"killed {name}") as load:
        await more(load)
        await asyncio.to_thread(cluster.kill, name)
        await more(load)
        await asyncio.to_thread(cluster.start_again, name)
        await more(load)


@pytest.mark.parametrize("name", ["bookie-1", "sequencer-1", "engine-2"])
async def test_a_role_that_is_paused_stops_nobody(cluster: BokiCluster, name: str) -> None:
    async with under_load(cluster.url, f"paused {name}") as load:
        await more(load)
        cluster.pause(name)
        try:
            await more(load)
        finally:
            cluster.resume(name)
        await more(load)


async def test_a_bookie_that_is_cut_off_stops_nobody(cluster: BokiCluster) -> None:
    async with under_load(cluster.url, "cut off") as load:
        await more(load)
        cluster.disconnect("bookie-3")
        try:
            await more(load)
        finally:
            cluster.connect_again("bookie-3")
        await more(load)
