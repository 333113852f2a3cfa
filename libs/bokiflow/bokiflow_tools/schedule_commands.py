"""The commands of schedules: `boki flow schedules` and `boki flow schedule pause | resume | delete | run`.

Importing this module imports no library (see `commands`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import click

from boki_cli import exit_codes
from boki_cli.options import (
    BOOK,
    CommandGroup,
    Invocation,
    command,
    end_of_list,
    failed_check,
    show_facts,
    write_line,
)
from boki_cli.wording import time_text
from boki_common.errors import InvalidArgument
from boki_common.runtime import process
from boki_gateway.pages.texts import printable
from bokiflow_tools.command_parts import GROUP, opened, place_text, show_started

if TYPE_CHECKING:
    from bokiflow import Flow, Schedule, Schedules
    from bokiflow_tools.living import Living
    from bokilib import Log

OVERDUE_MS: Final = 10_000
"""A firing is overdue when it has been due for longer than this: clocks differ, and the worker may just have been replaced."""

Change: TypeAlias = Literal["pause", "resume", "delete"]


def register(group: CommandGroup) -> None:
    """Add the commands of this module to the group `flow`."""
    _register_schedules(group)
    schedule = CommandGroup("schedule", help="Pause, resume, delete and run schedules.")
    group.add_command(schedule)
    _register_change(schedule, "pause", "Stop starting workflows until `resume`.")
    _register_change(schedule, "resume", "Start workflows again, from now on.")
    _register_change(schedule, "delete", "Delete a schedule; workflows it started keep running.")
    _register_run(schedule)


def _register_schedules(group: CommandGroup) -> None:
    @command(group, "schedules", writes=False, client=True, short_help="List schedules.")
    @BOOK
    @GROUP
    @click.option(
        "--check",
        is_flag=True,
        help="Exit code 1 if there are no schedules, or one is overdue, has an error, or its newest firing failed or is blocked.",
    )
    def schedules(invocation: Invocation, book: str, group: str | None, check: bool) -> int:
        """List schedules.

        A line has the name, the times, the call, the next firing, the last one, how missed firings are treated, and which were skipped
        last.

        A schedule is overdue if the time of its next firing has passed and no worker started it: the line says which worker was seen
        last. With --check that is exit code 1, as is an error that keeps a schedule from starting workflows, or a newest firing that
        failed or is blocked: standard error names its workflow. Of older firings `boki flow ls --status failed` tells.

        With --json an object for each with name, group, id (of the workflow that runs the schedule), workflow, args, attributes, cron or
        every_s, timezone, missed, late_s, paused, asked (a command that no worker has taken yet), next_ms, overdue, last (id, due_ms and
        status of the last firing), skipped (number, first_ms and last_ms), last_seen (worker and unseen_ms of the worker that was seen
        last) and error.

        \b
            boki flow schedules --book shop
            boki flow schedules --book shop --group office --json
        """
        return process.run_command(lambda: _list(invocation, book, group, check=check))


def _register_change(group: CommandGroup, change: Change, short: str) -> None:
    more = " A worker of the app does it; until then `schedules` shows the request."
    if change == "delete":
        more += " A worker whose code has the schedule sets it again when it begins."

    @command(
        group,
        change,
        writes=True,
        client=True,
        short_help=short,
        help=f"{short}{more}\n\n\b\n    boki flow schedule {change} nightly --book shop",
    )
    @click.argument("name")
    @BOOK
    @GROUP
    def changing(invocation: Invocation, name: str, book: str, group: str | None) -> int:
        return process.run_command(lambda: _change(invocation, book, group, name, change))


def _register_run(group: CommandGroup) -> None:
    @command(group, "run", writes=True, client=True, short_help="Start the workflow of a schedule now.")
    @click.argument("name")
    @BOOK
    @GROUP
    def run(invocation: Invocation, name: str, book: str, group: str | None) -> int:
        """Start the workflow of a schedule now, also of a paused one, and print its id. The schedule itself does not change.

        For the workflow this is a firing whose time (`bokiflow.due_ms()`) is now. With --json an object with id, name, group and alive
        (a worker of the app was seen).

        \b
            boki flow schedule run nightly --book shop
        """

        async def started(flow: Flow, alone: str) -> int:
            id = await flow.schedules.run(name)
            show_started(invocation, {"id": id, "name": name, "group": flow.group}, alone)
            return exit_codes.OK

        return process.run_command(lambda: _with_schedule(invocation, book, group, name, started))


async def _list(invocation: Invocation, book: str, group: str | None, *, check: bool) -> int:
    from bokiflow import App, Flow
    from bokiflow_tools.living import living

    count, faults = 0, list[str]()
    firings: dict[str, list[str]] = {"blocked": [], "failed": []}
    async with opened(invocation, book) as log:
        for one in await _groups(log, group):
            seen = await living(log, one)
            async with Flow(App(one), log) as flow:
                for facts, worker in await _facts(flow, one, seen):
                    count += 1
                    if facts["overdue"] or facts["error"]:
                        faults.append(facts["name"])
                    last = facts.get("last")
                    if last is not None and last["status"] in firings:
                        firings[last["status"]].append(last["id"])
                    if invocation.json:
                        invocation.emit(facts)
                    else:
                        write_line(schedule_line(facts, worker).encode())
    code = end_of_list(invocation, count, f"There are no schedules of {place_text(book, group)}.", check=check)
    said = [f"Overdue, or kept from starting anything: {', '.join(map(printable, faults))}."] if faults else []
    said += [
        f"The newest firing {how}, `boki flow show` says why: {', '.join(map(printable, ids))}."
        for how, ids in (("is blocked", firings["blocked"]), ("failed", firings["failed"]))
        if ids
    ]
    return failed_check(invocation, *said) if check and said else code


async def _facts(flow: Flow, group: str, seen: Living) -> list[tuple[dict[str, Any], str]]:
    """Return the schedules of an app by name, also those whose workflow failed or is blocked, each with the worker seen last."""
    from bokiflow.history import inspection
    from bokiflow_tools.wording import outcome_text

    listed = {one.name: one for one in await flow.schedules.list()}
    found = []
    for name, id in sorted((await flow.schedules.ids()).items()):
        held = await inspection.newest(flow.log, id)
        known, one = await flow.known(id), listed.get(name)
        error = "" if known is None else known.blocked.partition("\n")[0]
        if known is not None and known.outcome is not None:
            error = outcome_text(known.outcome)
        if one is None and not error:
            continue  # the schedule was deleted
        facts: dict[str, Any] = {"name": name, "group": group, "id": id, "error": error, "overdue": False}
        if one is not None:
            facts |= schedule_facts(one, seen.now_ms)
        if held is not None:
            facts["last_seen"] = seen.facts(held)["last_seen"]
            found.append((facts, seen.text(held) or seen.last_text))
    return found


def schedule_facts(one: Schedule, now_ms: int) -> dict[str, Any]:
    """Return the members of a schedule for JSON."""
    timing = one.timing
    when = {"cron": timing.cron, "timezone": timing.timezone} if timing.cron else {"every_s": timing.every_s}
    return {
        "workflow": one.workflow,
        "args": one.args,
        "attributes": dict(one.attributes),
        **when,
        "missed": timing.missed,
        "late_s": timing.late_s,
        "paused": one.paused,
        "asked": one.asked,
        "next_ms": one.next_ms,
        "overdue": one.next_ms is not None and one.next_ms + OVERDUE_MS < now_ms,
        "last": None if one.last is None else one.last._asdict(),
        "skipped": None if one.skipped is None else one.skipped._asdict(),
    }


def schedule_line(facts: dict[str, Any], worker: str) -> str:
    """Return a schedule on one line. `worker` says which worker was seen last; it is shown for an overdue schedule."""
    from bokiflow.model.cron import FIRINGS_AT_ONCE
    from bokiflow_tools.wording import call_text

    parts = [printable(facts["name"])]
    if "workflow" in facts:
        when = f"{facts['cron']} {facts['timezone']}" if facts.get("cron") else f"every {facts['every_s']:g} s"
        parts += [printable(when), call_text(facts["workflow"], facts["args"]), _next_text(facts, worker)]
        parts += [f"{facts['asked']} asked"] if facts["asked"] else []
        last, skipped = facts["last"], facts["skipped"]
        parts += [f"last {time_text(last['due_ms'])} {last['status']}"] if last is not None else []
        parts.append(f"missed={facts['missed']} late_s={facts['late_s']:g}")
        if skipped is not None:
            count = f"{skipped['number']}{' or more' if skipped['number'] == FIRINGS_AT_ONCE else ''}"
            parts.append(f"skipped {count}, the last of {time_text(skipped['last_ms'])}")
    return "  ".join([*parts, *([f"error: {printable(facts['error'])}"] if facts["error"] else [])])


def _next_text(facts: dict[str, Any], worker: str) -> str:
    if facts["next_ms"] is None:
        return "paused"
    if not facts["overdue"]:
        return f"next {time_text(facts['next_ms'])}"
    return f"overdue since {time_text(facts['next_ms'])}{': ' if worker else ''}{worker}"


async def _change(invocation: Invocation, book: str, group: str | None, name: str, change: Change) -> int:
    async def changed(flow: Flow, alone: str) -> int:
        await _method(flow.schedules, change)(name)
        who = f"{alone}; the next one does it" if alone else "a worker of the app does it"
        asked = "deletion" if change == "delete" else change
        facts = {"name": name, "group": flow.group, "asked": asked, "alive": not alone}
        show_facts(invocation, facts, f"asked in {printable(flow.group)}: {who}")
        return exit_codes.OK

    return await _with_schedule(invocation, book, group, name, changed)


async def _with_schedule(
    invocation: Invocation, book: str, group: str | None, name: str, work: Callable[[Flow, str], Awaitable[int]]
) -> int:
    """Run `work` in the first app that has a schedule.

    Args:
        invocation: the command.
        book: the book.
        group: the app to look in; None looks in every app of the book.
        name: the schedule.
        work: gets the app, and the clause that none of its workers is alive, or "".

    Raises:
        InvalidArgument: no app has the schedule.
    """
    from bokiflow import App, Flow
    from bokiflow_tools.living import living

    known: list[str] = []
    async with opened(invocation, book) as log:
        for one in await _groups(log, group):
            async with Flow(App(one), log) as flow:
                names = [schedule.name for schedule in await flow.schedules.list()]
                known += names
                if name in names:
                    return await work(flow, (await living(log, one)).alone)
    raise InvalidArgument(f"there is no schedule {name!r} in book {book!r}, there are {sorted(known)}", found=name)


async def kept_text(log: Log, id: str) -> str:
    """Return the state of the schedule that a workflow runs: "deleted", "paused", "active", or "" if the workflow has ended."""
    from bokiflow.client.schedules import view_of

    view = await view_of(log, id)
    if view is None:
        return ""
    if view.state.planned is None:
        return "deleted"
    return "paused" if view.state.paused else "active"


def _method(schedules: Schedules, change: Change) -> Callable[[str], Awaitable[None]]:
    if change == "pause":
        return schedules.pause
    return schedules.resume if change == "resume" else schedules.remove


async def _groups(log: Log, group: str | None) -> list[str]:
    from bokiflow.history.listing import groups

    return [group] if group is not None else await groups(log)
