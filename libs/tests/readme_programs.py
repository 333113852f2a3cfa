"""The program of a library's README: it is short, and runs against `boki dev` as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

LIBRARIES = Path(__file__).parents[1]


def check_readme_program(library: str, url: str, directory: Path, *, most_lines: int, times: int = 1) -> None:
    """Assert that the program prints what the README says, each time that it is run.

    Args:
        library: whose README it is.
        url: of `boki dev`, in the place of the one in the program.
        directory: for the program.
        most_lines: lines that it may have, without empty ones.
        times: runs, one after the other, on the same cluster.
    """
    found = re.search(
        r"<!-- prints (.+?) -->\n```python\n(.+?)```", (LIBRARIES / library / "README.md").read_text(), re.DOTALL
    )
    assert found is not None
    assert len([line for line in found[2].splitlines() if line]) <= most_lines
    program = directory / "program.py"
    program.write_text(found[2].replace("boki://127.0.0.1:7040", url))
    for _ in range(times):
        ran = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=30, check=False)
        assert (ran.stdout.strip(), ran.stderr) == (found[1], "")
