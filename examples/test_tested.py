"""The word count and the bank under the tester: no fault in those that are right; each seeded bug is found, made small and replayed.

.venv/bin/python -m pytest examples/test_tested.py
boki rsm test examples.seeded_bugs:early_credit        # one of them, with its story
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bokirsm.testing import Limits, Program, Reached, replay, run_tests
from examples.banking.tested import bank
from examples.seeded_bugs import BUGS, CarefulBroker
from examples.wordcount.tested import word_count

PLACES = {
    "volatile_map": {("leak", "VolatileCounter Words counts"), ("monitor", "CountsAreRight.ended")},
    "process_hash": {("uncontrolled", "Router Words"), ("monitor", "CountsAreRight.ended")},
    "early_credit": {("monitor", "NoMoneyIsMade.committed"), ("client", "audit AssertionError")},
    "unhandled_event": {("handler", "DeafBroker depositing Full UnhandledEvent")},
    "timer_left": {("handler", "PatientBroker idle Late UnhandledEvent")},
}
RUNS = 400
"""Runs in which a bug is found: less than ten seconds on any machine."""
RIGHT: dict[str, Callable[[], Program]] = {
    "word count": word_count,
    "bank": bank,
    "bank with patience": lambda: bank(CarefulBroker, audits=False),
}


@pytest.mark.parametrize("bug", BUGS)
def test_each_seeded_bug_is_found_by_ten_seeds_of_ten(bug: str) -> None:
    for seed in range(1, 11):
        witness = run_tests(BUGS[bug](), Limits(RUNS, 600, shrink_s=0), seed=seed * 1_000).witness
        assert witness is not None, f"seed {seed * 1_000}"
        assert (witness.kind, witness.place) in PLACES[bug]


@pytest.mark.parametrize("bug", BUGS)
def test_the_run_of_a_bug_is_made_small_and_replayed_by_another_process(bug: str, tmp_path: Path) -> None:
    witness = run_tests(BUGS[bug](), Limits(RUNS, 600, shrink_s=20)).witness
    assert witness is not None and witness.steps <= min(witness.found_steps, 30)
    file = tmp_path / "witness.json"
    file.write_bytes(witness.json())
    script = "import sys; from boki_cli.main import main; sys.exit(main())"
    command = [
        sys.executable,
        "-c",
        script,
        "rsm",
        "replay",
        str(file),
        "--test",
        f"examples.seeded_bugs:{bug}",
        "--json",
    ]
    told = subprocess.run(
        command,
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        cwd=Path(__file__).parents[1],
        check=False,
    )
    assert told.returncode == 1, told.stderr
    found = json.loads(told.stdout.splitlines()[0])
    assert found["again"] and found["digest"] == witness.digest
    assert found["story"] == replay(BUGS[bug](), witness).story.lines


@pytest.mark.parametrize("subject", RIGHT)
def test_no_alarm_on_machines_that_are_right(subject: str) -> None:
    report = run_tests(RIGHT[subject](), Limits(60, 600))
    assert report.witness is None and report.runs == 60
    asks = {Reached("Counter", "run", "Counts"), Reached("Max", "run", "Best"), Reached("Account", "run", "Balance")}
    assert {*report.missed} <= asks | {Reached("Account", "run", "Mark"), Reached("Auditor", "idle", "Audit")} | {
        Reached("Auditor", "counting", "Sum")
    }


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("subject", RIGHT)
def test_no_alarm_on_machines_that_are_right_in_minutes(subject: str) -> None:
    assert run_tests(RIGHT[subject](), Limits(10_000_000, 200), seed=1_000_000).witness is None
