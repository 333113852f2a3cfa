"""`boki offload`: sealed terms into open files, for people and schedules.

`boki_cli` finds `register` by the entry point group `boki.commands`. Importing this module imports neither pyarrow nor fsspec: they are
there once the command runs, so that `boki --help` costs what it did.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import click

from boki_cli.cluster.metadata_option import metadata_option
from boki_cli.logs.ledger_options import run_with_ledgers
from boki_cli.number_types import Whole
from boki_cli.options import CommandGroup, Invocation, command
from boki_cli.wording import counted, size_text
from boki_common.errors import SettingsError
from boki_common.runtime.process import SystemRandom

if TYPE_CHECKING:
    from boki_common.metadata.store import MetadataStore
    from boki_ledger.client import LedgerClient
    from boki_spark.offload import Offloaded, Offloader

MISSING = "expected the packages of the extra `spark`, found none: pip install 'boki[spark]'"


def register(group: click.Group) -> None:
    """Adds the command."""
    assert isinstance(group, CommandGroup)

    @command(group, "offload", writes=True, short_help="Copy sealed terms into Parquet files.")
    @click.argument("terms", nargs=-1, type=Whole(1), metavar="[TERM]...")
    @click.option(
        "--to",
        "folder",
        required=True,
        metavar="URL",
        help="Folder of the files, as fsspec names it: file:///data/cold, s3://…",
    )
    @click.option("--sweep", is_flag=True, help="Only delete files that nothing can ever name.")
    @metadata_option
    def offload(invocation: Invocation, terms: tuple[int, ...], folder: str, sweep: bool, metadata: str | None) -> int:
        """Copy sealed terms into sorted Parquet files, prove that these are whole, and name them in the terms' records.

        Without TERM all terms that an index snapshot covers, that have live records, and that are in ledgers only. The ledgers stay.
        It may be stopped at any time and run again: terms that are done stay done, one that was not begins anew, and what was left
        of it is deleted.

        \b
            boki offload --to file:///data/cold
            boki offload 7 8 --to s3://bucket/boki --json
        """
        if "://" not in folder:
            raise SettingsError(f"expected --to to be a URL such as file:///data/cold, found {folder!r}")
        return run_with_ledgers(
            invocation, metadata, lambda ledgers, store: _offload(invocation, terms, folder, sweep, ledgers, store)
        )


async def _offload(
    invocation: Invocation, terms: Sequence[int], folder: str, sweep: bool, ledgers: LedgerClient, store: MetadataStore
) -> None:
    try:
        from boki_spark.cluster import SNAPSHOT, Cluster
        from boki_spark.files import OpenFiles
        from boki_spark.offload import Offloader
    except ImportError as error:
        raise SettingsError(MISSING) from error
    work = Offloader(Cluster(store, ledgers, None, SNAPSHOT), OpenFiles(), folder, rng=SystemRandom())
    if not sweep:
        for term in terms or await work.offloadable():
            _report(invocation, await _one(invocation, work, term))
    deleted = await work.sweep()
    if deleted:
        invocation.say(f"{counted(deleted, 'file')} that nothing names any more deleted")


async def _one(invocation: Invocation, work: Offloader, term: int) -> Offloaded:
    with _bar(invocation, term) as progress:
        return await work.offload(term, progress or (lambda done, total: None))


def _report(invocation: Invocation, made: Offloaded) -> None:
    if invocation.json:
        invocation.emit(dataclasses.asdict(made))
    elif made.why:
        click.echo(f"term {made.term}: nothing to do, {made.why}")
    else:
        files = counted(made.slices, "slice")
        click.echo(
            f"term {made.term}: {counted(made.rows, 'record')} in {files}, {size_text(made.bytes)}: {made.manifest}"
        )


class _Bar:
    """A progress bar on standard error."""

    def __init__(self, term: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(f"term {term}", total=None)

    def __enter__(self) -> Callable[[int, int], None]:
        self._progress.start()
        return lambda done, total: self._progress.update(self._task, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def _bar(invocation: Invocation, term: int) -> AbstractContextManager[Callable[[int, int], None] | None]:
    if invocation.json or not sys.stderr.isatty():
        return nullcontext()
    return _Bar(term)
