"""The batcher of a workflow's events: they are batched as `bokilib.append.batches` says, one record in flight. Pure.

- A record names its `seen`: the last message from other processes that was delivered before the record's first delivery. So a record with
  a delivery is closed before the next message is delivered.
- Actions that must wait for a record (bodies of steps, answers) are in its `after`. An action without an event of its own waits for the
  record before.
- While a worker is drained (`hold`), no step that runs at most once begins. The event that begins one is held back with all later effects
  of the code; deliveries and notes are recorded. A replay repeats the held effects, so recorded effects keep their order, each after the
  deliveries before it.
- A record stays within the bounds of the log. It is cut between two deliveries, never between a delivery and its effects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from boki_common.limits import RECORD_TAGS
from bokiflow.model.outcomes import Outcome, failed
from bokilib.append.batches import Batch, Batches
from bokilib.errors import AtomicTooLarge
from bokilib.records.contribution import ATOMIC_BYTES
from bokilib.records.events import Event

A = TypeVar("A")

TAGS: Final = RECORD_TAGS - 7
"""Streams that a record's events join; the rest is for the streams of the workflow and of its parent."""
RECORD_BYTES: Final = ATOMIC_BYTES - 16_384
"""Bytes of a record's events; the rest is for the record's header and the workflow's end."""
EVENT_BYTES: Final = RECORD_BYTES
SHARED_BYTES: Final = RECORD_BYTES // 2
"""Bytes of a value that is in a record twice: for its workflow and for its receiver."""
PASS_ADDRESS: Final = "store the large ones elsewhere, and pass their addresses"
"""The remedy for arguments that are too large."""
SEND_ADDRESS: Final = "store it elsewhere, and send its address"
"""The remedy for a signal that is too large."""
AROUND_BYTES: Final = 64
"""Approximate bytes around an event in the log: its share of a record and of the streams that the record joins."""
_encode: Final = msgspec.msgpack.Encoder().encode


def size_of(value: object) -> int:
    """Return the number of bytes of a value in a record."""
    return len(_encode(value))


class BatchEntry(NamedTuple):
    """An event to append.

    Attributes:
        delivers: the event was delivered to the code.
        lazy: the event causes no append; it joins the next record.
        tags: the number of streams that it joins beside the workflow's.
        more_bytes: the bytes of other events that go with it in the record.
        begins: a step that runs at most once begins after it.
        note: it is never held back, since its place among the effects does not matter: the state of a step, or the choice at a patch.
    """

    event: Event
    delivers: bool = False
    lazy: bool = False
    tags: int = 0
    more_bytes: int = 0
    begins: bool = False
    note: bool = False


EventBatch: TypeAlias = Batch[BatchEntry, A]
"""The entries of a record, and in `after` the actions that wait until it is in the log."""


def delivers(batch: EventBatch[A]) -> bool:
    """Return whether an entry of a batch was delivered to the code."""
    return any(entry.delivers for entry in batch.items)


def _due(batch: EventBatch[A]) -> bool:
    """Return whether a batch has to be appended."""
    return any(not entry.lazy for entry in batch.items)


class RecordBatcher(Generic[A]):
    """The batcher. See the module.

    Attributes:
        bytes: the approximate size of the history with all added events.
        held: the entries that are held back; they are never appended.
    """

    def __init__(self, seen: int, history_bytes: int = 0) -> None:
        self.bytes = history_bytes
        self.held: Final[list[BatchEntry]] = []
        self._holds = False
        self._batches: Final[Batches[BatchEntry, A]] = Batches(RECORD_BYTES, TAGS, seen=seen)

    @property
    def seen(self) -> int:
        """The seqnum of the last message from other processes that was delivered."""
        return self._batches.open.seen

    def saw(self, seqnum: int) -> None:
        """Prepare for the delivery of a message from another process."""
        if delivers(self._batches.open):
            self._batches.close()
        self._batches.open.seen = max(self.seen, seqnum)

    def add(self, entry: BatchEntry) -> None:
        """Add an entry. The effects of a delivery are added right after it."""
        if self._holds and self._is_held(entry):
            self.held.append(entry)
            return
        size = size_of(entry.event) + entry.more_bytes
        self.bytes += size + AROUND_BYTES
        self._batches.add(entry, size, entry.tags)

    def when_appended(self, action: A) -> None:
        """Do an action once all entries are in the log; never, if one of them is held back."""
        if not self.held:
            self._batches.open.after.append(action)

    def hold(self, stays: Callable[[A], bool]) -> None:
        """Hold back entries that begin steps that run at most once, and all later effects, from now on.

        Args:
            stays: returns True for an action that may happen although earlier entries are held back.
        """
        self._holds = True
        for batch in self._batches:
            entries, batch.items = batch.items, []
            for entry in entries:
                (self.held if self._is_held(entry) else batch.items).append(entry)
            if self.held:
                batch.after = [action for action in batch.after if stays(action)]
        self._batches.closed = deque(batch for batch in self._batches.closed if batch.items or batch.after)

    def _is_held(self, entry: BatchEntry) -> bool:
        return entry.begins or (bool(self.held) and not entry.delivers and not entry.note)

    def drop(self, event_key: str) -> None:
        """Drop the lazy events of this key."""
        batch = self._batches.open
        batch.items = [
            entry for entry in batch.items if not (entry.lazy and getattr(entry.event, "key", "") == event_key)
        ]

    def next(self) -> EventBatch[A] | None:
        """Return the next batch to append, or whose actions are due; None if there is none."""
        if self.is_empty:
            return None
        closed, batch = bool(self._batches.closed), self._batches.take()
        if not (closed or _due(batch)):  # lazy events only, which join the next record
            rest = self._batches.open
            rest.items, rest.size, batch.items, batch.size = batch.items, batch.size, [], 0
        return batch

    @property
    def has_open_batch(self) -> bool:
        """True if the open record has to be appended and may be filled further."""
        return _due(self._batches.open)

    @property
    def is_empty(self) -> bool:
        """True if no entry or action waits for an append."""
        return not (self._batches.closed or self.has_open_batch or self._batches.open.after)


def within_bounds(outcome: Outcome, name: str, limit: int = EVENT_BYTES) -> Outcome:
    """Return the outcome, or the error that it is too large for the log."""
    size = size_of(outcome)
    if size <= limit:
        return outcome
    return failed(too_large(f"a result of {name!r}", size, limit, "store it elsewhere, and return its address"))


def check_size(size: int, what: str, instead: str, limit: int = SHARED_BYTES) -> None:
    """Check that a value fits its part of a record.

    Args:
        size: of the value, in bytes.
        what: the value, as the error names it.
        instead: what the program can do about it.
        limit: the largest size.

    Raises:
        AtomicTooLarge: it is larger.
    """
    if size > limit:
        raise too_large(what, size, limit, instead)


def too_large(what: str, size: int, limit: int, instead: str) -> AtomicTooLarge:
    """Return the error that a value is too large; see `check_size`."""
    return AtomicTooLarge(
        f"expected {what} of up to {limit} bytes, found {size}: {instead}", expected=limit, found=size, what="bytes"
    )


@contextmanager
def naming(what: str, instead: str) -> Iterator[None]:
    """Let AtomicTooLarge of a record with a single value name the value; see `check_size`."""
    try:
        yield
    except AtomicTooLarge as error:
        if error.facts["what"] != "bytes":
            raise
        raise AtomicTooLarge(
            f"expected {what} to fit a record of up to {error.facts['expected']} bytes, found a record of "
            f"{error.facts['found']}: {instead}",
            **error.facts,
        ) from error
