"""Docstrings, comments, log lines and pages of the libraries in plain English: no first word that hides the subject, no word of a riddle.

It reads words, not meaning: a hit is reworded by saying who does what, and a clean file may still read badly.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from itests.support.names import page_text
from itests.test_tidy import ROOT, calls, name_of, none, python_files, tree_of

pytestmark = pytest.mark.timeout(300)
"""Many files are read, also while other tests have the processors."""

HOLDS: Final = ("examples/", "libs/", "spark/")
PAGES: Final = ("applications", "flow", "queue", "rsm", "spark", "store", "tables")

OPENING: Final = re.compile(
    r"(?:As|It|Its|Nobody|Nothing|Of|Once|One|So|Somebody|Something|That|Their|These|They|Those)\b"
    r"|(?:What|Whatever|Where|Whether|Who|Whoever|Whom|Whose)\b"
)
"""First words of docstrings that say neither what a thing is nor what a function does."""
MARKER: Final = re.compile(
    r"\b(?:whoever|whomever|nobody|somebody|anew|for ever|shall|(?:is|are|was) over|goes on|go on with|went on|lets? go|of what)\b"
    r"|\b(?:had anew|in sight|comes? back to|so often|so long as|as often as|gives? back|gave up|another one|told|nothing of it)\b"
    r"|\b(?:who (?:has|runs|owns|asks|reads|waits|holds|is|was)|[Hh]e|him)\b"
)
"""Words that stand where the actor (worker, caller, engine) or the field's verb (resume, expire, reclaim) should."""
LOGS: Final = frozenset({"debug", "info", "warning", "error", "exception"})
HELP: Final = frozenset({"option", "argument", "command"})


def read_by_people(path: Path) -> Iterator[tuple[int, bool, str]]:
    """Yield (line, is it a docstring, text) for the docstrings, comments, log lines and help texts of a module."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node):
                yield getattr(node, "lineno", 1), True, text
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, False, node.value.value
    for call, name in calls(path):
        if name.rpartition(".")[2] in LOGS | HELP:
            for value in [*call.args, *(one.value for one in call.keywords if one.arg in ("help", "short_help"))]:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield call.lineno, False, value.value
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], False, token.string


def is_test(path: Path) -> bool:
    return "/tests/" in name_of(path) or path.stem.startswith("test_")


def faults_of(place: str, text: str, *, opens: bool) -> list[str]:
    found = [match.group() for match in MARKER.finditer(text)]
    if opens and (match := OPENING.match(text.strip())):
        found.insert(0, f"begins with {match.group()}")
    return [f"{place}: {one}" for one in found]


def test_code_says_who_does_what() -> None:
    faults: list[str] = []
    for path in python_files():
        name = name_of(path)
        if name.startswith(HOLDS) and not is_test(path):
            for line, opens, text in read_by_people(path):
                faults += faults_of(f"{name}:{line}", text, opens=opens)
    none(sorted(set(faults)), "name the actor, and begin with an imperative verb or a noun (CONTRIBUTING.md)")


def test_pages_say_who_does_what() -> None:
    faults: list[str] = []
    for page in PAGES:
        lines, _ = page_text((ROOT / "docs" / f"{page}.md").read_text())
        for number, line in lines:
            faults += faults_of(f"docs/{page}.md:{number}", line, opens=False)
    none(faults, "name the actor: worker, caller, engine, process (CONTRIBUTING.md)")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Of all its runs.", ["x: begins with Of"]),
        ("Return what nobody told him.", ["x: nobody", "x: told", "x: him"]),
        ("Delete a term that is over.", ["x: is over"]),
        ("Return the records of finished workflows.", []),
    ],
)
def test_a_riddle_is_found(text: str, found: list[str]) -> None:
    assert faults_of("x", text, opens=True) == found
