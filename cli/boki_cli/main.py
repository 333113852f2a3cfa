"""The `boki` command: one group, whose commands live in modules by what they are about.

    role_commands    dev, init, and one command per role      what runs
    gateway_command  gateway                              books over HTTP, status page
    append_command   append                                   the lines of a file become records
    book_commands    read, tail, trim                         the records of a book
    status_command   status                                   who is up
    log_commands     log ls | show | add | roll | move …      terms and slots
    ledger_commands  ledger ls | show | read                  what lies below
    sim_commands     sim run | replay | shrink                 whole clusters under a seed
    history_commands history check                            what clients were told
    soak_command     soak                                     load that checks itself

Exit codes are in `exit_codes`, what all commands share in `options`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import click

from boki_cli import (
    append_command,
    book_commands,
    gateway_command,
    history_commands,
    ledger_commands,
    log_commands,
    role_commands,
    sim_commands,
    soak_command,
    standard_streams,
    status_command,
)
from boki_cli.options import CommandGroup, run

SECTIONS: Final = {
    "Records": ("append", "read", "tail", "trim"),
    "A cluster": ("dev", "status", "log", "ledger"),
    "One role a process": ("bookie", "sequencer", "engine", "controller", "gateway", "init"),
    "Checks": ("soak", "history", "sim"),
}
"""The commands as help lists them."""


class _Sectioned(CommandGroup):
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{name:<{width}}", self.commands[name].get_short_help_str(200)) for name in names]
                )


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


for commands in (
    role_commands,
    gateway_command,
    append_command,
    book_commands,
    status_command,
    log_commands,
    ledger_commands,
    sim_commands,
    history_commands,
    soak_command,
):
    commands.register(boki)


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point: runs one command line and ends the process with its exit code."""
    standard_streams.prepare()
    sys.exit(run(boki, sys.argv[1:] if arguments is None else arguments))


if __name__ == "__main__":
    main()
