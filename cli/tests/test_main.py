"""The command as it is installed: its entry point, its help, its epilogue of exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

import click
import pytest

from boki_cli import main

if TYPE_CHECKING:
    from boki_cli.testing.commands import RunCommandLine


def test_the_entry_point_ends_with_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["read"])
    assert ended.value.code == 2
    assert "Missing option '--book'" in capsys.readouterr().err


def test_every_module_has_the_commands_that_help_lists_of_it() -> None:
    for section in main.SECTIONS.values():
        for name, module in section.items():
            found = getattr(import_module(f"boki_cli.{module}"), name)
            assert isinstance(found, click.Command), name
            assert found.name == name


def nothing(_group: object) -> None:
    """Adds no command."""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("no_such_library:register", "cannot be loaded: ModuleNotFoundError"),
        (f"{__name__}:nothing", "found that it did not"),
    ],
)
def test_a_library_that_is_broken_breaks_its_own_command_only(
    value: str, said: str, monkeypatch: pytest.MonkeyPatch, run_boki: RunCommandLine
) -> None:
    monkeypatch.setattr(main, "of_libraries", lambda: {"broken": EntryPoint("broken", value, main.LIBRARIES)})
    refused = run_boki("broken", "it")
    assert (refused.code, said in refused.err) == (2, True)
    helped = run_boki("--help")
    assert (helped.code, "\n  append " in helped.out) == (0, True)
    assert " ".join(said.split()[-3:]) in " ".join(helped.out.split())
    assert run_boki("brokn").code == 2


def test_no_library_replaces_a_command() -> None:
    assert not main.of_libraries().keys() & {name for section in main.SECTIONS.values() for name in section}


@pytest.mark.processes
def test_a_command_imports_no_other_commands() -> None:
    program = (
        "import sys; from boki_cli import main; from boki_cli.options import run; run(main.boki, ['read', '--help'])"
    )
    listing = "print([name for name in sys.modules if name.endswith(('_command', '_commands'))])"
    done = subprocess.run([sys.executable, "-c", f"{program}; {listing}"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['boki_cli.records.book_commands']"


@pytest.mark.processes
def test_a_shell_completes_commands() -> None:
    line = {"COMP_WORDS": "boki log ro", "COMP_CWORD": "2", "_BOKI_COMPLETE": "bash_complete"}
    command = [sys.executable, "-m", "boki_cli.main"]
    done = subprocess.run(command, env=os.environ | line, capture_output=True, text=True, check=True)
    assert done.stdout == "plain,roll\n"


@pytest.mark.processes
def test_help_as_a_process() -> None:
    done = subprocess.run([sys.executable, "-m", "boki_cli.main", "--help"], capture_output=True, text=True, check=True)
    for name in ("append", "bookie", "dev", "engine", "init", "ledger", "read", "sequencer", "status", "tail"):
        assert f"\n  {name} " in done.stdout, name
    assert "Exit codes: 0 ok, 1 a check failed" in done.stdout
