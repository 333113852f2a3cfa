"""`--sim-seed` reaches simulated tests, through the plugin that pytest finds by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TEST = """
from boki.testing import simulated

@simulated(seeds=5, faults="calm", seconds=0.1)
async def test_tells(cluster):
    print("ran seed", cluster.seed)
"""


@pytest.mark.processes
def test_the_option_chooses_the_seed(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-s", "-q", "-p", "no:cacheprovider", "--sim-seed", "9", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if "ran seed" in line] == ["ran seed 9"]
