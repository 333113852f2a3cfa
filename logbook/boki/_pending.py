"""What was appended and is not decided yet: tickets (one record) and chunks (part of an `append_many`).

A pending item covers the numbers first … first+count-1 of its writer. It encodes itself into batches as often as they are
sent, and is told the verdict of each of its numbers once; later verdicts of the same numbers change nothing.

No future is made before somebody waits: most tickets of a pipeline are decided before anybody asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import Any

from boki._arguments import NO_EXPECTATIONS, EncodedTags, Expectations
from boki_common.errors import BokiError
from boki_common.record_batch import BatchBuilder


class Ticket:
    """One submitted record. `await ticket` gives its seqnum, or raises what became of it.

    Awaiting is possible any number of times and by several tasks. A ticket that nobody awaits tells nobody. Cancelling
    an await withdraws nothing: the record stays in the pipeline.
    """

    __slots__ = ("_outcome", "_waiters", "data", "decided", "expectations", "first", "size", "tags")

    def __init__(self, tags: EncodedTags, data: bytes, expectations: Expectations = NO_EXPECTATIONS) -> None:
        self.first = 0
        self.tags = tags
        self.data = data
        self.expectations = expectations
        self.size = len(data) + tags.overhead_bytes
        self.decided = False
        self._outcome: int | BokiError | None = None
        self._waiters: asyncio.Future[None] | list[asyncio.Future[None]] | None = None

    def done(self) -> bool:
        """Whether awaiting it would return or raise at once."""
        return self.decided

    def __await__(self) -> Generator[Any, None, int]:
        if not self.decided:
            yield from self.wait()
        outcome = self._outcome
        if type(outcome) is int:
            return outcome
        assert isinstance(outcome, BokiError)
        raise outcome

    def __repr__(self) -> str:
        state = repr(self._outcome) if self.decided else "undecided"
        return f"<boki.Ticket number={self.first} {state}>"

    def wait(self) -> asyncio.Future[None]:
        """A future that ends when the record is decided. Cancelling it disturbs no other."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiters is None:
            self._waiters = future
        elif isinstance(self._waiters, list):
            self._waiters.append(future)
        else:
            self._waiters = [self._waiters, future]
        return future

    # -- what the SDK calls: `Pending` of `_window`

    @property
    def count(self) -> int:
        """For the SDK: one number."""
        return 1

    def encode(self, builder: BatchBuilder) -> None:
        """For the SDK: adds the record to a batch."""
        tags = self.tags
        builder.add(tags.packed, tags.tag_count, tags.names, self.data)
        for tag, seqnum in self.expectations.pairs:
            builder.expect(tag, seqnum)

    def committed(self, first: int, end: int, first_seqnum: int) -> None:
        """For the SDK: the verdict."""
        if not self.decided:
            self.decided = True
            self._outcome = first_seqnum + self.first - first
            if self._waiters is not None:
                self._wake(self._waiters)

    def failed(self, first: int, end: int, error: BokiError) -> None:
        """For the SDK: the verdict."""
        if not self.decided:
            self.decided = True
            self._outcome = error
            if self._waiters is not None:
                self._wake(self._waiters)

    def _wake(self, waiters: asyncio.Future[None] | list[asyncio.Future[None]]) -> None:
        self._waiters = None
        for future in waiters if isinstance(waiters, list) else (waiters,):
            if not future.done():
                future.set_result(None)


class Chunk:
    """Consecutive records of one `append_many`, without expectations. Seqnum 0 means undecided, -1 failed."""

    __slots__ = ("_future", "_records", "_undecided", "count", "decided", "error", "first", "seqnums", "size")

    def __init__(self, records: Sequence[tuple[EncodedTags, bytes]], size: int) -> None:
        self.first = 0
        self.count = len(records)
        self.size = size
        self.decided = False
        self.seqnums = [0] * len(records)
        self.error: BokiError | None = None
        self._records = records
        self._undecided = len(records)
        self._future: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Waits until every record is decided. For one waiter."""
        if not self.decided:
            self._future = asyncio.get_running_loop().create_future()
            await self._future

    def encode(self, builder: BatchBuilder) -> None:
        tags = [one for one, _ in self._records]
        builder.add_many(
            [one.packed for one in tags],
            [one.tag_count for one in tags],
            [one.names for one in tags],
            [data for _, data in self._records],
        )

    def committed(self, first: int, end: int, first_seqnum: int) -> None:
        start, stop = max(first - self.first, 0), min(end - self.first, self.count)
        first_seqnum += self.first + start - first
        new = self.seqnums[start:stop].count(0)
        if new == stop - start:
            self.seqnums[start:stop] = range(first_seqnum, first_seqnum + new)
        else:  # part of it was known: what was told stays
            for index in range(start, stop):
                self.seqnums[index] = self.seqnums[index] or first_seqnum + index - start
        self._decided(new)

    def failed(self, first: int, end: int, error: BokiError) -> None:
        start, stop = max(first - self.first, 0), min(end - self.first, self.count)
        new = self.seqnums[start:stop].count(0)
        if new:
            self.error = self.error or error
            self.seqnums[start:stop] = [seqnum or -1 for seqnum in self.seqnums[start:stop]]
            self._decided(new)

    def _decided(self, count: int) -> None:
        self._undecided -= count
        if not self._undecided:
            self.decided = True
            if self._future is not None and not self._future.done():
                self._future.set_result(None)
