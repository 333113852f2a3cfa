"""`docs/gateway.md` tells the truth: its curl lines run in order against a fresh `boki dev` and answer what it says.

A ```` ```curl ```` block is a script; the block after it is what its last line answers: JSON, in which digits stand for digits
and "…" for anything, or text, in which digits stand for digits. A ```` ```sh ```` block with curl must only run.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import pytest

from boki_cli.main import boki
from boki_cli.options import Invocation
from boki_gateway.server import ROUTES
from itests.support.processes import running, throughout

PAGE: Final = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text()
BLOCKS: Final = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
ADDRESS: Final = "127.0.0.1:7080"


def like(found: Any, expected: Any) -> bool:
    """Whether an answer is of the form that the page shows."""
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and found.keys() == expected.keys()
            and all(like(found[name], value) for name, value in expected.items())
        )
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(like, found, expected))
    if expected == "…" or (isinstance(expected, str) and isinstance(found, str) and digits(found) == digits(expected)):
        return True
    if isinstance(expected, int) and isinstance(found, int) and expected > 10**9:
        return True  # a time
    return type(found) is type(expected) and found == expected


def digits(text: str) -> str:
    return re.sub(r"\d{9,}", "N", text)


@pytest.mark.processes
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl on PATH")
    dev = running("dev", "--data", tmp_path, "--listen", "127.0.0.1:0", "--gateway-port", "0", log=tmp_path / "log")
    with throughout(dev) as process:
        for (kind, script), (answer, expected) in zip(BLOCKS, [*BLOCKS[1:], ("", "")], strict=True):
            if kind != "curl" and not (kind == "sh" and "curl" in script):
                continue
            found = ran(script.replace(ADDRESS, process.ready["gateway"]))
            if kind == "curl" and answer == "json":
                last = msgspec.json.decode(found.splitlines()[-1])
                assert like(last, msgspec.json.decode(expected)), (script, found)
            elif kind == "curl":
                assert digits(found).startswith(digits(expected)), (script, found)


def ran(script: str) -> str:
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, b""), (script, done)
    assert done.stdout.strip(), script
    return done.stdout.decode()


def test_the_commands_of_boki_parse() -> None:
    lines = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines() if line.startswith("boki")]
    assert lines
    for line in lines:
        name, *arguments = shlex.split(line, comments=True)[1:]
        group = boki.make_context("boki", [name, *arguments], obj=Invocation())
        command = boki.get_command(group, name)
        assert command is not None
        assert isinstance(command.make_context(name, arguments, parent=group), click.Context)


def test_every_route_of_books_is_on_the_page() -> None:
    paths = {route.path.removeprefix("/v1/books/{book}") for route in ROUTES if route.path.startswith("/v1/books/")}
    documented = set(re.findall(r"`(/[\w{}/-]+)", PAGE))
    assert paths - documented == set()


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        ({"a": "34359738368"}, {"a": "99999999999"}, True),
        ({"a": "34359738368"}, {"a": "x"}, False),
        ({"a": 1}, {"a": 2}, False),
        ({"a": [1]}, {"a": []}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": "why"}, {"a": "…"}, True),
        ({"a": None}, {"a": False}, False),
    ],
)
def test_answers_of_another_form_are_noticed(found: object, expected: object, same: bool) -> None:
    assert like(found, expected) is same
