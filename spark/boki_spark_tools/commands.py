"""`boki offload`: copies sealed terms into open files, for people and schedules.

`boki_cli` finds `register` by the entry point group `boki.commands`. Importing this module imports neither pyarrow nor fsspec; the command
imports them when it runs, so that `boki --help` stays fast.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

import click

from boki_cli.cluster.metadata_option import metadata_option
from boki_cli.exit_codes import CheckFailed
from boki_cli.logs.ledger_options import run_with_ledgers
from boki_cli.number_types import Real, Whole
from boki_cli.options import CommandGroup, Invocation, command
from boki_cli.wording import counted, size_text
from boki_common.errors import SettingsError
from boki_common.runtime.process import SystemRandom

if TYPE_CHECKING:
    from boki_common.metadata.store import MetadataStore
    from boki_ledger.client import LedgerClient
    from boki_spark.offload.offloader import Offloaded, Offloader

MISSING = "expected the packages of the extra `spark`, found none: pip install pyspark pyarrow fsspec"


def register(group: click.Group) -> None:
    """Add the command to the command line."""
    assert isinstance(group, CommandGroup)

    @command(group, "offload", writes=True, short_help="Copy sealed terms into Parquet files.")
    @click.argument("terms", nargs=-1, type=Whole(1), metavar="[TERM]...")
    @click.option(
        "--to",
        "folder",
        required=True,
        metavar="URL",
        help="Folder for the files, a URL that fsspec knows: file:///data/cold, s3://…",
    )
    @click.option(
        "--wait",
        "wait_s",
        type=Real(0),
        default=0.0,
        metavar="SECONDS",
        help="How long to wait for an index snapshot that covers the terms. Engines write one soon after a term ends.",
    )
    @click.option(
        "--prove",
        "prove_copied",
        is_flag=True,
        help="Without TERM: also read all files of copied terms, and copy terms with damaged files again.",
    )
    @click.option("--sweep", "sweep_only", is_flag=True, help="Only delete files that no term can ever name.")
    @click.option(
        "--alone",
        is_flag=True,
        help="No other cluster uses this folder. Also delete files of earlier versions of Boki, which do not name their cluster.",
    )
    @metadata_option
    def offload(
        invocation: Invocation,
        terms: tuple[int, ...],
        folder: str,
        wait_s: float,
        prove_copied: bool,
        sweep_only: bool,
        alone: bool,
        metadata: str | None,
    ) -> int:
        r"""Copy sealed terms into sorted Parquet files, verify the files, and name them in the records of the terms.

        Without TERM, the command copies every term that is in ledgers only, is covered by an index snapshot and has live records. It
        also copies terms again that lost a file below the folder. For a TERM that is copied, it reads all files and copies the term
        again if one is lost or damaged. Terms that are left out are listed with the reason. The ledgers stay.

        The command may be stopped at any time and run again. Finished terms stay finished, an unfinished term starts again, and its
        remains are deleted. Clusters may share a folder: each deletes only its own files.

        The exit code is 1 if a TERM is not copied, or if copying a term failed.

        \b
            boki offload --to file:///data/cold
            boki offload 7 8 --wait 60 --to s3://bucket/boki --json
        """
        if "://" not in folder:
            raise SettingsError(f"expected --to to be a URL such as file:///data/cold, found {folder!r}")
        chosen = _OffloadOptions(terms, folder, wait_s, prove_copied, sweep_only, alone)
        return run_with_ledgers(
            invocation, metadata, lambda ledgers, store: _offload(invocation, chosen, ledgers, store)
        )


class _OffloadOptions(NamedTuple):
    """The options of one run."""

    terms: Sequence[int]
    folder: str
    wait_s: float
    prove_copied: bool
    sweep_only: bool
    alone: bool


async def _offload(
    invocation: Invocation, chosen: _OffloadOptions, ledgers: LedgerClient, store: MetadataStore
) -> None:
    try:
        from boki_spark.cold_terms.files import FsspecFiles
        from boki_spark.offload.offloader import Offloader
        from boki_spark.plan.cluster import SNAPSHOT, Cluster
    except ImportError as error:
        raise SettingsError(MISSING) from error
    work = Offloader(Cluster(store, ledgers, None, SNAPSHOT), FsspecFiles(), chosen.folder, rng=SystemRandom())
    failed = [] if chosen.sweep_only else await _copy(invocation, work, chosen)
    swept = await work.sweep(alone=chosen.alone)
    if swept.deleted:
        invocation.say(f"{counted(swept.deleted, 'file')} deleted that no term names any more")
    if swept.unowned:
        invocation.say(
            f"{counted(swept.unowned, 'file')} of earlier versions kept: no term of this cluster names them, but another cluster may. "
            "If no other cluster uses this folder, delete them with: boki offload --sweep --alone"
        )
    if failed:
        raise CheckFailed(f"{counted(len(failed), 'term')} not copied: {', '.join(map(str, failed))}")


async def _copy(invocation: Invocation, work: Offloader, chosen: _OffloadOptions) -> list[int]:
    """Copy the terms and report each. Return the terms that should have been copied and were not."""
    from boki_spark.offload.job import survey_covered
    from boki_spark.offload.offloader import Offloaded

    terms, failed = chosen.terms, []
    if not terms:
        found = await survey_covered(work, chosen.wait_s, prove_copied=chosen.prove_copied)
        for term, why in found.left.items():
            _report(invocation, Offloaded(term, why=why))
        terms = found.due
    for term in terms:
        made = await _one(invocation, work, term, chosen.wait_s if chosen.terms else 0.0)
        _report(invocation, made)
        if made.error or (chosen.terms and not made.manifest):
            failed.append(term)
    return failed


async def _one(invocation: Invocation, work: Offloader, term: int, wait_s: float) -> Offloaded:
    """Copy a term. Its error is its outcome, so that the other terms are still copied."""
    from boki_spark.errors import ReadFault
    from boki_spark.offload.job import once_covered
    from boki_spark.offload.offloader import Offloaded

    try:
        with _bar(invocation, term) as progress:
            return await once_covered(work, term, wait_s, progress or (lambda done, total: None))
    except ReadFault as error:
        return Offloaded(term, why=str(error), error=error.code)


def _report(invocation: Invocation, made: Offloaded) -> None:
    if invocation.json:
        invocation.emit(dataclasses.asdict(made))
        return
    if made.damage:
        click.echo(f"term {made.term}: files are lost or damaged: {made.damage}")
    if made.why and made.manifest:
        click.echo(f"term {made.term}: nothing to do, {made.why}: {made.manifest}")
    elif made.why:
        click.echo(f"term {made.term}: not copied, {made.why}")
    else:
        files = counted(made.slices, "slice")
        again = "copied again, " if made.damage else ""
        click.echo(
            f"term {made.term}: {again}{counted(made.rows, 'record')} in {files}, {size_text(made.bytes)}: {made.manifest}"
        )


class _ProgressBar:
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
    return _ProgressBar(term)
