"""The program of the README runs against `boki dev`, and is short."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "bokirsm" / "README.md"


@pytest.mark.processes
def test_the_program_runs_as_it_stands_and_once_more(dev_url: str, tmp_path: Path) -> None:
    text = README.read_text()
    found = re.search(r"<!-- prints (.+?) -->\n```python\n(.+?)```", text, re.DOTALL)
    assert found is not None
    assert len([line for line in found[2].splitlines() if line]) <= 21
    program = tmp_path / "program.py"
    program.write_text(found[2].replace("boki://127.0.0.1:7040", dev_url))
    for _ in range(2):
        ran = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=30, check=False)
        assert (ran.stdout.strip(), ran.stderr) == (found[1], "")
