"""Limits that a container has and a process has not: a disk of its own that is full, and memory that ends."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

import boki
from boki.testing.containers import BokiCluster
from itests.containers.test_cluster import more, started, under_load

pytestmark = [pytest.mark.containers, pytest.mark.alone, pytest.mark.blocking_allowed, pytest.mark.timeout(600)]

MIB = 1 << 20


async def test_a_bookie_whose_disk_is_full_stops_nobody_and_takes_part_again() -> None:
    make = partial(BokiCluster, sequencers=1, engines=1, disks={"bookie-1": 400 * MIB})
    async with started(make) as cluster, under_load(cluster.url, "full") as load:
        await more(load)
        await asyncio.to_thread(cluster.fill_disk, "bookie-1")
        await more(load, 500)
        await asyncio.to_thread(cluster.empty_disk, "bookie-1")
        await more(load)


async def test_an_engine_at_the_end_of_its_memory_loses_nothing(cluster: BokiCluster) -> None:
    async with under_load(cluster.url, "memory") as load:
        await more(load)
        await asyncio.to_thread(cluster.limit_memory, "engine-2", 8 * MIB)
        async with boki.connect(cluster.url, timeout=120.0) as client:
            large = client.book("large")
            numbers = [await large.append(b"%d" % number * 400_000) for number in range(100)]
            assert [record.seqnum async for record in large.read()] == numbers
        await more(load)
        # Killed or not: a new one has no limit.
        await asyncio.to_thread(cluster.replace, "engine-2", "boki:latest")
        await more(load)
