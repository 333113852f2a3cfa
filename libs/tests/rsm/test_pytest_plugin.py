"""`--rsm-seed` and `--rsm-replay` reach tests of machines in a pytest of another process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

TEST = """
from bokirsm import App, Event, Machine, Register, State
from bokirsm.testing import rsm_test


class Add(Event):
    number: int


class Cell(Machine[Add]):
    numbers: Register[list[int]] = Register([])
    run = State(start=True)

    @run.on(Add)
    def add(self, e: Add) -> None:
        self.numbers.append(e.number)
        assert self.numbers != [2, 1], "2 came first"


@rsm_test(App("a", [Cell]))
async def test_order(rsm):
    cell = await rsm.create(Cell)

    async def add(number):
        await rsm.send(cell, Add(number))

    rsm.start(add(1))
    rsm.start(add(2))


@rsm_test(App("a", [Cell]), iterations=4)
async def test_other(rsm):
    print("ran the other")
"""
NAME = "bokirsm_tools.pytest_plugin"


def pytest_of(folder: Path, *options: str, hash_seed: str = "0") -> str:
    """Return the output of another pytest."""
    found = [one for one in entry_points(group="pytest11") if one.value == NAME]
    plugin = [] if found else ["-p", NAME]  # in a checkout that was installed before there was the plugin
    command = [sys.executable, "-m", "pytest", "-s", "-q", *plugin, *options, "test_it.py"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    return done.stdout + done.stderr


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_witness_is_replayed_by_another_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    first = pytest_of(tmp_path)
    assert "1 failed, 1 passed" in first and first.count("ran the other") == 4
    (path,) = re.findall(r"^E +again: pytest … --rsm-replay=(\S+)$", first, re.MULTILINE)
    again = pytest_of(tmp_path, f"--rsm-replay={path}", hash_seed="7")
    assert "1 failed, 1 passed" in again and "ran the other" not in again
    steps = [re.findall(r"^E +\d+  .*$", one, re.MULTILINE) for one in (first, again)]
    assert steps[0] == steps[1] and 6 <= len(steps[0]) <= 7


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_seed_is_one_run(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    outputs = [pytest_of(tmp_path, f"--rsm-seed={seed}") for seed in (1, 2)]
    assert [one.count("ran the other") for one in outputs] == [1, 1]
