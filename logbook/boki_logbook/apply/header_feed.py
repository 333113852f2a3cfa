"""Brings the entries that other engines wrote, in time for the index (DESIGN §6.5).

The indexer says what it will need, in its order (`want`), and takes each entry when its turn comes (`take`). In between up to
`READS` reads of up to `READ_ENTRIES` neighbouring entries run, and at most about `WINDOW_ENTRIES` entries wait to be taken:
indexing never needs a later chunk before an earlier one, so bringing them in order cannot block.

What other engines pushed in time is not read. What a cut covers is there. So "no such entry" is never believed, nor is
anything else: a read that fails is repeated, with a pause that doubles, until it works. Only for an entry that an ordered
LOST command gave up is one more failure enough: then it is `take_lost`. An entry that can be had and is no record batch, or
not the one that its cut means (`entry_fit`), is one that cannot be read, wherever it comes from.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from boki_common.backoff import Backoff
from boki_common.errors import BokiError, CorruptData, ProtocolError
from boki_common.logs import get_logger
from boki_common.records.record_batch import RecordBatch
from boki_logbook.peers.pushed_headers import PushedHeaders
from boki_logbook.read.entry_fit import Fit
from boki_logbook.read.entry_source import EntrySource

READS: Final = 8
READ_ENTRIES: Final = 8
WINDOW_ENTRIES: Final = 128

_log = get_logger("engine.headers")


@dataclass(slots=True, eq=False)
class _Chunk:
    """Neighbouring entries of one ledger, read at once."""

    ledger_id: int
    first: int
    last: int


class HeaderFeed:
    """See the module. `arrived` is called whenever entries came."""

    def __init__(
        self,
        source: EntrySource,
        arrived: Callable[[], None],
        *,
        pushed: PushedHeaders,
        backoff: Callable[[], Backoff],
    ) -> None:
        """`backoff`: the pauses of one series of attempts."""
        self._source = source
        self._pushed = pushed
        self._arrived = arrived
        self._backoff = backoff
        self.wanted: deque[_Chunk] = deque()
        """What is to be read, and is not asked for yet."""
        self._open_chunks: dict[int, _Chunk] = {}
        self._ready: dict[tuple[int, int], RecordBatch | None] = {}
        """None: given up by a LOST command, and not to be had."""
        self._given_up: dict[int, list[tuple[int, int]]] = {}
        """Ledger → spans [first, stop) of entries that LOST commands named. One item per command."""
        self._reading: dict[asyncio.Task[None], int] = {}
        self._closed = False
        self._failing: dict[tuple[int, int], tuple[str, float]] = {}
        """Entries that could not be read, and are tried again → why, and since when."""
        self._loop = asyncio.get_running_loop()
        self._unfit_carried: dict[tuple[int, int], str] = {}
        """Those that the metalog carries so that nobody can read them → why, until they are taken."""

    @property
    def unreadable(self) -> list[dict[str, Any]]:
        """Entries that are ordered and cannot be read now, as plain values."""
        return [
            {
                "ledger_id": ledger_id,
                "first": entry,
                "last": entry,
                "error": error,
                "for_s": self._loop.time() - since_s,
            }
            for (ledger_id, entry), (error, since_s) in self._failing.items()
        ]

    @property
    def waits(self) -> bool:
        """Whether an entry cannot be read now."""
        return bool(self._failing)

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
                chunk = self._open_chunks[ledger_id] = _Chunk(ledger_id, entry, entry)
                self.wanted.append(chunk)
            else:
                chunk.last = entry

    def carried(self, ledger_id: int, entry: int, body: bytes) -> RecordBatch | None:
        """An entry that came with the metalog; to be given before it is wanted. None: that holds no record batch, so the entry is
        looked for in its data ledger, as others are."""
        try:
            batch = RecordBatch.parse(memoryview(body))
        except ProtocolError as error:
            _log.error(
                "the metalog carries what is no record batch: its data ledger is read",
                ledger_id=ledger_id,
                entry=entry,
                error=error,
            )
            self._unfit_carried[ledger_id, entry] = f"is no record batch: {error}"
            return None
        self._ready[ledger_id, entry] = batch
        return batch

    def unfit(self, ledger_id: int, entry: int, fit: Fit, why: str) -> None:
        """What was taken is not the entry that its cut means: it is read from its data ledger, until it is."""
        _log.error(
            "an entry is not what its cut means: its data ledger is read", ledger_id=ledger_id, entry=entry, error=why
        )
        self._start(self._read_one(ledger_id, entry, fit, None), 1)

    def take(self, ledger_id: int, entry: int) -> RecordBatch | None:
        """The entry, if it is here; it is not kept any longer. One that was pushed has no data."""
        batch = self._ready.get((ledger_id, entry))
        if batch is not None:
            self._took(ledger_id, entry)
        return batch

    def _took(self, ledger_id: int, entry: int) -> None:
        del self._ready[ledger_id, entry]
        if self._unfit_carried:
            self._unfit_carried.pop((ledger_id, entry), None)

    def take_lost(self, ledger_id: int, entry: int) -> bool:
        """Whether the entry was given up, and cannot be had; asked when it is its turn."""
        lost = self._ready.get((ledger_id, entry), self) is None
        if lost:
            self._took(ledger_id, entry)
        return lost

    def over(self, ledger_id: int) -> None:
        """All entries of the ledger were taken."""
        self._source.over(ledger_id)
        self._pushed.over(ledger_id)

    def lost(self, ledger_id: int, first: int, stop: int) -> None:
        """A LOST command gives up entries first … stop - 1."""
        self._given_up.setdefault(ledger_id, []).append((first, stop))

    def fetch(self, *, blocked: bool) -> None:
        """Starts reads, as far as the window allows. `blocked`: the entry needed next is not here. Then one read runs in any
        case: the window may be full of others."""
        while self.wanted and len(self._reading) < READS and not self._closed:
            coming = sum(self._reading.values())
            if len(self._ready) + coming >= WINDOW_ENTRIES and (self._reading or not blocked):
                return
            chunk = self.wanted.popleft()
            if self._open_chunks.get(chunk.ledger_id) is chunk:
                del self._open_chunks[chunk.ledger_id]
            self._start(self._read(chunk), chunk.last - chunk.first + 1)

    def _start(self, reading: Coroutine[Any, Any, None], entries: int) -> None:
        task = asyncio.ensure_future(reading)
        self._reading[task] = entries
        task.add_done_callback(self._read_ended)

    async def _read(self, chunk: _Chunk) -> None:
        """All at once; when that fails one by one, so that it is known which cannot be read."""
        ledger_id, first, last = chunk.ledger_id, chunk.first, chunk.last
        error: BokiError | None = None
        try:
            batches = await self._source.read(ledger_id, first, last)
        except BokiError as failed:
            error = failed if first == last else None
        else:
            for entry, batch in enumerate(batches, first):
                self._ready[ledger_id, entry] = batch
            return
        for entry in range(first, last + 1):
            await self._read_one(ledger_id, entry, None, error)
            self._arrived()

    async def _read_one(self, ledger_id: int, entry: int, fit: Fit | None, error: BokiError | None) -> None:
        """Until it is here, or a LOST command gave it up. `error`: it was tried already."""
        key, backoff = (ledger_id, entry), self._backoff()
        try:
            while True:
                if error is None:
                    try:
                        (batch,) = await self._source.read(ledger_id, entry, entry)
                        _check(batch, fit, ledger_id, entry)
                    except BokiError as failed:
                        error = failed
                    else:
                        self._ready[key] = batch
                        return
                if any(first <= entry < stop for first, stop in self._given_up.get(ledger_id, ())):
                    _log.error("lost entry passed over", ledger_id=ledger_id, entry=entry, error=error)
                    self._ready[key] = None
                    return
                self._fails(ledger_id, entry, error)
                error = None
                await asyncio.sleep(backoff.next())
        finally:
            self._failing.pop(key, None)

    def _fails(self, ledger_id: int, entry: int, error: BokiError) -> None:
        carried = self._unfit_carried.get((ledger_id, entry))
        why = str(error) if carried is None else f"{error}; the metalog carries it, but what it carries {carried}"
        before, since_s = self._failing.get((ledger_id, entry), (None, self._loop.time()))
        if why == before:
            return
        _log.warning(
            "an entry that is ordered cannot be read: the index waits for it",
            ledger_id=ledger_id,
            entry=entry,
            error=why,
        )
        self._failing[ledger_id, entry] = why, since_s
        if before is None:
            self._arrived()  # whoever waits for it should know that it may take long

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


def _check(batch: RecordBatch, fit: Fit | None, ledger_id: int, entry: int) -> None:
    """Raises CorruptData."""
    fault = None if fit is None else fit.fault_of(batch)
    if fault is not None:
        raise CorruptData(f"entry {entry} of data ledger {ledger_id}: {fault}", ledger_id=ledger_id, entry=entry)
