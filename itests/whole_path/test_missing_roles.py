"""What was killed is down, not gone: `boki status` tells of a lost bookie, standby and engine, and forgets who said goodbye."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from boki_cli.demo.local_cluster import LocalCluster
from boki_cli.facts.cluster_facts import ClusterStatus
from boki_cli.facts.cluster_faults import faults_of
from boki_cli.facts.cluster_status import gather
from boki_cli.facts.gateway_facts import AskedCluster
from boki_cli.roles import ProcessSettings
from boki_cli.testing.logs import ledgers_of
from boki_common.metadata.store import MetadataStore

pytestmark = pytest.mark.processes

SHORT = {"BOKI_ENGINE_REPLICAS": "3", "BOKI_SEQUENCER_REPLICAS": "3"}


async def on_the_page(
    cluster: LocalCluster, store: MetadataStore
) -> tuple[dict[str, bool], dict[str, bool], list[tuple[str, bool, bool]], list[str]]:
    """What the status page of a gateway shows: which engines and sequencers are up, which bookies are not or do not tell their
    room, and the faults."""
    facts = AskedCluster(f"boki://{cluster.address('engine-1')}", ProcessSettings(), store=store)
    state = await facts.collect()
    await facts.close()
    role_at = {cluster.address(name): name for name in [*cluster.roles_of("engine"), *cluster.roles_of("sequencer")]}
    poor = [one for one in state.bookies if not one.up or one.free_bytes is None]
    return (
        {role_at[one.address]: one.up for one in state.engines},
        {role_at[one.address]: one.up for one in state.sequencers},
        [(one.name, one.up, one.free_bytes is not None) for one in poor],
        state.faults,
    )


async def test_killed_roles_are_down_until_they_are_back_and_stopped_ones_are_not_missed(tmp_path: Path) -> None:
    async with (
        LocalCluster(tmp_path, bookies=3, sequencers=2, engines=2, controllers=2, settings=SHORT) as cluster,
        ledgers_of(cluster.metadata_uri) as (store, _),
    ):

        async def down() -> dict[str, ClusterStatus]:
            found = await gather(f"boki://{cluster.address('engine-1')}", store, timeout_s=5)
            return {f"{part.role} {part.address or part.name}": found for part in found.parts if not part.up}

        async def until(expected: set[str]) -> ClusterStatus | None:
            """Sessions end some seconds after their process."""
            while set(found := await down()) != expected:
                pass
            return next(iter(found.values()), None)

        whole = await gather(cluster.url, store, timeout_s=5)
        assert all(part.up for part in whole.parts)
        standby = next(
            name
            for name in cluster.roles_of("sequencer")
            if any(
                part.address == cluster.address(name) and not part.status.get("serving") for part in whole.sequencers
            )
        )
        lost_bookie = next(one for one in whole.bookies if one.address == cluster.address("bookie-3"))
        await cluster.kill("bookie-3", standby, "engine-2", "controller-2")
        missing = {f"bookie {lost_bookie.name}"}
        missing |= {
            f"{name.partition('-')[0]} {cluster.address(name)}" for name in (standby, "engine-2", "controller-2")
        }
        found = await until(missing)
        assert found is not None
        faults = faults_of(found)
        assert "new ledgers get 2 copies, expected 3: 2 bookies take writes" in faults
        assert sum(" is down: " in fault for fault in faults) == 4
        *parts, shown = await on_the_page(cluster, store)
        assert parts == [
            {"engine-2": False, "engine-1": True},
            {name: name != standby for name in cluster.roles_of("sequencer")},
            [(lost_bookie.name, False, False)],
        ]
        async with asyncio.timeout(60):  # a moment later more is known of why one is down
            while shown != faults:
                faults = faults_of(await gather(cluster.url, store, timeout_s=5))
                *_, shown = await on_the_page(cluster, store)
        await cluster.start()
        assert await until(set()) is None
        await cluster.stop(standby, "engine-2", "controller-2")
        assert await until(set()) is None
