"""`docs/operating.md` tells the truth: its commands parse, its addresses answer, its settings and metrics exist."""

from __future__ import annotations

import dataclasses
import re
import shlex
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

import click
import pytest

from boki_bookie import metric_definitions as of_bookies
from boki_bookie.serve.admin import LEDGERS_A_PAGE  # before a loop runs: it looks up its version in a file
from boki_bookie.settings import BookieSettings
from boki_cli.main import boki
from boki_cli.options import Invocation
from boki_cli.testing.bookies import BookieCluster
from boki_common import metric_definitions as of_all
from boki_common.metrics import MetricDefinition
from boki_logbook import metric_definitions as of_engines
from boki_logbook.settings import EngineSettings
from boki_metalog import metric_definitions as of_sequencers
from boki_metalog.settings import ControllerSettings, SequencerSettings

PAGE: Final = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
LINES: Final = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
    if line.strip()
]
COMMANDS: Final = [shlex.split(line, comments=True) for line in LINES]
ADMIN: Final = "http://127.0.0.1:7090"


def parse(arguments: list[str]) -> str:
    """The command that a line would run. Raises click.UsageError."""
    context = boki.make_context("boki", list(arguments), obj=Invocation())
    command: click.Command = boki
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None and name is not None
        command, context = found, found.make_context(name, rest, parent=context)
    return context.command_path


@pytest.mark.parametrize("words", [pytest.param(words, id=" ".join(words)) for words in COMMANDS if words[0] == "boki"])
def test_commands_parse(words: list[str]) -> None:
    assert parse(words[1:])


def test_a_wrong_option_would_be_noticed() -> None:
    with pytest.raises(click.UsageError):
        parse(["ledger", "repair", "--bookies", "x"])


def test_admin_addresses_answer(bookies: BookieCluster) -> None:
    bookies.run(bookies.stop_bookie(0))
    bookie = bookies.run(bookies.start_bookie(0, admin_port=0))
    assert bookie.admin is not None
    real = f"http://{bookie.admin.address}"
    curls = [words for words in COMMANDS if words[0] == "curl"]
    assert len(curls) >= 8 and f"&limit={LEDGERS_A_PAGE}" in PAGE
    for words in curls:
        (url,) = (word for word in words if word.startswith(ADMIN))
        method = words[words.index("-X") + 1] if "-X" in words else "GET"
        data = words[words.index("-d") + 1].encode() if "-d" in words else None
        request = urllib.request.Request(url.replace(ADMIN, real), data=data, method=method)
        with urllib.request.urlopen(request, timeout=10) as response:
            assert response.status in (200, 202), url


def test_nothing_else_is_among_the_commands() -> None:
    assert {words[0] for words in COMMANDS} == {"boki", "curl"}


def test_settings_and_metrics_exist() -> None:
    for name, kind in (
        ("bookie", BookieSettings),
        ("engine", EngineSettings),
        ("sequencer", SequencerSettings),
        ("controller", ControllerSettings),
    ):
        known = {field.name for field in dataclasses.fields(kind)}
        named = set(re.findall(rf"`{name}\.(\w+)`", PAGE))
        assert named and named <= known, sorted(named - known)
    for role, module in (("bookie", of_bookies), ("engine", of_engines), ("sequencer", of_sequencers), ("log", of_all)):
        metrics = {one.name for one in vars(module).values() if isinstance(one, MetricDefinition)}
        named = set(re.findall(rf"`(boki_{role}_\w+)`", PAGE))
        assert named and named <= metrics, sorted(named - metrics)


def test_the_page_is_short() -> None:
    assert PAGE.count("\n") <= 210
