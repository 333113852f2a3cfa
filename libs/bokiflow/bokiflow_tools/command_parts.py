"""Parts that the commands of workflows share: the log of a book, a workflow by its id, how a result is shown.

Importing this module imports no library (see `commands`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from boki_cli import exit_codes
from boki_cli.clients import connected
from boki_cli.options import Invocation, failed_check, show_facts
from boki_common.runtime import process

if TYPE_CHECKING:
    from bokiflow import Flow, Handle
    from bokilib import Log

ID: Final = click.argument("id", metavar="WORKFLOW")
IF_THERE: Final = click.option("--check", is_flag=True, help="Exit code 1 if there is no such workflow.  [default: 2]")
GROUP: Final = click.option("--group", metavar="G", help="Name of the app.  [default: every app of the book]")
_LIVES: Final = ("running", "blocked")


@asynccontextmanager
async def opened(invocation: Invocation, book: str) -> AsyncIterator[Log]:
    """Connect to the cluster, and yield the log of a book."""
    from bokilib import Log

    async with connected(invocation) as client:
        yield Log(client.book(book))


@asynccontextmanager
async def flow_of(log: Log, id: str) -> AsyncIterator[Flow]:
    """Yield the workflows of the app that has a workflow.

    Raises:
        NoSuchWorkflow: the book has no such workflow.
    """
    from bokiflow import App, Flow
    from bokiflow.history import inspection
    from bokiflow_tools.reading import no_such_workflow

    held = await inspection.newest(log, id, consistency="linearizable")
    found = None if held is None else await inspection.started_call(log, id, held)
    if found is None:
        raise await no_such_workflow(log, id)
    async with Flow(App(found.group), log) as flow:
        yield flow


def run_on_workflow(invocation: Invocation, work: Callable[[], Coroutine[Any, Any, int]], *, check: bool) -> int:
    """Run a command about one workflow, and return the exit code.

    Args:
        invocation: the command.
        work: the command's work.
        check: a missing workflow is exit code 1, not a wrong call.
    """

    async def checked() -> int:
        from bokiflow import NoSuchWorkflow

        try:
            return await work()
        except NoSuchWorkflow as error:
            if not check:
                raise
            return failed_check(invocation, str(error))

    return process.run_command(checked)


def nothing_in(book: str, group: str | None) -> str:
    """Say that a book has no workflows, or has no app of a name."""
    return (
        f"There are no workflows in the book {book!r}."
        if group is None
        else f"There is no app {group!r} in the book {book!r}."
    )


def place_text(book: str, group: str | None) -> str:
    """Name the place that a command read: a book, or an app in it."""
    return f"the book {book!r}" if group is None else f"the app {group!r} in the book {book!r}"


def change(
    invocation: Invocation,
    book: str,
    id: str,
    change: Callable[[Handle[Any]], Awaitable[None]],
    done: str,
    *,
    check: bool,
    next_one: str = "",
) -> int:
    """Change a workflow that has not ended, and show what was done.

    Args:
        invocation: the command.
        book: the book of the workflow.
        id: the workflow.
        change: makes the change.
        done: the words for the change, such as "sent".
        check: a missing workflow is exit code 1, not a wrong call.
        next_one: see `_next_does_it`.
    """

    async def work() -> int:
        async with opened(invocation, book) as log, flow_of(log, id) as flow:
            handle = flow.handle(id)
            status = await handle.status()
            lives = status in _LIVES
            said = f"nothing to do: it is {status}"
            if lives:
                await change(handle)
                said = done + await _next_does_it(flow, handle, next_one)
        show_facts(invocation, {"id": id, "status": status, "done": done if lives else ""}, said)
        return exit_codes.OK

    return run_on_workflow(invocation, work, check=check)


async def _next_does_it(flow: Flow, handle: Handle[Any], next_one: str) -> str:
    """Return the words that no worker is alive to make a change; "" if a worker is, or the workflow has ended.

    Args:
        flow: the workflows of the app.
        handle: the workflow.
        next_one: what the next worker does; "" if the change needs no worker.
    """
    from bokiflow_tools.living import living

    if not next_one or await handle.status() not in _LIVES:
        return ""
    alone = (await living(flow.log, flow.group)).alone
    return f": {alone}; {next_one}" if alone else ""


def show_started(invocation: Invocation, facts: dict[str, Any], alone: str, lacking: str = "") -> None:
    """Show the id of a started workflow.

    Args:
        invocation: the command.
        facts: members for JSON.
        alone: the clause that no worker of its app is alive, or "".
        lacking: the clause that no living worker has its code, or "".
    """
    show_facts(invocation, {**facts, "alive": not alone}, facts["id"])
    if alone or lacking:
        invocation.say(f"It waits for a worker: {alone or lacking}.")


def json_text(value: object) -> str:
    """Return a value as JSON on one line."""
    return msgspec.json.encode(value).decode()
