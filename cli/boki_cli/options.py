"""What all commands of `boki` share: options, messages, exit codes.

    @command(None, "read", writes=False)           # adds --json, --config, --debug; with client=True also --url
    @click.option("--book", required=True)
    def read(invocation: Invocation, book: str) -> int | None: ...

    run(group, argv) -> exit code                  # the only place that turns an error into a message and a code

Rules:
- Results go to standard output, messages to standard error. With `--json` both are JSON, one object a line.
- A user never sees a traceback, unless he asks by `--debug`; every message ends with what to do.
- A reader that goes away (`boki read | head`) is a normal end; output that fails otherwise (a full disk) is an error.
"""

from __future__ import annotations

import difflib
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from boki_cli import exit_codes, standard_streams
from boki_cli.moments import moment_ms
from boki_cli.number_types import Real
from boki_cli.standard_streams import OutputFailed, ReaderGone
from boki_common import limits, logs
from boki_common.engine.engine_url import split_options, with_token_file
from boki_common.errors import BokiError, InvalidArgument, UsageError
from boki_common.runtime.process import SystemClock

if TYPE_CHECKING:
    from rich.console import Console

DEFAULT_URL: Final = "boki://127.0.0.1:7040"
URL_VARIABLE: Final = "BOKI_URL"
DEFAULT_TIMEOUT_S: Final = 30.0
BOOK: Final = click.option("--book", required=True, metavar="B", help="Name of the book.")
CHECK: Final = click.option("--check", is_flag=True, help="Exit code 1 if there is nothing to show.")
CONSISTENCY: Final = click.option(
    "--consistency",
    type=click.Choice(["session", "linearizable", "any"]),
    default="session",
    show_default=True,
    help="linearizable: sees all that any call had returned before; any: what the engine knows now.",
)
YES: Final = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
PIPE_WIDTH: Final = 10_000
"""Columns where there is no terminal: tables are as wide as what is in them."""
PARAMETERS: Final = "__click_params__"
"""Where click's decorators collect the parameters of a function."""


@dataclass(slots=True)
class Invocation:
    """One run of a command: what its shared options say. Filled while the command line is parsed."""

    json: bool = False
    debug: bool = False
    writes: bool = False
    config: Path | None = None
    url: str = DEFAULT_URL
    token_file: str | None = None
    """With the cluster token, as a flag says; else the URL, the environment or a settings file may."""
    timeout_s: float = DEFAULT_TIMEOUT_S

    @property
    def engines(self) -> str:
        """The URL of the engines, with the token's file that a flag names instead of its own."""
        return with_token_file(split_options(self.url).engines, self.token_file) if self.token_file else self.url

    def emit(self, value: object) -> None:
        """Writes one JSON object as a line to standard output."""
        write_line(msgspec.json.encode(value))

    def say(self, message: str) -> None:
        """A message for a person, on standard error; silent with --json."""
        if not self.json:
            click.echo(message, err=True)

    def confirm(self, question: str, *, lost: str) -> bool:
        """Ask a person on the terminal before something is destroyed, for a command without --yes.

        Args:
            question: that is answered with yes or no, and says what goes.
            lost: what is gone afterwards, for the error.

        Raises:
            UsageError: standard input is not a terminal.
        """
        if not sys.stdin.isatty():
            raise UsageError(f"expected --yes, since this is no terminal to ask on: {lost}")
        return click.confirm(question, err=True)

    def console(self) -> Console:
        """Where results are drawn for a person: text as it is, and lines that no pipe cuts."""
        from rich.console import Console  # which commands that draw nothing need no memory for

        console = Console(soft_wrap=False, highlight=False, markup=False)
        if not console.is_terminal:
            console.width = PIPE_WIDTH
        return console


def as_moment(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Callback of options that take a moment as `moments` has it: milliseconds since 1970 UTC."""
    try:
        return None if text is None else moment_ms(text, now_ms=SystemClock().now_ms())
    except InvalidArgument as error:
        raise click.BadParameter(str(error), context, parameter) from None


class CommandGroup(click.Group):
    """A group that names the nearest command when one is unknown."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            known = f"Did you mean {near[0]!r}?" if near else f"Commands: {', '.join(self.list_commands(ctx))}"
            raise click.UsageError(f"no such command {args[0]!r}. {known}", ctx)
        return super().resolve_command(ctx, args)


def command(
    group: click.Group | None, name: str, *, writes: bool, client: bool = False, speaks: bool = False, **attributes: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """Makes a function a command, with the shared options; its first argument is the `Invocation`.

    Args:
        group: that it is added to; None: it is found in its module, by its name.
        writes: whether it changes anything at the service.
        client: whether it is a client of engines, with --url.
        speaks: whether it may show the cluster token; clients do, and what takes --metadata.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        def called(**values: Any) -> Any:
            context = click.get_current_context()
            invocation: Invocation = context.find_object(Invocation) or Invocation()
            invocation.writes = writes
            invocation.json = values.pop("json")
            invocation.config = values.pop("config")
            if client:
                invocation.url = values.pop("url")
                invocation.timeout_s = values.pop("timeout")
            logs.configure(level="debug" if invocation.debug else "warning")
            if client and invocation.config is not None:
                _take_settings(invocation, invocation.config)
            return function(invocation, **values)

        called.__doc__ = function.__doc__
        setattr(called, PARAMETERS, list(getattr(function, PARAMETERS, [])))
        made = click.command(name, cls=click.Command, **attributes)(called)
        asked = (
            speaks or client or any(isinstance(one, click.Parameter) and one.name == "metadata" for one in made.params)
        )
        made.params.extend(_shared(client=client, speaks=asked))
        if group is not None:
            group.add_command(made)
        return made

    return decorate


def _shared(*, client: bool, speaks: bool) -> list[click.Option]:
    """`speaks`: to a cluster, which may ask for its token."""
    options = []
    if client:
        options += [
            click.Option(
                ["--url"],
                envvar=URL_VARIABLE,
                default=DEFAULT_URL,
                show_default=True,
                show_envvar=True,
                metavar="URL",
                help="Where the engines listen: boki://host:port, several with commas, or unix:///path.",
            ),
            click.Option(
                ["--timeout"],
                type=Real(0.1, limits.SDK_GIVE_UP_S),
                default=DEFAULT_TIMEOUT_S,
                show_default=True,
                metavar="S",
                help="Seconds to go on trying while engines are away.",
            ),
        ]
    if speaks:
        options.append(
            click.Option(
                ["--token-file"],
                metavar="FILE",
                expose_value=False,
                callback=keep("token_file"),
                help="File with the cluster token, if the cluster has one. Default: BOKI_TOKEN_FILE.",
            )
        )
    options += [
        click.Option(
            ["--config"],
            type=click.Path(path_type=Path, exists=True, dir_okay=False, readable=True),
            metavar="FILE",
            help="Settings in TOML. BOKI_* variables win over it, flags over both.",
        ),
        click.Option(["--json"], is_flag=True, help="Results and errors as JSON, one object a line."),
        click.Option(
            ["--debug"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=keep("debug"),
            help="Show tracebacks and logs.",
        ),
    ]
    return options


def _take_settings(invocation: Invocation, file: Path) -> None:
    """Of a settings file clients take the token's file, unless a flag or the URL names one; one that is wrong is refused. Raises
    SettingsError."""
    from boki_cli.roles import process_settings

    settings = process_settings(file, {})
    if invocation.token_file is None and not split_options(invocation.url).token_file:
        invocation.token_file = settings.token_file or None


def keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Callback of an option that the `Invocation` has: what is given replaces what it holds, an empty text too."""

    def callback(context: click.Context, _: click.Parameter, value: Any) -> None:
        invocation = context.find_object(Invocation)
        if invocation is not None and value is not None and value is not False:
            setattr(invocation, name, value)

    return callback


def run(group: click.Command, arguments: Sequence[str], *, name: str = "boki") -> int:
    """Runs one command line. Returns the exit code of the process; everything that can end a command ends here."""
    invocation = Invocation(json="--json" in arguments, debug="--debug" in arguments)
    try:
        result = group.main(list(arguments), prog_name=name, standalone_mode=False, obj=invocation)
        sys.stdout.flush()
        return result if isinstance(result, int) else exit_codes.OK
    except click.ClickException as error:
        if invocation.json:
            _emit_error("UsageError", error.format_message(), exit_codes.USAGE)
        else:
            error.show()
        return exit_codes.USAGE
    except click.Abort:
        return exit_codes.INTERRUPTED
    except ReaderGone:
        standard_streams.discard_output()
        return exit_codes.OK
    except BokiError as error:
        if isinstance(error, OutputFailed):
            standard_streams.discard_output()
        return _refuse(invocation, error)
    except Exception as error:  # noqa: BLE001 - the outermost frame: shown, never swallowed
        if invocation.debug:
            click.echo("".join(traceback.format_exception(error)), err=True)
        message = f"{error!r}. This is a fault of boki; --debug shows where."
        if invocation.json:
            _emit_error("InternalError", message, exit_codes.INTERNAL)
        elif not invocation.debug:
            click.echo(f"Internal error: {message}", err=True)
        return exit_codes.INTERNAL


def _refuse(invocation: Invocation, error: BokiError) -> int:
    code = exit_codes.exit_code(error, writes=invocation.writes)
    notes: list[str] = getattr(error, "__notes__", [])
    if invocation.debug:
        click.echo("".join(traceback.format_exception(error)), err=True)
    if invocation.json:
        _emit_error(type(error).__name__, str(error), code, facts=dict(error.facts), notes=notes)
    else:
        click.echo(f"Error: {error}", err=True)
        for note in notes:
            click.echo(note, err=True)
        if code == exit_codes.OUTCOME_UNKNOWN:
            click.echo("The outcome is unknown: what was sent may or may not be committed; read to find out.", err=True)
    return code


def _emit_error(
    name: str, message: str, code: int, *, facts: Mapping[str, object] | None = None, notes: Sequence[str] = ()
) -> None:
    """An error as one JSON object, on standard error."""
    report = {"error": name, "message": message, "exit_code": code, "facts": facts or {}, "notes": notes}
    click.echo(msgspec.json.encode(report, enc_hook=str), err=True)


def end_of_list(invocation: Invocation, count: int, nothing: str, *, check: bool) -> int:
    """Flush a list and return the exit code. Say `nothing` where it is empty: a misspelt name shows nothing too."""
    flush()
    if count:
        return exit_codes.OK
    if check:
        return failed_check(invocation, nothing)
    invocation.say(nothing)
    return exit_codes.OK


def failed_check(invocation: Invocation, *sentences: str) -> int:
    """Say why a check failed, on standard error, with --json as an error object, and return the exit code."""
    if invocation.json:
        _emit_error("CheckFailed", " ".join(sentences), exit_codes.CHECK_FAILED)
    else:
        for sentence in sentences:
            click.echo(sentence, err=True)
    return exit_codes.CHECK_FAILED


def write_line(line: bytes) -> None:
    """Writes bytes and a line end to standard output. Raises ReaderGone, OutputFailed."""
    sys.stdout.buffer.write(line + b"\n")


def show_facts(invocation: Invocation, facts: dict[str, Any], *lines: str) -> None:
    """Show one result: `facts` with --json, `lines` without."""
    if invocation.json:
        invocation.emit(facts)
    else:
        for line in lines:
            write_line(line.encode())
    flush()


def flush() -> None:
    """Lets a reader of standard output see what was written."""
    sys.stdout.buffer.flush()
