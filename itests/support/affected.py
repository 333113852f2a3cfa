"""`make check`: runs the tests that a change may have broken, nearest first, until its time is over.

    python -m itests.support.affected [--base REV] [--seconds S] [pytest options]

What changed is what differs from the common ancestor with `main`, files that git does not know yet included. How far a
test file is from it:

    0   it changed itself, or another file of its folder that is no test (a conftest, data), or a conftest above it
    1   it imports a module that changed, or is the test of its name
    n   it imports a module that imports, over n - 1 steps, one that changed

Files beyond `FARTHEST` are not run, and what the time leaves out is counted: this is a quick look before a commit, and
`make test` decides.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import grimp
import pytest

ROOT: Final = Path(__file__).parents[2]
MAIN: Final = "main"
FARTHEST: Final = 2
"""Beyond, a change of a module at the bottom of the house reaches every test there is."""
SECONDS: Final = 60.0

Imports = Mapping[str, frozenset[str]]
"""Module → the modules that import it."""


def packages() -> dict[str, Path]:
    """The packages of the project, each with its folder."""
    found = (path.parent for path in ROOT.glob("*/*/__init__.py"))
    return {folder.name: folder for folder in sorted(found) if folder.name.startswith("boki")}


def changed_files(base: str) -> list[str]:
    """Paths from the root, of files that are there. Raises CalledProcessError: no such revision."""
    ancestor = _git("merge-base", "HEAD", base).strip()
    names = _git("diff", "--name-only", "-z", ancestor) + _git("ls-files", "--others", "--exclude-standard", "-z")
    return sorted({name for name in names.split("\0") if name and (ROOT / name).is_file()})


def _git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=ROOT, check=True, capture_output=True, text=True).stdout


def module_of(name: str) -> str:
    """`common/boki_common/net/frames.py` → `boki_common.net.frames`; "" for what is no module of a package."""
    parts = Path(name).with_suffix("").parts
    if not name.endswith(".py") or len(parts) < 2 or not parts[1].startswith("boki"):
        return ""
    return ".".join(parts[1:-1] if parts[-1] == "__init__" else parts[1:])


def importers(names: Iterable[str]) -> Imports:
    """Who imports whom, in the packages."""
    graph = grimp.build_graph(*names)
    return {module: frozenset(graph.find_modules_that_directly_import(module)) for module in graph.modules}


def steps_from(changed: Iterable[str], imports: Imports) -> dict[str, int]:
    """Every module that a changed one reaches, with the fewest imports between them."""
    steps = dict.fromkeys(changed, 0)
    queue = deque(steps)
    while queue:
        module = queue.popleft()
        for importer in imports.get(module, ()):
            if importer not in steps:
                steps[importer] = steps[module] + 1
                queue.append(importer)
    return steps


def imported_by(source: str) -> Iterator[str]:
    """Names of modules, and of what may be modules, that a file imports anywhere in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def distance(name: str, source: str, changed: frozenset[str], steps: Mapping[str, int]) -> int | None:
    """How far a test file is from the change; None: nothing of it reaches the file."""
    folder = name.rpartition("/")[0]
    if name in changed or any(_serves(one, folder) for one in changed):
        return 0
    named = {f"test_{Path(one).stem}" for one in changed}
    reached = [steps[module] + 1 for module in imported_by(source) if module in steps]
    return min([*reached, *([1] if Path(name).stem in named else [])], default=None)


def _serves(name: str, folder: str) -> bool:
    """Whether a file is there for the tests of a folder."""
    beside, _, file = name.rpartition("/")
    return (beside == folder and not _is_test(name)) or (file == "conftest.py" and folder.startswith(f"{beside}/"))


def _is_test(name: str) -> bool:
    return Path(name).name.startswith("test_") and name.endswith(".py")


def affected(changed: Sequence[str]) -> list[tuple[int, str]]:
    """(distance, path) of the test files to run, nearest first."""
    steps = steps_from((module for module in map(module_of, changed) if module), importers(packages()))
    names = _git("ls-files", "--cached", "--others", "--exclude-standard", "-z", "*test_*.py").split("\0")
    found = []
    for name in names:
        if _is_test(name) and (ROOT / name).is_file():
            far = distance(name, (ROOT / name).read_text("utf-8"), frozenset(changed), steps)
            if far is not None and far <= FARTHEST:
                found.append((far, name))
    return sorted(found)


class Deadline:
    """Ends a run of pytest between two tests when its time is over, and knows whether any failed until then."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self.over = False
        self.failed = False

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed

    def pytest_runtest_logfinish(self) -> None:
        if time.monotonic() >= self._end:
            self.over = True
            self._session.shouldstop = "its time is over"


def main(arguments: Sequence[str]) -> int:
    """The exit code of pytest; 0 when nothing is affected."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=MAIN, help="compare with this revision (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="when to stop (default: %(default)s)")
    known, options = parser.parse_known_args(arguments)
    os.chdir(ROOT)
    changed = changed_files(known.base)
    chosen = affected(changed)
    if not chosen:
        print(f"check: {len(changed)} files changed against {known.base}; they reach no test")
        return 0
    deadline = Deadline(known.seconds)
    order = ["-p", "no:randomly", "--durations=0", "--durations-min=5", "-q", "-m", "not nightly and not alone"]
    code = int(pytest.main([*order, *options, *(name for _, name in chosen)], plugins=[deadline]))
    if deadline.over and code == pytest.ExitCode.INTERRUPTED:
        print(f"check: stopped after {known.seconds:.0f} s, the nearest tests first; all of them: make test")
        return int(deadline.failed)
    return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
