"""Ledgers as people see them: listed, shown and read from a real cluster, without changing anything."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import boki
import boki.sync
from boki_cli.demo.local_cluster import LocalCluster
from boki_cli.logs.ledger_commands import describe
from boki_cli.testing.logs import ONE_COPY
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.ids import BookieId
from itests.support.processes import throughout

if TYPE_CHECKING:
    from boki_cli.testing.commands import RunCommandLine


def test_metadata_as_json() -> None:
    metadata = LedgerMetadata(
        ensemble_size=2,
        write_quorum=2,
        ack_quorum=1,
        ensembles=((0, (BookieId("a"), BookieId("b"))), (7, (BookieId("a"), BookieId("c")))),
        state=LedgerState.CLOSED,
        last_entry=9,
        length=1234,
        custom=(("boki.role", b"data"), ("x", b"\xff")),
        password=b"secret",
    )
    shown = describe(4, metadata)
    assert (shown["ledger_id"], shown["role"], shown["state"], shown["last_entry"]) == (4, "data", "CLOSED", 9)
    assert shown["ensembles"] == [
        {"first_entry": 0, "bookies": ["a", "b"]},
        {"first_entry": 7, "bookies": ["a", "c"]},
    ]
    assert "secret" not in json.dumps(shown)


def test_a_cluster_without_ledgers(run_boki: RunCommandLine, tmp_path: Path) -> None:
    metadata = f"sqlite:///{tmp_path}/metadata.db"
    assert run_boki("init", "--metadata", metadata).code == 0
    assert run_boki("ledger", "ls", "--metadata", metadata) == (0, "no ledgers yet\n", "")
    for command in ("show", "read"):
        done = run_boki("ledger", command, "7", "--metadata", metadata)
        assert (done.code, done.out) == (4, "")
        assert "7" in done.err


@pytest.mark.processes
def test_ledgers_of_a_cluster_that_runs(run_boki: RunCommandLine, tmp_path: Path) -> None:
    with throughout(LocalCluster(tmp_path, bookies=1, settings=ONE_COPY)) as cluster:
        with boki.sync.connect(cluster.url) as client:
            client.book("b").append(b"needle in the ledger")
        _look(run_boki, cluster)


def _look(run_boki: RunCommandLine, cluster: LocalCluster) -> None:
    metadata = ("--metadata", cluster.metadata_uri)
    listed = [json.loads(line) for line in run_boki("ledger", "ls", *metadata, "--json").out.splitlines()]
    assert {"data", "metalog"} <= {ledger["role"] for ledger in listed}
    for ledger in listed:
        shown = run_boki("ledger", "show", str(ledger["ledger_id"]), *metadata, "--json")
        assert json.loads(shown.out)["role"] == ledger["role"]
    entries = [
        base64.b64decode(json.loads(line)["data_base64"])
        for ledger in listed
        if ledger["role"] == "metalog"
        for line in run_boki("ledger", "read", str(ledger["ledger_id"]), *metadata, "--json").out.splitlines()
    ]
    assert entries
    assert "OPEN" in run_boki("ledger", "ls", *metadata).out
    found = run_boki("status", "--url", cluster.url, *metadata, "--json")
    assert found.code == 0
    parts = [part for kind in ("engines", "sequencers", "bookies") for part in json.loads(found.out)[kind]]
    assert [part["up"] for part in parts] == [True] * 3
    assert "no lag" in run_boki("status", "--url", cluster.url, *metadata).out
