"""The `boki` command: one group, whose commands live in modules by what they are about.

    role_commands    dev, init, and one command per role      what runs
    gateway_command  gateway                              books over HTTP, status page
    append_command   append                                   the lines of a file become records
    book_commands    read, tail, trim                         the records of a book
    status_command   status                                   who is up
    drain_command    drain                                    who leaves without loss
    forget_command   forget                                   who need not be
    ready_command    ready                                    whether this role is of use
    backup_commands  backup check | adopt                     a copy of a cluster
    log_commands     log ls | show | add | roll | move …      terms and slots
    ledger_commands  ledger ls | show | read                  what lies below
    sim_commands     sim run | replay | shrink                 whole clusters under a seed
    history_commands history check                            answers of calls
    soak_command     soak                                     load that checks itself

A process imports the module of the command that it runs, and no other: a role needs no memory for what it never does.
Commands of libraries are not known here. An entry point of the group `boki.commands` names one and a function `register(group)` that
adds it; the packages of this machine are looked through only where none of the names above is meant.
Exit codes are in `exit_codes`, what all commands share in `options`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

import click

from boki_cli import standard_streams
from boki_cli.options import CommandGroup, run
from boki_common.errors import SettingsError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

SECTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "Records": {
        "append": "records.append_command",
        "read": "records.book_commands",
        "tail": "records.book_commands",
        "trim": "records.book_commands",
    },
    "A cluster": {
        "dev": "start.role_commands",
        "status": "cluster.status_command",
        "drain": "logs.drain_command",
        "forget": "cluster.forget_command",
        "ready": "cluster.ready_command",
        "backup": "cluster.backup_commands",
        "log": "logs.log_commands",
        "ledger": "logs.ledger_commands",
        "repair": "logs.repair_commands",
    },
    "One role a process": {
        "bookie": "start.role_commands",
        "sequencer": "start.role_commands",
        "engine": "start.role_commands",
        "controller": "start.role_commands",
        "gateway": "start.gateway_command",
        "init": "start.role_commands",
    },
    "Checks": {
        "soak": "trials.soak_command",
        "history": "trials.history_commands",
        "sim": "trials.sim_commands",
    },
}
"""The commands as help lists them, each with the module that has it, by its name."""
_MODULES: Final = {name: module for section in SECTIONS.values() for name, module in section.items()}
LIBRARIES: Final = "boki.commands"
"""The group of entry points by which libraries add commands."""


@cache
def of_libraries() -> Mapping[str, EntryPoint]:
    """The commands that installed libraries add, by name; none of them replaces one of ours."""
    from importlib.metadata import entry_points  # which roles need no memory for

    found = {entry.name: entry for entry in entry_points(group=LIBRARIES)}
    return {name: found[name] for name in sorted(found.keys() - _MODULES.keys())}


class _Sectioned(CommandGroup):
    """Its commands are there once somebody asks for them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_MODULES, *of_libraries()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands:
            if cmd_name in _MODULES:
                self.add_command(getattr(import_module(f"boki_cli.{_MODULES[cmd_name]}"), cmd_name))
            elif cmd_name in of_libraries():
                _load(of_libraries()[cmd_name], self)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.list_commands(ctx)))
        for title, names in {**SECTIONS, "Libraries": of_libraries()}.items():
            found = [(f"{name:<{width}}", self._short_help(ctx, name)) for name in names]
            if found:
                with formatter.section(title):
                    formatter.write_dl(found)

    def _short_help(self, ctx: click.Context, name: str) -> str:
        try:
            known = self.get_command(ctx, name)
        except SettingsError as error:
            return str(error)
        return known.get_short_help_str(200) if known else ""


def _load(entry: EntryPoint, group: CommandGroup) -> None:
    """Adds the command of a library. Raises SettingsError: it cannot be imported, or has no such command."""
    try:
        entry.load()(group)
    except Exception as fault:
        raise SettingsError(
            f"the command {entry.name!r} of an installed library ({entry.value}) cannot be loaded: {fault!r}; "
            "install the library again, or remove it"
        ) from fault
    if entry.name not in group.commands:
        raise SettingsError(f"expected {entry.value} to add the command {entry.name!r}, found that it did not")


@click.group(
    cls=_Sectioned,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=(
        "Exit codes: 0 ok, 1 a check failed, 2 usage, 3 unreachable, 4 refused, 5 outcome unknown, 70 a fault of boki, "
        "130 interrupted. "
        "Commands find the engines by --url or $BOKI_URL."
    ),
)
@click.version_option(package_name="boki", prog_name="boki")
def boki() -> None:
    """A shared log: many totally ordered books with tags, on replicated ledgers.

    \b
    Try it on this machine:
        boki dev                                     everything in one process, data in ./.boki
        echo '{"user": 7}' | boki append - --book b --tag-field user
        boki read --book b --tag user/7
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point: runs one command line and ends the process with its exit code."""
    standard_streams.prepare()
    sys.exit(run(boki, sys.argv[1:] if arguments is None else arguments))


if __name__ == "__main__":
    main()
