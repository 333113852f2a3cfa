"""Schedules: workflows that start others when they are due. `app.schedule(…)` adds one; `Schedules(flow)` pauses, lists, removes.

Each is a workflow of its own, `schedule/<name>`, which sleeps until the next time and starts what is due under an id that has this
time in it: `schedule/<name>/2026-03-29T01:00:00Z`. So whoever takes over starts nothing twice, and leaves nothing out. It begins again
after some rounds, so its history stays short. Removed, it waits for being set again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, Protocol, cast

import msgspec

from boki_common.errors import BokiError, InvalidArgument, UsageError
from boki_common.logs import get_logger
from bokiflow import cron, in_workflow
from bokiflow.calls import Call, Registry, Workflow
from bokiflow.cron import Timing
from bokiflow.flow_events import PICKER, Emitted
from bokilib import tags
from bokilib.codec import Json
from bokilib.log import Log

ROUNDS: Final = 100
"""Firings and commands, then it begins again."""
NAME: Final = "boki.schedule"
ATTRIBUTE: Final = "boki.kind"
_PREFIX: Final = "schedule/"
_COMMANDS: Final = "command"
_STATE: Final = "state"
AGAIN_S: Final = 1.0

log = get_logger(__name__)


class Planned(msgspec.Struct, frozen=True):
    """What is started, and when."""

    workflow: str
    args: Any
    timing: Timing


class Plan(NamedTuple):
    """A schedule of a program. `name`: in its group."""

    name: str
    planned: Planned


class State(msgspec.Struct, frozen=True):
    """A schedule as it stands.

    Attributes:
        planned: None: it is removed. after_ms: what was due until then is done.
    """

    planned: Planned | None = None
    paused: bool = False
    after_ms: int = 0


class Command(msgspec.Struct, frozen=True):
    """What somebody wants of a schedule."""

    kind: Literal["set", "pause", "resume", "remove"]
    planned: Planned | None = None


class Schedule(NamedTuple):
    """A schedule, for people. `next_ms`: None while it is paused."""

    name: str
    workflow: str
    args: Json
    timing: Timing
    paused: bool
    next_ms: int | None


class Signallable(Protocol):
    """A workflow that takes signals: a `Handle`."""

    async def signal(self, topic: str, value: object = None) -> None: ...


class Starts(Protocol):
    """Workflows of a book, from outside."""

    @property
    def app(self) -> Registry: ...

    @property
    def log(self) -> Log: ...

    async def find(self, **attribute: str) -> Sequence[str]: ...

    async def start(self, call: Call[None], *, id: str, attributes: Mapping[str, str]) -> Signallable: ...


def planned(name: str, call: Call[Any], timing: Timing) -> Plan:
    """Raises InvalidArgument."""
    if not name or "/" in name:
        raise InvalidArgument(f"expected a schedule's name without '/', found {name!r}", found=name)
    return Plan(name, Planned(call.workflow.name, call.args, cron.check(timing)))


def id_of(name: str) -> str:
    """Of the workflow that is a schedule."""
    return f"{_PREFIX}{name}"


def id_of_firing(schedule: str, at_ms: int) -> str:
    """Of what a schedule starts at a time."""
    at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    return f"{schedule}/{at.isoformat(timespec='milliseconds' if at_ms % 1_000 else 'seconds').replace('+00:00', 'Z')}"


def workflow(app: Registry) -> Workflow[..., None]:
    """The workflow that each schedule is."""

    async def schedule(state: State) -> None:
        for _ in range(ROUNDS):
            command = await _command(state)
            if command is None:
                state = _fire(app, state)
            else:
                was, state = state, after(state, command, in_workflow.now_ms())
                if state != was:
                    in_workflow.emit(_STATE, state)
        in_workflow.restart(state)

    return Workflow(schedule, NAME, "", by_calendar=True)


async def _command(state: State) -> Command | None:
    """The next command; None: something is due before it."""
    if state.planned is None or state.paused:
        return msgspec.convert(await in_workflow.recv(_COMMANDS), Command)
    wait_ms = cron.next_ms(state.planned.timing, state.after_ms) - in_workflow.now_ms()
    try:
        async with asyncio.timeout(max(0, wait_ms) / 1_000):
            return msgspec.convert(await in_workflow.recv(_COMMANDS), Command)
    except TimeoutError:
        return None


def _fire(app: Registry, state: State) -> State:
    found = state.planned
    assert found is not None
    due = cron.due(found.timing, state.after_ms, in_workflow.now_ms())
    for at in due.times:
        id = id_of_firing(in_workflow.workflow_id(), at)
        in_workflow.launch(Call(app.find(found.workflow), found.args), id)
    return msgspec.structs.replace(state, after_ms=due.until_ms)


def after(state: State, command: Command, now_ms: int) -> State:
    """A schedule after a command. What was due while it was paused, or not there, is not made up for."""
    if command.kind == "set":
        if command.planned == state.planned:  # two workers that begin at the same time
            return state
        return State(command.planned, state.paused and state.planned is not None, now_ms)
    if command.kind == "remove":
        return State()
    if state.planned is None:
        return state
    if command.kind == "pause":
        return msgspec.structs.replace(state, paused=True)
    return msgspec.structs.replace(state, paused=False, after_ms=now_ms if state.paused else state.after_ms)


class Schedules:
    """Schedules of a group, from outside.

    await worker.flow.schedules.pause("nightly")
    """

    def __init__(self, flow: Starts) -> None:
        self._flow: Final = flow

    async def keep(self, plans: Iterable[Plan]) -> None:
        """Sets all of them; while the log cannot be reached, it tries again."""
        for plan in plans:
            while True:
                try:
                    await self.set(plan)
                    break
                except BokiError as error:
                    if isinstance(error, UsageError):
                        raise
                    log.warning("a schedule is set later", name=plan.name, error=str(error))
                await asyncio.sleep(AGAIN_S)

    async def set(self, plan: Plan) -> None:
        """Makes a schedule, or makes it another one; a pause stays."""
        state = await self._state(plan.name)
        if state is None or state.planned != plan.planned:
            await self._send(plan.name, Command("set", plan.planned))

    async def pause(self, name: str) -> None:
        """Nothing is started until `resume`. Raises InvalidArgument: there is none."""
        await self._send(await self._known(name), Command("pause"))

    async def resume(self, name: str) -> None:
        """It goes on; what would have been due meanwhile is not made up for. Raises InvalidArgument: there is none."""
        await self._send(await self._known(name), Command("resume"))

    async def remove(self, name: str) -> None:
        """It starts nothing any more; what it started goes on. A program that still has it makes it anew when its next worker begins."""
        await self._send(await self._known(name), Command("remove"))

    async def list(self) -> list[Schedule]:
        """All of them, by name."""
        found = []
        await self._flow.log.newest_ms()
        now_ms = self._flow.log.now_ms()
        for id in sorted(await self._flow.find(**{ATTRIBUTE: "schedule"})):
            name = id.removeprefix(_PREFIX)
            state = await self._state(name)
            if state is None or state.planned is None:
                continue
            timing = state.planned.timing
            next_ms = None if state.paused else cron.next_ms(timing, max(state.after_ms, now_ms))
            found.append(Schedule(name, state.planned.workflow, state.planned.args, timing, state.paused, next_ms))
        return found

    async def _known(self, name: str) -> str:
        state = await self._state(name)
        if state is None or state.planned is None:
            names = [one.name for one in await self.list()]
            raise InvalidArgument(f"there is no schedule {name!r}, there are {names}", found=name, expected=names)
        return name

    async def _state(self, name: str) -> State | None:
        """The state that it emitted last; None: none yet."""
        opened = self._flow.log
        record = await opened.book.read_prev(tags.flow_output(id_of(name), _STATE), consistency="linearizable")
        while record is not None:
            for event in PICKER.of(record.seqnum, await opened.open(record), about=id_of(name)):
                if isinstance(event, Emitted) and event.topic == _STATE:
                    return msgspec.convert(event.value, State)
            record = await opened.book.read_prev(tags.flow_output(id_of(name), _STATE), at_most=record.seqnum - 1)
        return None

    async def _send(self, name: str, command: Command) -> None:
        made = cast(Workflow[..., None], self._flow.app.find(NAME))
        handle = await self._flow.start(made.call(State()), id=id_of(name), attributes={ATTRIBUTE: "schedule"})
        await handle.signal(_COMMANDS, command)
