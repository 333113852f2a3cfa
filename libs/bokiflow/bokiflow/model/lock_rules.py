"""The lock queue of a lock, folded from its stream `lock/<name>`. Pure.

- `Enqueued` adds an entry to the queue, `Released` removes it from anywhere in the queue. Both name it by (workflow, key). A Released
  without an entry has no effect.
- The oldest entry holds the lock; if it shares, so do all sharing entries directly behind it. The number of an entry, the seqnum of its
  Enqueued, is the fencing number: each later holder has a larger one.
- No cycle of waits can arise. A workflow that has another lock, or is a child (its parent may have locks), waits only for younger
  workflows, by the start of the roots of their families; otherwise its Enqueued has no effect, and the lock is refused. A workflow without
  locks waits for any: those behind it wait for the same holders anyway, so a cycle through it contains a shorter one without it. (A
  workflow asks for one lock at a time.)
- `Checkpoint` has the queue as of `covers`, on a stream of its own in which each expects the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from boki_common.errors import InvalidArgument
from bokiflow.errors import LockRefused
from bokilib.records.events import Event, Picker
from bokilib.retention.checkpoint_rules import FORGET_MS

NAME_BYTES: Final = 200
"""Bound of a lock's name. Within it no two locks share a stream, so a trim of one lock spares the others."""
RESERVED: Final = "ck/"
"""Reserved prefix of names: such a lock's stream would be that of another lock's checkpoints."""
QUEUE_ENTRIES: Final = 4_096
"""The most entries of a lock's queue; further ones are refused."""
QUEUE_BYTES: Final = 320 * 1024
"""The most bytes of a queue, which has to fit a record. They are counted at each 64th entry; then further entries are refused."""
COUNTED_AT: Final = 64
ENTRY_BYTES: Final = 40
"""Bytes of an entry beside its ids."""
YOUNGER_ONLY: Final = (
    "a workflow that has other locks, or is a child, waits for younger workflows only: release the other locks and retry, or take "
    "all locks in one order (ordered=True)"
)

Standing: TypeAlias = Literal["held", "waiting", "gone"]


class Enqueued(Event, tag="lock.enq", frozen=True):
    """A request for a lock.

    Attributes:
        id: the name of the lock.
        shared: other sharing workflows may hold the lock at the same time.
        age: the seqnum at which the root of the workflow's family began.
        waits_for_any: the workflow waits for older workflows, too.
    """

    id: str
    owner: str
    key: str
    shared: bool
    age: int
    waits_for_any: bool


class Released(Event, tag="lock.rel", frozen=True):
    """The release of a lock, or of a place in its queue."""

    id: str
    owner: str
    key: str


class Entry(NamedTuple):
    """An entry of a lock queue. `number` is the seqnum of its Enqueued."""

    number: int
    owner: str
    key: str
    shared: bool
    age: int


Queue: TypeAlias = tuple[Entry, ...]


class Checkpoint(Event, tag="lock.ckpt", frozen=True):
    """A lock's queue as of `covers`."""

    id: str
    covers: int
    queue: tuple[Entry, ...]


LockEvent: TypeAlias = Enqueued | Released | Checkpoint
PICKER: Final[Picker[LockEvent]] = Picker("lock", (Enqueued, Released, Checkpoint))


def check_name(name: str) -> str:
    """Return the name of a lock. Raises InvalidArgument."""
    if not isinstance(name, str):
        raise InvalidArgument(
            f"expected a lock's name that is text (str), found {name!r:.80} ({type(name).__name__})", found=name
        )
    try:
        size = len(name.encode())
    except UnicodeEncodeError as fault:
        raise InvalidArgument(
            f"expected a lock's name that UTF-8 can encode, found {name[:80]!a}", found=repr(name[:80])
        ) from fault
    if not 0 < size <= NAME_BYTES:
        raise InvalidArgument(f"expected a lock's name of 1 to {NAME_BYTES} bytes, found {size}", found=name[:80])
    if name.startswith(RESERVED):
        raise InvalidArgument(
            f"expected a lock's name that does not begin with {RESERVED!r}, found {name!r}", found=name
        )
    return name


def is_free(queue: Queue, shared: bool) -> bool:
    """Return True if a new entry holds the lock at once."""
    return not queue or (shared and all(entry.shared for entry in queue))


def may_wait(queue: Queue, age: int, waits_for_any: bool) -> bool:
    """Return True if a new entry that does not hold the lock at once may wait. See the module."""
    return not is_full(queue) and (waits_for_any or all(entry.age > age for entry in queue))


def is_full(queue: Queue) -> bool:
    """Return True if a queue takes no more entries."""
    if len(queue) % COUNTED_AT:
        return False
    return len(queue) >= QUEUE_ENTRIES or sum(map(_size, queue)) >= QUEUE_BYTES


def _size(entry: Entry) -> int:
    return ENTRY_BYTES + len(entry.owner.encode(errors="replace")) + len(entry.key)


def refusal(name: str, queue: Queue, age: int, waits_for_any: bool) -> LockRefused:
    """Return the error of a workflow that may not wait for a lock, or does not want to. `queue` is not empty."""
    holder = queue[0].owner
    facts = {"name": name, "holder": holder}
    if may_wait(queue, age, waits_for_any):
        return LockRefused(f"lock {name!r} is held by workflow {holder!r}", **facts)
    if is_full(queue):
        return LockRefused(
            f"lock {name!r} has {len(queue)} entries in its queue and takes no more: retry later", **facts
        )
    return LockRefused(f"lock {name!r} is held by workflow {holder!r}, and {YOUNGER_ONLY}", **facts)


def passed_over(name: str, queue: Queue) -> LockRefused:
    """Return the error of a workflow whose Enqueued had no effect. `queue` is the lock's queue by now."""
    holder = queue[0].owner if queue else ""
    held = f"is held by workflow {holder!r}" if queue else "was held when this workflow asked for it"
    return LockRefused(f"lock {name!r} {held}, and {YOUNGER_ONLY}", name=name, holder=holder)


def enqueued(queue: Queue, number: int, event: Enqueued) -> Queue:
    """Return the queue after an Enqueued at seqnum `number`."""
    if not is_free(queue, event.shared) and not may_wait(queue, event.age, event.waits_for_any):
        return queue
    return (*queue, Entry(number, event.owner, event.key, event.shared, event.age))


def released(queue: Queue, event: Released) -> Queue:
    """Return the queue after a Released."""
    return tuple(entry for entry in queue if (entry.owner, entry.key) != (event.owner, event.key))


def after(queue: Queue, seqnum: int, events: Iterable[LockEvent]) -> Queue:
    """Return the queue after the events of one record of its stream."""
    for event in events:
        if isinstance(event, Enqueued):
            queue = enqueued(queue, seqnum, event)
        elif isinstance(event, Released):
            queue = released(queue, event)
    return queue


def holders(queue: Queue) -> Queue:
    """Return the entries that hold the lock."""
    if not queue or not queue[0].shared:
        return queue[:1]
    others = next((at for at, entry in enumerate(queue) if not entry.shared), len(queue))
    return queue[:others]


def standing(queue: Queue, number: int) -> Standing:
    """Return the standing of an entry whose Enqueued the queue includes; "gone" if it was refused or released."""
    if any(entry.number == number for entry in holders(queue)):
        return "held"
    return "waiting" if any(entry.number == number for entry in queue) else "gone"


# -- a lock as of a position: its queue, and the retention of its records
#
# - The queue is that of the newest checkpoint with the events above its `covers`.
# - A stream may be trimmed above the `covers` of the newest checkpoint that was found. Then its queue was empty there, or a newer
#   checkpoint exists. Trims follow their checkpoint, so a process that saw the gap finds the checkpoint when it reads again (`hides_some`).
# - A queue as old as a term is rewritten as a checkpoint, never as a new Enqueued: the seqnum of an entry is its fencing number.
# - The newest record of each stream of a free lock stays for a day, so that a process that reads old terms finds the lock. Then a
#   checkpoint gets the empty queue, and a process that read the lock before appends no second one. When that checkpoint is a day old, the
#   log forgets the lock: otherwise each engine would remember the trim mark of an empty stream for good.

LONG_QUEUE_RECORDS: Final = 64
"""Records of a lock that is never free after which its queue is kept in a checkpoint."""


class LockRecord(NamedTuple):
    """A record of a lock's stream or of its checkpoints."""

    seqnum: int
    time_ms: int
    events: Sequence[LockEvent]

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint in the record; None for a record of the lock's stream."""
        return next((event for event in self.events if isinstance(event, Checkpoint)), None)


class LockView(NamedTuple):
    """A lock as of a position of the log.

    Attributes:
        newest: the seqnum of the newest record of the lock's stream; 0 if there is none.
        records: the number of records above the base of the queue, which is a checkpoint or the trim mark.
        checkpoint: the seqnum of the newest checkpoint; 0 if there is none.
        covers: the place up to which the base checkpoint has the queue; 0 if no checkpoint is the base.
        oldest_ms: the time of the oldest record that the queue follows from.
        newest_ms: the time of the newest record of both streams.
    """

    queue: Queue
    position: int
    newest: int = 0
    records: int = 0
    checkpoint: int = 0
    covers: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0


def covered(found: Sequence[LockRecord]) -> int:
    """Return the place up to which the checkpoints among these records cover a lock's stream."""
    return max((one.checkpoint.covers for one in found if one.checkpoint is not None), default=0)


def hides_some(found: Sequence[LockRecord], trimmed: int) -> bool:
    """Return True if a newer checkpoint than those that were found may exist: more is trimmed than they cover."""
    return trimmed > covered(found)


def viewed(position: int, found: Sequence[LockRecord], trimmed: int) -> LockView:
    """Return a lock as of a position at which it has no newer checkpoint than those that were found.

    Args:
        position: the position as of which the records were read.
        found: the records of both streams, ascending.
        trimmed: the last place of the lock's stream that is known to be trimmed.
    """
    covers = covered(found)
    base = next((one for one in found if one.checkpoint is not None and one.checkpoint.covers == covers), None)
    counts = base is not None and trimmed <= covers
    of_stream = [one for one in found if one.checkpoint is None]
    above = [one for one in of_stream if one.seqnum > max(covers, trimmed)]
    queue: Queue = base.checkpoint.queue if counts and base is not None and base.checkpoint is not None else ()
    for one in above:
        queue = after(queue, one.seqnum, one.events)
    needed = [base] if counts and base is not None else above
    return LockView(
        queue,
        position,
        max((one.seqnum for one in of_stream), default=0),
        len(above),
        max((one.seqnum for one in found if one.checkpoint is not None), default=0),
        covers if counts else 0,
        min((one.time_ms for one in needed), default=0),
        max((one.time_ms for one in found), default=0),
    )


def is_long(view: LockView) -> bool:
    """Return True if a checkpoint of the queue saves its readers enough records."""
    return bool(view.queue) and view.records >= LONG_QUEUE_RECORDS


def is_checkpointed_free(view: LockView) -> bool:
    """Return True if the newest record of a lock is a checkpoint of an empty queue."""
    return view.covers > 0 and not view.records and not view.queue


def must_rewrite(view: LockView, now_ms: int, carry_ms: int) -> bool:
    """Return True if a lock needs a checkpoint so that an old term can be reclaimed."""
    there = view.newest or view.checkpoint
    return bool(there) and not is_checkpointed_free(view) and now_ms - view.oldest_ms >= carry_ms


class LockTrim(NamedTuple):
    """The first seqnums to keep of both streams of a lock, which are trimmed by one command; 0 trims nothing.

    Attributes:
        records: for the lock's stream.
        checkpoints: for the stream of its checkpoints.
        forget: the log forgets both streams.
    """

    records: int = 0
    checkpoints: int = 0
    forget: bool = False


def trim_marks(view: LockView, now_ms: int = 0) -> LockTrim:
    """Return the trims that a view of a lock allows. `now_ms` is by the clock of the log; with 0 the lock is not forgotten."""
    if is_checkpointed_free(view) and now_ms and now_ms - view.newest_ms > FORGET_MS:
        return LockTrim(view.position + 1, view.position + 1, True)  # later records are above the position, and stay
    if view.queue or is_checkpointed_free(view):
        return LockTrim(view.covers + 1, view.checkpoint) if view.covers else LockTrim()
    return LockTrim(view.newest, view.checkpoint + (view.checkpoint < view.newest) if view.checkpoint else 0)


def trim_marks_under(view: LockView, checkpoint: int) -> LockTrim:
    """Return the trims after a checkpoint of a view at this place."""
    return LockTrim(view.position + 1, checkpoint)
