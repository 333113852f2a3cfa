"""README and docs tell the truth: every Python block runs, every link leads somewhere, every test that is named exists.

A line before a block says how it is run:

| mark | meaning |
|---|---|
| (none) | runs inside of this process; blocks of one page share their names, top to bottom |
| `<!-- needs: boki dev -->` | a whole program: runs as a process against a fresh `boki dev`, whose address replaces the one in it |
| `<!-- not run: reason -->` | must only compile, because of the reason |
| `<!-- page needs: boki dev -->`, once | blocks run against a fresh `boki dev` and may `await`; each prints the `text` behind it |
| `<!-- page needs: spark -->`, once | the same, with a session `spark` and no `await`; `spark/tests/test_page.py` runs it |

Of the last two kinds of pages the first also runs each block of `sh` with a `text` behind it, which is what it prints: there seqnums, times
and tokens stand for others, and a line "…" for any lines.

In `.md` pages a block is Python when its fence says so; other languages are not looked at.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Final

import click
import pytest
from sybil import Document, Example
from sybil.parsers.markdown import CodeBlockParser

import boki
from boki_cli import main
from itests.support.processes import running, throughout

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
DEFAULT_URL: Final = "boki://127.0.0.1:7040"

_MARK: Final = re.compile(r"<!-- (needs|not run): (.+?) -->\s*\Z")
_PAGE_NEEDS: Final = "<!-- page needs: boki dev -->"
_NEEDS_SPARK: Final = "<!-- page needs: spark -->"
PRINTS: Final = re.compile(r"\n?```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
"""What a block prints, right behind it."""
_ANY: Final = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", r"\d{4}-\d\d-\d\dT[\d:.]+Z"),
    (r"\d{9,}", r"\d{9,}"),
    (r"[0-9a-f]{8,}", r"[0-9a-f]{8,}"),
    (r"\d+(?:\.\d)? (?:ms|s|min)\b", r"\d+(?:\.\d)? (?:ms|s|min)"),
)
"""(in a text that a command prints, what may stand there)"""
_FENCED: Final = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_CODE: Final = re.compile(r"`([^`\n]+)`")
_TEST: Final = re.compile(r"((?:[\w.]+/)*test_\w+\.py)?(?:::(test_\w+))?")
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def blocks(path: Path) -> list[Example]:
    parser = CodeBlockParser("python", evaluator=lambda example: None)
    return list(Document.parse(str(path), parser).examples())


def shells(path: Path) -> list[Example]:
    """The blocks of `sh` whose output is behind them."""
    found = Document.parse(str(path), CodeBlockParser("sh", evaluator=lambda example: None)).examples()
    return [one for one in found if PRINTS.match(one.document.text, one.region.end)]


def pattern_of(expected: str) -> str:
    """The pattern of what a command prints, see the module."""
    lines = []
    for line in expected.splitlines():
        parts = [re.escape(part) for part in re.split("|".join(one for one, _ in _ANY), line)]
        stands = [next(may for one, may in _ANY if re.fullmatch(one, found)) for found in _variable(line)]
        lines.append("".join(part + may for part, may in zip(parts, [*stands, ""], strict=True)) + "\n")
    return "".join("(?:.*\n)*?" if line == re.escape("…") + "\n" else line for line in lines)


def _variable(line: str) -> list[str]:
    return re.findall("|".join(one for one, _ in _ANY), line)


def ran(script: str, url: str) -> str:
    """What a block of `sh` prints, errors too."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "BOKI_URL": url, "PATH": path}
    done = subprocess.run(
        ["bash", "-eu", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def mark_of(example: Example) -> tuple[str, str]:
    """(kind, argument) of the comment right before a block; ("", "") without one."""
    found = _MARK.search(example.document.text[: example.region.start])
    return (found[1], found[2]) if found else ("", "")


def compiled(path: Path, example: Example) -> CodeType:
    # As many empty lines before it as on the page: a traceback then names the line of the page.
    return compile("\n" * example.line + str(example.parsed), str(path), "exec")


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


PLAIN_PAGES: Final = [path for path in PAGES if not {_PAGE_NEEDS, _NEEDS_SPARK} & set(path.read_text().splitlines())]


@pytest.mark.parametrize("path", PLAIN_PAGES, ids=page_name)
def test_python_blocks(path: Path) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for example in blocks(path):
        kind, _ = mark_of(example)
        code = compiled(path, example)
        if not kind:
            exec(code, names)


@pytest.mark.processes
@pytest.mark.timeout(900)  # pages that try every crash compute for seconds, and longer on a busy machine
@pytest.mark.parametrize("path", [path for path in PAGES if _PAGE_NEEDS in path.read_text()], ids=page_name)
def test_pages_against_boki_dev(path: Path, dev_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        try:
            shown = shells(path)
            for example in sorted([*blocks(path), *shown], key=lambda one: one.region.start):
                said = PRINTS.match(example.document.text, example.region.end)
                if example in shown:
                    assert said is not None
                    found = ran(str(example.parsed), dev_url)
                    assert re.fullmatch(pattern_of(said[1]), found), f"{page_name(path)}:{example.line}\n{found}"
                    continue
                source = "\n" * example.line + str(example.parsed).replace(DEFAULT_URL, dev_url)
                # As a person pastes it: without the postponed annotations of this file.
                code = compile(source, str(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
                made = eval(code, names)
                if inspect.iscoroutine(made):
                    runner.run(made)
                assert capsys.readouterr().out == (said[1] if said else ""), f"{page_name(path)}:{example.line}"
        finally:
            client = names.get("client")
            if isinstance(client, boki.Client):
                runner.run(client.close())


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        ("at 34359738371\n", "at 99999999999\n", True),
        ("at 34359738371 x\n", "at 99999999999\n", False),
        (
            "host.0123abcd 7 ms ago, 2026-01-01T00:00:00.000Z\n",
            "host.ffffffff 1.5 s ago, 2025-12-31T10:00:00.123Z\n",
            True,
        ),
        ("a\nb\nc\n", "a\n…\nc\n", True),
        ("a\nc\n", "a\n…\nc\n", True),
        ("a\nb\n", "a\n…\nc\n", False),
        ("a.b\n", "a+b\n", False),
    ],
)
def test_output_of_another_form_is_noticed(found: str, expected: str, same: bool) -> None:
    assert bool(re.fullmatch(pattern_of(expected), found)) is same


PROGRAMS: Final = [
    pytest.param(str(example.parsed), id=f"{page_name(path)}:{example.line}")
    for path in PAGES
    for example in blocks(path)
    if mark_of(example) == ("needs", "boki dev")
]


@pytest.fixture
def dev_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A fresh `boki dev` on a free port."""
    for name in [name for name in os.environ if name.startswith("BOKI_")]:
        monkeypatch.delenv(name)
    with throughout(
        running("dev", "--data", tmp_path / "data", "--listen", "127.0.0.1:0", log=tmp_path / "log")
    ) as dev:
        yield dev.url


@pytest.mark.processes
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_against_boki_dev(program: str, dev_url: str, tmp_path: Path) -> None:
    assert DEFAULT_URL in program, "the program names the address that `boki dev` has by default"
    file = tmp_path / "program.py"
    file.write_text(program.replace(DEFAULT_URL, dev_url))

    def lines() -> list[str]:
        ran = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=30, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines()

    once = lines()
    assert [line.split(" ", 1)[1] for line in once] == ["two apples"]
    twice = lines()
    assert twice[0] == once[0], "a record keeps its number"
    assert [line.split(" ", 1)[1] for line in twice] == ["two apples", "two apples"]


def test_the_first_screen_of_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    program = str(blocks(ROOT / "README.md")[0].parsed)
    assert len(program.strip().splitlines()) <= 12
    assert text.index("```sh") < text.index("```python") < text.index("Do not use this")
    assert text[: text.index("Do not use this")].count("\n") <= 40


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_links_lead_somewhere(path: Path) -> None:
    text = _FENCED.sub("", path.read_text())
    missing = [
        target
        for target in _LINK.findall(text)
        if "://" not in target and not target.startswith("#") and not (path.parent / target.partition("#")[0]).exists()
    ]
    assert not missing, f"{page_name(path)} links to what does not exist: {missing}"


def named_tests(line: str) -> Iterator[tuple[str, str]]:
    """(file, test or "") of each test that a line names; `test_b.py` after `a/test_a.py` is beside that, `::test_c` in it."""
    folder = file = ""
    for code in _CODE.findall(line):
        found = _TEST.fullmatch(code)
        if found and any(found.groups()):
            file = found[1] or file
            if "/" in file:
                folder = file.rpartition("/")[0]
            else:
                file = f"{folder}/{file}"
            yield file, found[2] or ""


def test_tests_that_requirements_name_exist() -> None:
    missing = []
    for line in (ROOT / "docs/acceptance.md").read_text().splitlines():
        for file, name in named_tests(line):
            path = ROOT / file
            if not path.is_file() or (name and f"def {name}(" not in path.read_text()):
                missing.append(f"{file}::{name}")
    assert not missing, "docs/acceptance.md names tests that are not there: " + ", ".join(missing)


def test_a_test_is_named_in_full_beside_the_one_before_or_in_the_same_file() -> None:
    line = "`a/tests/test_x.py::test_one`, `::test_two`; `test_y.py`, `make test`, `b/test_z.py`"
    assert list(named_tests(line)) == [
        ("a/tests/test_x.py", "test_one"),
        ("a/tests/test_x.py", "test_two"),
        ("a/tests/test_y.py", ""),
        ("b/test_z.py", ""),
    ]


def test_the_table_of_the_command_line_has_every_command_of_libraries() -> None:
    rows = [line for line in (ROOT / "docs/cli.md").read_text().splitlines() if line.startswith("| `boki ")]
    missing = []
    for name in main.of_libraries():
        group = main.boki.get_command(click.Context(main.boki), name)
        if not isinstance(group, click.Group):
            continue
        known = {code.split()[-1] for row in rows if row.startswith(f"| `boki {name} ") for code in _CODE.findall(row)}
        missing += [f"boki {name} {one}" for one in group.commands if one not in known]
    assert not missing, f"docs/cli.md does not have {missing}"


def test_an_example_that_fails_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        textwrap.dedent(
            """
            # A page
            ```python
            x = 1
            ```
            <!-- not run: it never ends -->
            ```python
            while x: ...
            ```
            ```python
            assert x == 2
            ```
            """
        )
    )
    found = blocks(page)
    assert [mark_of(example)[0] for example in found] == ["", "not run", ""]
    names: dict[str, object] = {}
    exec(compiled(page, found[0]), names)
    with pytest.raises(AssertionError) as raised:
        exec(compiled(page, found[2]), names)
    assert raised.traceback[-1].lineno + 1 == 11
