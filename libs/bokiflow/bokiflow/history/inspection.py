"""Reads of workflows from the log: their states, their histories, and lists of them. Runs no workflow and appends nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

import boki
from boki_common.errors import BokiError, RecordTooLarge, Trimmed
from bokiflow.errors import ResultExpired
from bokiflow.history import instance_state
from bokiflow.history.instance_state import (
    InstanceState,
    LockWait,
    PartitionFold,
    Status,
    starts_of,
    state_after,
    status_of,
)
from bokiflow.locks import lock_reading
from bokiflow.model import flow_events as events
from bokiflow.model import lock_rules
from bokiflow.model.delivery_order import (
    RecordedEvents,
    begun,
    begun_before,
    counts_uniques,
    locks_of,
    recorded_events,
    start_ms,
)
from bokiflow.model.flow_events import (
    PICKER,
    AnyFlowEvent,
    Begun,
    Cancelled,
    Checkpointed,
    Claimed,
    Ended,
    PartitionCheckpoint,
    Restarted,
    Resulted,
    Started,
    Stepped,
    Tombed,
    Transacted,
    Unreceived,
    Waits,
    Withdrawn,
)
from bokiflow.model.history_fold import History, HistoryRecord, fold
from bokiflow.model.outcomes import Outcome
from bokiflow.model.stacks import users_stack, with_users_stack
from bokilib.append.log import Log
from bokilib.errors import ForeignRecord, NoPayloadHook, PayloadHookFailed, UnknownEvent
from bokilib.ports import ConsistencyName
from bokilib.records import tags


async def newest_start(
    log: Log, group: str, attribute: str, value: str, *, others: bool = False
) -> tuple[int, str] | None:
    """Read the start and the id of the newest workflow of a group with an attribute; None if there is none.

    It may be an older workflow whose end was repeated since; the ids of the workflows after it follow from it.

    Args:
        others: read that of all other groups instead.
    """
    position = await log.book.now(consistency="linearizable")
    names = [tags.flow_attribute(partition, attribute, value) for partition in range(tags.PARTITIONS)]
    wanted: list[tuple[str | int, int | None]] = [(name, position) for name in names]
    found: tuple[int, str] | None = None
    while wanted:
        records = await _read_prev_of(log, wanted)
        further: list[tuple[str | int, int | None]] = []
        for (name, _), record in zip(wanted, records, strict=True):
            if record is None:
                continue
            began = [_began(record.seqnum, event) for event in PICKER.of(record.seqnum, await log.open(record))]
            mine = [
                (one.start, one.id)
                for one in began
                if one is not None and one.attributes.get(attribute) == value and (one.group == group) is not others
            ]
            found = max([*mine, *([] if found is None else [found])], default=None)
            if not mine and record.seqnum > 1:  # apps of a book share the stream: an older record may be of this group
                further.append((name, record.seqnum - 1))
        wanted = further
    return found


async def _read_prev_of(log: Log, wanted: Sequence[tuple[str | int, int | None]]) -> list[boki.Record | None]:
    """Return the newest record of each stream up to a place; None if there is none, or if it is trimmed."""
    try:
        return await log.book.read_prev_many(wanted)
    except Trimmed:
        return [await _read_prev(log, name, at_most) for name, at_most in wanted]


async def _read_prev(log: Log, name: str | int, at_most: int | None) -> boki.Record | None:
    try:
        return await log.book.read_prev(name, at_most=at_most)
    except Trimmed:
        return None


class _Began(NamedTuple):
    """The start of a workflow, as one of its events has it."""

    id: str
    start: int
    group: str
    attributes: Mapping[str, str]


def _began(seqnum: int, event: AnyFlowEvent) -> _Began | None:
    """Return the start of the workflow of an event in an attribute's stream: a start, a rewritten history or a repeated end."""
    if isinstance(event, Started):
        return _Began(event.id, seqnum, event.group, event.attributes)
    if isinstance(event, Claimed):
        return _Began(event.id, event.start, event.group, event.attributes)
    if isinstance(event, Tombed):
        return _Began(event.id, event.ended.start, event.ended.group, event.ended.attributes)
    return None


STATES_AT_ONCE: Final = 1_024
"""Fences that one request reads."""
ATTEMPTS: Final = 3
"""Attempts to read a history that is checkpointed and trimmed meanwhile."""
UNREADABLE: Final = (UnknownEvent, ForeignRecord, NoPayloadHook, PayloadHookFailed)
"""Errors of a record that this program cannot read."""
RESULT: Final = "result"
"""The topic of an ended workflow's large result."""


class Known(NamedTuple):
    """A workflow as people see it.

    Attributes:
        started_ms: when it started, in milliseconds since 1970 UTC, by the clock of the log.
        ended_ms: when it ended; None if it runs or is blocked.
        outcome: its outcome, without frames of Boki's own code; None if it has not ended, and in a list if it is not kept any more.
        blocked: why it is blocked, without such frames; "" if it is not.
        waits_for: the locks that it waits for, and the workflows that hold them.
        holds: the names of the locks that it holds.
    """

    id: str
    name: str
    status: Status
    owner: str
    started_ms: int
    ended_ms: int | None
    attributes: Mapping[str, str]
    parent: str
    outcome: Outcome | None
    blocked: str = ""
    waits_for: tuple[LockWait, ...] = ()
    holds: tuple[str, ...] = ()


class BlockedWorkflow(NamedTuple):
    """A workflow that is blocked. `blocked` is the reason that the worker recorded."""

    id: str
    blocked: str

    @property
    def error(self) -> str:
        """The name of the error's class."""
        return self.blocked.partition(":")[0]


class Done(NamedTuple):
    """An event of a workflow's history.

    Attributes:
        kind: "step", "timer", "child", "signal", …
        key: the key of the call; "" for events that no call caused.
        detail: the step's name, the child's id, the signal's topic, and so on.
    """

    seqnum: int
    time_ms: int
    kind: str
    key: str
    detail: str
    outcome: Outcome | None = None


class SinceClaim(NamedTuple):
    """Events of a workflow since its newest claim.

    Attributes:
        vain: the runs in a row before that claim whose worker was lost before it recorded progress.
    """

    vain: int
    progressed: bool = False
    cancelled: bool = False


class StartedCall(NamedTuple):
    """The call that a workflow was started with. `group` is "" if it is not known; `start` is the seqnum of the start."""

    name: str
    digest: str
    group: str
    start: int


async def newest(log: Log, id: str, *, consistency: ConsistencyName = "session") -> InstanceState | None:
    """Return the state of a workflow; None if there is none."""
    (found,) = await newest_of(log, [id], consistency=consistency)
    return found


async def newest_ms(log: Log, id: str) -> int:
    """Return the time of the newest record of a workflow's fence, in milliseconds since 1970 UTC; 0 if there is none."""
    (record,) = await _newest_records(log, [id], "session")
    return 0 if record is None else record.time_ms


async def newest_of(
    log: Log,
    ids: Sequence[str],
    *,
    consistency: ConsistencyName = "session",
    unreadable: dict[str, BokiError] | None = None,
) -> list[InstanceState | None]:
    """Return the states of many workflows in few round trips.

    Args:
        log: the log of the book.
        ids: of the workflows.
        consistency: of the reads.
        unreadable: gets the error of each workflow whose state this program cannot read; the state is None then. Without it, the first
            such error is raised.
    """
    found: list[InstanceState | None] = []
    for at in range(0, len(ids), STATES_AT_ONCE):
        some = ids[at : at + STATES_AT_ONCE]
        for id, record in zip(some, await _newest_records(log, some, consistency), strict=True):
            state: InstanceState | None = None
            try:
                state = await _state_at(log, id, record)
            except UNREADABLE as error:
                if unreadable is None:
                    raise
                unreadable[id] = error
            found.append(state)
    return found


async def _state_at(log: Log, id: str, record: boki.Record | None) -> InstanceState | None:
    """Return the state of a workflow as of the newest record of its fence's stream."""
    while record is not None:
        state = state_after(record.seqnum, PICKER.of(record.seqnum, await log.open(record), about=id))
        if state is not None:
            return instance_state.dated(state, record.time_ms)
        record = await _before(log, id, record.seqnum)
    return None


async def _newest_records(log: Log, ids: Sequence[str], consistency: ConsistencyName) -> list[boki.Record | None]:
    """Return the newest records of fences. An answer that would be too large is read in halves."""
    try:
        return await log.book.read_prev_many([(tags.flow_own(id), None) for id in ids], consistency=consistency)
    except RecordTooLarge:
        if len(ids) == 1:
            raise
        half = len(ids) // 2
        first_half = await _newest_records(log, ids[:half], consistency)
        return [*first_half, *await _newest_records(log, ids[half:], consistency)]


async def _before(log: Log, id: str, seqnum: int) -> boki.Record | None:
    """Return the newest record of a fence's stream before a place; None if there is none, or if it is trimmed."""
    return await _read_prev(log, tags.flow_own(id), seqnum - 1)


class _Run:
    """The events of a workflow under one claim, of a worker that was lost.

    Effects, notes and timers are no progress: code that catches StepInterrupted, and a transaction that is retried, record some of them
    on each worker. So does code that looks what an interrupted step did, in another step, before it repeats that step: there is no
    progress while a step of one name is interrupted, and then lost again with the worker.
    """

    def __init__(self) -> None:
        self._progressed = self._trimmed = False
        self._begun: Final[dict[str, str]] = {}
        """The names of steps that run at most once, and have begun and not ended, by key."""
        self._interrupted: Final[set[str]] = set()

    def add(self, item: boki.Gap | Sequence[object]) -> None:
        """Add the events of the next record, or a gap."""
        if isinstance(item, boki.Gap):  # only a worker that runs the workflow trims its history, after a while
            self._trimmed = True
            return
        for event in item:
            if isinstance(event, Begun) or (isinstance(event, Withdrawn) and event.again):
                self._begun[event.key] = event.name
            elif isinstance(event, Withdrawn):
                self._begun.pop(event.key, None)
            elif isinstance(event, Stepped):
                self._begun.pop(event.key, None)
                if event.outcome.interrupted:
                    self._interrupted.add(event.name)
                else:
                    self._progressed = True
            elif isinstance(event, (Transacted, Waits, Restarted)):
                self._progressed = True

    @property
    def progressed(self) -> bool:
        """True if the workflow recorded what it does not record again and again while its steps end workers."""
        return self._trimmed or (self._progressed and self._interrupted.isdisjoint(self._begun.values()))


async def since_claim(log: Log, id: str, state: InstanceState) -> SinceClaim:
    """Return what a workflow recorded since its newest claim.

    A worker claims with `vain` 1 without reading the records before its claim. So for 1 this also reads the records since the claim before.
    """
    vain, start = state.vain, state.claim
    if vain == 1:
        before = await _before(log, id, state.claim)
        if before is None:  # trimmed, so a worker ran it for long
            vain = 0
        else:
            start = before.seqnum
    before_claim, since, cancelled = _Run(), _Run(), False
    async for item in log.book.read(tags.flow_history(id), start=start + 1, stop=await log.book.now() + 1):
        if isinstance(item, boki.Gap):
            (since if item.last > state.claim else before_claim).add(item)
            continue
        found = PICKER.of(item.seqnum, await log.open(item), about=id)
        if item.seqnum > state.claim:
            since.add(found)
            cancelled = cancelled or any(isinstance(event, Cancelled) for event in found)
        else:
            before_claim.add(found)
    return SinceClaim(0 if before_claim.progressed else vain, since.progressed, cancelled)


async def first(log: Log, id: str) -> tuple[int, Started] | None:
    """Return the seqnum and the event of a workflow's start; None if there is no workflow, or if it ended and its start is trimmed."""
    async for item in log.book.read(tags.flow_own(id)):
        if isinstance(item, boki.Gap):
            continue
        for event in PICKER.of(item.seqnum, await log.open(item), about=id):
            if isinstance(event, Started):
                return item.seqnum, begun(event, item.time_ms)
            if isinstance(event, Claimed):
                found = await whole_history(log, id)
                return found.start, found.started
    return None


async def unfinished(log: Log, group: str) -> list[int]:
    """Return the seqnums of the starts of a group's unfinished workflows, as of now."""
    return [start for _, start, _ in await _living(log, group)]


async def blocked(log: Log, group: str) -> list[BlockedWorkflow]:
    """Return the blocked workflows of a group, as of now, ordered by start."""
    living = sorted(await _living(log, group), key=lambda one: one[1])
    return [BlockedWorkflow(id, users_stack(state.blocked)) for id, _, state in living if state.blocked]


async def _living(log: Log, group: str) -> list[tuple[str, int, InstanceState]]:
    """Return (id, seqnum of the start, state) of each unfinished workflow of a group."""
    position = await log.book.now(consistency="linearizable")
    folds = {partition: PartitionFold() for partition in range(tags.PARTITIONS)}
    wanted = [tags.flow_part(group, partition) for partition in range(tags.PARTITIONS)]
    async for item in log.book.read(tags=wanted, start=1, stop=position + 1):
        if isinstance(item, boki.Gap):
            continue  # trimmed starts are in a checkpoint, or their workflows have ended
        instance_state.apply(folds, group, item.seqnum, item.time_ms, await log.open(item))
    starts = {id: start for fold in folds.values() for id, start in fold.ids.items()}
    states = await newest_of(log, list(starts))
    return [
        (id, start, state)
        for (id, start), state in zip(starts.items(), states, strict=True)
        if state is not None and state.ended is None
    ]


async def history(log: Log, id: str, last: int) -> History:
    """Return a workflow's history up to a place. Raises `UNREADABLE`.

    Raises:
        Trimmed: the workflow ended and its history is deleted, or a checkpoint trimmed the history meanwhile.
    """
    stream: list[HistoryRecord] = []
    gap = 0
    async for item in log.book.read(tags.flow_history(id), start=1, stop=last + 1):
        if isinstance(item, boki.Gap):
            if item.kind is not boki.GapKind.TRIMMED:
                raise item.error()
            gap = item.last
            continue
        envelope = await log.open(item)
        mine = PICKER.of(item.seqnum, envelope, about=id)
        if mine:
            restarted = next((one for one in mine if isinstance(one, Restarted)), None)
            checkpoints = tuple(one for one in mine if isinstance(one, Checkpointed))
            unreceived = tuple(one for one in mine if isinstance(one, Unreceived))
            one = recorded_events(item.seqnum, item.time_ms, envelope.seen, mine)
            stream.append(HistoryRecord(one, envelope.by, restarted, checkpoints, unreceived))
    found = fold(stream, gap)
    if found is None:
        text = f"the history of workflow {id!r} is not kept any more: the workflow ended, or was never started"
        raise Trimmed(text, mark=gap + 1, id=id)
    return found


async def whole_history(log: Log, id: str, *, consistency: ConsistencyName = "session") -> History:
    """Return a workflow's history as of now. Raises Trimmed if the workflow ended and its history is deleted."""
    for _ in range(ATTEMPTS):
        try:
            return await history(log, id, await log.book.now(consistency=consistency))
        except Trimmed:
            continue  # a checkpoint may have trimmed it meanwhile
    return await history(log, id, await log.book.now(consistency=consistency))


async def is_child(log: Log, id: str, parent: str, key: str, after: int) -> bool:
    """Return True if the workflow with this id was started by that call of that parent.

    Args:
        after: the seqnum of the parent's start. A child from before it is that of an earlier workflow with the parent's id.
    """
    state = await newest(log, id)
    there = None if state is None else state.ended
    if state is not None and state.start and there is not None and there.group:
        return state.start > after and (there.parent, there.parent_key) == (parent, key)
    began = await first(log, id)
    return began is not None and began[0] > after and (began[1].parent, began[1].parent_key) == (parent, key)


async def started_call(log: Log, id: str, state: InstanceState) -> StartedCall | None:
    """Return the call that a workflow was started with; None if the id was forgotten meanwhile."""
    there = state.newest
    if isinstance(there, Tombed):
        there = there.ended
    if there is not None and there.name:
        return StartedCall(there.name, there.digest, there.group, state.start)
    began = await first(log, id)  # claims of older programs lack the call
    return None if began is None else StartedCall(began[1].name, began[1].digest, began[1].group, began[0])


async def group_of(log: Log, id: str, *, consistency: ConsistencyName = "session") -> str | None:
    """Return the group of the workflow that has an id, whether it runs or has ended; None if there is none."""
    state = await newest(log, id, consistency=consistency)
    call = None if state is None else await started_call(log, id, state)
    return None if call is None else call.group


async def started_args(log: Log, id: str, start: int) -> Any:
    """Return the arguments that a workflow was started with; None if the log does not keep them, or this program cannot read them.

    Args:
        log: the log of the book.
        id: the workflow.
        start: the seqnum of its start.
    """
    try:
        began = await first(log, id)
    except (Trimmed, *UNREADABLE):
        return None
    return None if began is None or began[0] != start else began[1].args


async def outcome_of(log: Log, id: str, state: InstanceState) -> Ended | None:
    """Return the end of a workflow with its outcome; None if it has not ended. Raises ResultExpired."""
    if state.ended is None or not state.large:
        return state.ended
    async for item in log.book.read(tags.flow_output(id, RESULT), start=1):
        if isinstance(item, boki.Gap) or item.seqnum < state.large:
            continue
        for event in PICKER.of(item.seqnum, await log.open(item), about=id):
            if isinstance(event, Resulted):
                return msgspec.structs.replace(state.ended, outcome=event.outcome)
    raise ResultExpired(f"workflow {id!r} ended, and its result is not kept any more", id=id)


async def known(log: Log, id: str) -> Known | None:
    """Return a workflow as people see it; None if there is none."""
    state = await newest(log, id)
    if state is None:
        return None
    ended = await outcome_of(log, id, state)
    if ended is not None and ended.group:
        return await _known(log, begun_before(ended), state, ended.outcome)
    began = await first(log, id)
    return None if began is None else await _known(log, began[1], state, None if ended is None else ended.outcome)


async def known_of(log: Log, started: Started, state: InstanceState) -> Known:
    """Return a workflow of a list as people see it, from its start and its state; without an outcome that is not kept any more."""
    try:
        ended = await outcome_of(log, started.id, state)
    except ResultExpired:
        ended = None
    return await _known(log, started, state, None if ended is None else ended.outcome)


async def _known(log: Log, started: Started, state: InstanceState, outcome: Outcome | None) -> Known:
    ended = state.ended
    waits_for, holds = ((), ()) if ended is not None else await _locks(log, started.id)
    return Known(
        started.id,
        started.name,
        status_of(ended, state.blocked),
        state.owner,
        start_ms(started),
        None if ended is None else ended.at_ms,
        started.attributes,
        started.parent,
        None if outcome is None else with_users_stack(outcome),
        users_stack(state.blocked),
        waits_for,
        holds,
    )


async def _locks(log: Log, id: str) -> tuple[tuple[LockWait, ...], tuple[str, ...]]:
    """Return the locks that a workflow waits for, and the names of the locks that it holds."""
    try:
        return await locks_as_of(log, (await whole_history(log, id)).records)
    except (Trimmed, *UNREADABLE):  # it ended meanwhile, or its blocked reason names the error
        return (), ()


async def locks_as_of(log: Log, records: Sequence[RecordedEvents]) -> tuple[tuple[LockWait, ...], tuple[str, ...]]:
    """Return the locks of a history (see `_locks`), with their holders as of now. Raises Lost."""
    queued, held_now = locks_of(records)
    queues: dict[str, lock_rules.Queue] = {}
    names = list(dict.fromkeys(one.name for one in queued))
    for at in range(0, len(names), lock_reading.AT_ONCE):
        views = await lock_reading.read_many(log, names[at : at + lock_reading.AT_ONCE])
        queues |= {name: view.queue for name, view in views.items()}
    first = {name: lock_rules.holders(queue)[0].owner if queue else "" for name, queue in queues.items()}
    owners = list(dict.fromkeys(owner for owner in first.values() if owner))
    blocked_by = dict(zip(owners, await newest_of(log, owners), strict=True))
    waits = []
    for one in queued:
        turn = lock_rules.standing(queues[one.name], one.number) == "held"
        state = None if turn else blocked_by.get(first[one.name])
        holder = "" if turn else first[one.name]
        waits.append(LockWait(one.name, one.at_ms, holder, "" if state is None else state.blocked))
    return tuple(waits), tuple(one.name for one in held_now)


async def done(log: Log, id: str) -> list[Done]:
    """Return the events of a workflow since its start or last restart, in the order of the log; not Boki's own patches.

    Raises:
        Trimmed: the history is not kept any more.
    """
    found = await whole_history(log, id)
    done = [
        _done(one.seqnum, one.time_ms, event)
        for one in found.records
        for event in (*one.own, *one.incoming)
        if not counts_uniques(event)
    ]
    state = await newest(log, id)
    if state is not None and state.ended is not None and state.ended.start == found.start:
        done.append(_done(state.claim, state.ended.at_ms, state.ended))
    return done


def _done(seqnum: int, time_ms: int, event: AnyFlowEvent) -> Done:
    kinds: dict[type[AnyFlowEvent], tuple[str, str]] = {
        events.Stepped: ("step", "name"),
        events.Transacted: ("transact", "name"),
        events.Fired: ("timer", ""),
        events.Queued: ("lock asked", "name"),
        events.Locked: ("lock", "name"),
        events.Unlocked: ("unlock", "name"),
        events.Begun: ("begun", "name"),
        events.Withdrawn: ("withdrawn", "name"),
        events.Sleeping: ("sleep", "due_ms"),
        events.Attempted: ("part", "child"),
        events.Abandoned: ("part left", "child"),
        events.Invoked: ("invoke", "child"),
        events.Sent: ("send", "to"),
        events.Emitted: ("emit", "topic"),
        events.Patched: ("patch", "name"),
        events.ChildEnded: ("child", "child"),
        events.Signalled: ("signal", "topic"),
        events.Cancelled: ("cancel", "reason"),
        Ended: ("end", "name"),
    }
    kind, field = kinds.get(type(event), (type(event).__name__, ""))
    detail = str(getattr(event, field)) if field else ""
    return Done(seqnum, time_ms, kind, getattr(event, "key", ""), detail, getattr(event, "outcome", None))


async def ids(log: Log, group: str, attribute: tuple[str, str] | None = None) -> list[str]:
    """Return the ids of a group's workflows, ordered by start; with `attribute`, a name and a value, only those that have it.

    Ended workflows are included while their results are kept.
    """
    found: dict[str, tuple[int, int]] = {}
    for partition in range(tags.PARTITIONS):
        if attribute is not None:
            wanted = [tags.flow_attribute(partition, *attribute)]
        else:
            wanted = [tags.flow_part(group, partition), tags.flow_done(group, partition)]
        async for item in log.book.read(tags=wanted):
            if isinstance(item, boki.Gap):
                continue
            for at, event in enumerate(PICKER.of(item.seqnum, await log.open(item))):
                for id, start in _found(item.seqnum, event, group, attribute):
                    if tags.partition_of(id) == partition:
                        place = (start, at if isinstance(event, Started) else 0)  # one record may start several
                        found[id] = max(place, found.get(id, (0, 0)))
    return sorted(found, key=lambda id: found[id])


def _found(
    seqnum: int, event: AnyFlowEvent, group: str, attribute: tuple[str, str] | None
) -> Iterable[tuple[str, int]]:
    """Return the ids that an event is about, and the seqnums of their starts."""
    if isinstance(event, PartitionCheckpoint):
        return starts_of(event).items() if event.group == group and attribute is None else ()
    if isinstance(event, Tombed):
        event = event.ended
    if not isinstance(event, Started | Claimed | Ended) or event.group != group:
        return ()
    if attribute is not None and event.attributes.get(attribute[0]) != attribute[1]:
        return ()
    return [(event.id, seqnum if isinstance(event, Started) else event.start)]
