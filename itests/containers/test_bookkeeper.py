"""A cluster on bookies of Apache BookKeeper, all in containers: only the address of the metadata says so."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from boki.testing.containers import BOOKKEEPER_IMAGE, IMAGE, ZOOKEEPER_IMAGE, BokiCluster
from itests.containers.test_cluster import more, started, under_load

pytestmark = [pytest.mark.containers, pytest.mark.alone, pytest.mark.blocking_allowed, pytest.mark.timeout(600)]


async def test_one_of_apaches_bookies_is_killed_under_load_and_nothing_is_lost() -> None:
    make = partial(BokiCluster, bookies=0, bookkeeper=3, sequencers=1, engines=1)
    async with (
        started(make, IMAGE, ZOOKEEPER_IMAGE, BOOKKEEPER_IMAGE) as cluster,
        under_load(cluster.url, "apache") as load,
    ):
        await more(load)
        await asyncio.to_thread(cluster.kill, "bookkeeper-3")
        await more(load, 200)
