"""The timeline of one machine: its messages, handlers, changes, answers, timers and faults, in the order of the log. Pure.

    timeline = Timeline("words/3/c-1")
    for record in records_of_p: entries = timeline.add(…)

| kind | facts |
|---|---|
| arrives | a message that came: message, event, value, creates (a class, or None), sender (a machine or plugin; "" for a program), copy |
| takes | the message that a handler took: k, message, event, value, creates; event is None without its record, message "" if it had none |
| fires | the timer that a handler took: k, timer |
| enters | a new state: k, state, before |
| sets | a register, or a key of a table: k, field, key, value, removed |
| creates, sends | what it did to other machines: k, message, machine, class, event, value |
| timer, cancels | a timer that was set or cancelled: k, timer, event, due_ms, every_ms |
| emits | an output for a plugin: k, plugin, output, event, value |
| delivers | outputs that a plugin has delivered: plugin, outputs |
| undelivered | a plugin that failed repeatedly: plugin, output, attempts, error |
| replies | an answer: k, outcome, asker, value |
| halts | its end: k |
| drops | a message that came before the machine existed, or after its end: message, event |
| faults | a handler that failed repeatedly: message, timer, event, error, stack |
| resume, skip | the decision of a person about the fault in a record: fault |
| missing | records that are not there: first, last, lost |
| unreadable | a record that this program cannot read: error |

Values stay encoded: the classes that declare them are not known here. A copy is a message with the deduplication id of an earlier one; its
machine never sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from bokirsm.model.events import (
    DROPPED,
    SAME_RECORD,
    UNRECORDED,
    AnyEvent,
    Commit,
    Created,
    Done,
    Emitted,
    Faulted,
    Inputs,
    Message,
    MessageId,
    Resumed,
    Skipped,
    TimerSet,
    Undelivered,
    messages_of,
    outputs_of,
    partition_of_ref,
)
from bokirsm.model.partition_state import PartitionState

Kind: TypeAlias = Literal[
    "arrives",
    "takes",
    "fires",
    "enters",
    "sets",
    "creates",
    "sends",
    "timer",
    "cancels",
    "emits",
    "delivers",
    "undelivered",
    "replies",
    "halts",
    "drops",
    "faults",
    "resume",
    "skip",
    "missing",
    "unreadable",
]


class Entry(NamedTuple):
    """An entry of a timeline: an arrival, a change, an effect, a fault or a decision.

    Attributes:
        seqnum: of the record.
        time_ms: of the record; 0 for records that are not there.
        kind: see the module.
        facts: see the module; values are encoded.
    """

    seqnum: int
    time_ms: int
    kind: Kind
    facts: dict[str, Any]


class Timeline:
    """The timeline of a machine as of the records that were added, oldest first.

    A message is *passed* if its machine handled, in its present state, a message that came after it from a program. Messages that a host
    reads from the log reach it in their order, so the state defers the message. The reverse does not hold: whether a state defers a message
    that it has not passed yet, only its code says.

    Attributes:
        machine: as text.
        newest: the seqnum and the time of the record with its newest commit; None before.
        passed_below: messages below this id are passed; None if no message is.
        stack: the stack of its newest fault, "" if that is not in these records.
    """

    def __init__(self, machine: str) -> None:
        self.machine: Final = machine
        self.newest: tuple[int, int] | None = None
        self.passed_below: MessageId | None = None
        self.stack = ""
        self._partition: Final = PartitionState(*partition_of_ref(machine))
        self._partition.keeps_commits = False
        self._messages: Final[dict[MessageId, Message]] = {}
        self._from_programs: Final[set[MessageId]] = set()
        self._state = ""

    def add(self, seqnum: int, time_ms: int, events: Iterable[AnyEvent]) -> list[Entry]:
        """Add a record of the partition's stream. Return its entries about the machine.

        Args:
            seqnum: of the record.
            time_ms: its time.
            events: of machines, in the record.
        """
        events = list(events)
        fault = self._partition.faults.get(self.machine)
        skipped = fault.message if fault is not None and fault.skip else None
        mine = {id for id, _ in self._partition.outputs.of(self.machine)}
        self._partition.apply(seqnum, time_ms, 0, events)
        found = [*self._arrivals(seqnum, events)]
        ids = [MessageId(seqnum, one.number) for one in outputs_of(events) if one.machine == self.machine]
        for event in events:
            if isinstance(event, (Commit, Faulted, Resumed, Skipped)) and event.id == self.machine:
                found += self._of(seqnum, time_ms, event, skipped)
            elif isinstance(event, (Emitted, Done, Undelivered)):
                found += self._of_outputs(event, ids, mine)
        return [Entry(seqnum, time_ms, kind, facts) for kind, facts in found]

    def missed(self) -> None:
        """Note that records between those that were added are not there: nothing is known of the order of messages before."""
        self.passed_below = None

    # -- messages

    def _arrivals(self, seqnum: int, events: list[AnyEvent]) -> Iterator[tuple[Kind, dict[str, Any]]]:
        taken = {
            took.number
            for event in events
            if isinstance(event, Commit) and event.id == self.machine
            for took in event.took
            if took.seqnum == SAME_RECORD
        }
        senders = [event for event in events for _ in messages_of([event])]
        for (number, message), event in zip(messages_of(events), senders, strict=True):
            if message.to != self.machine:
                continue
            id = MessageId(seqnum, number)
            is_copy = bool(message.dedup) and id not in self._partition.pending and number not in taken
            if not is_copy:
                self._messages[id] = message
                if isinstance(event, (Inputs, Created)):
                    self._from_programs.add(id)
            sender = event.id if isinstance(event, Commit) else event.plugin if isinstance(event, Done) else ""
            yield (
                "arrives",
                {**_message_facts(id, message), "sender": sender, "copy": is_copy},
            )

    def _took(self, seqnum: int, took: MessageId) -> tuple[MessageId, dict[str, Any]]:
        id = MessageId(seqnum, took.number) if took.seqnum == SAME_RECORD else took
        if took.seqnum == UNRECORDED:
            return id, {"message": "", "event": None, "value": b"", "creates": None}
        message = self._messages.pop(id, None)
        if message is None:  # it came before the records that are kept
            return id, {"message": str(id), "event": None, "value": b"", "creates": None}
        return id, _message_facts(id, message)

    def _pass(self, id: MessageId) -> None:
        if id in self._from_programs and (self.passed_below is None or id > self.passed_below):
            self.passed_below = id
        self._from_programs.discard(id)

    # -- outputs

    def _of_outputs(
        self, event: Emitted | Done | Undelivered, ids: list[MessageId], mine: set[MessageId]
    ) -> Iterator[tuple[Kind, dict[str, Any]]]:
        """Yield what became of outputs of the machine.

        Args:
            event: of any machine of the partition.
            ids: those of the machine's outputs in this record that were not yielded yet; the first ones are removed.
            mine: those of its outputs that waited before this record.
        """
        if isinstance(event, Emitted):
            for one in event.outputs if event.id == self.machine else ():
                facts = {"plugin": one.plugin, "output": str(ids.pop(0)), "event": one.event, "value": one.body}
                yield "emits", {"k": event.k, **facts}
        elif isinstance(event, Done):
            done = [str(id) for id in event.outputs if id in mine]
            if done:
                yield "delivers", {"plugin": event.plugin, "outputs": done}
        elif event.output in mine:
            facts = {"plugin": event.plugin, "output": str(event.output), "error": event.error}
            yield "undelivered", {**facts, "attempts": event.attempts}

    # -- events of the machine

    def _of(
        self, seqnum: int, time_ms: int, event: Commit | Faulted | Resumed | Skipped, skipped: MessageId | None
    ) -> Iterator[tuple[Kind, dict[str, Any]]]:
        if isinstance(event, Commit):
            yield from self._commit(seqnum, time_ms, event, skipped)
        elif isinstance(event, Faulted):
            id = MessageId(seqnum, event.message.number) if event.message.seqnum == SAME_RECORD else event.message
            if not event.timer and id in self._from_programs and (self.passed_below is None or id > self.passed_below):
                self.passed_below = id
            self.stack = event.stack
            facts = {"message": "" if event.timer else str(id), "timer": event.timer, "event": event.event}
            yield "faults", {**facts, "error": event.error, "stack": event.stack}
            yield from (("replies", _reply_facts(0, one)) for one in event.replies)
        else:
            yield ("resume" if isinstance(event, Resumed) else "skip"), {"fault": event.fault}

    def _commit(
        self, seqnum: int, time_ms: int, event: Commit, skipped: MessageId | None
    ) -> Iterator[tuple[Kind, dict[str, Any]]]:
        taken = [self._took(seqnum, one) for one in event.took]
        if event.k == DROPPED:
            yield from (("drops", {"message": facts["message"], "event": facts["event"]}) for _, facts in taken)
            yield from (("replies", _reply_facts(0, one)) for one in event.replies)
            return
        self.newest = seqnum, time_ms
        k = event.k
        for id, facts in taken:
            if id != skipped:
                self._pass(id)
            yield "takes", {"k": k, **facts}
        timers = list(event.timers)
        if not taken:
            yield "fires", {"k": k, "timer": timers[0].name if timers else None}
            if timers and timers[0].is_removal:
                del timers[0]
        if event.state is not None:
            yield "enters", {"k": k, "state": event.state, "before": self._state}
            self._state = event.state
        yield from _changes(event)
        yield from self._effects(seqnum, event, timers)
        if event.state is not None or event.halted:
            self.passed_below = None
        if event.halted:
            yield "halts", {"k": k}

    def _effects(self, seqnum: int, event: Commit, timers: Iterable[TimerSet]) -> Iterator[tuple[Kind, dict[str, Any]]]:
        for message in (*event.creates, *event.sends):
            facts = {"k": event.k, "machine": message.to, "class": message.kind, "event": message.event}
            yield ("creates" if message.kind else "sends"), {**facts, "value": message.body}
        for timer in timers:
            if timer.is_removal:
                yield "cancels", {"k": event.k, "timer": timer.name}
            else:
                yield (
                    "timer",
                    {
                        "k": event.k,
                        "timer": timer.name,
                        "event": timer.event,
                        "due_ms": timer.due_ms,
                        "every_ms": timer.every_ms,
                    },
                )
        yield from (("replies", _reply_facts(event.k, one)) for one in event.replies)


def _message_facts(id: MessageId, message: Message) -> dict[str, Any]:
    return {"message": str(id), "event": message.event, "value": message.body, "creates": message.kind or None}


def _reply_facts(k: int, reply: Any) -> dict[str, Any]:
    return {"k": k, "outcome": reply.outcome, "asker": reply.asker, "value": reply.body}


def _changes(event: Commit) -> Iterator[tuple[Kind, dict[str, Any]]]:
    for name, value in event.registers.items():
        yield "sets", {"k": event.k, "field": name, "key": None, "value": value, "removed": False}
    for table, changes in event.keys.items():
        for key, changed in changes.items():
            removed = changed is None
            yield "sets", {"k": event.k, "field": table, "key": key, "value": changed or b"", "removed": removed}
