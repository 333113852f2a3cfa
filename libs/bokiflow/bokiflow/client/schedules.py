"""Schedules, which start workflows at given times: `app.schedule(…)` defines one, `Schedules(flow)` pauses, lists and removes them.

A schedule is a workflow of its own, `schedule/<name>`. It sleeps until the next time and starts a workflow under an id with this time:
`schedule/<name>/2026-03-29T01:00:00Z`. So after a takeover no firing is repeated or left out. It restarts after some rounds, so that its
history stays short. A removed schedule waits until it is set again.

- A schedule starts workflows by name, so a worker of another version, which lacks the workflow, can run it.
- Its state is computed from its history (`schedule_rules.fold`). An emitted event shows that it took a command.
- A schedule that ended (it failed, or was cancelled) is set again as `schedule/<name>/again-<n>`, where n is the seqnum of the start of
  the one before: all workers start the same next one. Its firings keep their ids.
- Ids are those of the book. If another app has or had a schedule of the name, this app's has the app's name in its ids, too
  (`schedule_rules.label_in_group`); `AGAIN` tells its name then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, cast

import msgspec

from boki_common.errors import BokiError, InvalidArgument, Trimmed, UsageError
from boki_common.logs import get_logger
from bokiflow.errors import IdExpired, IdReused
from bokiflow.history import inspection
from bokiflow.history.inspection import newest_start
from bokiflow.history.instance_state import Status, status_of
from bokiflow.model import cron, records, schedule_rules
from bokiflow.model.cron import Skipped, Timing
from bokiflow.model.record_batcher import PASS_ADDRESS, SHARED_BYTES, check_size, size_of
from bokiflow.model.schedule_rules import (
    COMMANDS,
    NAME,
    PendingChange,
    PlannedCall,
    ScheduleCommand,
    ScheduleState,
    ScheduleView,
    after,
    attributes_of,
    due_before,
    due_first_patch,
    id_of,
    id_of_firing,
    label_in_group,
    label_of,
    name_of,
    served_lateness_patch,
)
from bokiflow.runtime import in_workflow
from bokiflow.runtime.calls import Call, Registry, Workflow, check_call, named
from bokilib.append.log import Log
from bokilib.errors import partly_applied
from bokilib.pauses import pauses
from bokilib.records.codec import Json

ROUNDS: Final = 100
"""Firings and commands after which the workflow of a schedule restarts."""
SERVED_S: Final = 0.001
"""Seconds of the shortest timer, which fires as soon as a worker runs the schedule."""
CALL_BYTES: Final = SHARED_BYTES - 4_096
"""Bytes of a call's arguments; the rest is for the state of the schedule, which its workflow emits with them."""
ATTRIBUTE: Final = "boki.kind"
AGAIN: Final = "boki.schedule"
"""Attribute of a schedule's workflow whose id is not `schedule/<name>`; its value is the name of the schedule."""
ATTEMPTS: Final = 8
"""Attempts to start a schedule's workflow while workers of other apps start theirs under its id."""
_STATE: Final = "state"

log = get_logger(__name__)


class Plan(NamedTuple):
    """A schedule that a program defines; `name` is unique in its app."""

    name: str
    planned: PlannedCall


class Firing(NamedTuple):
    """A workflow that a schedule started, for the time `due_ms`."""

    id: str
    due_ms: int
    status: Status


class Schedule(NamedTuple):
    """The state of a schedule.

    Attributes:
        name: the name of the schedule.
        workflow: the name of the workflow that it starts.
        args: the arguments of the workflow.
        timing: the times, and how missed firings are treated.
        paused: the schedule starts nothing until `resume`.
        next_ms: the time of the next firing; if it has passed, no worker has started it. None if the schedule is paused.
        asked: "pause", "resume", "change" or "deletion" for a command that no worker has taken yet; "" if there is none.
        last: the last firing; None if there was none, or it is not kept any more.
        skipped: the last firings that were skipped, if they were among the last `ROUNDS` that were due; else None.
        attributes: the attributes of started workflows.
    """

    name: str
    workflow: str
    args: Json
    timing: Timing
    paused: bool
    next_ms: int | None
    asked: PendingChange = ""
    last: Firing | None = None
    skipped: Skipped | None = None
    attributes: Mapping[str, str] = MappingProxyType({})


class _KeptBy(NamedTuple):
    """The workflow that runs a schedule, and its state after all commands sent to it; None if it has to be started."""

    id: str
    state: ScheduleState | None


class Signallable(Protocol):
    """A workflow that takes signals: a `Handle`."""

    @property
    def id(self) -> str: ...

    async def signal(self, topic: str, value: object = None) -> None: ...


class Starts(Protocol):
    """The attributes and methods of `Flow` that schedules use."""

    @property
    def app(self) -> Registry: ...

    @property
    def log(self) -> Log: ...

    @property
    def group(self) -> str: ...

    def token(self) -> str: ...

    async def find(self, **attribute: str) -> Sequence[str]: ...

    async def start(
        self, call: Call[Any], *, id: str, attributes: Mapping[str, str], due_ms: int = 0
    ) -> Signallable: ...


def planned(name: str, call: Call[Any], timing: Timing, attributes: Mapping[str, str] = MappingProxyType({})) -> Plan:
    """Return the definition of a schedule.

    Raises:
        InvalidArgument: the call, the name, the times or the attributes are not valid.
        AtomicTooLarge: the arguments of the call are too large.
    """
    check_call(call)
    if not records.check_text("a schedule's name", name) or "/" in name:
        raise InvalidArgument(f"expected a schedule's name without '/', found {name!r}", found=name)
    found = records.check_attributes(attributes)
    check_size(
        size_of(call.args), f"arguments of workflow {call.workflow.name!r} in a schedule", PASS_ADDRESS, CALL_BYTES
    )
    made = PlannedCall(call.workflow.name, call.args, cron.check(timing), found or msgspec.UNSET)
    schedule_rules.check_attributes_of(made)
    return Plan(name, made)


def workflow(app: Registry) -> Workflow[..., None]:
    """Return the workflow that runs a schedule."""

    async def schedule(state: ScheduleState) -> None:
        inbox = _Inbox()
        for number in count():
            if number >= ROUNDS and not inbox.came:
                break
            command, at_ms = await inbox.take(state)
            fires = command is None or due_before(state, command, at_ms)
            if fires and not inbox.is_served and in_workflow.patched(served_lateness_patch(number)):
                await inbox.serve()
            if fires and (inbox.is_served or command is None or in_workflow.patched(due_first_patch(number))):
                state = _fire(app, state, at_ms)
            if command is not None:
                was, state = state, after(state, command, at_ms)
                if state != was:
                    in_workflow.emit(_STATE, _without_attributes(state))
        in_workflow.restart(state)

    return Workflow(schedule, NAME, "", by_calendar=True)


class _Inbox:
    """The commands of a schedule in the order in which they came, each with the time when it came.

    Attributes:
        came: commands that came while the schedule waited until a worker serves it.
        is_served: the newest delivery was a timer, so the workflow's time is when a worker serves the schedule. After a command
            the time is when the command was sent, and since then no worker may have run for hours.
    """

    def __init__(self) -> None:
        self.came: Final[deque[tuple[ScheduleCommand, int]]] = deque()
        self.is_served = False

    async def take(self, state: ScheduleState) -> tuple[ScheduleCommand | None, int]:
        """Return the next command and its time; None and the time now if a firing is due before it."""
        if self.came:
            return self.came.popleft()
        if state.planned is None or state.paused:
            return await self._receive()
        wait_ms = cron.next_ms(state.planned.timing, state.after_ms) - in_workflow.now_ms()
        try:
            async with asyncio.timeout(max(0, wait_ms) / 1_000):
                return await self._receive()
        except TimeoutError:
            self.is_served = self.is_served or wait_ms > 0
            return None, in_workflow.now_ms()

    async def serve(self) -> None:
        """Wait for a timer, which fires once a worker serves the schedule; queue commands that come in between."""
        try:
            async with asyncio.timeout(SERVED_S):
                while True:
                    self.came.append(await self._receive())
        except TimeoutError:
            self.is_served = True

    async def _receive(self) -> tuple[ScheduleCommand, int]:
        command = msgspec.convert(await in_workflow.recv(COMMANDS), ScheduleCommand)
        self.is_served = False
        return command, in_workflow.now_ms()


def _without_attributes(state: ScheduleState) -> ScheduleState:
    """Return a state as it is emitted, without attributes: programs that do not know them replay the same value."""
    if state.planned is None:
        return state
    return msgspec.structs.replace(state, planned=msgspec.structs.replace(state.planned, attributes=msgspec.UNSET))


def _fire(app: Registry, state: ScheduleState, until_ms: int) -> ScheduleState:
    """Start the firings that are due up to a time, and return the state after them."""
    found = state.planned
    assert found is not None
    due = schedule_rules.due(state, until_ms, in_workflow.now_ms())
    for at in due.times:
        id = id_of_firing(in_workflow.workflow_id(), at)
        in_workflow.launch(
            Call(named(app, found.workflow), found.args), id, due_ms=at, attributes=attributes_of(found, at)
        )
    if due.skipped is not None and not in_workflow.is_replayed():
        _log_skipped(name_of(label_of(in_workflow.workflow_id()), app.group), found.timing, due.skipped)
    return due.state


def _log_skipped(name: str, timing: Timing, skipped: Skipped) -> None:
    log.warning(
        "schedule missed: firings skipped, no worker ran when they were due",
        name=name,
        missed=timing.missed,
        count=skipped.number,
        first=cron.text(timing, skipped.first_ms),
        last=cron.text(timing, skipped.last_ms),
    )


async def view_of(log: Log, id: str) -> ScheduleView | None:
    """Read the schedule that a workflow runs; None if the workflow has ended or does not exist."""
    held = await inspection.newest(log, id)
    if held is None or held.ended is not None:
        return None
    try:
        return schedule_rules.fold(await inspection.whole_history(log, id))
    except Trimmed:  # the workflow ended in between
        return None


class Schedules:
    """The schedules of an app.

    await worker.flow.schedules.pause("nightly")
    """

    def __init__(self, flow: Starts) -> None:
        self._flow: Final = flow

    async def keep(self, plans: Iterable[Plan], wanted: Callable[[Plan], bool] = lambda _: True) -> None:
        """Set schedules. An attempt that fails is repeated later and holds up no other schedule; a refused one is logged and left out.

        Args:
            plans: the schedules.
            wanted: returns whether the program still has a plan: a plan is not set after the one that replaced it.
        """
        left, pause = list(plans), pauses()
        while left:
            left = [plan for plan in left if wanted(plan) and not await self._kept(plan)]
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
        """Create or change a schedule. A paused schedule stays paused; a failed one starts again."""
        for left in reversed(range(ATTEMPTS)):
            kept = await self._find(plan.name)
            if kept.state is not None and kept.state.planned == plan.planned:
                return
            try:
                await self._send(kept.id, ScheduleCommand("set", plan.planned))
                return
            except IdReused:  # another app may have started a schedule under this id meanwhile
                if not left or not self._is_others(await inspection.group_of(self._flow.log, kept.id)):
                    raise

    async def pause(self, name: str) -> None:
        """Pause a schedule: it starts no workflows until `resume`.

        Raises:
            InvalidArgument: there is no such schedule.
        """
        await self._send(await self._known(name), ScheduleCommand("pause"))

    async def resume(self, name: str) -> None:
        """Resume a paused schedule; firings that were due in the pause are not made up for.

        Raises:
            InvalidArgument: there is no such schedule.
        """
        await self._send(await self._known(name), ScheduleCommand("resume"))

    async def run(self, name: str) -> str:
        """Start the workflow of a schedule now, as a firing whose time is now. The schedule itself does not change.

        The time is that of the log: not before that of any record that was acknowledged before this call, and up to a few seconds back
        while nothing but heartbeats is appended.

        Each call starts a workflow of its own, also in the millisecond of another call or of a firing by the schedule.

        Returns:
            The id of the started workflow: `schedule/<name>/<time>/<token>`.

        Raises:
            InvalidArgument: there is no such schedule.
            AppendUnknown: the workflow may or may not have been started.
        """
        kept = await self._known(name)
        view = await view_of(self._flow.log, kept)
        if view is None or (planned := view.asked.planned) is None:
            raise InvalidArgument(f"there is no schedule {name!r}: it was deleted just now", found=name)
        await self._flow.log.newest_ms(at_most=await self._flow.log.book.now(consistency="linearizable"))
        now_ms = self._flow.log.now_ms()  # of a client that has just begun the clock stands at what it read
        call = Call(named(self._flow.app, planned.workflow), planned.args)
        attributes = attributes_of(planned, now_ms)
        id = f"{id_of_firing(kept, now_ms)}/{self._flow.token()}"
        started = await self._flow.start(call, id=id, attributes=attributes, due_ms=now_ms)
        return started.id

    async def remove(self, name: str) -> None:
        """Remove a schedule; workflows that it started keep running. A worker whose code has the schedule sets it again when it begins.

        Raises:
            InvalidArgument: there is no such schedule.
        """
        await self._send(await self._known(name), ScheduleCommand("remove"))

    async def list(self) -> list[Schedule]:
        """Read the state of all schedules, sorted by name."""
        found = []
        await self._flow.log.book.now(consistency="linearizable")
        for name, workflow_id in sorted((await self.ids()).items()):
            view = await view_of(self._flow.log, workflow_id)
            if view is not None and view.state.planned is not None:
                found.append(await self._listed(name, workflow_id, view, view.state.planned))
        return found

    async def ids(self) -> dict[str, str]:
        """Read the id of the newest workflow of each schedule, by the name of the schedule; some have ended."""
        ids = await self._flow.find(**{ATTRIBUTE: "schedule"})
        return {name_of(label_of(id), self._flow.group): id for id in ids}

    async def _listed(self, name: str, workflow_id: str, view: ScheduleView, planned: PlannedCall) -> Schedule:
        fired_ms = view.fired_ms
        if fired_ms is None and not view.recreated:  # it may have fired before its history began
            fired_ms = cron.newest(planned.timing, view.state.after_ms)
        last: Firing | None = None
        if fired_ms is not None:
            id = id_of_firing(workflow_id, fired_ms)
            held = await inspection.newest(self._flow.log, id)
            last = None if held is None else Firing(id, fired_ms, status_of(held.ended, held.blocked))
        return Schedule(
            name,
            planned.workflow,
            planned.args,
            planned.timing,
            view.state.paused,
            schedule_rules.next_ms(view.state),
            schedule_rules.pending_change(view),
            last,
            view.skipped,
            {} if planned.attributes is msgspec.UNSET else planned.attributes,
        )

    async def _known(self, name: str) -> str:
        """Return the id of the workflow that runs a schedule.

        Raises:
            InvalidArgument: there is no such schedule.
        """
        kept = await self._find(name)
        if kept.state is None or kept.state.planned is None:
            names = [one.name for one in await self.list()]
            raise InvalidArgument(f"there is no schedule {name!r}, there are {names}", found=name, expected=names)
        return kept.id

    async def _find(self, name: str) -> _KeptBy:
        """Return the workflow that runs a schedule, or is to be started for it."""
        opened, group, id = self._flow.log, self._flow.group, id_of(name)
        held = await inspection.newest(opened, id, consistency="linearizable")
        is_others = self._is_others(await inspection.group_of(opened, id))
        again = await newest_start(opened, group, AGAIN, name)
        if again is not None and (held is None or is_others or again[0] > held.start):
            id = again[1]
            held = await inspection.newest(opened, id)
        elif is_others or (held is None and await newest_start(opened, group, AGAIN, name, others=True) is not None):
            id = id_of(
                label_in_group(name, group)
            )  # firings of the other app's schedule have the plain name in their ids
            held = await inspection.newest(opened, id)
        while held is not None and held.ended is not None:
            id = id_of(label_of(id), held.start)
            held = await inspection.newest(opened, id)
        view = await view_of(self._flow.log, id)
        return _KeptBy(id, None if view is None else view.asked)

    def _is_others(self, group: str | None) -> bool:
        return group not in (None, "", self._flow.group)

    async def _send(self, id: str, command: ScheduleCommand) -> None:
        made = cast(Workflow[..., None], self._flow.app.find(NAME)).call(ScheduleState())
        label, attributes = label_of(id), {ATTRIBUTE: "schedule"}
        name = name_of(label, self._flow.group)
        try:
            handle = await self._flow.start(
                made, id=id, attributes=attributes | ({} if id == id_of(name) else {AGAIN: name})
            )
        except IdExpired:  # the workflow ended long ago, and its start is forgotten
            handle = await self._flow.start(made, id=id_of(label, 0), attributes=attributes | {AGAIN: name})
        with partly_applied(f"the workflow of schedule {name!r} is started, and got no command; call again"):
            await handle.signal(COMMANDS, command)
