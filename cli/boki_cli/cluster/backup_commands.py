"""`boki backup check | adopt`: a copy of a cluster, before it is needed and before it is started."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from boki_cli.exit_codes import CheckFailed
from boki_cli.options import CommandGroup, Invocation, command
from boki_cli.wording import counted, field_line
from boki_common.runtime.process import SystemRandom

if TYPE_CHECKING:
    from boki_cli.facts.backup import BackupReport

FOLDER: Final = click.argument(
    "folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path)
)
METADATA: Final = click.option(
    "--metadata",
    metavar="URI",
    help="Metadata store in which the metadata was restored, such as zk://host:port/path. Default: the file metadata.db in DIR.",
)


@click.group(cls=CommandGroup, short_help="Check a copy of a cluster, and make it a cluster of its own.")
def backup() -> None:
    """Check a copy of a cluster, and make it a cluster of its own.

    DIR has the metadata (metadata.db, unless --metadata names a store), copied first, and below it, at most three folders deep, the
    directories of all bookies, each as of one moment. docs/backup.md says how to copy a cluster that runs.
    """


@command(backup, "check", writes=False, short_help="Check that a copy of a cluster can be started and lacks nothing.")
@FOLDER
@METADATA
def check(invocation: Invocation, folder: Path, metadata: str | None) -> None:
    """Check that a copy of a cluster can be started and lacks nothing.

    Each bookie that the metadata knows is looked for, each directory is read as a bookie does when it starts, and each entry of each
    closed ledger must have a copy. The data of entries are not read: `boki log verify` does that once the copy runs.

    The exit code is 1, with the reasons, if the copy cannot be started as it is, or a bookie runs on it: then it is the original.

    \b
        boki backup check /backup/2026-11-28
        boki backup check /backup/2026-11-28 --json
    """
    from boki_bookie.settings import BookieSettings
    from boki_cli.facts.backup import check_backup

    report = asyncio.run(check_backup(folder, metadata, rng=SystemRandom(), settings=BookieSettings()))
    _show(invocation, report)
    if report.faults:
        raise CheckFailed(f"{folder} cannot be started as it is: {counted(len(report.faults), 'fault')}")


@command(backup, "adopt", writes=True, short_help="Make a copy of a cluster a cluster of its own.")
@FOLDER
@METADATA
def adopt(invocation: Invocation, folder: Path, metadata: str | None) -> None:
    """Make a copy of a cluster a cluster of its own: run this before any role is started on it.

    A copy has the metadata of the original: where its bookies, sequencers and engines are. Started as it is, it would write to them. This
    forgets them, gives the copy a cluster id of its own, and keeps it from giving numbers of ledgers again that the original gave after
    the metadata was copied. It checks the copy first and changes nothing if that finds a fault. It may be run again.

    \b
        boki backup adopt /restored && boki dev --data /restored --listen 127.0.0.1:7050
    """
    from boki_bookie.settings import BookieSettings
    from boki_cli.facts.backup import adopt_backup

    report = asyncio.run(adopt_backup(folder, metadata, rng=SystemRandom(), settings=BookieSettings()))
    _show(invocation, report)
    invocation.say(f"{folder} is cluster {report.cluster} now")


def _show(invocation: Invocation, report: BackupReport) -> None:
    from boki_cli.facts.backup import as_facts

    if invocation.json:
        invocation.emit(as_facts(report))
        return
    for name, value in as_facts(report).items():
        if name not in ("faults", "notes"):
            click.echo(field_line(name, ", ".join(value) if isinstance(value, list) else value))
    for text in report.faults:
        click.echo(f"fault: {text}")
    for text in report.notes:
        click.echo(f"note: {text}")
