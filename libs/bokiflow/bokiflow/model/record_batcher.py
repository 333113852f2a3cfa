"""What one instance has to append, record by record. Pure.

- One record at a time is under way. Meanwhile the next one is filled.
- A record names up to where its workflow had seen what comes from others when the first thing in it was delivered. So before something from
  others is delivered, a record in which something was delivered already is closed, with its old `seen`.
- What must not happen before a record is in the log (bodies of steps, answers) waits in `after` for it; with nothing to append it waits for
  the record before.
- While the worker is being drained (`hold`), no step that runs at most once begins. What begins one is held back, and so is all that the
  code did after that; what is delivered is recorded, and so is which way the code took at a patch. A replay does again what was held back:
  other effects are recorded in the order in which the code had them, each after what was delivered before it.
- A record stays within the bounds of the log; it is cut between two deliveries, never between one and what followed from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from boki_common.limits import RECORD_TAGS
from bokiflow.model.outcomes import Outcome, failed
from bokilib.errors import AtomicTooLarge
from bokilib.records.contribution import ATOMIC_BYTES
from bokilib.records.events import Event

A = TypeVar("A")

TAGS: Final = RECORD_TAGS - 7
"""Streams that one record joins for what is in it; the rest is for its workflow's own streams and its parent's."""
RECORD_BYTES: Final = ATOMIC_BYTES - 16_384
"""Of one record's events: the rest is for what opens it, and for its end."""
EVENT_BYTES: Final = RECORD_BYTES
SHARED_BYTES: Final = RECORD_BYTES // 2
"""Of a value that is in a record twice: for its workflow, and for the one it is sent to."""
AROUND_BYTES: Final = 64
"""What surrounds an event in the log, about: its part of a record, and of the streams that the record joins."""
_encode: Final = msgspec.msgpack.Encoder().encode


def size_of(value: object) -> int:
    """Bytes that it takes in a record."""
    return len(_encode(value))


class BatchEntry(NamedTuple):
    """One event to append.

    Attributes:
        delivers: it was delivered to the code. lazy: it needs no record of its own. tags: streams that it joins beside
            the workflow's. more_bytes: of what goes with it in the same record.
        begins: a step begins after it that runs at most once. note: it is never held back, since its place among the effects of the code
            tells nothing: how a step stands, or which way the code took at a patch.
    """

    event: Event
    delivers: bool = False
    lazy: bool = False
    tags: int = 0
    more_bytes: int = 0
    begins: bool = False
    note: bool = False


class Batch(Generic[A]):
    """What becomes one record. `after`: what may happen once it is in the log."""

    def __init__(self, seen: int) -> None:
        self.seen = seen
        self.entries: list[BatchEntry] = []
        self.after: list[A] = []
        self.size = 0
        self.tags = 0

    @property
    def delivers(self) -> bool:
        """Whether something in it was delivered."""
        return any(entry.delivers for entry in self.entries)

    @property
    def due(self) -> bool:
        """Whether it has to be appended."""
        return any(not entry.lazy for entry in self.entries)


class RecordBatcher(Generic[A]):
    """See the module.

    Attributes:
        seen: the last place of which something from others was delivered. bytes: of the history with all that was added, about.
        held: entries that are held back; none of them is ever appended.
    """

    def __init__(self, seen: int, history_bytes: int = 0) -> None:
        self.seen = seen
        self.bytes = history_bytes
        self.held: Final[list[BatchEntry]] = []
        self._holds = False
        self._closed: deque[Batch[A]] = deque()
        self._open: Batch[A] = Batch(seen)

    def saw(self, seqnum: int) -> None:
        """Something from others is about to be delivered."""
        if self._open.delivers:
            self._close()
        self.seen = max(self.seen, seqnum)
        self._open.seen = self.seen

    def add(self, entry: BatchEntry) -> None:
        """Something happened. What it causes is added right after it."""
        if self._holds and self._is_held(entry):
            self.held.append(entry)
            return
        size = size_of(entry.event) + entry.more_bytes
        self.bytes += size + AROUND_BYTES
        full = self._open.size + size > RECORD_BYTES or self._open.tags + entry.tags > TAGS
        if full and self._open.entries:
            self._close()
        self._open.entries.append(entry)
        self._open.size += size
        self._open.tags += entry.tags

    def after(self, what: A) -> None:
        """It waits for all that happened so far: for ever, if something of that is held back."""
        if not self.held:
            self._open.after.append(what)

    def hold(self, stays: Callable[[A], bool]) -> None:
        """Hold back what begins steps that run at most once, and what the code did after that: now and from now on.

        Args:
            stays: tells whether something may happen although a part of the entries before it is held back.
        """
        self._holds = True
        for batch in (*self._closed, self._open):
            entries, batch.entries = batch.entries, []
            for entry in entries:
                (self.held if self._is_held(entry) else batch.entries).append(entry)
            if self.held:
                batch.after = [what for what in batch.after if stays(what)]
        self._closed = deque(batch for batch in self._closed if batch.entries or batch.after)

    def _is_held(self, entry: BatchEntry) -> bool:
        return entry.begins or (bool(self.held) and not entry.delivers and not entry.note)

    def drop(self, event_key: str) -> None:
        """A lazy event of this key is not worth a record any more."""
        self._open.entries = [
            entry for entry in self._open.entries if not (entry.lazy and getattr(entry.event, "key", "") == event_key)
        ]

    def next(self) -> Batch[A] | None:
        """What is to be appended, or at least done, next; None: nothing."""
        if self._closed:
            return self._closed.popleft()
        if self._open.due or self._open.after:
            return self._take_open()
        return None

    @property
    def fills(self) -> bool:
        """Whether something is to be appended with which more can go."""
        return self._open.due

    @property
    def clean(self) -> bool:
        """Whether all that happened is in the log, or under way to it."""
        return not (self._closed or self._open.due or self._open.after)

    def _take_open(self) -> Batch[A]:
        found = self._open
        self._open = Batch(self.seen)
        if not found.due:  # nothing but lazy events: they go with the next record
            self._open.entries, found.entries = found.entries, []
            self._open.size, found.size = found.size, 0
        return found

    def _close(self) -> None:
        self._closed.append(self._open)
        self._open = Batch(self.seen)


def within_bounds(outcome: Outcome, name: str, limit: int = EVENT_BYTES) -> Outcome:
    """The outcome, or the error that it is too large for the log: nothing of it is sent."""
    size = size_of(outcome)
    if size <= limit:
        return outcome
    return failed(
        AtomicTooLarge(
            f"what {name!r} returned has {size} bytes, the log takes {limit}: store it elsewhere, and return where",
            expected=limit,
            found=size,
        )
    )
