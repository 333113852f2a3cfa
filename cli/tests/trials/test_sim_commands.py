"""`boki sim`: seeds that hold, a seed that fails on purpose, its replay and its smallest script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from boki_bookie.journal.journal import Journal

if TYPE_CHECKING:
    from boki_cli.testing.commands import RunCommandLine

pytestmark = [pytest.mark.blocking_allowed, pytest.mark.timeout(300)]  # the guard stands in; machines may be busy

SEEDS = 20
BOOKIES = [f"bookie-{number}" for number in (1, 2, 3, 4, 5)]
POWER_CUT = "".join(
    json.dumps(fault) + "\n"
    for fault in (
        *({"at": 1.4, "kind": "slow-disk", "target": bookie, "seconds": 0.2, "amount": 50} for bookie in BOOKIES),
        *({"at": 1.5, "kind": "power", "target": bookie, "seconds": 0.5} for bookie in BOOKIES),
        *({"at": 1.5, "kind": "kill", "target": role, "seconds": 0.5} for role in ("sequencer-1", "engine-1")),
    )
)
"""Slow disks have much to flush when the power goes, and nobody is left who remembers it."""


def test_seeds_that_hold(run_boki: RunCommandLine) -> None:
    done = run_boki("sim", "run", "--seeds", "2", "--profile", "all", "--seconds", "0.5", "--json")
    assert done.code == 0, done.err
    summary = json.loads(done.out)
    assert (summary["seeds"], summary["failed"], summary["profiles"]) == (2, 0, {"calm": 1, "network": 1})
    assert summary["messages"] > 0


def test_replays_are_equal_and_may_write_their_trace(run_boki: RunCommandLine, tmp_path: Path) -> None:
    replay = ("sim", "replay", "4", "--seconds", "0.5", "--json")
    first = json.loads(run_boki(*replay).out)
    second = json.loads(run_boki(*replay, "--trace", str(tmp_path / "trace")).out)
    assert first == second
    lines = (tmp_path / "trace").read_text().splitlines()
    assert lines[0].startswith("1000.0000000 bookie-1#1 starts")
    assert len(lines) > 1_000


def test_a_failing_seed_is_reported_and_shrunk(
    run_boki: RunCommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bookies that acknowledge before they flush: a power cut of all of them loses what was acknowledged."""
    monkeypatch.setattr(Journal, "when_durable", lambda self, done: done(None))
    script = tmp_path / "script"
    noise = {"at": 0.2, "kind": "clock", "target": "client-1", "amount": 5_000}
    script.write_text(json.dumps(noise) + "\n" + POWER_CUT)
    shared = ("--script", str(script), "--seconds", "2", "--tries", "1", "--output", str(tmp_path / "smallest"))
    # The cut meets an acknowledgement that was too early in most seeds; in the others there is nothing to shrink.
    tried = (run_boki("sim", "shrink", str(seed), *shared) for seed in range(1, SEEDS + 1))
    done = next(done for done in tried if done.code != 2)
    assert done.code == 1, done.err
    assert "acknowledged" in done.out
    assert "trace before it:" in done.out
    smallest = (tmp_path / "smallest").read_text()
    assert "power" in smallest


def test_what_cannot_be_run(run_boki: RunCommandLine, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("{")
    run_boki("sim", "replay", "1", "--script", str(tmp_path / "script")).refused("line 1")
    run_boki("sim", "shrink", "1", "--profile", "calm", "--seconds", "0.2").refused("nothing to shrink")
    done = run_boki("sim", "run", "--profile", "mild")
    assert done.code == 2
    assert "full-disks" in done.err and "store" in done.err and "found 'mild'" in done.err
    run_boki("sim", "shrink", "1", "--profile", "store", "--seconds", "0.3").refused("nothing to shrink")


def test_programs_of_packages_are_run_and_replayed(run_boki: RunCommandLine) -> None:
    done = run_boki("sim", "run", "--profile", "store", "--seeds", "2", "--seconds", "0.5", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["profiles"] == {"store": 2}
    one, again = (run_boki("sim", "replay", "2", "--profile", "store", "--seconds", "0.5", "--json") for _ in range(2))
    assert json.loads(one.out)["digest"] == json.loads(again.out)["digest"]
    assert json.loads(one.out)["replay"] == "boki sim replay 2 --profile store --seconds 0.5"
