"""`boki history check`: answers of calls, compared with what a log may do. Needs no cluster, only the file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from boki_cli import exit_codes
from boki_cli.options import CommandGroup, Invocation, command
from boki_cli.wording import counted
from boki_common.errors import InvalidArgument

history: Final = CommandGroup("history", help="Compare answers of calls with what a log may do.")


@command(history, "check", writes=False, short_help="Look for lost, doubled, reordered, phantom and stale records.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a page with pictures."
)
def check(invocation: Invocation, file: Path, html: Path | None) -> int:
    """Check a history: one call as JSON a line, as `boki_sim.checkers` records it.

    Looks for linearizability of appends, conditional appends, linearizable reads and trims, for sessions that go
    back, and for records that are lost, doubled, reordered or came from nowhere. Exit code 1 if anything is wrong.
    """
    from boki_sim.checkers.check import check as findings_of
    from boki_sim.checkers.history import read_lines
    from boki_sim.checkers.report import as_page, as_text

    with file.open("rb") as lines:
        operations = list(read_lines(lines, name=str(file)))
    try:
        findings = findings_of(operations)
    except ValueError as error:
        raise InvalidArgument(f"{file}: {error}") from error
    if html is not None:
        html.write_text(as_page(operations, findings, title=f"History {file.name}"), encoding="utf-8")
    if invocation.json:
        for finding in findings:
            invocation.emit({"anomaly": finding.anomaly, "book": finding.book, "text": finding.text})
    if findings:
        raise exit_codes.CheckFailed(
            f"{counted(len(operations), 'call')}, {counted(len(findings), 'finding')}\n\n{as_text(findings)}"
        )
    invocation.say(f"{counted(len(operations), 'call')}, nothing wrong")
    return exit_codes.OK
