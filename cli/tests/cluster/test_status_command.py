"""The status is readable at a glance, honest about what does not answer, and exits with 3 if nothing does."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from boki_cli.cluster import status_command
from boki_cli.facts.cluster_status import ClusterStatus, Part
from boki_cli.options import Invocation

if TYPE_CHECKING:
    from boki_cli.testing.commands import RunCommandLine

ENGINE = {
    "incarnation": "e" * 32,
    "ready": True,
    "term": 2,
    "position": {"received_entry": 10, "indexed_entry": 8},
    "seqnum": 2 << 35 | 1234,
    "records": 5000,
    "index": {"bytes": 20_000},
    "cache": {"bytes": 1_000_000},
    "shard": {"number": 3, "ledger_id": 9},
}
SEQUENCER = {
    "incarnation": "5" * 32,
    "log": 0,
    "term": {"term": 2, "entries": 11, "end_pos": 1240, "shards": [{}], "subscribers": 1},
}
VIEW: dict[str, Any] = {
    "logs": {"0": {"term": 2, "metalog_ledger": 7, "sequencer": "5" * 32}},
    "slots": [[0, 1023, 0]],
}


def drawn(found: ClusterStatus, monkeypatch: pytest.MonkeyPatch, *, width: int = 200, why: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width)
    monkeypatch.setattr(Invocation, "console", lambda self: console)
    status_command.draw(Invocation(), found, why=why)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_at_a_glance(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ClusterStatus(
        [Part("engine", "127.0.0.1:7040", True, status=ENGINE)],
        [Part("sequencer", "127.0.0.1:7041", True, "5" * 32, status=SEQUENCER)],
        [
            Part("bookie", "127.0.0.1:3181", True, "b1", status={"read_only": False}),
            Part("bookie", "127.0.0.1:3182", False, "b2", "cannot connect to 127.0.0.1:3182: refused; is it up?"),
        ],
        VIEW,
    )
    lines = [line.strip() for line in drawn(found, monkeypatch).splitlines()]
    assert lines == [
        "up    engine    127.0.0.1:7040  eeeeeeeeeeee",
        "term 2, position 1,235, lag 3 entries, shard 3 in ledger 9, 5,000 records, index 20.0 kB, cache 1.0 MB",
        "up    sequencer 127.0.0.1:7041  555555555555",
        "serves log 0: term 2, 11 entries, position 1,240, 1 shard, 1 engine follows",
        "up    bookie    127.0.0.1:3181  b1",
        "takes writes",
        "down  bookie    127.0.0.1:3182  b2",
        "cannot connect to 127.0.0.1:3182: refused; is it up?",
        "cluster token: nobody asks for one",
        "log 0: term 2, 1,024 slots (0-1023), metalog in ledger 7, sequencer 555555555555",
        "0 sequencers stand by",
    ]


def test_an_engine_of_several_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = {"number": 4, "ledger_id": 12}
    other = {"log": 1, "term": 5, "seqnum": 2 << 35 | 77, "lag_entries": 0, "shard": shard}
    status = {**ENGINE, "logs": [{"log": 0, **ENGINE}, other]}
    text = drawn(
        ClusterStatus([Part("engine", "h:1", True, status=status)], [Part("sequencer", "s", True, status=SEQUENCER)]),
        monkeypatch,
    )
    assert (
        "log 0: term 2, position 1,235, lag 3 entries, shard 3 in ledger 9; "
        "log 1: term 5, position 0, no lag, shard 4 in ledger 12; 5,000 records; index 20.0 kB; cache 1.0 MB"
    ) in text


def test_what_is_said_of_a_part_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = "cannot connect to [fe80::1]:3182: [red]refused[/red]; " + "is it up? " * 20
    found = ClusterStatus([], [], [Part("bookie", "[fe80::1]:3182", False, "b2", problem.strip())])
    first, *below = drawn(found, monkeypatch, width=80).splitlines()[:-1]
    assert first == "down  bookie    [fe80::1]:3182  b2"
    assert all(line.startswith(" " * 16) and line.rstrip() == line and len(line) <= 80 for line in below)
    assert " ".join(line.strip() for line in below) == problem.strip()


def test_clocks_that_differ_are_always_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [
        {"log": 0, "clock": {"ahead_ms": 9_000, "warning": "the sequencer's clock is 9.0 s ahead"}},
        {"log": 1, "clock": {"ahead_ms": 2, "warning": None}},
        {"log": 2, "clock": None},
        {"log": 3},
    ]
    text = drawn(ClusterStatus([Part("engine", "e1", True, status={**ENGINE, "logs": logs})]), monkeypatch)
    assert "log 0: the sequencer's clock is 9.0 s ahead" in text
    assert text.count("clock") == 1, "of one log only"


def test_what_each_engine_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = {**ENGINE, "logs": [{"log": 0, "term": 2, "sequencer": False, "sequencer_away_s": 3.0, "shard": None}]}
    parts = [
        Part("engine", "h:1", True, status=stuck),
        Part("engine", "h:2", True, status=ENGINE),
        Part("engine", "h:3", False),
    ]
    lines = [line.strip() for line in drawn(ClusterStatus(parts), monkeypatch, why=True).splitlines()]
    assert (
        "engine h:1 (term 2) is connected to no sequencer since 3.0 s: is one up, and has it enough bookies?" in lines
    )
    assert lines.count("nothing waits for anything but its turn") == 1, "and of what is down nothing is known"


def test_several_logs_standbys_and_controllers(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = {"incarnation": "c" * 32, "leading": True, "policies": [{"name": "balance", "fault": "no bookies"}]}
    found = ClusterStatus(
        [],
        [
            Part("sequencer", "127.0.0.1:1", True, "5" * 32, status=SEQUENCER),
            Part("sequencer", "127.0.0.1:2", True, "6" * 32, status={"term": None, "log": 1}),
        ],
        [],
        {
            "logs": {"0": VIEW["logs"]["0"], "1": {"term": 3, "metalog_ledger": 8, "sequencer": "7" * 32}, "10": None},
            "slots": [[0, 511, 0], [512, 512, 1], [513, 1023, 0]],
        },
        [
            Part("controller", "127.0.0.1:3", True, "c" * 32, status=leader),
            Part("controller", "127.0.0.1:4", True, "d" * 32, status={"leading": False}),
        ],
    )
    lines = [line.strip() for line in drawn(found, monkeypatch).splitlines()]
    assert lines == [
        "up    sequencer 127.0.0.1:1  555555555555",
        "serves log 0: term 2, 11 entries, position 1,240, 1 shard, 1 engine follows",
        "up    sequencer 127.0.0.1:2  666666666666",
        "stands by for log 1",
        "up    controller 127.0.0.1:3  cccccccccccc",
        "leads; balance: no bookies",
        "up    controller 127.0.0.1:4  dddddddddddd",
        "stands by",
        "cluster token: nobody asks for one",
        "log 0: term 2, 1,023 slots (0-511,513-1023), metalog in ledger 7, sequencer 555555555555",
        "log 1: term 3, 1 slot (512), metalog in ledger 8, sequencer 777777777777 (does not serve it)",
        "log 10: no term yet, 0 slots (none); a sequencer and enough bookies begin one",
        "1 sequencer stands by",
    ]


def test_what_is_not_there_yet_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    young = {**ENGINE, "ready": False, "seqnum": 0, "shard": None, "term": 1}
    found = ClusterStatus(
        [Part("engine", "h:1", True, status=young)],
        [Part("sequencer", "h:2", True, status={"term": None})],
        [Part("bookie", "h:3", True, status={"read_only": True})],
        {"logs": {"0": None}, "slots": [[0, 1023, 0]]},
    )
    text = drawn(found, monkeypatch)
    catching_up = "catching up, nothing ordered yet, lag unknown"
    assert all(one in text for one in (catching_up, "no shard yet", "stands by", "read only", "no term yet"))
    found.sequencers[0].status["failed"] = "TermOver: taken"
    found.view = None
    text = drawn(found, monkeypatch)
    assert "failed: TermOver: taken" in text
    assert "add --metadata URI" in text


def test_nothing_answers(run_boki: RunCommandLine) -> None:
    done = run_boki("status", "--url", "unix:///none/engine.sock")
    assert done.code == 3
    assert done.out.startswith("down  engine")
    assert "Error: nothing answers at unix:///none/engine.sock; is it up? `boki dev` starts everything" in done.err
    as_json = run_boki("status", "--url", "unix:///none/engine.sock", "--json")
    assert as_json.code == 3
    assert json.loads(as_json.out)["engines"][0]["up"] is False
    assert json.loads(as_json.err)["error"] == "Unreachable"


def test_metadata_that_is_nowhere(run_boki: RunCommandLine) -> None:
    done = run_boki("status", "--metadata", "nonsense", "--url", "unix:///none/engine.sock")
    done.refused("expected a metadata address sqlite:///absolute/path.db")


@pytest.mark.processes
def test_a_script_may_wait_for_a_cluster(dev_url: str, run_boki: RunCommandLine) -> None:
    up = run_boki("status", "--check", "--json", "--url", dev_url)
    while up.code == 1:
        up = run_boki("status", "--check", "--json", "--url", dev_url)
    assert up.code == 0, up.err
    assert json.loads(up.out)["faults"] == []
    partly = run_boki("status", "--check", "--url", f"{dev_url},unix:///none/engine.sock")
    partly.refused("Error: 1 thing is wrong\nengine unix:///none/engine.sock is down: cannot connect", code=1)
    assert run_boki("status", "--url", f"{dev_url},unix:///none/engine.sock").code == 0
