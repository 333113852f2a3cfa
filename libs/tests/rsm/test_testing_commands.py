"""The commands `boki rsm test`, `replay` and `shrink`: their output for people and programs, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boki_cli.testing.commands import Outcome, run_command_line
from bokirsm.testing import Program
from libs.tests.rsm.testing.subjects import APP, two_writers
from libs.tests.rsm.testing.test_witness import NoFour

WRONG = "libs.tests.rsm.test_testing_commands:wrong"
RIGHT = "libs.tests.rsm.test_testing_commands:right"


def wrong() -> Program:
    return Program(APP, two_writers, [NoFour])


def right() -> Program:
    return Program(APP, two_writers)


def rsm(*arguments: str) -> Outcome:
    return run_command_line("rsm", *arguments)


def test_a_fault_is_shown_and_its_witness_replayed_and_shrunk(tmp_path: Path) -> None:
    file = str(tmp_path / "fault.json")
    found = rsm("test", WRONG, "--seed", "3", "--out", file)
    assert found.code == 1 and "a fault was found: NoFour.committed" in found.err
    assert "cell (Cell in run) takes Put" in found.out and "not reached: Cell in run takes Get" in found.out
    again = rsm("replay", file)
    assert again.code == 1 and "the fault is there: NoFour.committed" in again.err
    assert found.out.startswith(again.out)
    shown = rsm("replay", file, "--test", WRONG, "--json")
    facts = json.loads(shown.out)
    assert facts["again"] and facts["test"] == WRONG and len(facts["story"]) >= facts["steps"]
    smaller = rsm("shrink", file, "--seconds", "5")
    assert smaller.code == 0 and smaller.out.endswith(" before\n")
    assert json.loads(rsm("shrink", file, "--out", f"{file}2", "--json").out)["steps"] <= facts["steps"]


def test_a_test_without_a_fault_says_how_much_it_ran() -> None:
    found = rsm("test", RIGHT, "--iterations", "8")
    assert found.code == 0 and found.out.startswith("8 runs; ")
    facts = json.loads(rsm("test", RIGHT, "--iterations", "8", "--json").out)
    assert facts["runs"] == 8 and facts["witness"] is None and not facts["complete"]
    assert {"kind": "Clock", "state": "run", "event": "Tick"} in facts["missed"]


def test_a_strategy_can_be_chosen() -> None:
    facts = json.loads(rsm("test", RIGHT, "--iterations", "100000", "--strategy", "dfs", "--json").out)
    assert facts["complete"]
    assert "which are all that there are" in rsm("test", RIGHT, "--seconds", "600", "--strategy", "dfs").out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("test", "nowhere"), "expected MODULE:FUNCTION"),
        (("test", "nowhere:a"), "expected a module 'nowhere' that can be imported from here"),
        (("test", f"{RIGHT}s"), "expected a test 'rights'"),
        (("test", "libs.tests.rsm.test_testing_commands:RIGHT"), "to be a function under @rsm_test or a Program"),
        (("replay", "/nowhere"), "/nowhere cannot be read"),
    ],
)
def test_what_cannot_be_tested_is_a_sentence(arguments: tuple[str, ...], text: str) -> None:
    found = rsm(*arguments)
    assert found.code == 2 and text in found.err


def test_a_witness_of_a_program_that_has_changed_is_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "fault.json"
    assert rsm("test", WRONG, "--out", str(file)).code == 1
    found = rsm("replay", str(file), "--test", RIGHT)
    assert found.code in (0, 2), "without its monitor the same run has no fault"
    file.write_text("{}")
    assert rsm("replay", str(file)).code == 2
