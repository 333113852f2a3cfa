"""Schedules: workflows that start others when they are due. `app.schedule(…)` adds one; `Schedules(flow)` pauses, lists, removes.

Each is a workflow of its own, `schedule/<name>`, which sleeps until the next time and starts what is due under an id that has this
time in it: `schedule/<name>/2026-03-29T01:00:00Z`. So whoever takes over starts nothing twice, and leaves nothing out. It begins again
after some rounds, so its history stays short. Removed, it waits for being set again.

- It starts workflows by their names, so a worker of another version, which lacks the workflow, can run the schedule.
- Its state is read from its history: what it emitted last, or the argument of its last restart. The stream of what it emitted is trimmed
  when the history is rewritten.
- A schedule that ended (it failed, or was cancelled) is set again as `schedule/<name>/again-<n>`, where n is the place at which the one
  before began: all workers begin the same next one. Its firings keep their ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, Protocol, cast

import msgspec

from boki_common.errors import BokiError, InvalidArgument, Trimmed, UsageError
from boki_common.logs import get_logger
from bokiflow import cron, in_workflow, inspection
from bokiflow.by_attribute import newest_start
from bokiflow.by_name import named
from bokiflow.calls import Call, Registry, Workflow
from bokiflow.cron import Timing
from bokiflow.errors import IdExpired
from bokiflow.flow_events import Emitted
from bokilib.codec import Json
from bokilib.log import Log
from bokilib.pauses import pauses

ROUNDS: Final = 100
"""Firings and commands, then it begins again."""
NAME: Final = "boki.schedule"
ATTRIBUTE: Final = "boki.kind"
AGAIN: Final = "boki.schedule"
"""Attribute of a schedule that was set again: its name."""
_PREFIX: Final = "schedule/"
_COMMANDS: Final = "command"
_STATE: Final = "state"

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


class _KeptBy(NamedTuple):
    """The workflow that keeps a schedule. `state`: None: it has none yet, or is to be started."""

    id: str
    state: State | None


class Signallable(Protocol):
    """A workflow that takes signals: a `Handle`."""

    async def signal(self, topic: str, value: object = None) -> None: ...


class Starts(Protocol):
    """Workflows of a book, from outside."""

    @property
    def app(self) -> Registry: ...

    @property
    def log(self) -> Log: ...

    @property
    def group(self) -> str: ...

    async def find(self, **attribute: str) -> Sequence[str]: ...

    async def start(self, call: Call[None], *, id: str, attributes: Mapping[str, str]) -> Signallable: ...


def planned(name: str, call: Call[Any], timing: Timing) -> Plan:
    """Raises InvalidArgument."""
    if not name or "/" in name:
        raise InvalidArgument(f"expected a schedule's name without '/', found {name!r}", found=name)
    return Plan(name, Planned(call.workflow.name, call.args, cron.check(timing)))


def id_of(name: str, ended: int | None = None) -> str:
    """Return the id of a schedule's workflow.

    Args:
        ended: where the workflow began that had this schedule before, and ended. None: there was none.
    """
    return f"{_PREFIX}{name}" if ended is None else f"{_PREFIX}{name}/again-{ended}"


def name_of(id: str) -> str:
    """Return the name of the schedule that a workflow keeps. Names have no stroke."""
    return id.removeprefix(_PREFIX).partition("/")[0]


def id_of_firing(schedule: str, at_ms: int) -> str:
    """Return the id of the workflow that a schedule starts at a time: the same for all workflows that ever keep this schedule."""
    at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    return f"{id_of(name_of(schedule))}/{at.isoformat(timespec='milliseconds' if at_ms % 1_000 else 'seconds').replace('+00:00', 'Z')}"


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
        in_workflow.launch(Call(named(app, found.workflow), found.args), id, due_ms=at)
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
        """Set all of them. One that fails is tried again later, and holds up no other; one that is refused is logged and left out."""
        left, pause = list(plans), pauses()
        while left:
            left = [plan for plan in left if not await self._kept(plan)]
            if left:
                await asyncio.sleep(pause.next())

    async def _kept(self, plan: Plan) -> bool:
        """Set a schedule; return False if it may be set later."""
        try:
            await self.set(plan)
        except BokiError as error:
            if not isinstance(error, UsageError):
                log.warning("schedule not set: another attempt follows", name=plan.name, error=str(error))
                return False
            log.error("schedule not set: it was refused", name=plan.name, error=str(error))
        except msgspec.ValidationError as fault:
            log.error("schedule not set: a later version keeps it", name=plan.name, error=str(fault))
        return True

    async def set(self, plan: Plan) -> None:
        """Makes a schedule, or makes it another one; a pause stays. One that failed begins again."""
        kept = await self._find(plan.name)
        if kept.state is None or kept.state.planned != plan.planned:
            await self._send(kept.id, Command("set", plan.planned))

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
        await self._flow.log.book.now(consistency="linearizable")
        await self._flow.log.newest_ms()
        now_ms = self._flow.log.now_ms()
        ids = {name_of(id): id for id in await self._flow.find(**{ATTRIBUTE: "schedule"})}  # the newest of each
        for name, id in sorted(ids.items()):
            state = await self._state(id)
            if state is None or state.planned is None:
                continue
            timing = state.planned.timing
            next_ms = None if state.paused else cron.next_ms(timing, max(state.after_ms, now_ms))
            found.append(Schedule(name, state.planned.workflow, state.planned.args, timing, state.paused, next_ms))
        return found

    async def _known(self, name: str) -> str:
        """Return the id of the workflow that keeps a schedule. Raises InvalidArgument: none does."""
        kept = await self._find(name)
        if kept.state is None or kept.state.planned is None:
            names = [one.name for one in await self.list()]
            raise InvalidArgument(f"there is no schedule {name!r}, there are {names}", found=name, expected=names)
        return kept.id

    async def _find(self, name: str) -> _KeptBy:
        """Return the workflow that keeps a schedule, or may be started to keep it."""
        opened, id = self._flow.log, id_of(name)
        held = await inspection.newest(opened, id, consistency="linearizable")
        again = await newest_start(opened, self._flow.group, AGAIN, name)
        if again is not None and (held is None or again[0] > held.start):
            id = again[1]
            held = await inspection.newest(opened, id)
        while held is not None and held.ended is not None:
            id = id_of(name, held.start)
            held = await inspection.newest(opened, id)
        return _KeptBy(id, await self._state(id))

    async def _state(self, id: str) -> State | None:
        """Return the state of the schedule that a workflow keeps; None: it has none yet, or has ended."""
        opened = self._flow.log
        held = await inspection.newest(opened, id)
        if held is None or held.ended is not None:
            return None
        try:
            history = await inspection.whole_history(opened, id)
        except Trimmed:  # it ended meanwhile
            return None
        for one in reversed(history.records):
            for event in reversed(one.own):
                if isinstance(event, Emitted) and event.topic == _STATE:
                    return msgspec.convert(event.value, State)
        begun = history.begins.args[0][0]
        return None if history.restarted is None else msgspec.convert(begun, State)

    async def _send(self, id: str, command: Command) -> None:
        made = cast(Workflow[..., None], self._flow.app.find(NAME)).call(State())
        name, attributes = name_of(id), {ATTRIBUTE: "schedule"}
        try:
            handle = await self._flow.start(
                made, id=id, attributes=attributes | ({} if id == id_of(name) else {AGAIN: name})
            )
        except IdExpired:  # it ended long ago, and where it began is forgotten
            handle = await self._flow.start(made, id=id_of(name, 0), attributes=attributes | {AGAIN: name})
        await handle.signal(_COMMANDS, command)
