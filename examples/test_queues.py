"""Tests of the queue loads: the check at the end, and short trials under kill -9.

    .venv/bin/python -m pytest examples/test_queues.py -m "not processes"       # without the trials

Nightly tests run each load for a minute.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.queues.trial import LOADS, check, read_notes, trial

NOTES = read_notes(["? a", "! a", "? b", "", "? c"])


def test_each_fault_is_found() -> None:
    assert check(NOTES, ["a", "b"], 0) == []
    assert check(NOTES, ["b", "b", "x"], 3) == [
        "3 messages still wait",
        "message b was handled 2 times",
        "message a was acknowledged, but is lost",
        "message x was never pushed",
    ]


def test_loads_are_the_papers_in_small() -> None:
    assert {load.producers / load.consumers for load in LOADS.values()} == {1 / 4, 1, 4}


@pytest.mark.processes
async def test_a_short_trial_of_a_load(tmp_path: Path) -> None:
    found = await trial(LOADS["1:4"], tmp_path, seconds=4, seed=4)
    assert found.faults == []
    assert found.handled > 0 and found.killed.total() >= 1


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.timeout(400)
@pytest.mark.parametrize("load", LOADS)
async def test_a_minute_of_a_load(tmp_path: Path, load: str) -> None:
    found = await trial(LOADS[load], tmp_path, seconds=60, seed=7)
    assert found.faults == []
