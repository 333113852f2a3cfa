"""A schedule's state, and how commands and time change it. Pure: `schedules` runs it as a workflow, and reads it from outside.

- A run that is due before a command changes the timing is started, or skipped, by the timing before the command (`due_before`).
- `fold` computes the state from the history of the schedule's workflow: the same commands and timers, delivered in the same order, give
  the state that the workflow's code has. The history begins again after some rounds, so what it tells of the past is recent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from boki_common.errors import InvalidArgument
from bokiflow.model import cron
from bokiflow.model.cron import Skipped, Timing
from bokiflow.model.delivery_order import in_order
from bokiflow.model.flow_events import Fired, Patched, Signalled
from bokiflow.model.history_fold import History

COMMANDS: Final = "command"
"""The topic under which a schedule's workflow is sent commands."""
_PREFIX: Final = "schedule/"


class PlannedCall(msgspec.Struct, frozen=True):
    """The call that a schedule starts, and when.

    Attributes:
        attributes: values may have `{due}`. UNSET: there are none, and none are written, as by programs that do not know them.
    """

    workflow: str
    args: Any
    timing: Timing
    attributes: Mapping[str, str] | UnsetType = UNSET


class ScheduleState(msgspec.Struct, frozen=True):
    """A schedule as it stands.

    Attributes:
        planned: None: it is removed. after_ms: what was due until then is done.
    """

    planned: PlannedCall | None = None
    paused: bool = False
    after_ms: int = 0


class ScheduleCommand(msgspec.Struct, frozen=True):
    """What somebody wants of a schedule."""

    kind: Literal["set", "pause", "resume", "remove"]
    planned: PlannedCall | None = None


PendingChange: TypeAlias = Literal["", "pause", "resume", "change", "deletion"]


class DueFirings(NamedTuple):
    """The firings that a schedule starts now, and those that it leaves out. `state`: of the schedule after them."""

    state: ScheduleState
    times: tuple[int, ...]
    skipped: Skipped | None


class ScheduleView(NamedTuple):
    """A schedule as its history has it.

    Attributes:
        state: as the workflow has it. asked: the same after the commands that were sent and that no worker took yet.
        fired_ms: the time of the last firing that was started; None: none was since the history began.
        skipped: the firings that were left out last; None: none were since then.
    """

    state: ScheduleState
    asked: ScheduleState
    fired_ms: int | None = None
    skipped: Skipped | None = None


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
    return f"{id_of(name_of(schedule))}/{cron.iso(at).replace('+00:00', 'Z')}"


def after(state: ScheduleState, command: ScheduleCommand, now_ms: int) -> ScheduleState:
    """Return a schedule after a command. What was due while it was paused, or not there, is not made up for."""
    if command.kind == "set":
        if command.planned == state.planned:  # two workers that begin at the same time
            return state
        return ScheduleState(command.planned, state.paused and state.planned is not None, now_ms)
    if command.kind == "remove":
        return ScheduleState()
    if state.planned is None:
        return state
    if command.kind == "pause":
        return msgspec.structs.replace(state, paused=True)
    return msgspec.structs.replace(state, paused=False, after_ms=now_ms if state.paused else state.after_ms)


def due_before(state: ScheduleState, command: ScheduleCommand, now_ms: int) -> bool:
    """Return True if a command changes the timing, pauses or removes the schedule, and something was due before: that is started or skipped
    first, by the timing before the command.

    Of very much that was missed, only as much is made up for as one look gives (`cron.FIRINGS_AT_ONCE`).
    """
    if command.kind == "resume" or (command.kind == "set" and command.planned == state.planned):
        return False
    at_ms = next_ms(state)
    return at_ms is not None and at_ms <= now_ms


def fires_first(number: int) -> str:
    """Return the name of the patch by which a round starts what was due before a command, as older programs do not."""
    return f"due before it is set, round {number}"


def as_served(number: int) -> str:
    """Return the name of the patch by which a round counts what is late from when a worker serves it, as older programs do not.

    They count from the newest delivery. That is a command's, which may have waited for a worker for hours.
    """
    return f"late as served, round {number}"


def next_ms(state: ScheduleState) -> int | None:
    """Return the time of the next firing; it may have passed. None: the schedule is paused or removed."""
    return None if state.planned is None or state.paused else cron.next_ms(state.planned.timing, state.after_ms)


def due(state: ScheduleState, until_ms: int, now_ms: int) -> DueFirings:
    """Return what a schedule starts now of the firings up to `until_ms`; what is late is counted from `now_ms`."""
    assert state.planned is not None, "a schedule that is removed fires nothing"
    timing = state.planned.timing
    found = cron.due(timing, state.after_ms, now_ms, until_ms)
    skipped = cron.skipped(timing, state.after_ms, now_ms, until_ms)
    return DueFirings(msgspec.structs.replace(state, after_ms=found.until_ms), found.times, skipped)


def pending_change(view: ScheduleView) -> PendingChange:
    """Return what was asked of a schedule and no worker did yet; "": nothing."""
    if view.asked.planned is None:
        return "deletion" if view.state.planned is not None else ""
    if view.asked.planned != view.state.planned:
        return "change"
    if view.asked.paused != view.state.paused:
        return "pause" if view.asked.paused else "resume"
    return ""


def attributes_of(planned: PlannedCall, at_ms: int) -> dict[str, str]:
    """Return the attributes of a firing. Raises InvalidArgument: a value is not in the form of `str.format`, or names something else."""
    due = cron.moment(planned.timing, at_ms)
    found = {}
    for name, value in ({} if planned.attributes is UNSET else planned.attributes).items():
        try:
            found[name] = value.format(due=due)
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            raise InvalidArgument(
                f"expected an attribute such as '{{due:%Y-%m-%d}}', found {name}={value!r}: {error!r}", found=value
            ) from error
    return found


class _Fold:
    """The code of a schedule's workflow, as far as its state goes: run on at each delivery until it waits.

    Attributes:
        state: of the schedule. fired_ms, skipped: as a `ScheduleView` has them.
    """

    def __init__(
        self, state: ScheduleState, mail: Iterable[ScheduleCommand], now_ms: int, patches: Container[str]
    ) -> None:
        self.state = state
        self.fired_ms: int | None = None
        self.skipped: Skipped | None = None
        self._round = 0
        self._patches: Final = patches
        self._mail: Final = deque((command, now_ms) for command in mail)
        self._now_ms = now_ms
        self._is_served = False
        """The newest delivery was a timer: it is as late as the schedule is served."""
        self._serving: tuple[ScheduleCommand | None, int] | None = None
        """The command, and the time of it, for which the code waits until it is served. None: it does not wait for that."""

    def deliver(self, at_ms: int, command: ScheduleCommand | None) -> None:
        """Deliver a command, or a timer."""
        self._now_ms = max(self._now_ms, at_ms)
        self._is_served = command is None
        if command is not None:
            self._mail.append((command, self._now_ms))
        elif self._serving is not None:
            taken, self._serving = self._serving, None
            self._take(*taken, fires=True)
        self.run()

    def run(self) -> None:
        """Take commands, and fire, until there is nothing to do."""
        while self._serving is None:
            command, at_ms = self._mail.popleft() if self._mail else (None, self._now_ms)
            next_at_ms = next_ms(self.state)
            if command is None and (next_at_ms is None or next_at_ms > at_ms):
                return
            fires = command is None or due_before(self.state, command, at_ms)
            if fires and not self._is_served and as_served(self._round) in self._patches:
                self._serving = command, at_ms
                return
            self._take(command, at_ms, fires=fires)

    def _take(self, command: ScheduleCommand | None, at_ms: int, *, fires: bool) -> None:
        if fires and (self._is_served or command is None or fires_first(self._round) in self._patches):
            found = due(self.state, at_ms, self._now_ms)
            self.state = found.state
            self.fired_ms = found.times[-1] if found.times else self.fired_ms
            self.skipped = found.skipped or self.skipped
        if command is not None:
            self.state = after(self.state, command, at_ms)
        self._round += 1

    @property
    def asked(self) -> ScheduleState:
        """The state after the commands that came and are not taken yet."""
        waiting = [*([] if self._serving is None else [self._serving]), *self._mail]
        state = self.state
        for command, at_ms in waiting:
            state = state if command is None else after(state, command, at_ms)
        return state


def fold(history: History) -> ScheduleView:
    """Return a schedule as the history of its workflow has it. Raises ValidationError: a later version wrote it."""
    begun = ScheduleState() if history.restarted is None else msgspec.convert(history.begins.args[0][0], ScheduleState)
    unreceived = () if history.restarted is None else history.restarted.unreceived
    mail = [msgspec.convert(value, ScheduleCommand) for topic, value in unreceived if topic == COMMANDS]
    now_ms = history.begins.at_ms if history.restarted is None else history.restarted.at_ms
    patches = {event.name for one in history.records for event in one.own if isinstance(event, Patched)}
    folded = _Fold(begun, mail, now_ms, patches)
    folded.run()
    seen = max((one.seen for one in history.records if one.own), default=0)
    asked: ScheduleState | None = None
    for one in in_order(history.records):
        event = one.event
        if isinstance(event, Fired):
            folded.deliver(event.at_ms, None)
        elif isinstance(event, Signalled) and event.topic == COMMANDS:
            command = msgspec.convert(event.value, ScheduleCommand)
            if one.seqnum <= seen:
                folded.deliver(one.time_ms, command)
            else:
                asked = after(asked or folded.asked, command, one.time_ms)
    return ScheduleView(folded.state, asked or folded.asked, folded.fired_ms, folded.skipped)
