"""Events of workflows. Pure.

The fence `flow/own/<id>` has Started, Claimed, Ended and Tombed. Each of the last three repeats the facts of Started that are needed once
Started is trimmed. The history `flow/wf/<id>` has the events of the workflow's worker, whose records expect its claim:

| event | role |
|---|---|
| Stepped, Transacted, Fired | delivered to the code: the outcome of a step or transaction, a timer that is due |
| Queued, Locked | delivered to the code: it joined a lock queue, it holds a lock |
| Begun, Invoked, Sent, Emitted, Patched, Unlocked | effects of the code, which a replay compares |
| Sleeping | for people |
| Attempted, Abandoned, Waits, Withdrawn | for the worker that takes the workflow over |

It also has ChildEnded, Signalled and Cancelled, which other processes append without expectations. Checkpointed, and Restarted with the
Unreceived of its run, replace older events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from bokiflow.model.outcomes import Outcome
from bokilib.records.events import Event, Picker


class TransactionPart(msgspec.Struct, array_like=True, frozen=True):
    """Reads and writes of a part of a transaction, in the format of its store. A failed part has no writes."""

    read: bytes
    written: bytes = b""


class EnclosingTransaction(msgspec.Struct, array_like=True, frozen=True):
    """The transaction that a workflow is a part of: its state when it called the workflow, and parts that ran since."""

    context: bytes
    parts: tuple[TransactionPart, ...] = ()


class Started(Event, tag="flow.start", frozen=True):
    """The start of a workflow.

    Attributes:
        name: the name of its function.
        args: its arguments, [positional, by name], with their `digest`.
        at_ms: when it was started, by the clock of the log; 0 for the time of its record (`delivery_order.begun`).
        owner: the worker that runs it; "" if none does yet.
        parent: the id of its parent; "" if it is no child.
        age: the seqnum at which the root of a child's family started.
        origin: the id of the workflow that a fork was made from.
        names: the ids from which a fork's code derives unique numbers (`bokiflow.unique`), each with its last delivery.
        within: the transaction that it is a part of.
        cursors: the positions as of which a fork's origin read: before the first delivery, and after each.
        due_ms: the time of the firing that a schedule started (forks keep it); 0 for other workflows.
        forked_ms: when a fork was started, by the clock of the log; `at_ms` is its origin's, for the code. 0 in the record that starts the
            fork, whose time it is (`delivery_order.begun`), and in checkpoints of older programs.
        own_uniques: the code may count its calls of `unique`, and changes of rows, by themselves (`OWN_UNIQUES`), since no older program
            ran it. A claim repeats it; one of an older program, which may have given away keys of the older kind, does not.
    """

    id: str
    name: str
    digest: str
    args: Any
    at_ms: int
    version: str = ""
    group: str = ""
    owner: str = ""
    parent: str = ""
    parent_key: str = ""
    attributes: Mapping[str, str] = {}
    traceparent: str = ""
    age: int = 0
    origin: str = ""
    names: tuple[tuple[str, int], ...] = ()
    within: EnclosingTransaction | None = None
    cursors: tuple[int, ...] = ()
    due_ms: int = 0
    forked_ms: int = 0
    own_uniques: bool = False


class Claimed(Event, tag="flow.claim", frozen=True):
    """A claim by which a worker runs a workflow, or blocks it. Fields without a description are as in Started.

    Attributes:
        owner: the worker; "" if the workflow is blocked.
        since: the claim that this one repeats; 0 for a new one.
        start: the seqnum of Started.
        blocked: why the workflow is blocked; workers run it again when it is resumed. "" if it is not blocked.
        vain: the most runs in a row before this claim whose worker was lost before it recorded progress (`held_back`).
        pause_ms: the time after this claim for which it is held back if this run is lost, too; 0 if it is not held back.
    """

    id: str
    owner: str
    since: int = 0
    start: int = 0
    name: str = ""
    digest: str = ""
    group: str = ""
    attributes: Mapping[str, str] = {}
    blocked: str = ""
    vain: int = 0
    pause_ms: int = 0
    own_uniques: bool = False


class Ended(Event, tag="flow.done", frozen=True):
    """The end of a workflow, which is final. Fields without a description are as in Started.

    Attributes:
        at_ms: when it ended, by the clock of the log as far as the program that ended it knew it. Readers take the time of the record if
            that is later (`instance_state.dated`).
        began_ms: when it was started (`delivery_order.start_ms`).
        topics: the topics under which it emitted values.
        parts: the parts that it adds to the transaction that it is a part of.
        history_bytes: the approximate size of its history; 0 in records of older programs.
    """

    id: str
    start: int
    name: str
    digest: str
    outcome: Outcome
    at_ms: int
    group: str = ""
    began_ms: int = 0
    parent: str = ""
    parent_key: str = ""
    attributes: Mapping[str, str] = {}
    topics: tuple[str, ...] = ()
    parts: tuple[TransactionPart, ...] = ()
    history_bytes: int = 0


class Tombed(Event, tag="flow.tomb", frozen=True):
    """A repeated end of a workflow, after which older records can be trimmed.

    Attributes:
        done_ms: when the workflow ended, by the clock of the log.
        large: the seqnum of the record with its outcome, if that is too large for this record; else 0.
    """

    id: str
    ended: Ended
    done_ms: int
    large: int = 0


class Resulted(Event, tag="flow.result", frozen=True):
    """The large outcome of an ended workflow."""

    id: str
    outcome: Outcome


class Stepped(Event, tag="flow.step", frozen=True):
    """The outcome of a step, or (with `part`) of a part of an enclosing transaction.

    `took_ms`, the time of its body with retries, and `attempts` are for people.
    """

    id: str
    key: str
    name: str
    digest: str
    at_ms: int
    outcome: Outcome
    took_ms: int = 0
    attempts: int = 1
    part: TransactionPart | None = None


class Transacted(Event, tag="flow.txn", frozen=True):
    """The outcome of a transaction that this record commits. `seen` is the workflow's, since the record's own is the store's."""

    id: str
    key: str
    name: str
    digest: str
    at_ms: int
    outcome: Outcome
    seen: int


class Fired(Event, tag="flow.timer", frozen=True):
    """A timer that is due."""

    id: str
    key: str
    at_ms: int


class Queued(Event, tag="flow.queued", frozen=True):
    """A place in a lock queue. `number` is the seqnum of this record, and 0 in the log."""

    id: str
    key: str
    name: str
    at_ms: int
    number: int = 0


class Locked(Event, tag="flow.locked", frozen=True):
    """A lock that the workflow holds. `number` is the seqnum of its place in the lock queue; 0 in the log for that of this record."""

    id: str
    key: str
    name: str
    digest: str
    at_ms: int
    number: int = 0


class Begun(Event, tag="flow.begun", frozen=True):
    """An announcement of the body of a step that runs at most once."""

    id: str
    key: str
    name: str


class Withdrawn(Event, tag="flow.withdrawn?", frozen=True):
    """The withdrawal of a Begun whose body did not run, because the worker was drained. Older workers skip it.

    Attributes:
        again: the next worker is about to run the body, so the step counts as begun again.
    """

    id: str
    key: str
    name: str
    again: bool = False


class Sleeping(Event, tag="flow.sleep", frozen=True):
    """A note for people that the code waits until `due_ms` at the latest."""

    id: str
    key: str
    due_ms: int


class Waits(Event, tag="flow.waits?", frozen=True):
    """A note that the code only waits, for timers or messages. Only a worker that follows several lost workers records it."""

    id: str


class Attempted(Event, tag="flow.attempt", frozen=True):
    """A child that a transaction called as a part of this attempt only. The next attempt waits until the child is `Abandoned`."""

    id: str
    key: str
    attempt: str
    child: str
    name: str
    at_ms: int


class Abandoned(Event, tag="flow.abandoned?", frozen=True):
    """The end of waiting for a part that a transaction called. The same record cancels the part.

    Older workers skip this event, and cancel the part once more when they take the workflow over.

    Attributes:
        key: the key of the transaction.
        child: the part.
    """

    id: str
    key: str
    child: str


class Invoked(Event, tag="flow.invoke", frozen=True):
    """The start of a child workflow."""

    id: str
    key: str
    child: str
    name: str
    digest: str


class Sent(Event, tag="flow.sent", frozen=True):
    """A signal that the code sent to a workflow, or (topic "") its cancellation of a child."""

    id: str
    key: str
    to: str
    topic: str


class Emitted(Event, tag="flow.emit", frozen=True):
    """A value that the code emitted under a topic."""

    id: str
    key: str
    topic: str
    value: Any


class Patched(Event, tag="flow.patch", frozen=True):
    """The choice of the new code at a patch.

    Attributes:
        deprecated: the code had no other way any more (`deprecate_patch`). Code without the patch replays it too.
    """

    id: str
    key: str
    name: str
    deprecated: bool = False


OWN_UNIQUES: Final = "unique numbers are counted by themselves"
"""Patch by which steps that a deploy puts before a call of `unique`, or before a change of a row, do not change its number or name. Older
programs count them together, and are blocked by the patch before they give a system another key than the one that it knows."""


class Unlocked(Event, tag="flow.unlocked", frozen=True):
    """The release of a lock, or of a place in its queue. `key` is the key of the call that asked for the lock, `name` the lock's name."""

    id: str
    key: str
    name: str


class Checkpointed(Event, tag="flow.ckpt", frozen=True):
    """A part of a checkpoint of the history as of `covers` (`history_fold`)."""

    id: str
    covers: int
    part: int
    parts: int
    data: bytes


class Restarted(Event, tag="flow.restart", frozen=True):
    """A new run of the code with other arguments and an empty history.

    Attributes:
        run: the number of restarts, with this one.
        started: the start with the new arguments.
        start: the seqnum of the Started in the log.
        unreceived: (topic, value) of the signals that the code had not received; empty if they are in `Unreceived` events.
        at_ms: the time of the restart, for the code.
        topics: the topics under which the workflow emitted values before.
        carried_ms: when its oldest needed record was written, by the clock of the log.
        cursor: the position as of which the code reads before the first delivery.
    """

    id: str
    run: int
    started: Started
    start: int
    unreceived: tuple[tuple[str, Any], ...]
    at_ms: int
    topics: tuple[str, ...] = ()
    carried_ms: int = 0
    cursor: int = 0


class Unreceived(Event, tag="flow.unreceived", frozen=True):
    """A part of the signals that a restart hands on, if they do not fit its record (`history_fold`). The last part is in that record.

    Older programs do not know it, so that they do not take the next run for one without signals.
    """

    id: str
    part: int
    parts: int
    data: bytes


class ChildEnded(Event, tag="flow.child", frozen=True):
    """The end of a child, reported to its parent. `key` is the call that started it; `parts` joins the transaction of both."""

    id: str
    key: str
    child: str
    outcome: Outcome
    parts: tuple[TransactionPart, ...] = ()


class Signalled(Event, tag="flow.signal", frozen=True):
    """A value sent to a workflow. `token` distinguishes equal signals."""

    id: str
    topic: str
    value: Any
    token: str = ""


class Cancelled(Event, tag="flow.cancel", frozen=True):
    """A request to end."""

    id: str
    reason: str = ""


class Resumed(Event, tag="flow.resume", frozen=True):
    """A request to workers to run a blocked workflow again. Not in the history."""

    id: str


class Terminated(Event, tag="flow.terminated?", frozen=True):
    """A message to workers that have a terminated workflow in memory. Not in the history."""

    id: str


class PartitionClaimed(Event, tag="flow.partition", frozen=True):
    """A claim of a partition by `worker`, or its release (""). The former owner `left` keeps only what a `Leaving` in the record says."""

    group: str
    partition: int
    worker: str
    left: str = ""


class Leaving(Event, tag="flow.leaving?", frozen=True):
    """A message that a worker is being drained: it claims nothing more, and runs only some workflows. Its newest one counts.

    Attributes:
        keeps: the partitions of the workflows that it still runs; empty once it has left.
        runs: the ids of these workflows; empty for all that it has of these partitions. Older programs read it as empty.
    """

    group: str
    worker: str
    keeps: tuple[int, ...] = ()
    runs: tuple[str, ...] = ()


class PartitionCheckpoint(Event, tag="flow.pckpt", frozen=True):
    """A part of the list of a partition's unfinished workflows as of `covers`. Older workflows that are not listed have ended.

    Attributes:
        starts: the seqnums of the starts of `ids`.
        collected: the seqnum up to which histories of ended workflows are trimmed.
    """

    group: str
    partition: int
    ids: tuple[str, ...]
    covers: int
    starts: tuple[int, ...] = ()
    part: int = 0
    parts: int = 1
    collected: int = 0


OwnEvent: TypeAlias = Started | Claimed | Ended | Tombed
Delivered: TypeAlias = Stepped | Transacted | Fired | Queued | Locked
Effect: TypeAlias = Begun | Invoked | Sent | Emitted | Patched | Unlocked
Note: TypeAlias = Sleeping | Attempted | Abandoned | Withdrawn
Incoming: TypeAlias = ChildEnded | Signalled | Cancelled
Shortens: TypeAlias = Checkpointed | Restarted | Unreceived
OfPartition: TypeAlias = PartitionClaimed | PartitionCheckpoint | Leaving
AnyFlowEvent: TypeAlias = (
    OwnEvent | Delivered | Effect | Note | Waits | Incoming | Shortens | Resulted | Resumed | Terminated | OfPartition
)

DELIVERED: Final = (Stepped, Transacted, Fired, Queued, Locked)
EFFECTS: Final = (Begun, Invoked, Sent, Emitted, Patched, Unlocked)
NOTES: Final = (Sleeping, Attempted, Abandoned, Withdrawn)
INCOMING: Final = (ChildEnded, Signalled, Cancelled)
PASSED: Final = tuple(one for one in (*DELIVERED, *EFFECTS, *NOTES) if str(one.__struct_config__.tag).endswith("?"))
"""Events in a workflow's own records that older programs skip. Positions in a history do not count them."""


PICKER: Final[Picker[AnyFlowEvent]] = Picker(
    "flow",
    (
        *(Started, Claimed, Ended, Tombed, Resulted),
        *DELIVERED,
        *EFFECTS,
        *NOTES,
        Waits,
        *INCOMING,
        *(Checkpointed, Restarted, Unreceived, Resumed, Terminated),
        *(PartitionClaimed, PartitionCheckpoint, Leaving),
    ),
)
