"""The state of a schedule, and its changes by commands and time. Pure; `schedules` runs it as a workflow and reads it from outside.

- A firing that is due before a command changes the timing is started, or skipped, by the old timing (`due_before`).
- `fold` computes the state from the history of the schedule's workflow: the same commands and timers in the same order of delivery give
  the state that the workflow's code has. The workflow restarts after some rounds, so the history covers recent firings only.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Container, Iterable, Mapping
from datetime import UTC, datetime
from string import Formatter
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import xxhash
from msgspec import UNSET, UnsetType

from boki_common.errors import InvalidArgument
from bokiflow.model import cron
from bokiflow.model.cron import Skipped, Timing
from bokiflow.model.delivery_order import in_order
from bokiflow.model.flow_events import Fired, Patched, Signalled
from bokiflow.model.history_fold import History

NAME: Final = "boki.schedule"
"""The name of the workflow that runs a schedule."""
COMMANDS: Final = "command"
"""The topic of commands to a schedule's workflow."""
_PREFIX: Final = "schedule/"
_DIRECTIVE: Final = re.compile(r"%[-_0^#:]*\d*[EO]?.?", re.DOTALL)
"""A directive of `strftime`, with flags and a width that some C libraries have."""


class PlannedCall(msgspec.Struct, frozen=True):
    """The call that a schedule starts, and when.

    Attributes:
        attributes: attributes of the started workflows; values may have `{due}`. UNSET for none, as programs without attributes write it.
    """

    workflow: str
    args: Any
    timing: Timing
    attributes: Mapping[str, str] | UnsetType = UNSET


class ScheduleState(msgspec.Struct, frozen=True):
    """The state of a schedule.

    Attributes:
        planned: the call; None if the schedule is removed.
        after_ms: the time up to which firings are done.
    """

    planned: PlannedCall | None = None
    paused: bool = False
    after_ms: int = 0


class ScheduleCommand(msgspec.Struct, frozen=True):
    """A command to a schedule."""

    kind: Literal["set", "pause", "resume", "remove"]
    planned: PlannedCall | None = None


PendingChange: TypeAlias = Literal["", "pause", "resume", "change", "deletion"]


class DueFirings(NamedTuple):
    """The firings that a schedule starts now, those that it leaves out, and its state after them."""

    state: ScheduleState
    times: tuple[int, ...]
    skipped: Skipped | None


class ScheduleView(NamedTuple):
    """A schedule, folded from its history.

    Attributes:
        state: the state that the workflow has.
        asked: the state after the sent commands that no worker has taken yet.
        fired_ms: the time of the last started firing; None if there is none since the history began.
        skipped: the firings that were left out last; None if there are none since the history began.
        recreated: since the history began it was set after it had been removed, so it has no firings but those of this view.
    """

    state: ScheduleState
    asked: ScheduleState
    fired_ms: int | None = None
    skipped: Skipped | None = None
    recreated: bool = False


def id_of(label: str, ended: int | None = None) -> str:
    """Return the id of a schedule's workflow.

    Args:
        label: the name of the schedule, or its `label_in_group`.
        ended: the seqnum at which the schedule's former workflow, which ended, began; None if there was none.
    """
    return f"{_PREFIX}{label}" if ended is None else f"{_PREFIX}{label}/again-{ended}"


def label_in_group(name: str, group: str) -> str:
    """Return the label of a schedule whose name another app of the book uses: no other schedule has it.

    It has no slash, so programs that know no such labels give firings the same ids. The digest tells names and groups with "@" apart.
    """
    return f"{name}@{group}.{xxhash.xxh3_64_hexdigest(f'{name}/{group}'.encode())[:8]}"


def label_of(id: str) -> str:
    """Return the label in the id of a schedule's workflow or firing, which has no slash."""
    return id.removeprefix(_PREFIX).partition("/")[0]


def name_of(label: str, group: str) -> str:
    """Return the name of the schedule of a group that has a label."""
    name = label.rpartition(f"@{group}.")[0]
    return name if name and label_in_group(name, group) == label else label


def id_of_firing(schedule: str, at_ms: int) -> str:
    """Return the id of the workflow that a schedule starts at a time. All workflows of the schedule give the same id."""
    at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    return f"{id_of(label_of(schedule))}/{cron.iso(at).replace('+00:00', 'Z')}"


def after(state: ScheduleState, command: ScheduleCommand, now_ms: int) -> ScheduleState:
    """Return the state after a command. Firings that were due while the schedule was paused or removed are not started later."""
    if command.kind == "set":
        if command.planned == state.planned:  # two workers start at the same time
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
    """Return True if firings were due before a command that sets, pauses or removes the schedule.

    They are started or skipped first, by the old timing, at most `cron.FIRINGS_AT_ONCE` of them.
    """
    if command.kind == "resume" or (command.kind == "set" and command.planned == state.planned):
        return False
    at_ms = next_ms(state)
    return at_ms is not None and at_ms <= now_ms


def due_first_patch(number: int) -> str:
    """Return the name of the patch by which a round starts firings that were due before a command. Older programs do not."""
    return f"due before it is set, round {number}"


def served_lateness_patch(number: int) -> str:
    """Return the name of the patch by which a round counts lateness from the time at which a worker serves it.

    Older programs count from the newest delivery, which may be a command that waited for a worker for hours.
    """
    return f"late as served, round {number}"


def next_ms(state: ScheduleState) -> int | None:
    """Return the time of the next firing, which may have passed; None if the schedule is paused or removed."""
    return None if state.planned is None or state.paused else cron.next_ms(state.planned.timing, state.after_ms)


def due(state: ScheduleState, until_ms: int, now_ms: int) -> DueFirings:
    """Return the firings up to `until_ms` that a schedule starts now. Lateness counts from `now_ms`."""
    assert state.planned is not None, "a schedule that is removed fires nothing"
    timing = state.planned.timing
    found = cron.due(timing, state.after_ms, now_ms, until_ms)
    skipped = cron.skipped(timing, state.after_ms, now_ms, until_ms)
    return DueFirings(msgspec.structs.replace(state, after_ms=found.until_ms), found.times, skipped)


def pending_change(view: ScheduleView) -> PendingChange:
    """Return the change of a schedule that was sent and that no worker has made yet; "" if there is none."""
    if view.asked.planned is None:
        return "deletion" if view.state.planned is not None else ""
    if view.asked.planned != view.state.planned:
        return "change"
    if view.asked.paused != view.state.paused:
        return "pause" if view.asked.paused else "resume"
    return ""


def attributes_of(planned: PlannedCall, at_ms: int) -> dict[str, str]:
    """Return the attributes of a firing. Raises InvalidArgument if a value is no format of `str.format` with `due`."""
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


def check_attributes_of(planned: PlannedCall) -> None:
    """Check the attributes of a new schedule. Raises InvalidArgument as `attributes_of`, also for a directive that is none.

    `strftime` leaves an unknown directive, such as `%Q`, as it is. Schedules that were set before are not checked: they fire.
    """
    attributes_of(planned, 0)
    moment = cron.moment(planned.timing, 0)
    for name, value in ({} if planned.attributes is UNSET else planned.attributes).items():
        for _, field, spec, conversion in Formatter().parse(value):
            for directive in _DIRECTIVE.findall(spec or "") if field == "due" and conversion is None else ():
                if moment.strftime(directive) == directive:
                    raise InvalidArgument(
                        f"expected an attribute such as '{{due:%Y-%m-%d}}', found {name}={value!r}: strftime has no directive "
                        f"{directive!r}",
                        found=value,
                    )


class _Fold:
    """The code of a schedule's workflow, reduced to its state. At each delivery it runs until it waits."""

    def __init__(
        self,
        state: ScheduleState,
        mail: Iterable[ScheduleCommand],
        now_ms: int,
        patches: Container[str],
        *,
        removed: bool,
    ) -> None:
        """Begin with the state of a run. `removed`: it is without a call because the schedule was removed in an earlier run."""
        self.state = state
        self.fired_ms: int | None = None
        self.skipped: Skipped | None = None
        self.recreated = False
        self._removed = removed
        self._round = 0
        self._patches: Final = patches
        self._mail: Final = deque((command, now_ms) for command in mail)
        self._now_ms = now_ms
        self._is_served = False
        """True if the newest delivery was a timer, whose lateness is that of the worker."""
        self._serving: tuple[ScheduleCommand | None, int] | None = None
        """The command, with its time, whose round waits for a timer; None if no round waits for one."""

    def deliver(self, at_ms: int, command: ScheduleCommand | None) -> None:
        """Deliver a command, or a timer (None)."""
        self._now_ms = max(self._now_ms, at_ms)
        self._is_served = command is None
        if command is not None:
            self._mail.append((command, self._now_ms))
        elif self._serving is not None:
            taken, self._serving = self._serving, None
            self._take(*taken, fires=True)
        self.run()

    def run(self) -> None:
        """Take commands and fire until the code waits."""
        while self._serving is None:
            command, at_ms = self._mail.popleft() if self._mail else (None, self._now_ms)
            next_at_ms = next_ms(self.state)
            if command is None and (next_at_ms is None or next_at_ms > at_ms):
                return
            fires = command is None or due_before(self.state, command, at_ms)
            if fires and not self._is_served and served_lateness_patch(self._round) in self._patches:
                self._serving = command, at_ms
                return
            self._take(command, at_ms, fires=fires)

    def _take(self, command: ScheduleCommand | None, at_ms: int, *, fires: bool) -> None:
        if fires and (self._is_served or command is None or due_first_patch(self._round) in self._patches):
            found = due(self.state, at_ms, self._now_ms)
            self.state = found.state
            self.fired_ms = found.times[-1] if found.times else self.fired_ms
            self.skipped = found.skipped or self.skipped
        if command is not None:
            self.state = after(self.state, command, at_ms)
            self._removed = self._removed or command.kind == "remove"
            if self._removed and self.state.planned is not None:
                self._removed, self.recreated, self.fired_ms, self.skipped = False, True, None, None
        self._round += 1

    @property
    def asked(self) -> ScheduleState:
        """The state after the commands that were delivered and are not taken yet."""
        waiting = [*([] if self._serving is None else [self._serving]), *self._mail]
        state = self.state
        for command, at_ms in waiting:
            state = state if command is None else after(state, command, at_ms)
        return state


def fold(history: History) -> ScheduleView:
    """Return a schedule from the history of its workflow. Raises ValidationError if a later version wrote it."""
    begun = ScheduleState() if history.restarted is None else msgspec.convert(history.begins.args[0][0], ScheduleState)
    unreceived = () if history.restarted is None else history.restarted.unreceived
    mail = [msgspec.convert(value, ScheduleCommand) for topic, value in unreceived if topic == COMMANDS]
    now_ms = history.begins.at_ms if history.restarted is None else history.restarted.at_ms
    patches = {event.name for one in history.records for event in one.own if isinstance(event, Patched)}
    removed = history.restarted is not None and begun.planned is None
    folded = _Fold(begun, mail, now_ms, patches, removed=removed)
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
    return ScheduleView(folded.state, asked or folded.asked, folded.fired_ms, folded.skipped, folded.recreated)
