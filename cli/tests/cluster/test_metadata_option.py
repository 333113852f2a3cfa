"""Commands find a cluster's metadata as said, else through an engine; they make none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boki_cli.cluster.metadata_option import found_settings
from boki_cli.options import Invocation
from boki_cli.testing.commands import run_command_line
from boki_common.errors import SettingsError, Unreachable


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOKI_METADATA", raising=False)


def test_what_is_said_is_asked_of_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metadata.db").touch()
    uri = f"sqlite://{tmp_path}/metadata.db"
    assert found_settings(Invocation(url="boki://127.0.0.1:1"), uri).metadata == uri
    monkeypatch.setenv("BOKI_METADATA", "zk://h:1")
    assert found_settings(Invocation(url="boki://127.0.0.1:1"), None).metadata == "zk://h:1"


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="found no such file; `boki dev`, `boki init` or the first role"):
        found_settings(Invocation(), f"sqlite://{tmp_path}/typo.db")
    for command in (("log", "ls"), ("ledger", "ls"), ("log", "verify"), ("status",)):
        done = run_command_line(*command, "--metadata", f"sqlite://{tmp_path}/typo.db")
        assert (done.code, done.out) == (2, "")
    assert not list(tmp_path.iterdir())


def test_nobody_names_one() -> None:
    with pytest.raises(
        Unreachable, match=r"expected --metadata URI .*, or an engine at unix:///none/x\.sock that names"
    ):
        found_settings(Invocation(url="unix:///none/x.sock"), None)


@pytest.mark.processes
def test_an_engine_names_it(dev_url: str) -> None:
    def said(*arguments: str) -> str:
        done = run_command_line(*arguments, "--url", dev_url)
        assert done.code == 0, done.err
        return done.out

    while not (log := json.loads(said("log", "ls", "--json")))["term"]:
        pass  # a new cluster has its first term soon
    assert (log["log"], log["slots"]) == (0, "0-1023")
    assert said("log", "roll", "0").startswith(f"log 0 is in term {log['term'] + 1}")
    ledgers = [json.loads(line) for line in said("ledger", "ls", "--json").splitlines()]
    assert log["metalog_ledger"] in [ledger["ledger_id"] for ledger in ledgers]
    assert json.loads(said("log", "verify", "--json").splitlines()[0])["faults"] == []
