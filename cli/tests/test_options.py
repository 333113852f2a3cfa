"""Whatever ends a command becomes a message and an exit code, and never a traceback unless asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from boki_cli import options
from boki_cli.main import boki
from boki_cli.options import CommandGroup, Invocation, command
from boki_common.errors import BokiError, CallTimeout, Conflict, SettingsError, Unreachable

if TYPE_CHECKING:
    from pathlib import Path

    from boki_cli.testing.commands import RunCommandLine

group = CommandGroup("tool")


class Failing:
    """What the command below does, set by each test."""

    error: BaseException | None = None
    code: int | None = None


@command(group, "write", writes=True, client=True)
@click.option("--count", type=int, default=1)
def write(invocation: Invocation, count: int) -> int | None:
    """Writes."""
    if Failing.error is not None:
        raise Failing.error
    invocation.emit({"count": count, "url": invocation.url})
    return Failing.code


@command(group, "look", writes=False)
def look(invocation: Invocation) -> None:
    """Looks."""
    if Failing.error is not None:
        raise Failing.error


@pytest.fixture(autouse=True)
def nothing_fails() -> None:
    Failing.error = Failing.code = None


def ran(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    with CliRunner(env=env or {}).isolation() as (out, err, _):
        code = options.run(group, arguments, name="tool")
        return code, out.getvalue().decode(), err.getvalue().decode()


def test_a_result_is_a_line_of_json() -> None:
    code, out, err = ran("write", "--count", "3", env={"BOKI_URL": "boki://from.environment"})
    assert (code, json.loads(out), err) == (0, {"count": 3, "url": "boki://from.environment"}, "")
    assert json.loads(ran("write", "--url", "boki://from.flag", env={"BOKI_URL": "x"})[1])["url"] == "boki://from.flag"


def test_a_command_may_return_its_exit_code() -> None:
    Failing.code = 1
    assert ran("write")[0] == 1


@pytest.mark.parametrize(
    ("error", "writing", "reading"),
    [
        (Unreachable("no answer from x; is it up?"), 3, 3),
        (CallTimeout("no answer in time"), 5, 3),
        (Conflict("an expectation failed"), 4, 4),
        (SettingsError("2 settings are wrong"), 2, 2),
    ],
)
def test_an_error_is_one_message(error: BokiError, writing: int, reading: int) -> None:
    Failing.error = error
    code, out, err = ran("write")
    assert (code, out) == (writing, "")
    assert err.startswith(f"Error: {error}\n")
    assert ("The outcome is unknown" in err) == (writing == 5)
    assert ran("look") == (reading, "", f"Error: {error}\n")


def test_an_error_as_json() -> None:
    Failing.error = Unreachable("no answer", address="127.0.0.1:1", raw=b"\xff")
    Failing.error.add_note("3 records are committed.")
    code, _, err = ran("write", "--json")
    assert code == 3
    said = json.loads(err)
    assert (said["error"], said["message"], said["exit_code"]) == ("Unreachable", "no answer", 3)
    assert said["facts"]["address"] == "127.0.0.1:1"
    assert said["notes"] == ["3 records are committed."]


def test_debug_shows_where() -> None:
    Failing.error = Unreachable("no answer")
    assert "Traceback" not in ran("look")[2]
    code, _, err = ran("look", "--debug")
    assert code == 3
    assert "Traceback" in err
    assert "test_options.py" in err


def test_a_fault_of_the_program_says_so() -> None:
    Failing.error = ZeroDivisionError("division by zero")
    code, _, err = ran("look")
    assert (code, err) == (
        70,
        "Internal error: ZeroDivisionError('division by zero'). This is a fault of boki; --debug shows where.\n",
    )
    assert "Traceback" in ran("look", "--debug")[2]


def test_interrupted() -> None:
    Failing.error = click.Abort()
    assert ran("look")[0] == 130


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("wirte",), "no such command 'wirte'. Did you mean 'write'?"),
        (("xyz",), "Commands: look, write"),
        (("write", "--cuont", "1"), "--count"),
        (("write", "--count", "many"), "'many' is not a valid integer"),
        (("write", "more"), "Got unexpected extra argument (more)"),
    ],
)
def test_usage_errors(arguments: tuple[str, ...], message: str) -> None:
    code, _, err = ran(*arguments)
    assert code == 2
    assert message in err


def test_every_command_explains_itself() -> None:
    def walk(one: click.Command, path: list[str]) -> None:
        code, out, _ = _help(boki, path)
        assert code == 0
        assert "Usage: " in out
        assert one.help or one.short_help, path
        if isinstance(one, click.Group):
            context = click.Context(one)
            for name in one.list_commands(context):
                child = one.get_command(context, name)
                assert child is not None, name
                walk(child, [*path, name])
        else:
            assert "--json" in out, path
            assert "--config" in out, path

    walk(boki, [])


def _help(root: click.Command, path: list[str]) -> tuple[int, str, str]:
    with CliRunner().isolation() as (out, err, _):
        code = options.run(root, [*path, "--help"])
        return code, out.getvalue().decode(), err.getvalue().decode()


def test_what_goes_into_a_pipe_is_not_cut_nor_read_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    text = "[red]" + "x " * 500 + "[::1]:7040"
    Invocation().console().print(text)
    assert capsys.readouterr().out == text + "\n"


@pytest.mark.parametrize("arguments", [("write", "--count", "x"), ("wrote",), ("write", "--counts", "3")])
def test_a_wrong_call_is_json_as_well(arguments: tuple[str, ...]) -> None:
    code, out, err = ran(*arguments, "--json")
    said = json.loads(err)
    assert (code, out, said["error"], said["exit_code"]) == (2, "", "UsageError", 2)
    assert said["message"]
    Failing.error = ZeroDivisionError("division by zero")
    code, _, err = ran("look", "--json")
    said = json.loads(err)
    assert (code, said["error"], said["exit_code"]) == (70, "InternalError", 70)
    assert "--debug shows where" in said["message"]


@pytest.mark.parametrize("command", [("status",), ("read", "--book", "b"), ("log", "ls"), ("engine",), ("dev",)])
def test_a_config_file_that_is_not_there_is_refused_by_every_command(
    run_boki: RunCommandLine, tmp_path: Path, command: tuple[str, ...]
) -> None:
    run_boki(*command, "--config", str(tmp_path / "boki.toml")).refused("boki.toml' does not exist")


def test_a_config_file_that_is_wrong_is_refused_by_clients_too(run_boki: RunCommandLine, tmp_path: Path) -> None:
    file = tmp_path / "boki.toml"
    file.write_text("[engine]\nreplicaz = 5\n")
    run_boki("read", "--book", "b", "--config", str(file)).refused("engine.replicaz; did you mean engine.replicas?")


def test_a_flag_wins_over_the_settings_file_also_when_it_is_empty(tmp_path: Path) -> None:
    settings = tmp_path / "boki.toml"
    settings.write_text('token_file = "/of/the/cluster"\n')
    files: list[str | None] = []
    own = CommandGroup("own")
    command(own, "token", writes=False, client=True)(lambda invocation: files.append(invocation.token_file))
    for flags in ((), ("--token-file", "/other"), ("--token-file", "")):
        assert options.run(own, ["token", "--config", str(settings), *flags], name="own") == 0
    assert files == ["/of/the/cluster", "/other", ""]
