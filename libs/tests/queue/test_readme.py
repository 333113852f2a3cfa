"""The program of the README runs against `boki dev`, and is short."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "bokiqueue" / "README.md"


@pytest.fixture
def dev_url(tmp_path: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "boki_cli.main", "dev", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--json", "--stop-with-stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        found = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
        assert found is not None
        yield f"boki://{found[0]}"
        process.stdin.close()
        process.wait(timeout=30)


@pytest.mark.processes
def test_the_program_runs_as_it_stands(dev_url: str, tmp_path: Path) -> None:
    text = README.read_text()
    found = re.search(r"<!-- prints (.+?) -->\n```python\n(.+?)```", text, re.DOTALL)
    assert found is not None
    assert len([line for line in found[2].splitlines() if line]) <= 15
    program = tmp_path / "program.py"
    program.write_text(found[2].replace("boki://127.0.0.1:7040", dev_url))
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=30, check=False)
    assert (ran.stdout.strip(), ran.stderr) == (found[1], "")
