"""The commands that change workflows: `boki flow start | signal | cancel | terminate | resume | fork | gc`.

Importing this module imports no library (see `commands`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from boki_cli import exit_codes
from boki_cli.options import BOOK, CommandGroup, Invocation, command, end_of_list, show_facts, write_line
from boki_common.errors import UsageError
from boki_common.runtime import process
from boki_gateway.pages.texts import printable
from bokiflow_tools.command_parts import (
    GROUP,
    ID,
    IF_THERE,
    change,
    flow_of,
    nothing_in,
    opened,
    place_text,
    run_on_workflow,
    show_started,
)

if TYPE_CHECKING:
    from bokiflow import Flow


def register(group: CommandGroup) -> None:
    """Add the commands of this module to the group `flow`."""
    for add in (
        _register_start,
        _register_signal,
        _register_cancel,
        _register_terminate,
        _register_resume,
        _register_fork,
        _register_gc,
    ):
        add(group)


def _register_start(group: CommandGroup) -> None:
    @command(group, "start", writes=True, client=True, short_help="Start a workflow by its name.")
    @click.argument("name", metavar="NAME")
    @BOOK
    @click.option("--id", "id", metavar="ID", help="Id of the workflow; each id runs once.  [default: a random id]")
    @click.option(
        "--args", "args", default="[]", metavar="JSON", help="A list of arguments, or an object of them by name."
    )
    @click.option(
        "--attribute", "attributes", multiple=True, metavar="K=V", help="An attribute to find the workflow by; up to 8."
    )
    @click.option("--group", metavar="G", help="Name of the app.  [default: the only app of the book]")
    def start(
        invocation: Invocation,
        name: str,
        book: str,
        id: str | None,
        args: str,
        attributes: tuple[str, ...],
        group: str | None,
    ) -> int:
        """Start a workflow by the name of its function, and print its id. A worker of the app runs it.

        The command checks neither names nor arguments, since the log does not say which workflows the workers have. If they have no
        workflow of this name, NotRegistered blocks it; if the arguments do not fit its parameters, NonDeterminism does. An id that was
        used for the same call finds the existing workflow. An id that was used for another call is refused with exit code 2; arguments
        by name and by position differ. With --json an object with id, name, group and alive (a worker of the app was seen).

        \b
            boki flow start checkout --id order-7 --args '["visa", ["apple"]]' --book shop
            boki flow start checkout --args '{"card": "visa", "skus": []}' --book shop --group shop --json
        """
        given, pairs = _call_arguments(args), dict(_pair(one) for one in attributes)
        return process.run_command(lambda: _start(invocation, book, group, name, id, given, pairs))


def _call_arguments(text: str) -> list[Any] | dict[str, Any]:
    try:
        given = msgspec.json.decode(text)
    except msgspec.DecodeError as fault:
        raise UsageError(
            f"expected JSON in --args, such as '[7]' or '{{\"count\": 7}}', found {text!r:.80}: {fault}"
        ) from fault
    if not isinstance(given, list | dict):
        raise UsageError(f"expected --args to be a list of arguments, or an object of them by name, found {text!r:.80}")
    return given


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"expected --attribute K=V, found {text!r:.80}")
    return name, value


async def _start(
    invocation: Invocation,
    book: str,
    group: str | None,
    name: str,
    id: str | None,
    given: list[Any] | dict[str, Any],
    attributes: dict[str, str],
) -> int:
    from bokiflow import App, Flow
    from bokiflow.history.listing import groups
    from bokiflow.runtime.calls import named
    from bokiflow_tools.living import living

    async with opened(invocation, book) as log:
        if group is None:
            names = await groups(log)
            if len(names) != 1:
                raise UsageError(f"expected --group: the book {book!r} has {len(names)} apps, {names}")
            (group,) = names
        app = App(group)
        async with Flow(app, log) as flow:
            workflow = named(app, name)
            call = workflow.call(**given) if isinstance(given, dict) else workflow.call(*given)
            handle = await flow.start(call, id=id, attributes=attributes)
        seen = await living(log, group)
        facts = {"id": handle.id, "name": name, "group": group, "has_code": seen.has_code(name)}
        show_started(invocation, facts, seen.alone, seen.lacking(name))
    return exit_codes.OK


def _register_signal(group: CommandGroup) -> None:
    @command(group, "signal", writes=True, client=True, short_help="Send a value to a workflow.")
    @ID
    @click.argument("topic")
    @click.argument("value", required=False, default="null", metavar="[JSON]")
    @BOOK
    @IF_THERE
    def signal(invocation: Invocation, id: str, topic: str, value: str, book: str, check: bool) -> int:
        """Send a value to a workflow: `recv(TOPIC)` in its code returns it, once.

        A workflow that has ended receives nothing. If no worker is alive, the command says so.

        \b
            boki flow signal holiday approved '"ann"' --book shop
        """
        try:
            sent = msgspec.json.decode(value)
        except msgspec.DecodeError as fault:
            raise UsageError(f"expected JSON, such as 7 or '\"a text\"', found {value!r:.80}: {fault}") from fault
        next_one = "the next one delivers it"
        return change(
            invocation, book, id, lambda handle: handle.signal(topic, sent), "sent", check=check, next_one=next_one
        )


def _register_cancel(group: CommandGroup) -> None:
    @command(group, "cancel", writes=True, client=True, short_help="Ask a workflow to end.")
    @ID
    @BOOK
    @click.option("--reason", default="", metavar="TEXT", help="Recorded, for people who read the history.")
    @IF_THERE
    def cancel(invocation: Invocation, id: str, book: str, reason: str, check: bool) -> int:
        """Ask a workflow to end: its code gets CancelledError where it waits, and may clean up.

        A workflow that has ended stays as it is. A workflow blocked by WorkflowStuck ends at once and its code does not run: to have it
        clean up, `resume` it first with code that works. A workflow blocked by another error stays blocked until a worker has code that
        fits; `terminate` ends it without its code.

        \b
            boki flow cancel order-7 --book shop --reason "wrong address"
        """
        next_one = "the next one does it, and `boki flow terminate` ends it without one"
        return change(
            invocation, book, id, lambda handle: handle.cancel(reason), "asked to end", check=check, next_one=next_one
        )


def _register_terminate(group: CommandGroup) -> None:
    @command(group, "terminate", writes=True, client=True, short_help="End a workflow without its code.")
    @ID
    @BOOK
    @click.option("--reason", default="", metavar="TEXT", help="Recorded, for people who read the history.")
    @IF_THERE
    def terminate(invocation: Invocation, id: str, book: str, reason: str, check: bool) -> int:
        """End a running or blocked workflow without its code: nothing cleans up, and no worker is needed.

        Its children are cancelled and its locks released; `result` says that it was terminated, and why. The outcome of a step that runs
        now is refused. Prefer `cancel`, unless the workflow is blocked or ignores it.

        \b
            boki flow terminate order-7 --book shop --reason "its code is gone"
        """
        return change(invocation, book, id, lambda handle: handle.terminate(reason), "terminated", check=check)


def _register_resume(group: CommandGroup) -> None:
    @command(group, "resume", writes=True, client=True, short_help="Have workers retry blocked workflows.")
    @click.argument("id", metavar="[WORKFLOW]", required=False)
    @BOOK
    @GROUP
    @click.option("--all", "every", is_flag=True, help="All blocked workflows instead of one.")
    @click.option("--error", default="", metavar="E", help="With --all: only workflows blocked by this error.")
    @click.option(
        "--check", is_flag=True, help="Exit code 1 if there is no such workflow, or with --all no blocked one."
    )
    def resume(
        invocation: Invocation, id: str | None, book: str, group: str | None, every: bool, error: str, check: bool
    ) -> int:
        """Have the worker of a blocked workflow retry it with the code that the worker has now. `show` says why it is blocked.

        With --all workers retry every blocked workflow of the app, or of every app of the book. E is the name of an error class, such as
        NonDeterminism. The command prints how many workflows there are; with --json an object for each.

        \b
            boki flow resume order-7 --book shop
            boki flow resume --all --error NonDeterminism --book shop
        """
        if (id is None) is not every or (error and not every) or (group is not None and not every):
            raise UsageError("expected either WORKFLOW or --all, and --error and --group with --all")
        if id is not None:
            next_one = "the next one tries it"
            return change(
                invocation,
                book,
                id,
                lambda handle: handle.resume(),
                "asked to try again",
                check=check,
                next_one=next_one,
            )
        return process.run_command(lambda: _resume_all(invocation, book, group, error, check=check))


async def _resume_all(invocation: Invocation, book: str, group: str | None, error: str, *, check: bool) -> int:
    from bokiflow import App, Flow
    from bokiflow.history.listing import groups_named

    count, waits = 0, list[str]()
    async with opened(invocation, book) as log:
        names = await groups_named(log, group)
        for name in names:
            async with Flow(App(name), log) as flow:
                asked, alone = await _resume_blocked(invocation, flow, error)
            count += asked
            if alone:
                waits.append(f"What is blocked of the app {name!r} waits for a worker: {alone}.")
    if not invocation.json:
        write_line(f"{count} asked to try again".encode())
    for line in waits:
        invocation.say(line)
    nothing = nothing_in(book, group)
    if names:
        nothing = f"No workflow of {place_text(book, group)} is blocked{f' by {error}' if error else ''}."
    return end_of_list(invocation, count, nothing, check=check)


async def _resume_blocked(invocation: Invocation, flow: Flow, error: str) -> tuple[int, str]:
    """Resume the blocked workflows of an app.

    Returns:
        How many there are, and `Living.alone` of the app; "" if there are none.
    """
    from bokiflow_tools.living import living

    found = await flow.blocked(error)
    for one in found:
        await flow.handle(one.id).resume()
        if invocation.json:
            invocation.emit({"id": one.id, "group": flow.group, "blocked": one.blocked})
    return len(found), (await living(flow.log, flow.group)).alone if found else ""


def _register_fork(group: CommandGroup) -> None:
    @command(group, "fork", writes=True, client=True, short_help="Begin a new workflow from the middle of another.")
    @ID
    @BOOK
    @click.option("--id", "new", metavar="NEW", help="Id of the new workflow.  [default: a random id]")
    @click.option(
        "--before",
        metavar="KEY",
        help="Key of the first step to repeat, as `steps --json` prints it.  [default: the first step that failed, or where the "
        "workflow was cancelled; without either, no step is repeated]",
    )
    @IF_THERE
    def fork(invocation: Invocation, id: str, book: str, new: str | None, before: str | None, check: bool) -> int:
        """Start a new workflow with the call and the history of another before a step, which is not repeated.

        The command prints the id of the new workflow, and which steps of the other ran after that place: they are not undone. With
        --json an object with id, origin and ran_after (objects with key and name).

        \b
            boki flow fork order-7 --book shop --id order-7-again
            boki flow fork order-7 --book shop --before 0:4
        """

        async def work() -> int:
            from boki_common.errors import Trimmed
            from bokiflow.history import inspection
            from bokiflow.history.forks import LeftBehind, left_behind

            async with opened(invocation, book) as log, flow_of(log, id) as flow:
                made = await flow.handle(id).fork(id=new, before=before)
                try:
                    left = left_behind(await inspection.whole_history(log, id), before)
                except Trimmed:  # the history was trimmed after the fork was made
                    left = LeftBehind((), "")
            ran = [one._asdict() for one in left.ran]
            show_facts(invocation, {"id": made.id, "origin": id, "ran_after": ran}, made.id)
            if left.ran:
                names = ", ".join(f"{one.key} {printable(one.name)}" for one in left.ran)
                anew = f"; `--before {left.first}` begins anew" if left.first else ""
                invocation.say(f"Steps that ran after it and are not undone: {names}{anew}.")
            return exit_codes.OK

        return run_on_workflow(invocation, work, check=check)


def _register_gc(group: CommandGroup) -> None:
    @command(group, "gc", writes=True, client=True, short_help="Delete old data of ended workflows.")
    @BOOK
    @GROUP
    @click.option("--check", is_flag=True, help="Exit code 1 if the book has no workflows, or no such app.")
    def gc(invocation: Invocation, book: str, group: str | None, check: bool) -> int:
        """Run one round of retention: delete histories and results of ended workflows past their retention. Workers do this, too.

        Histories are deleted a day after the end; results, and histories of failed workflows, after a week. With --json an object for
        each app with group, ended (deleted histories), tombs (repeated ends) and forgotten (ids).

        \b
            boki flow gc --book shop
            boki flow gc --book shop --group shop --json
        """

        async def work() -> int:
            from bokiflow import App, Flow, collect
            from bokiflow.history.listing import groups_named

            async with opened(invocation, book) as log:
                names = await groups_named(log, group)
                for one in names:
                    async with Flow(App(one), log) as flow:
                        found = await collect(flow)
                    facts = {"group": one, "ended": found.ended, "tombs": found.tombs, "forgotten": found.forgotten}
                    done = f"{found.ended} histories trimmed, {found.forgotten} ids forgotten"
                    show_facts(invocation, facts, f"{printable(one)}  {done}; {found.tombs} ends repeated")
            return end_of_list(invocation, len(names), nothing_in(book, group), check=check)

        return process.run_command(work)
