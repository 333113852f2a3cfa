"""`boki soak` against a cluster in memory, which is right, and against one that lies."""

from __future__ import annotations

import json

from boki_cli.testing.commands import RunCommandLine


def test_a_sound_cluster(memory_url: str, run_boki: RunCommandLine) -> None:
    outcome = run_boki("soak", "--minutes", "0.02", "--clients", "3", "--seed", "5", "--url", memory_url)
    assert outcome.code == 0, outcome.err
    assert "soak/5/1" in outcome.out and "nothing wrong" in outcome.err


def test_each_round_is_a_line_of_json(memory_url: str, run_boki: RunCommandLine) -> None:
    outcome = run_boki("soak", "--minutes", "0.01", "--clients", "2", "--json", "--url", memory_url)
    assert outcome.code == 0, outcome.err
    (line,) = outcome.out.splitlines()
    shown = json.loads(line)
    assert shown["calls"] > 10
    assert not shown["findings"]
