"""The gateway's status page shows what all parts answer, and says what it could not ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from boki_cli import roles
from boki_cli.facts import cluster_status
from boki_cli.facts.cluster_status import ClusterStatus, Part
from boki_cli.facts.gateway_facts import AskedCluster, state_of
from boki_common.errors import SettingsError
from boki_common.metadata.memory import MemoryStore
from boki_common.metrics import LATENCY_BUCKETS_S
from boki_gateway.calls.cluster_state import EngineLog, LogState, SlotRange

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = "unix:///none/engine.sock"

ENGINE = {
    "incarnation": "e" * 32,
    "ready": True,
    "logs": [
        {
            "log": 0,
            "term": 2,
            "position": {"received_entry": 10, "indexed_term": 2, "indexed_entry": 8},
            "seqnum": 2 << 35 | 1234,
        },
        {
            "log": 10,
            "term": 5,
            "position": {"received_entry": 0, "indexed_term": 4, "indexed_entry": 700},
            "seqnum": 0,
            "lag_entries": 4,
        },
    ],
    "records": 5000,
    "books": 7,
    "index": {"bytes": 20_000},
    "cache": {"bytes": 1_000_000},
    "connections": 3,
}
SEQUENCER = {
    "incarnation": "5" * 32,
    "log": 0,
    "term": {"term": 2, "entries": 11, "end_pos": 1240, "shards": [{}], "subscribers": 1},
}
VIEW = {
    "slots": [[0, 1000, 0], [1001, 1023, 10]],
    "logs": {"0": {"term": 2, "metalog_ledger": 7, "sequencer": "5" * 32}, "10": None},
}


def test_what_parts_answer_becomes_the_state() -> None:
    state = state_of(
        ClusterStatus(
            [Part("engine", "h:1", True, status=ENGINE), Part("engine", "h:2", False, "name", "refused")],
            [
                Part("sequencer", "h:3", True, status=SEQUENCER),
                Part("sequencer", "h:4", True, "other", status={"term": None}),
            ],
            [Part("bookie", "h:5", True, "b", status={"read_only": True})],
            VIEW,
            [Part("controller", "h:6", True, "c", status={"leading": True, "failed": "why"})],
        )
    )
    engine = state.engines[0]
    assert engine.logs == [
        EngineLog(log=0, term=2, position=1235, seqnum=str(2 << 35 | 1234), lag_entries=3),
        EngineLog(log=10, term=5, position=0, seqnum=None, lag_entries=4),
    ]
    assert engine.lag_entries == 7
    assert (engine.records, engine.books, engine.index_bytes, engine.cache_bytes, engine.connections) == (
        5000, 7, 20_000, 1_000_000, 3,
    )  # fmt: skip
    assert (state.engines[1].up, state.engines[1].name, state.engines[1].problem) == (False, "name", "refused")
    serving, standby = state.sequencers
    assert (serving.log, serving.term, serving.entries, serving.end_position, serving.shards) == (0, 2, 11, 1240, 1)
    assert (standby.name, standby.log, standby.term) == ("other", None, None)
    assert state.bookies[0].read_only
    assert (state.controllers[0].leader, state.controllers[0].problem) == (True, "why")
    assert state.slots == [SlotRange(0, 1000, 0), SlotRange(1001, 1023, 10)]
    assert state.logs == [LogState(0, 1001, 2, 7, "5" * 32), LogState(10, 23)]


def test_a_part_of_another_version_may_say_less() -> None:
    state = state_of(ClusterStatus([Part("engine", "h:1", True, status={})], [], [], None))
    assert (state.engines[0].logs, state.engines[0].lag_entries, state.slots, state.logs) == ([], None, [], [])


def test_of_a_term_that_the_engine_has_not_begun_everything_lags() -> None:
    young = {"log": 0, "term": 2, "position": {"received_entry": 5, "indexed_term": 1, "indexed_entry": 900}}
    found = ClusterStatus(
        [Part("engine", "h:1", True, status={"logs": [young]})], [Part("sequencer", "h:2", True, status=SEQUENCER)]
    )
    assert state_of(found).engines[0].lag_entries == 11


def test_a_standby_for_any_log() -> None:
    state = state_of(ClusterStatus(sequencers=[Part("sequencer", "h:2", True, status={"log": -1, "term": None})]))
    assert (state.sequencers[0].log, state.sequencers[0].term) == (None, None)


def test_a_part_that_never_answered_has_no_name_of_its_own() -> None:
    state = state_of(ClusterStatus([Part("engine", "127.0.0.1:7040", False, "127.0.0.1:7040", "refused")]))
    assert (state.engines[0].name, state.engines[0].address) == ("", "127.0.0.1:7040")


@pytest.mark.parametrize("bounds", [list(LATENCY_BUCKETS_S), [0.1, 1.0], None])
def test_how_long_acks_took_is_known_of_the_buckets_that_are_known(bounds: list[float] | None) -> None:
    counters = {} if bounds is None else {"ack_seconds": {"bounds": bounds, "counts": list(range(len(bounds) + 1))}}
    state = state_of(ClusterStatus([Part("engine", "h:1", True, "e", status=counters)]))
    assert state.engines[0].ack_counts == (list(range(17)) if bounds and len(bounds) > 2 else [])


def test_faults_are_those_of_boki_status() -> None:
    lost = Part("bookie", "", False, "b", "it is not registered")
    found = ClusterStatus([Part("engine", "h:1", True, "e", status={"ready": True})], [], [lost], VIEW)
    assert state_of(found).faults == cluster_status.faults_of(found)
    assert any("bookie b is down: it is not registered" in fault for fault in state_of(found).faults)
    assert state_of(ClusterStatus()).faults == [], "what is not known at all is the problem of the page"


async def test_a_store_that_is_given_is_asked_and_stays_open(store: MemoryStore) -> None:
    facts = AskedCluster(NOWHERE, roles.ProcessSettings(), store=store)
    state = await facts.collect()
    assert (state.problem, len(state.logs), state.slots) == ("", 1, [SlotRange(0, 1023, 0)])
    await facts.close()
    assert (await facts.collect()).slots == state.slots


async def test_the_store_of_the_settings_is_opened_and_closed(tmp_path: Path) -> None:
    settings = roles.ProcessSettings(metadata=f"sqlite://{tmp_path}/metadata.db")
    async with roles.open_parts(settings):
        facts = AskedCluster(NOWHERE, settings)
        for _ in range(2):
            state = await facts.collect()
            assert (state.problem, len(state.logs)) == ("", 1)
        await facts.close()
        await facts.close()


async def test_a_store_that_is_no_clusters_is_named_before_anything_is_served(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    settings = roles.ProcessSettings(metadata=f"sqlite://{path}")
    with pytest.raises(SettingsError, match="expected the metadata file of a cluster, found none"):
        await AskedCluster(NOWHERE, settings).check()
    assert not path.exists()
    async with roles.open_metadata(settings, create=True):
        pass
    with pytest.raises(SettingsError, match="found no cluster in it; is the path right"):
        await AskedCluster(NOWHERE, settings).check()
    async with roles.open_parts(settings):
        await AskedCluster(NOWHERE, settings).check()
    await AskedCluster(NOWHERE, roles.ProcessSettings()).check()


async def test_without_metadata_the_engines_are_all_that_is_shown() -> None:
    facts = AskedCluster(NOWHERE, roles.ProcessSettings())
    state = await facts.collect()
    assert state.problem.startswith("no engine names a metadata store")
    assert [engine.up for engine in state.engines] == [False]
    await facts.close()


async def test_a_store_that_cannot_be_opened_is_said(tmp_path: Path) -> None:
    facts = AskedCluster(NOWHERE, roles.ProcessSettings(metadata="nonsense://x"))
    state = await facts.collect()
    assert "the metadata store cannot be asked, bookies and sequencers are not known: " in state.problem
    await facts.close()
