"""Names in backticks, in docstrings of the libraries and on their pages, name what the project has (`itests/support/names.py`)."""

from __future__ import annotations

import ast
from functools import cache
from typing import Final

import pytest

from itests.support.names import SPAN, Names, docstrings, module_of, page_text
from itests.test_tidy import ROOT, name_of, none, python_files, repository_files, tree_of

pytestmark = pytest.mark.timeout(300)
"""Many files are read, also while other tests have the processors."""

HOLDS: Final = ("examples", "libs", "spark")
"""Rooms whose docstrings are checked."""
NOT_YET: Final = ("bookie", "cli", "common", "gateway", "ledger", "logbook", "metalog", "sim")
"""Rooms whose docstrings are not, so that they can be moved up."""
PAGES: Final = (
    "applications", "architecture-libraries", "flow", "python", "queue", "rsm", "spark", "store", "tables", "unreadable",
)  # fmt: skip
"""Pages of docs/ that are checked."""
PAGES_NOT_YET: Final = (
    "acceptance", "backup", "benchmarks", "cli", "compatibility", "defects", "dependencies", "deploy", "disks",
    "gateway", "museum", "operating", "scale-out", "simulator",
)  # fmt: skip
"""Pages of docs/ that are not, so that they can be moved up."""
KNOWN: Final = ("cli", "common", "examples", "libs", "logbook/boki", "sim/boki_sim/clusters", "spark")
"""Folders whose names docstrings and pages of the libraries use."""

OTHERS: Final = {
    "current_timestamp": "a function of Spark",
    "df": "a DataFrame of Spark",
    "dropped_columns": "a table of Cassandra",
    "rand": "a function of Spark",
    "rdd": "of a DataFrame of Spark",
    "system_schema": "of Cassandra",
    "uuid4": "of the standard library",
    "write": "of a DataFrame of Spark",
    "writeStream": "of a DataFrame of Spark",
}
"""Words of other projects → whose they are."""


@cache
def names() -> Names:
    """Return the names of the folders that are known, without those of their tests."""
    known = Names(name_of(path) for path in repository_files())
    for path in python_files():
        name = name_of(path)
        if name.startswith(tuple(f"{folder}/" for folder in KNOWN)) and "/tests/" not in name:
            known.add(module_of(name), tree_of(path))
    known.own()
    return known


def test_names_in_docstrings_resolve() -> None:
    faults = []
    for path in python_files():
        if name_of(path).split("/")[0] not in HOLDS or "/tests/" in name_of(path):
            continue
        for line, text in docstrings(tree_of(path)):
            faults += [
                f"{name_of(path)}:{line}: `{span}`"
                for span in SPAN.findall(text)
                if not names().resolves(span, frozenset(OTHERS))
            ]
    none(faults, "name what there is, or write it without backticks; words of other projects belong into OTHERS")


def test_names_on_pages_of_the_libraries_resolve() -> None:
    faults = []
    for page in PAGES:
        lines, words = page_text((ROOT / "docs" / f"{page}.md").read_text())
        for number, line in lines:
            faults += [
                f"docs/{page}.md:{number}: `{span}`"
                for span in SPAN.findall(line)
                if not names().resolves(span, words | OTHERS.keys())
            ]
    none(faults, "name what there is, or write it without backticks; words of other projects belong into OTHERS")


def test_each_room_and_each_page_is_listed() -> None:
    rooms = {name_of(path).split("/")[0] for path in python_files() if "/tests/" in name_of(path)}
    none(sorted(rooms - {*HOLDS, *NOT_YET, "itests"}), "add the room to HOLDS or NOT_YET")
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    none(sorted(pages ^ {*PAGES, *PAGES_NOT_YET}), "each page is in PAGES or in PAGES_NOT_YET")


SOURCE: Final = '''
import json
LIMIT = 3
class Base:
    def run(self, width: int) -> None:
        self.rest = width
class Log(Base):
    """A log."""
    seen: int = 0
class Error(ValueError): ...
'''


@pytest.mark.parametrize(
    "span",
    [
        "LIMIT",
        "Log",
        "Log.seen",
        "Log.run(width)",
        "log.Log.rest",
        "x.append.log",
        "append.log.LIMIT",
        "width",
        "json.anything",
        "box.rest",
        "append/log.py",
        "x.append",
        "Error.args",
        "boki queue stats",
        "lib/carry/<library>",
    ],
)
def test_what_there_is_resolves(span: str) -> None:
    assert toy().resolves(span, frozenset({"box"}))


@pytest.mark.parametrize(
    "span", ["LIMITS", "Log.gone", "log.gone", "log.Log.gone", "Base.seen", "box.rest", "gone.py", "y.append", "gone()"]
)
def test_what_there_is_no_more_does_not(span: str) -> None:
    assert not toy().resolves(span)


def test_pages_are_read_outside_their_code_and_of_comparisons_the_first_column() -> None:
    page = "a `b`\n```python\nmine = 1\n```\n| here | there |\n|---|---|\n| `ours` | `theirs` |\n\n| `one` | `two` |"
    lines, words = page_text(page)
    assert [span for _, line in lines for span in SPAN.findall(line)] == ["b", "ours", "one", "two"]
    assert words == {"mine"}


def toy() -> Names:
    known = Names(["x/x/append/log.py"])
    known.add(module_of("x/x/append/log.py"), ast.parse(SOURCE))
    known.own()
    return known
