"""Batches of items that share a record: what comes while a record is in flight is the next record. Pure.

Appends of several callers, and of code that does not wait for each append, are batched by these rules:

- A bounded number of records is in flight, in most cases one (`batcher.Driver`). If none is, an item is sent at once. Items that come
  while one is are the next record, in order. No record waits for more items.
- A batch takes items while the sums of their bytes, tags and expectations are within limits. Its first item always fits: an item that is
  too large fails alone. The sums are estimates, and the log checks the record.
- A record happens as a whole or not at all. Callers get their answers, and the actions in `after` run, once the record is in the log.
  After a Conflict the items whose expectations moved have lost; the others may be sent again. An unknown outcome is awaited, or raised to
  all callers of the record.

The library makes the record of the items, and decides what an item that lost does. Transactions of a store are batched in another way
(`bokistore.commit.group_rules`): when the record is sent, since each may have to run again on the state that those before it leave.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

T = TypeVar("T")
A = TypeVar("A")

UNLIMITED: Final = 1 << 62


class Batch(Generic[T, A]):
    """The items of a record, the sums of their bytes, tags and expectations, and the actions that wait until the record is in the log.

    `seen` is that of `Log.append`, for a library that has one position for all items.
    """

    __slots__ = ("after", "expectations", "items", "seen", "size", "tags")

    def __init__(self, seen: int = 0) -> None:
        self.seen = seen
        self.items: list[T] = []
        self.after: list[A] = []
        self.size = self.tags = self.expectations = 0


class Batches(Generic[T, A]):
    """Batches that wait to be sent: those in `closed`, which take no more items, then the `open` one, which may be empty."""

    def __init__(self, size: int, tags: int = UNLIMITED, expectations: int = UNLIMITED, *, seen: int = 0) -> None:
        """Limit the sums of a batch. Each batch begins with `seen` of the one before it."""
        self._size: Final = size
        self._tags: Final = tags
        self._expectations: Final = expectations
        self.closed: deque[Batch[T, A]] = deque()
        self.open: Batch[T, A] = Batch(seen)

    def __bool__(self) -> bool:
        return bool(self.closed or self.open.items)

    def __iter__(self) -> Iterator[Batch[T, A]]:
        yield from self.closed
        yield self.open

    def fits(self, size: int, tags: int = 0, expectations: int = 0) -> bool:
        """Return whether an item would join the open batch; otherwise it begins the next one."""
        batch = self.open
        return not batch.items or (
            batch.size + size <= self._size
            and batch.tags + tags <= self._tags
            and batch.expectations + expectations <= self._expectations
        )

    def add(self, item: T, size: int, tags: int = 0, expectations: int = 0) -> None:
        """Add an item behind all others."""
        batch = self.open
        if batch.items and not self.fits(size, tags, expectations):
            self.close()
            batch = self.open
        batch.items.append(item)
        batch.size += size
        batch.tags += tags
        batch.expectations += expectations

    def close(self) -> None:
        """Begin the next batch, unless the open one has no items."""
        if self.open.items:
            self.closed.append(self.take_open())

    def take_open(self) -> Batch[T, A]:
        """Remove and return the open batch."""
        batch, self.open = self.open, Batch(self.open.seen)
        return batch

    def take(self) -> Batch[T, A]:
        """Remove and return the first batch."""
        return self.closed.popleft() if self.closed else self.take_open()
