"""Appends many records to one book in order, with several batches in flight, and knows at any time what is committed.

    ingest = Ingest(book)
    for batch in ...: await ingest.add(batch)     # waits while `in_flight` batches are undecided
    await ingest.finish()

Rules:
- Batches are handed to the SDK in order and the SDK numbers them, so what is committed is always a prefix of what was
  added: `committed` records, whose last has `last_seqnum`. After a failure a further batch may or may not be committed.
- The first failure stops everything: `add` and `finish` raise it, after every batch in flight has an answer.
- `in_flight * BATCH_RECORDS` fits the SDK's window of undecided records.

It knows neither files nor terminals.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from boki_cli.stopwatch import seconds_now
from boki_common import limits
from boki_common.errors import BokiError

BATCH_RECORDS: Final = 256
BATCH_DATA_BYTES: Final = limits.BATCH_FLUSH_BYTES
IN_FLIGHT: Final = limits.WINDOW_RECORDS // BATCH_RECORDS

Batch: TypeAlias = Sequence[tuple[bytes, Sequence[str]]]
"""Data and tags of each record."""


class AppendsMany(Protocol):
    """What is needed of a book."""

    def append_many(self, records: Batch) -> Coroutine[Any, Any, Sequence[int]]: ...


class BatchTime(NamedTuple):
    """How long one batch took, from the call to its answer."""

    records: int
    seconds: float


class Ingest:
    """See the module.

    Attributes:
        committed, committed_bytes: records and bytes of data known to be committed, always a prefix.
        seqnums: of the committed records, in the order in which they were added.
        batch_times: one per committed batch.
        failed: whether a batch failed: more than `committed` may be.
    """

    def __init__(
        self, book: AppendsMany, *, in_flight: int = IN_FLIGHT, progress: Callable[[int, int], None] | None = None
    ) -> None:
        self.committed = 0
        self.committed_bytes = 0
        self.failed = False
        self.seqnums = array("Q")
        self.batch_times: list[BatchTime] = []
        self._book = book
        self._in_flight = in_flight
        self._progress = progress
        self._pending: deque[tuple[asyncio.Task[Sequence[int]], Batch]] = deque()

    @property
    def last_seqnum(self) -> int | None:
        return self.seqnums[-1] if self.seqnums else None

    @property
    def in_order(self) -> bool:
        """Whether the seqnums ascend in the order in which the records were added."""
        return all(self.seqnums[at] < self.seqnums[at + 1] for at in range(len(self.seqnums) - 1))

    async def add(self, batch: Batch) -> None:
        """Hands over one batch; waits while too many are in flight. Raises what an earlier batch failed with."""
        while len(self._pending) >= self._in_flight:
            await self._oldest()
        task = asyncio.create_task(self._append(batch))
        self._pending.append((task, batch))
        await asyncio.sleep(0)  # the task takes its numbers now, before the next batch is made

    async def finish(self) -> None:
        """Waits for every answer. Raises the first failure."""
        while self._pending:
            await self._oldest()

    async def _append(self, batch: Batch) -> Sequence[int]:
        started = seconds_now()
        seqnums = await self._book.append_many(batch)
        self.batch_times.append(BatchTime(len(batch), seconds_now() - started))
        return seqnums

    async def _oldest(self) -> None:
        task, batch = self._pending[0]
        try:
            seqnums = await asyncio.shield(task)
        except BokiError as error:
            self.failed = True
            waiting = [other for other, _ in self._pending]
            self._pending.clear()
            await asyncio.gather(*waiting, return_exceptions=True)
            prefix: Sequence[int] = error.facts.get("seqnums", ())  # `append_many` commits a prefix and says which
            self._commit(batch, prefix)
            raise
        self._pending.popleft()
        self._commit(batch, seqnums)
        if self._progress is not None:
            self._progress(self.committed, self.committed_bytes)

    def _commit(self, batch: Batch, seqnums: Sequence[int]) -> None:
        self.seqnums.extend(seqnums)
        self.committed += len(seqnums)
        self.committed_bytes += sum(len(data) for data, _ in batch[: len(seqnums)])


def latency_ms(batch_times: Sequence[BatchTime], share: float) -> float:
    """The latency in ms that `share` (0 … 1) of the records stayed within; a record takes as long as its batch."""
    rows = sorted((one.seconds, one.records) for one in batch_times)
    left = share * sum(records for _, records in rows)
    for seconds, records in rows:
        left -= records
        if left <= 0:
            return seconds * 1000
    return 0.0
