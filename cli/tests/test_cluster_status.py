"""What is up is what answers; everything that is listed is asked, and what does not answer says why."""

from __future__ import annotations

from typing import Any

import pytest

from boki_cli import cluster_status
from boki_cli.cluster_status import ClusterStatus, Part, engine_addresses, faults_of, gather, lag_entries
from boki_common.bookkeeper import layout
from boki_common.errors import InvalidArgument
from boki_common.metadata.memory import MemoryStore
from boki_common.net.connection import Address
from boki_metalog.metadata_tree import ensure_view


def engine(term: int, indexed: int, lag: int | None = None) -> Part:
    status = {"term": term, "position": {"received_entry": indexed, "indexed_entry": indexed}, "lag_entries": lag}
    return Part("engine", "h:1", True, status=status)


def sequencer(term: int, entries: int) -> Part:
    return Part("sequencer", "h:2", True, status={"term": {"term": term, "entries": entries}})


def test_lag_is_what_the_sequencer_of_the_same_term_is_ahead() -> None:
    standby = Part("sequencer", "h:3", True, status={"term": None})
    assert lag_entries(engine(3, 10), [standby, sequencer(3, 14)]) == 4
    assert lag_entries(engine(3, 10), [sequencer(3, 9)]) == 0
    assert lag_entries(engine(3, 10, lag=2), [sequencer(4, 14)]) == 2
    assert lag_entries(engine(3, 10), []) is None


def test_engines_of_a_url() -> None:
    assert engine_addresses("boki://h:1/") == [Address("h", 1)]
    assert engine_addresses("boki://h, other:9,unix:///x") == [
        Address("h", 7040),
        Address("other", 9),
        Address("", 0, "/x"),
    ]
    with pytest.raises(InvalidArgument, match="expected boki://host:port or unix:///path, found 'http://h'"):
        engine_addresses("http://h")


def test_faults_are_what_a_script_waits_to_be_gone() -> None:
    serving = Part("sequencer", "s:1", True, "one", status={"term": {"term": 4}})
    bookie = Part("bookie", "b:1", True, "b", status={"read_only": False})
    logs: dict[str, Any] = {"0": {"term": 4, "sequencer": "one"}}
    sound = ClusterStatus([Part("engine", "e:1", True, status={"ready": True})], [serving], [bookie], {"logs": logs})
    assert faults_of(sound) == []
    assert faults_of(ClusterStatus(sound.engines)) == [
        "bookies and sequencers are not known: no engine names a metadata store that is here"
    ]
    broken = ClusterStatus(
        [Part("engine", "e:1", True, status={"ready": False}), Part("engine", "e:2", False, problem="refused")],
        [Part("sequencer", "s:1", True, "one", status={"term": {"term": 3}, "failed": "TermOver"})],
        [Part("bookie", "b:1", True, "b", status={"read_only": True})],
        {"logs": logs | {"1": None}},
    )
    assert faults_of(broken) == [
        "engine e:2 is down: refused",
        "sequencer s:1 failed: TermOver",
        "engine e:1 catches up",
        "no bookie takes writes",
        "log 0 is served by nobody: its sequencer one does not answer so",
        "log 1 has no term yet: a sequencer and enough bookies begin one",
    ]


async def test_what_does_not_answer_is_down_with_the_reason() -> None:
    store = MemoryStore()
    await store.start()
    await layout.init_cluster(store)
    await ensure_view(store)
    registered = await layout.register_bookie(store, "one-bookie", layout.BookieService("127.0.0.1", 1))
    found = await gather("unix:///none/engine.sock", store, timeout_s=1)
    assert [(part.role, part.up) for part in found.parts] == [("engine", False), ("bookie", False)]
    assert not found.anything_up
    assert "cannot connect to unix:///none/engine.sock" in found.engines[0].problem
    assert (found.bookies[0].name, found.bookies[0].address) == ("one-bookie", "127.0.0.1:1")
    assert "is it up?" in found.bookies[0].problem
    assert found.view is not None
    assert found.view["logs"] == {"0": None}
    await registered.leave()
    await store.close()


async def test_without_metadata_only_engines_are_asked() -> None:
    found = await gather("unix:///none/engine.sock", None, timeout_s=1)
    assert (len(found.engines), found.bookies, found.view) == (1, [], None)
    assert ClusterStatus(bookies=[Part("bookie", "h:1", True)]).anything_up
    assert cluster_status.DEFAULT_PORT == 7040
