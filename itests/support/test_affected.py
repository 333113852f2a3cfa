"""What `make check` runs: the tests that a change reaches, nearest first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from itests.support import affected
from itests.support.affected import distance, imported_by, module_of, steps_from

IMPORTS = {
    "boki_common.ids": frozenset({"boki_ledger.acks", "boki_ledger.writer"}),
    "boki_ledger.acks": frozenset({"boki_ledger.writer"}),
    "boki_ledger.writer": frozenset({"boki_ledger.client"}),
}


def test_steps_count_the_fewest_imports_to_a_change() -> None:
    assert steps_from(["boki_common.ids"], IMPORTS) == {
        "boki_common.ids": 0,
        "boki_ledger.acks": 1,
        "boki_ledger.writer": 1,
        "boki_ledger.client": 2,
    }


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("common/boki_common/net/frames.py", "boki_common.net.frames"),
        ("logbook/boki/__init__.py", "boki"),
        ("common/tests/net/test_frames.py", ""),
        ("docs/python.md", ""),
        ("common/boki_common/py.typed", ""),
    ],
)
def test_files_of_packages_have_modules(name: str, module: str) -> None:
    assert module_of(name) == module


def test_imports_are_found_wherever_they_stand() -> None:
    source = "import boki\ndef f():\n    from boki_ledger import acks\n"
    assert set(imported_by(source)) == {"boki", "boki_ledger", "boki_ledger.acks"}


@pytest.mark.parametrize(
    ("changed", "source", "expected"),
    [
        ("ledger/tests/test_acks.py", "", 0),  # itself
        ("ledger/tests/conftest.py", "", 0),  # beside it
        ("ledger/conftest.py", "", 0),  # above it
        ("metalog/conftest.py", "", None),  # above others
        ("ledger/tests/test_writer.py", "", None),  # another test of its folder
        ("ledger/boki_ledger/acks.py", "", 1),  # by its name
        ("common/boki_common/ids.py", "from boki_common.ids import Position", 1),
        ("common/boki_common/ids.py", "from boki_ledger import writer", 2),
        ("common/boki_common/ids.py", "import boki_ledger.client", 3),
        ("common/boki_common/limits.py", "import boki_ledger.client", None),
    ],
)
def test_distance_of_a_test_file_from_a_change(changed: str, source: str, expected: int | None) -> None:
    steps = steps_from([module] if (module := module_of(changed)) else [], IMPORTS)
    assert distance("ledger/tests/test_acks.py", source, frozenset([changed]), steps) == expected


def test_a_change_of_a_module_finds_its_own_tests_first() -> None:
    found = affected.affected(["common/boki_common/net/frames.py"])
    assert (1, "common/tests/net/test_frames.py") in found
    assert found == sorted(found)
    assert max(far for far, _ in found) <= affected.FARTHEST


RUN_OUT_OF_TIME = """
import sys, pytest
from itests.support.affected import Deadline
deadline = Deadline(0.0)
code = pytest.main(["-q", "-c", sys.argv[1] + "/none.ini", "-p", "no:randomly", "-p", "no:cacheprovider", sys.argv[1]], plugins=[deadline])
print("ended:", int(code), deadline.over, deadline.failed)
"""


def test_the_time_being_over_ends_a_run_and_keeps_its_failures(tmp_path: Path) -> None:
    (tmp_path / "none.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text("def test_one(): assert False\ndef test_two(): raise SystemExit(9)\n")
    ran = subprocess.run(
        [sys.executable, "-c", RUN_OUT_OF_TIME, str(tmp_path)],
        cwd=affected.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"ended: {int(pytest.ExitCode.INTERRUPTED)} True True" in ran.stdout
    assert "1 failed" in ran.stdout
