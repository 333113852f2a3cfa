"""What workflows write. Pure.

On `flow/own/<id>`, the fence: Started, Claimed, Ended, Tombed. On `flow/wf/<id>`, the history, what its executor writes (each record
expects its claim):

| event | is it delivered to the code, or did the code do it? |
|---|---|
| Stepped, Transacted, Fired | delivered: the outcome of a step or a transaction, a timer that is due |
| Queued, Locked | delivered: a place in a lock's queue, and that it holds the lock |
| Begun, Invoked, Sent, Emitted, Patched, Unlocked | done by the code: compared in a replay |
| Sleeping | neither: for people |
| Attempted, Abandoned, Waits, Withdrawn | neither: for the worker that takes over |

and what comes from others (they join it without a condition): ChildEnded, Signalled, Cancelled.

What shortens a history: Checkpointed (the history as of somewhere) and Restarted (from here on there is a new one). Each of Claimed, Ended
and Tombed has what of Started is needed when Started is trimmed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from bokiflow.model.outcomes import Outcome
from bokilib.records.events import Event, Picker


class TransactionPart(msgspec.Struct, array_like=True, frozen=True):
    """What a part of a transaction read and wrote, as its store has it; of one that failed, what it read."""

    read: bytes
    written: bytes = b""


class EnclosingTransaction(msgspec.Struct, array_like=True, frozen=True):
    """The transaction that a workflow is a part of: as it was, and parts of it that ran since."""

    context: bytes
    parts: tuple[TransactionPart, ...] = ()


class Started(Event, tag="flow.start", frozen=True):
    """A workflow begins.

    Attributes:
        at_ms: when it was started, by the clock of the log; 0: when its record was ordered (`history.begun`).
        name: of the workflow's function. digest: of its arguments, `args`: [positional, by name].
        version: of the code that started it, as its author calls it.
        group: of workers. owner: who runs it from here on; "": nobody yet.
        parent, parent_key: whose child it is, by which call. attributes: it can be found by. traceparent: of W3C.
        age: of a child, the seqnum at which the root of its family began.
        origin: whose fork it is. names: whose numbers (`bokiflow.unique`) its code gets first: (id, how much of its history was delivered).
        within: whose transaction it is a part of.
        cursors: of a fork, as of which places its origin looked at things: before the first delivery, and after each.
        due_ms: the time of the firing, of a workflow that a schedule started (and of its forks); 0: of another one.
        forked_ms: of a fork, when it was started, by the clock of the log; `at_ms` is its origin's, for the code. 0 in the record that
            starts the fork, whose time it is (`history.begun`), and in checkpoints of older programs.
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


class Claimed(Event, tag="flow.claim", frozen=True):
    """A worker runs it from here on.

    Attributes:
        since: the claim that this one repeats, or its own predecessor's; 0 for a new one.
        start: seqnum of its Started, of which the rest is, where this claim goes with a checkpoint.
        blocked: why whoever ran it could not go on; then nobody runs it, until somebody tries again.
        vain: how often in a row, at most, it was begun before this claim and its worker was lost before it recorded anything (`held_back`).
        pause_ms: for so long after this claim it is held back, if its worker is lost in vain again; 0: not at all.
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


class Ended(Event, tag="flow.done", frozen=True):
    """It ended, once and for ever.

    Attributes:
        start: seqnum of its Started, of which the rest is. began_ms: when it was started (`history.start_ms`).
        topics: under which it emitted something. parts: of a transaction, which it was a part of; they are in it if that commits.
        history_bytes: of its history, about; 0 in records of older programs.
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
    """It ended: repeated, so that older records may go.

    Attributes:
        done_ms: when it ended, by the clock of the log.
        large: seqnum of the record that has its outcome, which is too large to be here; 0: it is here.
    """

    id: str
    ended: Ended
    done_ms: int
    large: int = 0


class Resulted(Event, tag="flow.result", frozen=True):
    """A large outcome of a workflow that ended."""

    id: str
    outcome: Outcome


class Stepped(Event, tag="flow.step", frozen=True):
    """A step ended, or (with `part`) a part of a transaction of others.

    For people: how long its body took, retries included, and at which attempt it ended.
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
    """A transaction of a store committed, in this record. `seen`: as the record's own, which is the store's here."""

    id: str
    key: str
    name: str
    digest: str
    at_ms: int
    outcome: Outcome
    seen: int


class Fired(Event, tag="flow.timer", frozen=True):
    """A timer was due."""

    id: str
    key: str
    at_ms: int


class Queued(Event, tag="flow.queued", frozen=True):
    """It waits for a lock, since the record that this is in; `number` is that record's seqnum, 0 in the log."""

    id: str
    key: str
    name: str
    at_ms: int
    number: int = 0


class Locked(Event, tag="flow.locked", frozen=True):
    """It holds a lock. `number`: seqnum of its place in the queue; 0 in the log: that of this record."""

    id: str
    key: str
    name: str
    digest: str
    at_ms: int
    number: int = 0


class Begun(Event, tag="flow.begun", frozen=True):
    """A step that runs at most once is about to begin."""

    id: str
    key: str
    name: str


class Withdrawn(Event, tag="flow.withdrawn?", frozen=True):
    """A step with a Begun that did not begin: its worker was drained first. Workers of older versions pass this, and take it for begun.

    Attributes:
        again: it is about to begin after all, at the next worker: it counts as begun from here on.
    """

    id: str
    key: str
    name: str
    again: bool = False


class Sleeping(Event, tag="flow.sleep", frozen=True):
    """It waits until `due_ms`, at the latest."""

    id: str
    key: str
    due_ms: int


class Waits(Event, tag="flow.waits?", frozen=True):
    """The workflow waits for a time, or for others, and runs nothing. Recorded only by a worker that began it after several were lost."""

    id: str


class Attempted(Event, tag="flow.attempt", frozen=True):
    """A transaction called a child, which is a part of this attempt only. A later attempt begins once that child is `Abandoned`."""

    id: str
    key: str
    attempt: str
    child: str
    name: str
    at_ms: int


class Abandoned(Event, tag="flow.abandoned?", frozen=True):
    """The workflow waits no longer for a part that a transaction of it called; the same record cancels the part.

    Workers of older versions skip this, and cancel the part once more when they take the workflow over.

    Attributes:
        key: of the transaction. child: id of the part.
    """

    id: str
    key: str
    child: str


class Invoked(Event, tag="flow.invoke", frozen=True):
    """It started a child."""

    id: str
    key: str
    child: str
    name: str
    digest: str


class Sent(Event, tag="flow.sent", frozen=True):
    """It sent a signal to another, or (topic "") cancelled a child."""

    id: str
    key: str
    to: str
    topic: str


class Emitted(Event, tag="flow.emit", frozen=True):
    """It emits a value to those who follow it."""

    id: str
    key: str
    topic: str
    value: Any


class Patched(Event, tag="flow.patch", frozen=True):
    """Its code is newer than a change: it takes the new way."""

    id: str
    key: str
    name: str


class Unlocked(Event, tag="flow.unlocked", frozen=True):
    """It releases a lock, or does not wait for it any more. `key`: of the call that asked for it; `name`: the lock's."""

    id: str
    key: str
    name: str


class Checkpointed(Event, tag="flow.ckpt", frozen=True):
    """The history as of `covers`, in parts (`history_fold`)."""

    id: str
    covers: int
    part: int
    parts: int
    data: bytes


class Restarted(Event, tag="flow.restart", frozen=True):
    """It begins again with other arguments.

    Attributes:
        run: how often it was begun anew, this time included. started: as it would have been started so.
        start: seqnum of the Started that is in the log. unreceived: what was sent, and nobody had received: (topic, value).
        at_ms: its time, for the code. topics: under which it emitted something before.
        carried_ms: when its oldest record was written, by the clock of the log.
        cursor: as of which place it looks at things before the first delivery.
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


class ChildEnded(Event, tag="flow.child", frozen=True):
    """A child ended; `key` is the call that started it. `parts`: of a transaction that both are a part of."""

    id: str
    key: str
    child: str
    outcome: Outcome
    parts: tuple[TransactionPart, ...] = ()


class Signalled(Event, tag="flow.signal", frozen=True):
    """Somebody sends a value. `token` tells two apart that are alike."""

    id: str
    topic: str
    value: Any
    token: str = ""


class Cancelled(Event, tag="flow.cancel", frozen=True):
    """Somebody asks it to end."""

    id: str
    reason: str = ""


class Resumed(Event, tag="flow.resume", frozen=True):
    """Somebody asks whoever runs it to try again. It goes to workers, and is in no history."""

    id: str


class Terminated(Event, tag="flow.terminated?", frozen=True):
    """The workflow was ended from outside. It goes to workers that have it in memory, and is in no history."""

    id: str


class PartitionClaimed(Event, tag="flow.partition", frozen=True):
    """A worker owns a partition from here on; `worker` "": none does. The one that did (`left`) runs nothing any more, but what a `Leaving`
    in the same record says."""

    group: str
    partition: int
    worker: str
    left: str = ""


class Leaving(Event, tag="flow.leaving?", frozen=True):
    """A worker is being drained: it claims nothing more, and runs only some workflows of its group. Its newest record counts.

    Attributes:
        keeps: partitions of the workflows that it still runs; none: the worker has left.
        runs: ids of these workflows; none: all that it had of these partitions. Programs that do not know this field take it for none.
    """

    group: str
    worker: str
    keeps: tuple[int, ...] = ()
    runs: tuple[str, ...] = ()


class PartitionCheckpoint(Event, tag="flow.pckpt", frozen=True):
    """All of a partition that is not over, as of `covers`: what was started at or below it and is not here has ended.

    Attributes:
        ids, starts: of this part of it. part, parts: which of how many.
        collected: of what ended up to there, the history is trimmed.
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
Shortens: TypeAlias = Checkpointed | Restarted
OfPartition: TypeAlias = PartitionClaimed | PartitionCheckpoint | Leaving
AnyFlowEvent: TypeAlias = (
    OwnEvent | Delivered | Effect | Note | Waits | Incoming | Shortens | Resulted | Resumed | Terminated | OfPartition
)

DELIVERED: Final = (Stepped, Transacted, Fired, Queued, Locked)
EFFECTS: Final = (Begun, Invoked, Sent, Emitted, Patched, Unlocked)
NOTES: Final = (Sleeping, Attempted, Abandoned, Withdrawn)
INCOMING: Final = (ChildEnded, Signalled, Cancelled)
PASSED: Final = tuple(one for one in (*DELIVERED, *EFFECTS, *NOTES) if str(one.__struct_config__.tag).endswith("?"))
"""Events in a workflow's own records that older programs skip: no position in a history counts them."""

PICKER: Final[Picker[AnyFlowEvent]] = Picker(
    "flow",
    (
        *(Started, Claimed, Ended, Tombed, Resulted),
        *DELIVERED,
        *EFFECTS,
        *NOTES,
        Waits,
        *INCOMING,
        *(Checkpointed, Restarted, Resumed, Terminated),
        *(PartitionClaimed, PartitionCheckpoint, Leaving),
    ),
)
