"""The benchmark beside Apache BookKeeper runs, and says what it found in lines for programs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from itests.support.zookeeper import ROOT

pytestmark = [
    pytest.mark.bookkeeper,
    pytest.mark.nightly,
    pytest.mark.processes,
    pytest.mark.zookeeper,
    pytest.mark.timeout(600),
]


def test_the_quick_run_ends_with_a_ratio_for_every_goal(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    command = [sys.executable, "-m", "benchmarks.ledger", "--quick", "--json", str(found), "--directory", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    lines = re.findall(r"^ratio (\w+) ([\d.]+) (<=|>=) ([\d.]+)$", ran.stdout, re.MULTILINE)
    assert len(lines) == 15
    assert [line[0] for line in lines] == [one["name"] for one in json.loads(found.read_text())["ratios"]]
    assert {path.name for path in tmp_path.iterdir()} == {found.name}  # what was measured on is gone
