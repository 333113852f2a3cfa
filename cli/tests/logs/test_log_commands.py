"""`boki log …` on real processes without an engine: three sequencers, a controller, SQLite."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from boki_cli.demo.local_cluster import LocalCluster
from itests.support.processes import throughout

if TYPE_CHECKING:
    from boki_cli.testing.commands import RunCommandLine

ONE_COPY = {"BOKI_SEQUENCER_REPLICAS": "1", "BOKI_SEQUENCER_ACKS": "1", "BOKI_CONTROLLER_ROUND_S": "0.05"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path, bookies=1, sequencers=3, engines=0, controllers=1, settings=ONE_COPY)
    with throughout(made):
        yield made


class Commands:
    """Command lines on the metadata store of a cluster."""

    def __init__(self, run: RunCommandLine, cluster: LocalCluster) -> None:
        self._run = run
        self._metadata = cluster.metadata_uri

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = self._run(*arguments, "--metadata", self._metadata)
        assert done.code == code, (arguments, done.out, done.err)
        return done.err if code else done.out

    def logs(self) -> dict[int, dict[str, Any]]:
        lines = map(json.loads, self("log", "ls", "--json").splitlines())
        return {line["log"]: line for line in lines}


@pytest.mark.processes
def test_logs_come_move_and_go(cluster: LocalCluster, run_boki: RunCommandLine) -> None:
    boki = Commands(run_boki, cluster)
    first = boki.logs()
    while first[0]["term"] == 0:
        first = boki.logs()
    assert sorted(first) == [0] and first[0]["slots"] == "0-1023" and first[0]["address"]

    assert "log 1 is there" in boki("log", "add")
    two = boki.logs()
    assert [two[log]["slot_count"] for log in (0, 1)] == [512, 512]
    assert two[0]["term"] > first[0]["term"] and two[0]["sequencer"] == first[0]["sequencer"]

    (rolled,) = [json.loads(boki("log", "roll", "1", "--json"))]
    assert rolled["term"] > two[1]["term"] and rolled["sequencer"] == two[1]["sequencer"]
    assert boki.logs()[0] == two[0], "a roll of one log touches no other"

    boki("log", "move", "0-99,511", "--to", "1")
    assert boki.logs()[1]["slots"] == "0-99,511-1023"
    boki("log", "rebalance", "--weights", "0=1,1=3")
    assert [one["slot_count"] for one in boki.logs().values()] == [256, 768]

    shown = json.loads(boki("log", "show", "0", "--json"))
    assert shown["in_view"] and shown["terms"][0]["term"] < shown["term"]
    assert "sealed term" in boki("log", "show", "0")
    assert "         in view  yes\n" in boki("log", "show", "0")
    assert "log 0 is removed" in boki("log", "remove", "0")
    assert "log 0 is removed" in boki("log", "remove", "0"), "it may be repeated"
    assert sorted(boki.logs()) == [1] and boki.logs()[1]["slots"] == "0-1023"
    gone = json.loads(boki("log", "show", "0", "--json"))
    assert not gone["in_view"] and gone["sealed_terms"] >= 4
    assert "the only one" in boki("log", "remove", "1", code=2)


@pytest.mark.processes
def test_weights_that_are_kept_move_slots_to_new_logs(cluster: LocalCluster, run_boki: RunCommandLine) -> None:
    boki = Commands(run_boki, cluster)
    boki("log", "add", "--empty")
    assert boki.logs()[1]["slot_count"] == 0
    boki("log", "rebalance", "--keep")
    assert boki.logs()[1]["slot_count"] == 512
    boki("log", "add", "--empty")
    while boki.logs()[2]["slot_count"] != 341:
        continue  # the controller does it
    boki("log", "rebalance", "--drop")
    boki("log", "move", "0-1023", "--to", "2")
    assert boki.logs()[2]["slot_count"] == 1024
    status = json.loads(run_boki("status", "--json", "--metadata", cluster.metadata_uri, "--url", "unix:///none").out)
    assert [one["status"]["leading"] for one in status["controllers"]] == [True]
    assert len(status["sequencers"]) == 3 and all(one["up"] for one in status["sequencers"])


@pytest.mark.processes
def test_what_cannot_be_is_refused(cluster: LocalCluster, run_boki: RunCommandLine, tmp_path: Path) -> None:
    boki = Commands(run_boki, cluster)
    assert "expected one of the logs" in boki("log", "roll", "7", code=2)
    assert "expected one of the logs 0, found 7" in boki("log", "show", "7", code=2)
    assert "expected one of the logs 0, found 7" in boki("log", "remove", "7", code=2)
    assert "expected slots" in boki("log", "move", "5-2000", "--to", "0", code=2)
    assert "expected a weight" in boki("log", "rebalance", "--weights", "0", code=2)
    assert "--drop alone" in boki("log", "rebalance", "--drop", "--keep", code=2)
    for _ in range(2):
        boki("log", "add")
    assert "none of" in boki("log", "add", "--timeout", "0.3", code=3), "three sequencers, four logs"
    empty = run_boki("log", "ls", "--metadata", f"sqlite:///{tmp_path / 'other.db'}")
    assert empty.code == 2 and "boki dev" in empty.err
