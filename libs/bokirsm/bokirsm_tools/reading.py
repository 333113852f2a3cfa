"""Machines read from the log by the rules by which hosts load them. Nothing is claimed and nothing is appended.

Read `group_states` (partitions), `load` (a machine of one), `scan` (the apps and the machines of a book), then `life_of` (all that the log
has of one machine) and `hosts_of` (the hosts of an app).

- A host trims what its checkpoints contain, also while a reader is between two of its records. Only an owner may take such a hole for its
  own loss; here the reader begins again, from the newer checkpoint.
- A partition or record that this program cannot read, as a newer one wrote it, is reported and hides no other one.
- The log has no list of machines. Those with messages or commits above the checkpoint of their partition are in its stream; the others are
  found by their snapshots, for which the whole book is read.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import boki
from boki_common.errors import BokiError, LogBookError, Lost, Trimmed, UsageError
from bokilib.append.log import Log, Read
from bokilib.errors import ForeignRecord, NoPayloadHook, PayloadHookFailed, UnknownEvent
from bokilib.follow.members import PICKER as BEATS
from bokilib.partitions.claims import NewestClaims, Picked
from bokilib.records import tags
from bokirsm.lane import loading
from bokirsm.machine.refs import Ref
from bokirsm.model.events import PICKER, Claimed, Created, Faulted, Snapshot
from bokirsm.model.machine_state import MachineState
from bokirsm.model.partition_state import OpenFault, PartitionState, machine_of
from bokirsm_tools.hosts import Hosts, Owner, Seen
from bokirsm_tools.machines import Life, Machine
from bokirsm_tools.timeline import Entry, Timeline

ATTEMPTS: Final = 16
"""Reads of a partition that its owner trims meanwhile."""
AT_ONCE: Final = 16
"""Machines that are read at once."""
UNREADABLE: Final = (UnknownEvent, ForeignRecord, NoPayloadHook, PayloadHookFailed, Lost, Trimmed)
"""Errors of records and streams, which a repeated read does not mend."""

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of records that were read so far."""


def no_progress(_records: int) -> None:
    """Show no progress."""


class NotThere(LogBookError):
    """The book has no such machine or app, or no machines at all."""


class GroupStates(NamedTuple):
    """Partitions of a group.

    Attributes:
        group: of the machines.
        states: the partitions that were read.
        unreadable: the error of each partition that this program cannot read.
        position: the seqnum as of which they were read.
    """

    group: str
    states: Mapping[int, PartitionState]
    unreadable: Mapping[int, BokiError]
    position: int

    @property
    def refs(self) -> set[str]:
        """The machines that the streams of the partitions name."""
        found: set[str] = set()
        for state in self.states.values():
            found.update(state.touched, state.commits, state.timers, state.faults)
            found.update(message.to for message in state.pending.values())
            found.update(state.outputs.size_of)
        return found

    @property
    def faulted(self) -> set[str]:
        """The machines with a fault."""
        return {ref for state in self.states.values() for ref in state.faults}

    @property
    def has_trimmed(self) -> bool:
        """True if there may be machines that the streams do not name: they are in snapshots."""
        return bool(self.unreadable) or any(state.covers for state in self.states.values())


async def group_states(log: Log, group: str, partitions: Sequence[int] = range(tags.PARTITIONS)) -> GroupStates:
    """Read partitions of a group as of now."""
    try:
        position, states = await _load(log, group, partitions)
        return GroupStates(group, states, {}, position)
    except UNREADABLE as error:
        if len(partitions) == 1:
            return GroupStates(group, {}, {partitions[0]: error}, await log.book.now())
    several = [await group_states(log, group, [one]) for one in partitions]
    states = {number: state for one in several for number, state in one.states.items()}
    unreadable = {number: error for one in several for number, error in one.unreadable.items()}
    return GroupStates(group, states, unreadable, min(one.position for one in several))


async def _load(log: Log, group: str, partitions: Sequence[int]) -> tuple[int, dict[int, PartitionState]]:
    for left in reversed(range(ATTEMPTS)):
        position = await log.book.now(consistency="linearizable")
        try:
            return position, await loading.load_partitions(log, group, partitions, position)
        except Trimmed:  # the owner made a checkpoint meanwhile
            if not left:
                raise
    raise AssertionError("ATTEMPTS is at least 1")


async def load(log: Log, partition: PartitionState, position: int, ref: str) -> Machine:
    """Return a machine of a partition; a newer one if records that it needs were replaced meanwhile.

    Args:
        log: of the book.
        partition: its partition.
        position: the seqnum as of which the partition was read.
        ref: the machine.

    Raises:
        Lost: the log does not have all of its commits.
        Trimmed: its snapshots were replaced during each of many attempts.
        UnknownEvent: a newer program wrote it.
    """
    hole = ""
    for _ in range(ATTEMPTS):
        commits = partition.commits.get(ref, [])
        needs = not commits or commits[0].k != 1
        snapshot, seqnum = await _snapshot(log, partition.group, Ref.parse(ref).name) if needs else (None, 0)
        try:
            state = machine_of(snapshot, commits)
        except LookupError as error:
            hole = str(error)
        else:
            if seqnum <= position:
                return _machine(partition, ref, state)
        position, states = await _load(log, partition.group, [partition.partition])
        partition = states[partition.partition]
    if hole:
        raise Lost(f"the log has not all of machine {ref}: {hole}")
    raise Trimmed(f"snapshots of {ref} were replaced during each of {ATTEMPTS} reads; try again")


def _machine(partition: PartitionState, ref: str, state: MachineState | None) -> Machine:
    """Return a machine with what its partition has of it: events that wait, its fault, and its outputs."""
    waits = tuple((id, one) for id, one in partition.pending.items() if one.to == ref)
    outputs = partition.outputs
    return Machine(ref, state, waits, partition.faults.get(ref), tuple(outputs.of(ref)), outputs.failures_of(ref))


async def _snapshot(log: Log, group: str, name: str) -> tuple[MachineState | None, int]:
    """Return the newest snapshot of a machine, and the seqnum of the newest record of its stream; None and 0 if there is none.

    Raises:
        Trimmed: as `load`.
    """
    tag = tags.rsm_machine(group, name)
    for _ in range(ATTEMPTS):
        before = await _newest(log, tag)
        found = await loading.load_snapshot(log, group, name)
        newest = await _newest(log, tag)
        if newest == before:  # else it was replaced while its parts were read
            return found, newest
    raise Trimmed(f"snapshots of {group}/{name} were replaced during each of {ATTEMPTS} reads; try again", tag=tag)


async def _newest(log: Log, tag: str) -> int:
    try:
        record = await log.book.read_prev(tag)
    except Trimmed:
        return 0
    return 0 if record is None else record.seqnum


async def load_all(log: Log, states: GroupStates, refs: Sequence[str]) -> list[Machine | BokiError]:
    """Return machines, each as `load` does, in order; of one that this program cannot read, the error."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(ref: str) -> Machine | BokiError:
        partition = Ref.parse(ref).partition
        if partition in states.unreadable:
            return states.unreadable[partition]
        async with turns:
            try:
                return await load(log, states.states[partition], states.position, ref)
            except UNREADABLE as error:
                return error

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(ref)) for ref in refs]
    return [task.result() for task in tasks]


# -- apps and machines of a book


class Scan(NamedTuple):
    """The apps and machines of a book, by the names of its streams and by snapshots.

    Attributes:
        groups: the apps, sorted.
        refs: machines with a snapshot or a creation by key, by app. Some may be forgotten.
        unreadable: errors of snapshots that this program cannot read.
    """

    groups: list[str]
    refs: Mapping[str, set[str]]
    unreadable: list[BokiError]


async def scan(log: Log, progress: Progress = no_progress) -> Scan:
    """Read the whole book for apps and machines."""
    groups, refs, unreadable = set[str](), dict[str, set[str]](), list[BokiError]()
    count = 0
    async for item in log.book.read():
        count += 1
        progress(count)
        if isinstance(item, boki.Gap):
            continue
        parts = [tag.split("/") for tag in item.tags if isinstance(tag, str)]
        groups.update(one[2] for one in parts if one[:2] in (["rsm", "p"], ["rsm", "own"]) and len(one) == 4)
        if not any(one[:2] == ["rsm", "m"] for one in parts):
            continue
        try:
            for ref in await _named(log, item):
                refs.setdefault(Ref.parse(ref).group, set()).add(ref)
        except UNREADABLE as error:
            unreadable.append(error)
    groups.update(refs)
    return Scan(sorted(groups), refs, unreadable)


async def _named(log: Log, record: boki.Record) -> list[str]:
    """Return the machines of which a record has a snapshot or a creation."""
    found = []
    read = await loading.opened(log, record)
    for event in PICKER.of(record.seqnum, read.envelope) if read is not None else []:
        if isinstance(event, Snapshot):
            group, _, name = event.id.partition("/")
            found.append(str(Ref(group, event.partition, name)))
        elif isinstance(event, Created):
            found.append(event.message.to)
    return found


async def has_group(log: Log, group: str) -> bool:
    """Return whether a book has an app: a machine, an event or a host of it."""
    partitions = range(tags.PARTITIONS)
    streams = [tags.member(tags.rsm_group(group)), *(tags.rsm_owner(group, one) for one in partitions)]
    streams += [tags.rsm_partition(group, one) for one in partitions]
    try:
        return any(await log.book.read_prev_many([(stream, None) for stream in streams]))
    except Trimmed:
        return True


async def groups_named(log: Log, group: str | None, progress: Progress = no_progress) -> list[str]:
    """Return all apps of a book or, if one is named, that one if the book has it."""
    if group is None:
        return (await scan(log, progress)).groups
    return [group] if await has_group(log, group) else []


async def resolve(log: Log, book: str, group: str | None, text: str, progress: Progress = no_progress) -> Ref[Any]:
    """Return the machine that a person names: by its reference, or by its name alone.

    Args:
        log: of the book.
        book: its name, for errors.
        group: the app; None for any.
        text: a reference as `boki rsm ls` prints it, or a name.
        progress: called with the number of records that were read.

    Raises:
        NotThere: the book has no such machine or app.
        UsageError: several machines have the name.
    """
    app, _, rest = text.partition("/")
    number, _, name = rest.partition("/")
    if number.isdecimal() and name and group in (None, app) and await has_group(log, app):
        return Ref.parse(text)
    groups = await groups_named(log, group, progress)
    if not groups:
        raise nothing_in(book, group)
    found = [one for each in groups for one in await _named_in(log, each, text)]
    if len(found) > 1:
        raise UsageError(f"expected one machine, found several named {text!r}: name one of {', '.join(found)}")
    if not found:
        where = f"the book {book!r}" if group is None else f"the app {group!r} of the book {book!r}"
        listed = f"`boki rsm ls --book {shlex.quote(book)}`"
        raise NotThere(f"there is no machine {text!r} in {where}; {listed} lists the machines", machine=text)
    return Ref.parse(found[0])


def nothing_in(book: str, group: str | None) -> NotThere:
    """Return the error that a book has no machines, or has no app of a name."""
    if group is None:
        return NotThere(f"there are no machines in the book {book!r}", book=book)
    return NotThere(f"there is no app {group!r} in the book {book!r}", book=book, app=group)


async def _named_in(log: Log, group: str, name: str) -> list[str]:
    """Return the machines of a group with a name: one, unless keys of programs collide with `near=`."""
    tag, about = tags.rsm_machine(group, name), f"{group}/{name}"
    at_most: int | None = None
    while True:
        try:
            record = await log.book.read_prev(tag, at_most=at_most)
        except Trimmed:
            break
        if record is None:
            break
        if of_name := [one for one in await _named(log, record) if _is(one, about)]:
            return of_name[:1]
        at_most = record.seqnum - 1
    states = await group_states(log, group)
    found = sorted(one for one in states.refs if _is(one, about))
    if not found and states.unreadable:
        raise next(iter(states.unreadable.values()))
    return found


def _is(ref: str, about: str) -> bool:
    parsed = Ref.parse(ref)
    return f"{parsed.group}/{parsed.name}" == about


# -- one machine


async def life_of(log: Log, ref: Ref[Any]) -> Life:
    """Read what the log has of a machine.

    Raises:
        NotThere: it does not exist, and no events wait for it.
        UnknownEvent: a newer program wrote it.
    """
    states = await group_states(log, ref.group, [ref.partition])
    if states.unreadable:
        raise states.unreadable[ref.partition]
    partition = states.states[ref.partition]
    machine = await load(log, partition, states.position, str(ref))
    if machine.status == "absent" and not machine.waits:
        raise NotThere(f"there is no machine {str(ref)!r}", machine=str(ref))
    line = Timeline(str(ref))
    async for _ in entries(log, ref, partition.covers + 1, states.position + 1, line):
        pass
    below = line.passed_below
    passed = frozenset(id for id, _ in machine.waits if below is not None and id < below)
    fault_ms, stack = await _fault(log, ref, machine.fault)
    return Life(machine, passed, line.newest, fault_ms, stack, states.position)


async def _fault(log: Log, ref: Ref[Any], fault: OpenFault | None) -> tuple[int, str]:
    """Return the time and the stack of a fault."""
    if fault is None:
        return 0, ""
    tag = tags.rsm_partition(ref.group, ref.partition)
    async for item in log.book.read(tag, start=fault.seqnum, stop=fault.seqnum + 1):
        if not isinstance(item, boki.Gap):
            for event in PICKER.of(item.seqnum, await log.open(item)):
                if isinstance(event, Faulted) and event.id == str(ref):
                    return item.time_ms, event.stack
    return 0, ""


async def entries(
    log: Log,
    ref: Ref[Any],
    start: int = 1,
    stop: int | None = None,
    line: Timeline | None = None,
    progress: Progress = no_progress,
) -> AsyncIterator[Entry]:
    """Yield the timeline of a machine.

    Args:
        log: of the book.
        ref: the machine.
        start: the first seqnum to read.
        stop: the end of the range of seqnums, which is not in it; by default now.
        line: gets the records.
        progress: called with the number of records that were read.
    """
    line = line or Timeline(str(ref))
    stop = stop or await log.book.now(consistency="linearizable") + 1
    count = 0
    if start >= stop:
        return
    async for item in log.book.read(tags.rsm_partition(ref.group, ref.partition), start=start, stop=stop):
        count += 1
        progress(count)
        if isinstance(item, boki.Gap):
            line.missed()
            lost = item.kind is not boki.GapKind.TRIMMED
            yield Entry(item.last, 0, "missing", {"first": item.first, "last": item.last, "lost": lost})
            continue
        try:
            read = await loading.opened(log, item)
            events = PICKER.of(item.seqnum, read.envelope) if read is not None else []
        except UNREADABLE as error:
            line.missed()
            yield Entry(item.seqnum, item.time_ms, "unreadable", {"error": str(error)})
            continue
        for entry in line.add(item.seqnum, item.time_ms, events):
            yield entry


# -- hosts


async def hosts_of(log: Log, group: str, now_ms: int) -> Hosts:
    """Read the heartbeats of the hosts of an app, and which partitions they own.

    Args:
        log: of the book.
        group: the app.
        now_ms: the time now.
    """
    members = tags.rsm_group(group)
    seen: dict[str, Seen] = {}
    first = 0
    async for item in log.book.read(tags.member(members)):
        if isinstance(item, boki.Gap):
            continue  # old heartbeats are trimmed, newer ones follow
        try:
            events = BEATS.of(item.seqnum, await log.open(item))
        except (ForeignRecord, UnknownEvent):
            continue
        first = first or item.seqnum
        seen |= {one.member: Seen(item.time_ms, one.lease_ms) for one in events if one.group == members}
    fences = [tags.rsm_owner(group, one) for one in range(tags.PARTITIONS)]
    problems: list[str] = []
    claims = NewestClaims(log, fences, partial(_picked, group, problems))
    moves = await claims.read()
    left = {one.left.left for one in moves if one.left is not None and one.left.leaving}
    left |= await _left(log, group, fences, first)
    owners = {
        one: Owner(claim.who, claims.times_ms[one]) for one, claim in enumerate(claims.newest) if claim is not None
    }
    return Hosts(seen, now_ms, owners, frozenset(left), problems[0] if problems else "")


async def _left(log: Log, group: str, fences: list[str], start: int) -> set[str]:
    """Return the hosts that said that they end, in a record from `start` on; none if no heartbeat is known."""
    found: set[str] = set()
    if not start:
        return found
    async for item in log.book.read(tags=fences, start=start, stop=await log.book.now() + 1):
        if isinstance(item, boki.Gap):
            continue
        picked = _picked(group, [], Read(item, await log.open(item)))
        found.update(one.left.left for one in picked if one.left is not None and one.left.leaving)
    return found


def _picked(group: str, problems: list[str], read: Read) -> list[Picked[Claimed]]:
    """Return the claims and releases of a group in a record. `problems` gets why a record is unreadable."""
    try:
        events = PICKER.of(read.record.seqnum, read.envelope)
    except (ForeignRecord, UnknownEvent) as error:
        problems.append(str(error))
        return []
    return [
        Picked(one.partition, one.host, left=None if one.host else one)
        for one in events
        if isinstance(one, Claimed) and one.group == group
    ]
