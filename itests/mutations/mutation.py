"""One piece of a fix that can be taken out of a copy of the sources, and the test that must fail then.

A mutation names a package and exact text in it, not a file or a line: code may move between files freely. The text has to
occur exactly once in the package, else the mutation is out of date and says so. `patch.py` reads them from texts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
COPIED: Final = (
    "bookie",
    "cli",
    "common",
    "gateway",
    "ledger",
    "libs",
    "logbook",
    "metalog",
    "sim",
    "spark",
    "itests/support",
    "itests/sdk",
    "conftest.py",
    "pyproject.toml",
)
"""The other packages too: the root's conftest imports all of them, and they have to fit together."""
PACKAGES: Final = {
    "common": "common/boki_common",
    "ledger": "ledger/boki_ledger",
    "bookie": "bookie/boki_bookie",
    "metalog": "metalog/boki_metalog",
    "logbook": "logbook/boki_logbook",
    "sdk": "logbook/boki",
    "gateway": "gateway/boki_gateway",
    "cli": "cli/boki_cli",
    "bokilib": "libs/bokilib/bokilib",
    "bokistore": "libs/bokistore/bokistore",
    "bokiqueue": "libs/bokiqueue/bokiqueue",
    "bokirsm": "libs/bokirsm/bokirsm",
    "bokiflow": "libs/bokiflow/bokiflow",
    "spark": "spark/boki_spark",
    "spark_tools": "spark/boki_spark_tools",
}
TEST_TIMEOUT_S: Final = 60
RUN_TIMEOUT_S: Final = 90
"""A test whose fixtures hang when it has failed is not ended by its own time-out."""

FAILED: Final = 1
ERROR: Final = 2
_FAILURE: Final = re.compile(r"^\d+ failed|\++ Timeout \++", re.MULTILINE)


class Mutation(NamedTuple):
    """`edits` are made together; each replaces text that occurs once in the package."""

    name: str
    """What is taken out, as docs/defects.md has it."""
    package: str
    """A key of PACKAGES."""
    edits: tuple[tuple[str, str], ...]
    test: str
    """`path::name` of the test that must fail."""


class OutOfDate(AssertionError):
    """A mutation no longer fits the code: change its text, or the table that names it."""


def file_of(root: Path, mutation: Mutation, text: str) -> Path:
    """The file with the text. Raises OutOfDate unless the package has it exactly once."""
    package = root / PACKAGES[mutation.package]
    found = [
        (path, count)
        for path in sorted(package.rglob("*.py"))
        if "testing" not in path.relative_to(package).parts and (count := path.read_text("utf-8").count(text))
    ]
    if len(found) != 1 or found[0][1] != 1:
        where = ", ".join(f"{path.relative_to(root)} ({count})" for path, count in found) or "nowhere"
        raise OutOfDate(
            f"{mutation.name}: expected once in {PACKAGES[mutation.package]}, found {where}:\n{text}\nThe code moved on: "
            "find what keeps this defect away now and take that out instead"
        )
    return found[0][0]


def check_test_exists(root: Path, mutation: Mutation) -> None:
    """Raises OutOfDate unless there is a test of that name."""
    name, _, function = mutation.test.partition("::")
    path = root / name
    bare = function.rpartition("::")[2].partition("[")[0]
    if not path.exists() or not re.search(rf"def {re.escape(bare)}\(", path.read_text("utf-8")):
        raise OutOfDate(f"{mutation.name}: there is no test {mutation.test}")


def copy_sources(target: Path) -> None:
    """Everything that the named tests need."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        else:
            shutil.copy2(ROOT / name, target / name)


def mutate(root: Path, mutation: Mutation) -> dict[Path, str]:
    """Applies the edits below `root`; returns the files as they were.

    Raises OutOfDate, also when they name what is not there. The files are as they were then: other mutations of the copy follow.
    """
    before: dict[Path, str] = {}
    try:
        for old, new in mutation.edits:
            path = file_of(root, mutation, old)
            text = path.read_text("utf-8")
            before.setdefault(path, text)
            path.write_text(text.replace(old, new), "utf-8")
        _check_names(mutation, before)
    except OutOfDate:
        restore(before)
        raise
    return before


def restore(before: dict[Path, str]) -> None:
    """Puts files back as they were before a mutation."""
    for path, text in before.items():
        path.write_text(text, "utf-8")


def _check_names(mutation: Mutation, before: dict[Path, str]) -> None:
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", *map(str, before)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise OutOfDate(f"{mutation.name}: expected text that names what there is, found\n{found.stdout}{found.stderr}")


def run_tests(root: Path, *tests: str, timeout_s: float = RUN_TIMEOUT_S) -> tuple[int, str]:
    """pytest of the copy below `root`, on its packages: exit code and output.

    The code is FAILED only if a test failed, or hung, by itself: what cannot be imported or set up is another matter.
    """
    rooms = [name for name in COPIED if not name.startswith("itests/")]  # its modules are named from the root
    folders = [*rooms, *(str(Path(package).parent) for package in PACKAGES.values())]
    path = os.pathsep.join(str(root / name) for name in dict.fromkeys(folders) if (root / name).is_dir())
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly"]
    try:
        done = subprocess.run(
            [*command, f"--timeout={TEST_TIMEOUT_S}", *tests],
            cwd=root,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as hung:
        return FAILED, f"no end after {timeout_s} s: {hung.stdout!r}"
    output = done.stdout + done.stderr
    if done.returncode == FAILED and not _FAILURE.search(output):
        return ERROR, output
    return done.returncode, output
