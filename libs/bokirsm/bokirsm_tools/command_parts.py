"""Parts that the commands of machines share: the log of a book, a machine by its id, progress, how a result is shown.

Importing this module imports no library (see `commands`).
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from boki_cli import exit_codes
from boki_cli.clients import connected
from boki_cli.options import Invocation
from boki_common.runtime import process

if TYPE_CHECKING:
    from bokilib import Log

ID: Final = click.argument("id", metavar="MACHINE")
APP: Final = click.option("--app", metavar="A", help="Name of the app.  [default: every app of the book]")


@asynccontextmanager
async def opened(invocation: Invocation, book: str) -> AsyncIterator[Log]:
    """Connect to the cluster, and yield the log of a book."""
    from bokilib import Log

    async with connected(invocation) as client:
        yield Log(client.book(book))


def run(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run a command, and return the exit code: 1 and a sentence if the book has no such machine or app."""

    async def checked() -> int:
        from bokirsm_tools.reading import NotThere

        try:
            return await work()
        except NotThere as error:
            raise exit_codes.CheckFailed(str(error), **error.facts) from error

    return process.run_command(checked)


@contextmanager
def progress(invocation: Invocation, what: str, *, prints: bool = False) -> Iterator[Callable[[int], None]]:
    """Show the number of records that were read on standard error, if that is a terminal.

    Args:
        invocation: the command.
        what: the words for the work, such as "reading the book".
        prints: results are printed meanwhile: nothing is shown if they go to a terminal too.
    """
    if invocation.json or not sys.stderr.isatty() or (prints and sys.stdout.isatty()):
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed:,} records"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda count: bar.update(task, completed=count)
