"""What the docs advise users to write works: the example of the docs, as a test suite of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from deploy.images import ROOT

pytestmark = [pytest.mark.containers, pytest.mark.alone, pytest.mark.timeout(600)]

EXAMPLE: Final = re.compile(r"```python\n([^`]*?pytest_plugins.*?)```", re.DOTALL)
LINES: Final = 12


def test_the_example_of_the_docs_is_a_test_that_passes(tmp_path: Path) -> None:
    (example,) = EXAMPLE.findall((ROOT / "docs/deploy.md").read_text())
    assert sum(1 for line in example.splitlines() if line.strip()) <= LINES
    (tmp_path / "test_orders.py").write_text(example)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    if "1 skipped" in done.stdout:
        pytest.skip(done.stdout)
    assert "1 passed" in done.stdout
