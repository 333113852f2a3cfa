"""The laws that records of machines keep, read from their bytes. Pure.

    laws = RecordLaws("sim")
    for record in …: laws.read(record.seqnum, record.time_ms, record.data)      # all records of the book, in order
    laws.broken                                                                   # what is wrong so far
    laws.waiting()                                                                # messages that no machine took yet

This reads the format (`bokirsm.model.events`) by itself, and follows none of the code that lanes run: it is to find their mistakes.

- A commit or fault in a partition is of the process with the newest claim of the partition.
- A message is taken once, after it was sent, by its own machine, and not if it is a copy by its deduplication id.
- Of two events of one kind from one machine to another, the first is taken first.
- The commits of a machine are numbered without a hole; its time never goes back; none follows its halt.
- A commit that took no message is of a timer that is set.
- After a fault a machine commits nothing until it is resumed or the event is skipped; a skipped event has no effect.
- A question has one answer at most.
- An output is delivered once, as the record says that has its answers, after its commit; so it is of its partition, and of its plugin.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

DEDUP_MS: Final = 300_000
UNRECORDED: Final = -2
"""The seqnum of a message that was sent at most once, and is in no record."""
_CLAIM, _INPUT, _CREATE, _COMMIT, _FAULT, _RESUME, _SKIP = (
    f"rsm.{one}" for one in ("claim", "input", "create", "commit", "fault", "resume", "skip")
)
_OUT, _DONE, _UNDELIVERED = "rsm.out", "rsm.done", "rsm.undelivered"
_CHECKPOINT: Final = "rsm.ck"
Id = tuple[int, int]
"""The seqnum of a record, and the number of a message in it."""


class _Message(NamedTuple):
    """A message that was sent. `sender`: the machine, or "" outside."""

    to: str
    event: str
    creates: bool
    sender: str
    is_copy: bool


class _Commit(NamedTuple):
    """A commit as its bytes have it."""

    machine: str
    k: int
    at_ms: int
    took: list[Id]
    kind: str
    changes: bool
    creates: list[list[Any]]
    sends: list[list[Any]]
    timers: list[list[Any]]
    replies: list[list[Any]]
    halted: bool


class _Machine:
    """A machine, as its commits show it."""

    __slots__ = ("at_ms", "fault", "halted", "k", "newest", "skipped", "timers")

    def __init__(self) -> None:
        self.k = self.at_ms = 0
        self.halted = False
        self.timers: set[str] = set()
        self.fault = 0
        """The seqnum of the open fault, or 0."""
        self.skipped: Id | None = None
        """The message of a fault whose event is to be skipped; (-1, 0) for a timer."""
        self.newest: dict[tuple[str, str], Id] = {}
        """The newest message that it took, by sender and event."""


class RecordLaws:
    """The laws, held against records in order; see the module.

    Attributes:
        broken: what is wrong, oldest first.
        records: how many records of machines were read.
    """

    def __init__(self, group: str) -> None:
        self.broken: Final[list[str]] = []
        self.records = 0
        self.events: Final[dict[str, int]] = {}
        """Events read, by kind."""
        self._group: Final = group
        self._owners: Final[dict[int, str]] = {}
        self._sent: Final[dict[Id, _Message]] = {}
        self._taken: Final[dict[Id, str]] = {}
        self._machines: Final[dict[str, _Machine]] = {}
        self._faults: Final[dict[str, Id]] = {}
        self._dedup: Final[dict[tuple[str, str], int]] = {}
        self._answered: Final[set[str]] = set()
        self._outputs: Final[dict[Id, tuple[int, str]]] = {}
        """The partition and the plugin of outputs that are not delivered."""
        self._delivered: Final[set[Id]] = set()

    def waiting(self) -> list[str]:
        """Return the messages that no machine took, and that are no copies, as text."""
        return [
            f"{one.event or 'creation'} {id[0]}-{id[1]} to {one.to}"
            for id, one in self._sent.items()
            if id not in self._taken and not one.is_copy
        ]

    def undelivered(self) -> list[str]:
        """Return the outputs that no plugin has delivered, as text."""
        return [f"output {id[0]}-{id[1]} for {plugin}" for id, (_, plugin) in self._outputs.items()]

    def faulted(self) -> list[str]:
        """Return the machines with an open fault."""
        return [name for name, one in self._machines.items() if one.fault]

    def waiting_for_decision(self) -> list[str]:
        """Return the machines with an open fault whose event is not to be skipped."""
        return [name for name, one in self._machines.items() if one.fault and one.skipped is None]

    def timers_of(self) -> dict[str, set[str]]:
        """Return the names of the open timers of each machine."""
        return {name: set(one.timers) for name, one in self._machines.items() if one.timers}

    def read(self, seqnum: int, time_ms: int, data: bytes) -> None:
        """Read a record of the book."""
        try:
            version, by, _, events = msgspec.msgpack.decode(data)
        except (msgspec.DecodeError, ValueError) as error:
            self._wrong(seqnum, f"expected a record of version 1, found {error}")
            return
        mine = [event for event in events if event[0].startswith("rsm.")] if version == 1 else []
        self.records += bool(mine)
        number = 0
        self._emitted(seqnum, mine)
        for event in mine:
            self.events[event[0]] = self.events.get(event[0], 0) + 1
            number = self._sends(seqnum, time_ms, event, number)
        for event in mine:
            self._apply(seqnum, by, event)

    def _wrong(self, seqnum: int, text: str) -> None:
        self.broken.append(f"record {seqnum}: {text}")

    def _machine(self, name: str) -> _Machine:
        return self._machines.setdefault(name, _Machine())

    # -- messages

    def _sends(self, seqnum: int, time_ms: int, event: list[Any], number: int) -> int:
        """Note the messages of an event, which are numbered from `number` on; return the next number."""
        sender, several = "", []
        if event[0] == _COMMIT:
            commit = _commit(event)
            sender, several = commit.machine, [*commit.creates, *commit.sends]
        elif event[0] == _INPUT:
            several = event[2]
        elif event[0] == _DONE:
            several = event[4] if len(event) > 4 else []
        elif event[0] == _CREATE:
            several = [event[2]]
        for to, name, _, kind, dedup, *_ in several:
            is_copy = bool(dedup) and self._is_copy(to, dedup, time_ms)
            self._sent[seqnum, number] = _Message(to, name, bool(kind), sender, is_copy)
            number += 1
        return number

    def _emitted(self, seqnum: int, events: list[list[Any]]) -> None:
        """Note the outputs of a record, each of which has its commit there."""
        number = 0
        commits = {(event[1], event[2]) for event in events if event[0] == _COMMIT}
        for event in events:
            if event[0] != _OUT:
                continue
            if (event[1], event[2]) not in commits:
                self._wrong(seqnum, f"outputs of commit {event[2]} of {event[1]}, which is not there")
            for output in event[3]:
                self._outputs[seqnum, number] = int(event[1].split("/")[1]), output[0]
                number += 1

    def _done(self, seqnum: int, by: str, event: list[Any]) -> None:
        self._check_owner(seqnum, by, event[1])
        partition = int(event[1].split("/")[1])
        for one in event[3]:
            id = (one[0], one[1])
            if id in self._delivered:
                self._wrong(seqnum, f"output {id} is delivered and answered twice")
            elif self._outputs.pop(id, None) != (partition, event[2]):
                self._wrong(seqnum, f"output {id} of {event[1]} for {event[2]} is delivered, which was not emitted so")
            self._delivered.add(id)

    def _is_copy(self, to: str, dedup: str, time_ms: int) -> bool:
        key = (to, dedup)
        first_ms = self._dedup.get(key)
        if first_ms is not None and time_ms - first_ms <= DEDUP_MS:
            return True
        self._dedup[key] = time_ms
        return False

    # -- events

    def _apply(self, seqnum: int, by: str, event: list[Any]) -> None:
        kind = event[0]
        if kind == _CLAIM:
            self._owners[event[2]] = by if event[3] else ""
        elif kind == _COMMIT:
            self._committed(seqnum, by, _commit(event))
        elif kind == _FAULT:
            self._check_owner(seqnum, by, event[1])
            self._machine(event[1]).fault = seqnum
            self._faults[event[1]] = _id(seqnum, event[2])
            self._replied(seqnum, event[7] if len(event) > 7 else [])
        elif kind == _DONE:
            self._done(seqnum, by, event)
        elif kind == _UNDELIVERED:
            self._check_owner(seqnum, by, event[1])
        elif kind in (_RESUME, _SKIP):
            machine = self._machine(event[1])
            if machine.fault == event[2] and kind == _RESUME:
                machine.fault, machine.skipped = 0, None
            elif machine.fault == event[2]:
                machine.skipped = self._faults[event[1]]

    def _check_owner(self, seqnum: int, by: str, machine: str) -> None:
        partition = int(machine.split("/")[1])
        owner = self._owners.get(partition, "")
        if owner != by:
            self._wrong(
                seqnum, f"process {by} committed for {machine}, partition {partition} is of {owner or 'nobody'}"
            )

    def _committed(self, seqnum: int, by: str, commit: _Commit) -> None:
        self._check_owner(seqnum, by, commit.machine)
        machine = self._machine(commit.machine)
        ids = [(seqnum, number) if other == 0 else (other, number) for other, number in commit.took]
        if commit.k:
            self._check_fault(seqnum, machine, commit, ids)
            self._check_chain(seqnum, machine, commit, ids)
        elif machine.skipped in ids:  # of a creation that failed
            machine.fault, machine.skipped = 0, None
        for id in ids:
            if id[0] != UNRECORDED:
                self._took(seqnum, id, machine, commit)
        self._replied(seqnum, commit.replies)

    def _check_chain(self, seqnum: int, machine: _Machine, commit: _Commit, ids: list[Id]) -> None:
        name = commit.machine
        if commit.k != machine.k + 1:
            self._wrong(seqnum, f"commit {commit.k} of {name} after its commit {machine.k}")
        if machine.halted:
            self._wrong(seqnum, f"commit {commit.k} of {name}, which has halted")
        if commit.at_ms < machine.at_ms:
            self._wrong(seqnum, f"time of {name} goes back from {machine.at_ms} to {commit.at_ms}")
        if not ids and not machine.timers:
            self._wrong(seqnum, f"commit {commit.k} of {name} took nothing, and no timer is set")
        creates = any(id in self._sent and self._sent[id].creates for id in ids)
        if not creates == bool(commit.kind) == (commit.k == 1):
            self._wrong(seqnum, f"commit {commit.k} of {name} has class {commit.kind!r}, and took {ids}")
        machine.k, machine.at_ms = max(commit.k, machine.k), max(machine.at_ms, commit.at_ms)
        for timer in commit.timers:
            (machine.timers.add if len(timer) > 5 and timer[5] else machine.timers.discard)(timer[0])
        if commit.halted:
            machine.halted = True
            machine.timers.clear()

    def _check_fault(self, seqnum: int, machine: _Machine, commit: _Commit, ids: list[Id]) -> None:
        if not machine.fault:
            return
        if machine.skipped is None:
            self._wrong(seqnum, f"commit {commit.k} of {commit.machine}, which waits since its fault {machine.fault}")
        elif machine.skipped[0] >= 0 and (ids != [machine.skipped] or commit.changes or commit.sends or commit.creates):
            self._wrong(seqnum, f"{commit.machine} was to skip {machine.skipped}, and took {ids}")
        machine.fault, machine.skipped = 0, None

    def _took(self, seqnum: int, id: Id, machine: _Machine, commit: _Commit) -> None:
        sent = self._sent.get(id)
        if sent is None:
            self._wrong(seqnum, f"{commit.machine} took {id}, which was not sent")
            return
        if id in self._taken:
            self._wrong(seqnum, f"{commit.machine} took {sent.event} {id} twice: before, {self._taken[id]}")
        if sent.to != commit.machine:
            self._wrong(seqnum, f"{commit.machine} took {sent.event} {id}, which is to {sent.to}")
        if sent.is_copy:
            self._wrong(seqnum, f"{commit.machine} took {sent.event} {id}, a copy by its deduplication id")
        self._taken[id] = f"record {seqnum}"
        newest = machine.newest.get((sent.sender, sent.event), (0, 0))
        if sent.sender and newest > id:
            self._wrong(
                seqnum, f"{commit.machine} took {sent.event} {id} of {sent.sender} after its later one {newest}"
            )
        machine.newest[sent.sender, sent.event] = max(newest, id)

    def _replied(self, seqnum: int, replies: list[list[Any]]) -> None:
        for asker, outcome, *_ in replies:
            if outcome != "faulted" and asker in self._answered:
                self._wrong(seqnum, f"question {asker} is answered twice")
            if outcome != "faulted":
                self._answered.add(asker)


def _id(seqnum: int, id: list[int]) -> Id:
    return (id[0] or seqnum, id[1])


def _commit(event: list[Any]) -> _Commit:
    """Return a commit; fields at the end that are missing have no value."""
    _, machine, k, at_ms, took, kind, state, registers, keys, creates, sends, timers, replies, halted = [
        *event,
        *(None,) * (14 - len(event)),
    ][:14]
    ids = [(one[0], one[1]) for one in took or ()]
    changes = bool(state or registers or keys)
    return _Commit(
        machine,
        k,
        at_ms or 0,
        ids,
        kind or "",
        changes,
        creates or [],
        sends or [],
        timers or [],
        replies or [],
        bool(halted),
    )


def covered(data: bytes) -> int:
    """Return the seqnum up to which checkpoints in a record cover their partitions, 0 without any: records up to it may be trimmed."""
    version, _, _, events = msgspec.msgpack.decode(data)
    return max((event[2] for event in events if event[0] == _CHECKPOINT), default=0) if version == 1 else 0
