"""`boki flow schedules`, `boki flow schedule pause | resume | delete`.

Importing this module imports no library (see `commands`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click

from boki_cli import exit_codes
from boki_cli.options import BOOK, CHECK, CommandGroup, Invocation, command, end_of_list, write_line
from boki_cli.wording import time_text
from boki_common.errors import InvalidArgument
from boki_common.runtime import process
from boki_gateway.pages.texts import printable
from bokiflow_tools.command_parts import GROUP, opened, place_text, show_facts

if TYPE_CHECKING:
    from bokiflow import Flow, Schedules
    from bokilib import Log

Change: TypeAlias = Literal["pause", "resume", "delete"]


def register(group: CommandGroup) -> None:
    """Adds the commands of this module."""
    _register_schedules(group)
    schedule = CommandGroup("schedule", help="Pause, resume and delete schedules.")
    group.add_command(schedule)
    _register_change(schedule, "pause", "Start nothing until `resume`.", "paused")
    _register_change(schedule, "resume", "Start again what is due from now on.", "resumed")
    _register_change(schedule, "delete", "Start nothing more; what was started goes on.", "deleted")


def _register_schedules(group: CommandGroup) -> None:
    @command(group, "schedules", writes=False, client=True, short_help="List schedules.")
    @BOOK
    @GROUP
    @CHECK
    def schedules(invocation: Invocation, book: str, group: str | None, check: bool) -> int:
        """List schedules: name, when, what is started, when next or that it is paused, and the error that keeps it from starting it.

        With --json an object for each with name, group, id (of the workflow that keeps it), workflow, args, cron or every_s, timezone,
        paused, next_ms and error.

        \b
            boki flow schedules --book shop
            boki flow schedules --book shop --group office --json
        """
        return process.run_command(lambda: _list(invocation, book, group, check=check))


def _register_change(group: CommandGroup, change: Change, short: str, done: str) -> None:
    more = " Workers set it again when they begin, as long as their code has it." if change == "delete" else ""

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
        return process.run_command(lambda: _change(invocation, book, group, name, change, done))


async def _list(invocation: Invocation, book: str, group: str | None, *, check: bool) -> int:
    from bokiflow import App, Flow

    count = 0
    async with opened(invocation, book) as log:
        for one in await _groups(log, group):
            async with Flow(App(one), log) as flow:
                for facts in await _facts(flow, one):
                    count += 1
                    if invocation.json:
                        invocation.emit(facts)
                    else:
                        write_line(_line(facts).encode())
    return end_of_list(invocation, count, f"There are no schedules of {place_text(book, group)}.", check=check)


async def _facts(flow: Flow, group: str) -> list[dict[str, Any]]:
    """Schedules of an app, by name; also those whose workflow failed or is blocked."""
    from bokiflow.schedules import ATTRIBUTE, name_of
    from bokiflow_tools.wording import outcome_text

    listed = {one.name: one for one in await flow.schedules.list()}
    found = []
    for name, id in sorted({name_of(id): id for id in await flow.find(**{ATTRIBUTE: "schedule"})}.items()):
        known, one = await flow.known(id), listed.get(name)
        error = "" if known is None else known.blocked.partition("\n")[0]
        if known is not None and known.outcome is not None:
            error = outcome_text(known.outcome)
        if one is None and not error:
            continue  # it was deleted
        facts: dict[str, Any] = {"name": name, "group": group, "id": id, "error": error}
        if one is not None:
            timing = one.timing
            when = {"cron": timing.cron, "timezone": timing.timezone} if timing.cron else {"every_s": timing.every_s}
            facts |= {"workflow": one.workflow, "args": one.args, "paused": one.paused, "next_ms": one.next_ms, **when}
        found.append(facts)
    return found


def _line(facts: dict[str, Any]) -> str:
    from bokiflow_tools.wording import call_text

    parts = [printable(facts["name"])]
    if "workflow" in facts:
        when = f"{facts['cron']} {facts['timezone']}" if facts.get("cron") else f"every {facts['every_s']:g} s"
        parts += [printable(when), call_text(facts["workflow"], facts["args"])]
        parts.append("paused" if facts["next_ms"] is None else f"next {time_text(facts['next_ms'])}")
    return "  ".join([*parts, *([f"error: {printable(facts['error'])}"] if facts["error"] else [])])


async def _change(invocation: Invocation, book: str, group: str | None, name: str, change: Change, done: str) -> int:
    from bokiflow import App, Flow

    known: list[str] = []
    async with opened(invocation, book) as log:
        for one in await _groups(log, group):
            async with Flow(App(one), log) as flow:
                names = [schedule.name for schedule in await flow.schedules.list()]
                known += names
                if name in names:
                    await _method(flow.schedules, change)(name)
                    show_facts(invocation, {"name": name, "group": one, "done": done}, f"{done} in {printable(one)}")
                    return exit_codes.OK
    raise InvalidArgument(f"there is no schedule {name!r} in book {book!r}, there are {sorted(known)}", found=name)


def _method(schedules: Schedules, change: Change) -> Callable[[str], Awaitable[None]]:
    if change == "pause":
        return schedules.pause
    return schedules.resume if change == "resume" else schedules.remove


async def _groups(log: Log, group: str | None) -> list[str]:
    from bokiflow_tools.listing import groups

    return [group] if group is not None else await groups(log)
