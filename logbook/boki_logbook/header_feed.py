"""Brings the entries that other engines wrote, in time for the index (DESIGN §6.5).

The indexer says what it will need, in its order (`want`), and takes each entry when its turn comes (`take`). In between up to
`READS` reads of up to `READ_ENTRIES` neighbouring entries run, and at most about `WINDOW_ENTRIES` entries wait to be taken:
indexing never needs a later chunk before an earlier one, so bringing them in order cannot block.

What other engines pushed in time is not read. What a cut covers is there. So "no such entry" is never believed, nor is
anything else: a read that fails is repeated, with a pause that doubles, until it works. Only for an entry that an ordered
LOST command gave up is one more failure enough: then it is `take_lost`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from boki_common.errors import BokiError, CorruptData, ProtocolError
from boki_common.logs import get_logger
from boki_common.record_batch import RecordBatch
from boki_logbook.entry_source import EntrySource
from boki_logbook.pushed_headers import PushedHeaders

READS: Final = 8
READ_ENTRIES: Final = 8
WINDOW_ENTRIES: Final = 128

_log = get_logger("engine.headers")


class _Chunk:
    """Neighbouring entries of one ledger, read at once."""

    __slots__ = ("first", "last", "ledger_id")

    def __init__(self, ledger_id: int, first: int) -> None:
        self.ledger_id = ledger_id
        self.first = first
        self.last = first


class HeaderFeed:
    """See the module. `arrived` is called whenever entries came."""

    def __init__(
        self,
        source: EntrySource,
        arrived: Callable[[], None],
        *,
        pushed: PushedHeaders,
        retry_first_s: float,
        retry_limit_s: float,
    ) -> None:
        self._source = source
        self._pushed = pushed
        self._arrived = arrived
        self._retry_first_s = retry_first_s
        self._retry_limit_s = retry_limit_s
        self.wanted: deque[_Chunk] = deque()
        """What is to be read, and is not asked for yet."""
        self._open_chunks: dict[int, _Chunk] = {}
        self._ready: dict[tuple[int, int], RecordBatch | None] = {}
        """None: given up by a LOST command, and not to be had."""
        self._given_up: dict[int, list[tuple[int, int]]] = {}
        """Ledger → spans [first, stop) of entries that LOST commands named. One item per command."""
        self._reading: dict[asyncio.Task[None], int] = {}
        self._closed = False
        self._failing: dict[_Chunk, str] = {}
        """Reads that failed, and are tried again → why."""

    @property
    def unreadable(self) -> list[dict[str, Any]]:
        """Entries that are ordered and cannot be read now, as plain values."""
        return [
            {"ledger_id": chunk.ledger_id, "first": chunk.first, "last": chunk.last, "error": error}
            for chunk, error in self._failing.items()
        ]

    def want(self, ledger_id: int, first: int, count: int) -> None:
        """Entries first … first + count - 1 will be taken, after all that were wanted before."""
        chunk = self._open_chunks.get(ledger_id)
        for entry in range(first, first + count):
            if (ledger_id, entry) in self._ready:
                continue  # it was carried
            header = self._pushed.take(ledger_id, entry)
            if header is not None and len(self._ready) < WINDOW_ENTRIES:
                self._ready[ledger_id, entry] = header
            elif chunk is None or entry != chunk.last + 1 or chunk.last - chunk.first + 1 >= READ_ENTRIES:
                chunk = self._open_chunks[ledger_id] = _Chunk(ledger_id, entry)
                self.wanted.append(chunk)
            else:
                chunk.last = entry

    def carried(self, ledger_id: int, entry: int, body: bytes) -> RecordBatch:
        """An entry that came with the metalog; to be told before it is wanted. Raises CorruptData."""
        try:
            batch = self._ready[ledger_id, entry] = RecordBatch.parse(memoryview(body))
        except ProtocolError as error:
            raise CorruptData(
                f"the metalog carries entry {entry} of data ledger {ledger_id}, which holds no record batch: {error}",
                ledger_id=ledger_id,
                entry=entry,
            ) from error
        return batch

    def take(self, ledger_id: int, entry: int) -> RecordBatch | None:
        """The entry, if it is here; it is not kept any longer. One that was pushed has no data."""
        batch = self._ready.get((ledger_id, entry))
        if batch is not None:
            del self._ready[ledger_id, entry]
        return batch

    def take_lost(self, ledger_id: int, entry: int) -> bool:
        """Whether the entry was given up, and cannot be had; asked when it is its turn."""
        lost = self._ready.get((ledger_id, entry), self) is None
        if lost:
            del self._ready[ledger_id, entry]
        return lost

    def over(self, ledger_id: int) -> None:
        """All entries of the ledger were taken."""
        self._source.over(ledger_id)
        self._pushed.over(ledger_id)

    def lost(self, ledger_id: int, first: int, stop: int) -> None:
        """A LOST command gives up entries first … stop - 1."""
        self._given_up.setdefault(ledger_id, []).append((first, stop))

    def fetch(self, *, blocked: bool) -> None:
        """Starts reads, as far as the window allows.

        Args:
            blocked: the entry needed next is not here. Then one read runs in any case: the window may be full of others.
        """
        while self.wanted and len(self._reading) < READS and not self._closed:
            coming = sum(self._reading.values())
            if len(self._ready) + coming >= WINDOW_ENTRIES and (self._reading or not blocked):
                return
            chunk = self.wanted.popleft()
            if self._open_chunks.get(chunk.ledger_id) is chunk:
                del self._open_chunks[chunk.ledger_id]
            task = asyncio.ensure_future(self._read(chunk))
            self._reading[task] = chunk.last - chunk.first + 1
            task.add_done_callback(self._read_ended)

    async def _read(self, chunk: _Chunk) -> None:
        pause_s = self._retry_first_s
        while True:
            try:
                batches = await self._source.read(chunk.ledger_id, chunk.first, chunk.last)
            except BokiError as error:
                if self._lost_of(chunk):
                    self._failing.pop(chunk, None)
                    await self._read_what_is_left(chunk)
                    return
                _log.warning(
                    "entries that are ordered cannot be read: the index waits for them",
                    ledger_id=chunk.ledger_id,
                    first=chunk.first,
                    last=chunk.last,
                    error=error,
                )
                self._failing[chunk] = str(error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, self._retry_limit_s)
                continue
            self._failing.pop(chunk, None)
            for entry, batch in enumerate(batches, chunk.first):
                self._ready[chunk.ledger_id, entry] = batch
            return

    def _lost_of(self, chunk: _Chunk) -> bool:
        """Whether an entry of the chunk was given up."""
        return any(self._is_given_up(chunk.ledger_id, entry) for entry in range(chunk.first, chunk.last + 1))

    def _is_given_up(self, ledger_id: int, entry: int) -> bool:
        return any(first <= entry < stop for first, stop in self._given_up.get(ledger_id, ()))

    async def _read_what_is_left(self, chunk: _Chunk) -> None:
        """One by one: of the entries given up there may still be some."""
        pause_s = self._retry_first_s
        for entry in range(chunk.first, chunk.last + 1):
            while True:
                try:
                    (batch,) = await self._source.read(chunk.ledger_id, entry, entry)
                except BokiError as error:
                    if self._is_given_up(chunk.ledger_id, entry):
                        _log.error("lost entry passed over", ledger_id=chunk.ledger_id, entry=entry, error=error)
                        self._ready[chunk.ledger_id, entry] = None
                        break
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, self._retry_limit_s)
                else:
                    self._ready[chunk.ledger_id, entry] = batch
                    break

    def _read_ended(self, task: asyncio.Task[None]) -> None:
        del self._reading[task]
        if not task.cancelled():
            task.result()
            self._arrived()

    async def close(self) -> None:
        """Stops reading."""
        self._closed = True
        for task in list(self._reading):
            task.cancel()
        while self._reading:
            await asyncio.wait(list(self._reading))
