"""The image: how large it is, who it runs as, and how a cluster gets from the image before to this one."""

from __future__ import annotations

import asyncio
from functools import partial

import docker
import pytest

from boki.testing.containers import BokiCluster, unavailable
from deploy.images import BOKI, BOKI_BEFORE, own_bytes, own_compressed_bytes
from itests.containers.test_cluster import more, started, under_load

pytestmark = [pytest.mark.containers, pytest.mark.alone, pytest.mark.blocking_allowed, pytest.mark.timeout(600)]

MB = 1_000_000


@pytest.fixture
def client() -> docker.DockerClient:
    reason = unavailable(BOKI)
    if reason:
        pytest.skip(reason)
    return docker.from_env()


def test_it_is_small_and_runs_as_nobody_in_particular(client: docker.DockerClient) -> None:
    assert own_bytes(client, BOKI) <= 180 * MB
    assert client.images.get(BOKI).attrs["Config"]["User"] == "10001:10001"
    client.close()


@pytest.mark.nightly
def test_it_is_small_in_a_registry(client: docker.DockerClient) -> None:
    assert own_compressed_bytes(client, BOKI) <= 60 * MB
    client.close()


async def test_a_cluster_is_upgraded_under_load_role_by_role() -> None:
    held_back = {"BOKI_ENGINE_CARRIED_ENTRY_BYTES": "0", "BOKI_ENGINE_SESSION_WRITER_AGE_S": "0"}
    make = partial(BokiCluster, image=BOKI_BEFORE, settings=held_back)
    async with started(make, BOKI, BOKI_BEFORE) as cluster, under_load(cluster.url, "upgrade") as load:
        await more(load)
        # Engines first, that read what is new and write nothing of it; last that is switched on.
        for kind in ("bookie", "engine", "sequencer", "controller"):
            for name in cluster.names:
                if name.startswith(kind):
                    await asyncio.to_thread(cluster.replace, name, BOKI)
                    await more(load)
        for name in cluster.names:
            if name.startswith("engine"):
                await asyncio.to_thread(cluster.replace, name, BOKI, settings={})
                await more(load)
