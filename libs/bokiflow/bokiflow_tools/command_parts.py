"""What the commands of workflows share: the log of a book, a workflow by its id, how a result is shown.

Importing this module imports no library (see `commands`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from boki_cli import exit_codes
from boki_cli.clients import connected
from boki_cli.options import Invocation, flush, write_line
from boki_common.runtime import process

if TYPE_CHECKING:
    from bokiflow import Flow, Handle
    from bokilib import Log

ID: Final = click.argument("id", metavar="WORKFLOW")
GROUP: Final = click.option("--group", metavar="G", help="Name of the app.  [default: every app of the book]")


@asynccontextmanager
async def opened(invocation: Invocation, book: str) -> AsyncIterator[Log]:
    """The log of a book."""
    from bokilib import Log

    async with connected(invocation) as client:
        yield Log(client.book(book))


@asynccontextmanager
async def flow_of(log: Log, id: str) -> AsyncIterator[Flow]:
    """The workflows of the app that a workflow is of. Raises NoSuchWorkflow."""
    from bokiflow import App, Flow, NoSuchWorkflow, inspection

    held = await inspection.newest(log, id, consistency="linearizable")
    found = None if held is None else await inspection.call_of(log, id, held)
    if found is None:
        raise NoSuchWorkflow(f"there is no workflow {id!r}: was it started in this book, and is it kept still?", id=id)
    async with Flow(App(found.group), log) as flow:
        yield flow


def change(
    invocation: Invocation, book: str, id: str, change: Callable[[Handle[Any]], Awaitable[None]], done: str
) -> int:
    """A command that does something to a workflow."""

    async def work() -> int:
        async with opened(invocation, book) as log, flow_of(log, id) as flow:
            handle = flow.handle(id)
            status = await handle.status()
            lives = status in ("running", "blocked")
            if lives:
                await change(handle)
        facts = {"id": id, "status": status, "done": done if lives else ""}
        show_facts(invocation, facts, done if lives else f"nothing to do: it is {status}")
        return exit_codes.OK

    return process.run_command(work)


def show_facts(invocation: Invocation, facts: dict[str, Any], *lines: str) -> None:
    """One result."""
    if invocation.json:
        invocation.emit(facts)
    else:
        for line in lines:
            write_line(line.encode())
    flush()


def json_text(value: object) -> str:
    """Return a value as JSON on one line."""
    return msgspec.json.encode(value).decode()
