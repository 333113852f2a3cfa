"""The commands `boki flow ls`, `show`, `result` and `steps`; `register` adds the other commands of the group `boki flow`, too.

`boki_cli` finds `register` by the entry point group `boki.commands`. Importing this module imports no library: a command imports what
it needs when it runs, so that `boki --help` stays as quick as it is without libraries.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import click

from boki_cli import exit_codes
from boki_cli.number_types import Real, Whole
from boki_cli.options import (
    BOOK,
    CHECK,
    CONSISTENCY,
    CommandGroup,
    Invocation,
    as_moment,
    command,
    end_of_list,
    flush,
    show_facts,
    write_line,
)
from boki_cli.wording import time_text
from boki_common.errors import BokiError, UsageError
from boki_common.runtime import process
from bokiflow_tools import changing_commands, replay_command, schedule_commands
from bokiflow_tools.command_parts import (
    GROUP,
    ID,
    IF_THERE,
    flow_of,
    json_text,
    nothing_in,
    opened,
    place_text,
    run_on_workflow,
)
from bokiflow_tools.schedule_commands import kept_text

if TYPE_CHECKING:
    from bokiflow import Flow
    from bokiflow.client.results import OnBlocked
    from bokiflow.history.listing import Before, Listed, Wanted
    from bokiflow.model.flow_events import Ended
    from bokiflow_tools.living import Living
    from bokiflow_tools.timeline import Life
    from bokilib import Log
    from bokilib.ports import ConsistencyName

_STATUSES: Final = ("running", "blocked", "completed", "failed", "cancelled")


class NotEnded(BokiError):
    """A workflow did not end within the seconds of `--wait`."""


def register(group: click.Group) -> None:
    """Add the group `flow` with all of its commands to the command line."""
    flow = CommandGroup("flow", help="Workflows of a book: which there are, what they did; signals, cancellation.")
    group.add_command(flow)
    for add in (_register_ls, _register_show, _register_result, _register_steps):
        add(flow)
    changing_commands.register(flow)
    schedule_commands.register(flow)
    replay_command.register(flow)


def _register_ls(group: CommandGroup) -> None:
    @command(group, "ls", writes=False, client=True, short_help="List workflows, the newest first.")
    @BOOK
    @GROUP
    @click.option(
        "--status",
        "statuses",
        multiple=True,
        type=click.Choice(_STATUSES),
        help="Only workflows of this status; repeatable.",
    )
    @click.option("--name", default="", metavar="F", help="Only calls of this workflow.")
    @click.option("--attribute", metavar="K=V", help="Only workflows started with this attribute.")
    @click.option("--since", "since_ms", callback=as_moment, metavar="T", help="Only workflows started at T or later.")
    @click.option("--until", "until_ms", callback=as_moment, metavar="T", help="Only workflows started before T.")
    @click.option("--limit", type=Whole(1), default=50, metavar="N", help="At most N.", show_default=True)
    @click.option("--before", metavar="PLACE", help="Only workflows started before PLACE: the next page.")
    @CHECK
    @CONSISTENCY
    def ls(
        invocation: Invocation,
        book: str,
        group: str | None,
        statuses: tuple[Any, ...],
        name: str,
        attribute: str | None,
        since_ms: int | None,
        until_ms: int | None,
        limit: int,
        before: str | None,
        check: bool,
        consistency: ConsistencyName,
    ) -> int:
        """List workflows, the newest first.

        A line has the status, the time of the start, the id, the function, the duration or the worker, the attributes, and the error of
        a workflow that failed or is blocked (cut to the width of the terminal: `show` has the whole error).

        Without --group the command reads the whole book to find its apps. If there are more than N workflows, the last line names the
        --before that shows the next ones; with --json it is an object with group and before. A workflow that no living worker runs says
        so, and which worker was seen last; so does one whose name no living worker has code of. The workflow of a schedule says whether
        the schedule is active, paused or deleted.

        \b
            boki flow ls --book shop --status running --since 1h
            boki flow ls --book shop --attribute customer=ann --json
        """
        from bokiflow.history.listing import Wanted

        wanted = Wanted(frozenset(statuses), name, _pair(attribute), since_ms, until_ms)
        return process.run_command(
            lambda: _ls(invocation, book, group, wanted, limit, before, consistency, check=check)
        )


def _pair(attribute: str | None) -> tuple[str, str] | None:
    if attribute is None:
        return None
    name, equals, value = attribute.partition("=")
    if not name or not equals:
        raise UsageError(f"--attribute: expected NAME=VALUE, found {attribute!r}")
    return name, value


async def _ls(
    invocation: Invocation,
    book: str,
    group: str | None,
    wanted: Wanted,
    limit: int,
    before: str | None,
    consistency: ConsistencyName,
    *,
    check: bool,
) -> int:
    from bokiflow.history.listing import groups_named, listing, newest_of, parse_before
    from bokiflow.model.schedule_rules import NAME
    from bokiflow_tools.living import living

    place = None if before is None else parse_before(before)
    async with opened(invocation, book) as log:
        await log.book.now(consistency=consistency)
        names = await groups_named(log, group)
        pages = {one: await listing(log, one, wanted, before=place, limit=limit) for one in names}
        seen = {one: await living(log, one) for one in names}
        rows, after = newest_of(pages, limit)
        kept = {row.started.id: await kept_text(log, row.started.id) for _, row in rows if row.started.name == NAME}
    width = 0 if invocation.json else invocation.console().width
    cut = [_show_listed(invocation, one, row, seen[one], width, kept.get(row.started.id, "")) for one, row in rows]
    if any(cut):
        invocation.say("Errors are cut: `boki flow show WORKFLOW` has the whole text.")
    if after is not None:
        _show_more(invocation, names[0] if len(names) == 1 else None, after)
    nothing = nothing_in(book, group)
    if names:
        nothing = f"No workflow of {place_text(book, group)} matches the filters."
    return end_of_list(invocation, len(rows) + (after is not None), nothing, check=check)


def _show_listed(invocation: Invocation, group: str, one: Listed, seen: Living, width: int, schedule: str) -> bool:
    """Show one line of a list. Return whether its error was cut to the width of the terminal.

    Args:
        invocation: the command, which says whether lines are JSON.
        group: the app of the workflow.
        one: the workflow.
        seen: the workers of the app.
        width: columns of the terminal.
        schedule: "active", "paused" or "deleted" for the workflow of a schedule; "" for any other workflow.
    """
    from bokiflow.model.delivery_order import start_ms
    from bokiflow_tools.wording import REASON, listed_facts, listed_line, listed_reason, shortened

    if invocation.json:
        facts = listed_facts(one.seqnum, one.started, one.held) | {"group": group}
        invocation.emit(facts | seen.facts(one.held, one.started.name) | ({"schedule": schedule} if schedule else {}))
        return False
    line = listed_line(one.started, one.held, time_text(start_ms(one.started)))
    alone = seen.text(one.held, one.started.name)
    line += f"  schedule {schedule}" if schedule else ""
    reason = listed_reason(one.held)
    shown = shortened(reason, min(REASON, width - len(line) - len(alone) - 4))
    write_line("  ".join(part for part in (line, shown, alone) if part).encode())
    return shown != reason


def _show_more(invocation: Invocation, group: str | None, after: Before) -> None:
    if invocation.json:
        invocation.emit({"group": group, "before": after.plain})
    else:
        invocation.say(f"There may be more: {'' if group is None else f'--group {group} '}--before {after}")


def _register_show(group: CommandGroup) -> None:
    @command(group, "show", writes=False, client=True, short_help="Show one workflow.")
    @ID
    @BOOK
    @click.option("--full-stack", is_flag=True, help="Include the frames of Boki's own code in a stack trace.")
    @IF_THERE
    @CONSISTENCY
    def show(
        invocation: Invocation, id: str, book: str, full_stack: bool, check: bool, consistency: ConsistencyName
    ) -> int:
        """Show a workflow: its call, its status, its worker, when it began and ended, and its result or error.

        Exit code 2: there is no such workflow.

        With --json an object with id, name, args, status, group, owner, unseen_ms (for how long its worker has been silent), last_seen
        (worker and unseen_ms of the worker of the app that was seen last), has_code (whether a living worker has code of its name; null if
        that is not known), held_back_until_ms (null unless it is held back because
        its process ended several times in a row while it ran), idle_claims (takeovers since it last recorded anything),
        version, started_ms, ended_ms, attributes, parent, origin (of a fork), cancels (the reasons given), history_kept, waits_for
        (objects with lock, since_ms, holder and holder_blocked), holds (names of locks), open (timers, children and begun steps without
        an end, as `steps --json` has them), and result or error with its whole stack, its cause and, of a group, its errors. If
        the history is not kept any more, args, version, origin, cancels and idle_claims are null.

        For which signals a workflow waits, which steps run, and which timers it cancelled is not in the log, nor are timers that it set
        after its last record: `boki flow replay` says what its code waits for.

        \b
            boki flow show order-7 --book shop
            boki flow show order-7 --book shop --json
        """

        async def work() -> int:
            from bokiflow.model.schedule_rules import NAME
            from bokiflow_tools.living import living
            from bokiflow_tools.reading import life_of
            from bokiflow_tools.wording import life_facts, life_lines

            async with opened(invocation, book) as log:
                found = await life_of(log, id, consistency=consistency)
                seen = await living(log, found.group)
                schedule = await kept_text(log, id) if found.name == NAME else ""
            lines = life_lines(found, time_text, full_stack=full_stack)
            if schedule:
                lines.append(f"{'schedule'.ljust(10)}{schedule}")
            if text := seen.text(found.held, found.name):
                lines.append(f"{'worker'.ljust(10)}{text}")
            facts = (
                life_facts(found) | seen.facts(found.held, found.name) | ({"schedule": schedule} if schedule else {})
            )
            show_facts(invocation, facts, *lines)
            return exit_codes.OK

        return run_on_workflow(invocation, work, check=check)


def _register_result(group: CommandGroup) -> None:
    @command(group, "result", writes=False, client=True, short_help="Wait for a workflow, and print its result.")
    @ID
    @BOOK
    @click.option(
        "--wait", "wait_s", type=Real(0.1), metavar="S", help="Seconds to wait at most.  [default: until it ends]"
    )
    @click.option(
        "--wait-blocked", is_flag=True, help="Keep waiting while it is blocked.  [default: say why, exit code 4]"
    )
    @IF_THERE
    def result(
        invocation: Invocation, id: str, book: str, wait_s: float | None, wait_blocked: bool, check: bool
    ) -> int:
        """Wait until a workflow ends, and print its result as JSON.

        Exit code 1: the workflow failed or was cancelled; 2: there is no such workflow; 4: it has not ended after --wait seconds.

        If no living worker runs the workflow, standard error says so. With --json an object with id, status, and result or error.

        \b
            boki flow result order-7 --book shop
            boki flow result order-7 --book shop --wait 30
            boki flow result order-7 --book shop --wait-blocked
        """
        return run_on_workflow(
            invocation, lambda: _result(invocation, book, id, wait_s, wait_blocked=wait_blocked), check=check
        )


async def _result(invocation: Invocation, book: str, id: str, wait_s: float | None, *, wait_blocked: bool) -> int:
    from bokiflow.history.instance_state import status_of
    from bokiflow_tools.wording import outcome_facts, outcome_text

    async with opened(invocation, book) as log, flow_of(log, id) as flow:
        alone = await _alone(log, id, flow.group)
        if alone:
            invocation.say(f"Waits for workflow {id!r}: {alone}.")
        ended = await _ended(flow, id, wait_s, "wait" if wait_blocked else "raise", f": {alone}" if alone else "")
    status, error = status_of(ended), ended.outcome.error
    if error is not None and not invocation.json:
        raise exit_codes.CheckFailed(f"workflow {id!r} is {status}: {outcome_text(ended.outcome)}")
    text = outcome_text(ended.outcome) if error is not None else json_text(ended.outcome.value)
    show_facts(invocation, {"id": id, "status": status, **outcome_facts(ended.outcome)}, text)
    return exit_codes.OK if error is None else exit_codes.CHECK_FAILED


async def _ended(flow: Flow, id: str, wait_s: float | None, blocked: OnBlocked, why: str) -> Ended:
    """Wait for a workflow to end.

    Args:
        flow: the workflows of its app.
        id: the workflow.
        wait_s: seconds to wait at most; None waits until the workflow ends.
        blocked: wait on while the workflow is blocked, or raise.
        why: appended to the message of NotEnded.

    Raises:
        NotEnded: the time has passed.
        WorkflowBlocked: the workflow is blocked, and `blocked` is "raise".
    """
    limit = asyncio.timeout(wait_s)
    try:
        async with limit:
            return await flow.wait(id, 0, blocked=blocked, missing="raise")
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise NotEnded(f"workflow {id!r} has not ended after {wait_s:g} s{why}", id=id) from error


async def _alone(log: Log, id: str, group: str) -> str:
    """Return the sentence that no living worker runs a workflow, and why; "" if a worker runs it or it has ended."""
    from bokiflow.history import inspection
    from bokiflow_tools.living import living

    held = await inspection.newest(log, id)
    return "" if held is None or held.ended is not None else (await living(log, group)).text(held)


def _register_steps(group: CommandGroup) -> None:
    @command(group, "steps", writes=False, client=True, short_help="Show the steps of a workflow.")
    @ID
    @BOOK
    @IF_THERE
    @CONSISTENCY
    def steps(invocation: Invocation, id: str, book: str, check: bool, consistency: ConsistencyName) -> int:
        """Show the history of a workflow: steps, transactions, timers, children, signals, takeovers, its end.

        A line has the time since the workflow began, the kind and name, the duration and the outcome. A step is recorded when it ends,
        unless it runs at most once: a step that runs now is not shown. That a timer was cancelled is not recorded: one without an end may
        be over. Arguments of steps and errors of retried attempts are not in the log; it has the number of attempts and the outcome of
        the last one. The worker's own log lines ("step attempt failed: retried") have errors of the others. `show` prints the call of a
        workflow or, by its id, of a child.

        With --json each is an object with kind, name, key, begin_ms, end_ms and further members that depend on the kind. Exit code 4:
        the history is not kept any more.

        \b
            boki flow steps order-7 --book shop
            boki flow steps order-7 --book shop --json
        """

        async def work() -> int:
            from bokiflow_tools.reading import life_of

            async with opened(invocation, book) as log:
                found = await life_of(log, id, consistency=consistency)
            _show_steps(invocation, found)
            flush()
            return exit_codes.OK

        return run_on_workflow(invocation, work, check=check)


def _show_steps(invocation: Invocation, found: Life) -> None:
    from bokiflow import ResultExpired
    from bokiflow_tools.wording import UNENDED, span_facts, span_line

    line = found.timeline
    if line is None:
        raise ResultExpired(f"workflow {found.id!r} ended, and {found.not_kept}; `show` has the rest", id=found.id)
    for span in line.spans:
        if invocation.json:
            invocation.emit(span_facts(span))
        else:
            write_line(span_line(span, line.begin_ms).encode())
    if found.status not in ("completed", "failed"):
        invocation.say(UNENDED)
