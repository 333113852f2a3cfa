"""`boki flow start | signal | cancel | terminate | resume | fork | gc`: what is done to a workflow.

Importing this module imports no library (see `commands`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from boki_cli import exit_codes
from boki_cli.options import BOOK, CommandGroup, Invocation, command, end_of_list, write_line
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
    show_facts,
    show_started,
)

if TYPE_CHECKING:
    from bokiflow import Flow


def register(group: CommandGroup) -> None:
    """Adds the commands of this module."""
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
    @click.option("--id", "id", metavar="ID", help="Of the workflow; of one id it runs once.  [default: a random one]")
    @click.option(
        "--args", "args", default="[]", metavar="JSON", help="A list of arguments, or an object of them by name."
    )
    @click.option("--attribute", "attributes", multiple=True, metavar="K=V", help="By which it can be found; up to 8.")
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

        Names and arguments are not checked here: without a worker that has a workflow of this name, it is blocked by NotRegistered; with
        arguments that do not fit its parameters, by NonDeterminism. An id that was used for the same call finds the workflow that is
        there; for another one (arguments by name and by position differ) it is refused, exit code 2. With --json an object with id, name,
        group and alive (a worker of the app was seen).

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
    from bokiflow.client.by_name import named
    from bokiflow_tools.listing import groups
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
        show_started(invocation, {"id": handle.id, "name": name, "group": group}, (await living(log, group)).alone)
    return exit_codes.OK


def _register_signal(group: CommandGroup) -> None:
    @command(group, "signal", writes=True, client=True, short_help="Send a workflow a value.")
    @ID
    @click.argument("topic")
    @click.argument("value", required=False, default="null", metavar="[JSON]")
    @BOOK
    @IF_THERE
    def signal(invocation: Invocation, id: str, topic: str, value: str, book: str, check: bool) -> int:
        """Send a workflow a value, which its `recv(TOPIC)` gives it, once. What is over gets nothing. If no worker is alive, it says so.

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
    @click.option("--reason", default="", metavar="TEXT", help="For whoever reads what happened.")
    @IF_THERE
    def cancel(invocation: Invocation, id: str, book: str, reason: str, check: bool) -> int:
        """Ask a workflow to end: its code gets CancelledError where it waits, and may clean up. What is over stays as it is.

        One that is blocked by WorkflowStuck ends at once, and its code does not run: `resume` it first, with code that can go on, to have
        it clean up. One that is blocked otherwise stays blocked until a worker has code that fits; `terminate` ends it without.

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
    @click.option("--reason", default="", metavar="TEXT", help="For whoever reads what happened.")
    @IF_THERE
    def terminate(invocation: Invocation, id: str, book: str, reason: str, check: bool) -> int:
        """End a workflow, whether it runs or is blocked, without its code: nothing cleans up, and no worker is needed.

        Its children are cancelled and its locks released; `result` says that it was terminated, and why. The outcome of a step that runs is
        refused. Prefer `cancel`, unless the workflow is blocked or ignores it.

        \b
            boki flow terminate order-7 --book shop --reason "its code is gone"
        """
        return change(invocation, book, id, lambda handle: handle.terminate(reason), "terminated", check=check)


def _register_resume(group: CommandGroup) -> None:
    @command(group, "resume", writes=True, client=True, short_help="Have blocked workflows tried again.")
    @click.argument("id", metavar="[WORKFLOW]", required=False)
    @BOOK
    @GROUP
    @click.option("--all", "every", is_flag=True, help="All that are blocked, in the place of one.")
    @click.option("--error", default="", metavar="E", help="With --all: only those that this error blocks.")
    @click.option(
        "--check", is_flag=True, help="Exit code 1 if there is no such workflow, or with --all none that is blocked."
    )
    def resume(
        invocation: Invocation, id: str | None, book: str, group: str | None, every: bool, error: str, check: bool
    ) -> int:
        """Have a blocked workflow tried again by its worker, with the code that the worker has now. `show` says why it is blocked.

        With --all every blocked workflow of the app, or of every app of the book, is; E is the name of an error's class, such as
        NonDeterminism. Prints how many there were; with --json an object for each.

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
    from bokiflow_tools.listing import groups_named

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
    """Resume the blocked workflows of an app; return how many, and if any is that no worker is alive: see `Living.alone`."""
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
    @click.option("--id", "new", metavar="NEW", help="Of the new workflow.  [default: a random one]")
    @click.option(
        "--before",
        metavar="KEY",
        help="First step that is done anew, by its key, as `steps --json` has it.  [default: the first that failed, or where it was "
        "cancelled; without either, all is taken over]",
    )
    @IF_THERE
    def fork(invocation: Invocation, id: str, book: str, new: str | None, before: str | None, check: bool) -> int:
        """Begin a new workflow with the same call, and with what another did before a step: that is not done again.

        Prints the id of the new one, and which steps of the other one ran after that place: they are not undone. With --json an object
        with id, origin and ran_after (objects with key and name).

        \b
            boki flow fork order-7 --book shop --id order-7-again
            boki flow fork order-7 --book shop --before 0:4
        """

        async def work() -> int:
            from boki_common.errors import Trimmed
            from bokiflow.history import inspection
            from bokiflow.history.fork_rules import Leaves, leaves

            async with opened(invocation, book) as log, flow_of(log, id) as flow:
                made = await flow.handle(id).fork(id=new, before=before)
                try:
                    left = leaves(await inspection.whole_history(log, id), before)
                except Trimmed:  # since it was forked
                    left = Leaves((), "")
            ran = [one._asdict() for one in left.ran]
            show_facts(invocation, {"id": made.id, "origin": id, "ran_after": ran}, made.id)
            if left.ran:
                names = ", ".join(f"{one.key} {printable(one.name)}" for one in left.ran)
                anew = f"; `--before {left.first}` begins anew" if left.first else ""
                invocation.say(f"Steps that ran after it and are not undone: {names}{anew}.")
            return exit_codes.OK

        return run_on_workflow(invocation, work, check=check)


def _register_gc(group: CommandGroup) -> None:
    @command(group, "gc", writes=True, client=True, short_help="Let go what nobody needs of workflows that ended.")
    @BOOK
    @GROUP
    @click.option("--check", is_flag=True, help="Exit code 1 if the book has no workflows, or no such app.")
    def gc(invocation: Invocation, book: str, group: str | None, check: bool) -> int:
        """Let go what nobody needs any more of workflows that ended, one round; workers do it by themselves.

        Histories go a day after the end, those of failed workflows and results after a week. With --json an object for each app with
        group, ended (histories that went), tombs and forgotten.

        \b
            boki flow gc --book shop
            boki flow gc --book shop --group shop --json
        """

        async def work() -> int:
            from bokiflow import App, Flow, collect
            from bokiflow_tools.listing import groups_named

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
