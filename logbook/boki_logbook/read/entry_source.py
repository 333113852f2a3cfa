"""Reads record batches from data ledgers, whoever wrote them.

Ledgers are opened without recovery: what a cut covers has its ack quorum, so it may be read although the ledger is still
being written. Open readers are kept, up to `OPEN_READERS`; one that failed is dropped, so that the next try re-reads the
ledger's metadata (its ensemble may have changed). A reader keeps what it read ahead, up to 1 MiB: so those that are read no
more in order are closed (`over`). One call is one try: whether "no such entry" is believed, and how often to
try again, is the caller's business.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from boki_common.background_tasks import BackgroundTasks, error_taken
from boki_common.errors import BokiError, CorruptData, ProtocolError
from boki_common.metrics import Counter
from boki_common.records.record_batch import RecordBatch
from boki_ledger.ledgers import LedgerReader, Ledgers

OPEN_READERS: Final = 256
"""Ledgers kept open for reading by one engine."""


@dataclass(slots=True, eq=False)
class _Opened:
    """A ledger that is open, or being opened, and how many calls use it now."""

    opening: asyncio.Task[LedgerReader]
    users: int = 0
    stale: bool = False


class EntrySource:
    """See the module. Close it before the ledgers."""

    def __init__(self, ledgers: Ledgers, *, fetched: Counter | None = None, readers_limit: int = OPEN_READERS) -> None:
        self._ledgers = ledgers
        self._fetched = fetched
        self._readers_limit = readers_limit
        self._opened: OrderedDict[int, _Opened] = OrderedDict()
        self._closing = BackgroundTasks()

    async def read(self, ledger_id: int, first: int, last: int) -> list[RecordBatch]:
        """The batches of entries first … last, inclusive. Raises LedgerError, NetworkError, MetadataError: as the ledger layer
        says; CorruptData: an entry is no record batch."""
        opened = self._opened.get(ledger_id)
        if opened is None:
            opening = asyncio.ensure_future(self._ledgers.open(ledger_id, recover=False))
            opening.add_done_callback(error_taken)
            opened = self._opened[ledger_id] = _Opened(opening)
        self._opened.move_to_end(ledger_id)
        opened.users += 1
        try:
            reader = await asyncio.shield(opened.opening)
            reader.confirm(last)
            payloads = await reader.read(first, last)
        except BokiError:
            if not opened.stale:
                opened.stale = True
                self._opened.pop(ledger_id, None)
            raise
        finally:
            opened.users -= 1
            if opened.stale and not opened.users:
                self._close_one(opened.opening)
            self._evict()
        if len(payloads) != last - first + 1:
            raise CorruptData(
                f"expected entries {first} to {last} of ledger {ledger_id}, found {len(payloads)} of them",
                ledger_id=ledger_id,
            )
        if self._fetched is not None:
            self._fetched.inc(len(payloads))
        batches: list[RecordBatch] = []
        try:
            for payload in payloads:
                batches.append(RecordBatch.parse(memoryview(payload)))
        except ProtocolError as error:
            entry = first + len(batches)
            raise CorruptData(
                f"entry {entry} of data ledger {ledger_id} holds no record batch: {error}",
                ledger_id=ledger_id,
                entry=entry,
            ) from error
        return batches

    def over(self, ledger_id: int) -> None:
        """The ledger will hardly be read on: its reader is closed, once nobody uses it."""
        opened = self._opened.pop(ledger_id, None)
        if opened is not None:
            opened.stale = True
            if not opened.users:
                self._close_one(opened.opening)

    async def close(self) -> None:
        """Closes all readers. Idempotent."""
        for ledger_id in list(self._opened):
            self.over(ledger_id)
        await self._closing.finish()

    def _evict(self) -> None:
        """Closes the readers that were not used for longest, beyond the limit."""
        for ledger_id in [key for key, one in self._opened.items() if not one.users]:
            if len(self._opened) <= self._readers_limit:
                break
            self._close_one(self._opened.pop(ledger_id).opening)

    def _close_one(self, opening: asyncio.Task[LedgerReader]) -> None:
        self._closing.spawn(_close_reader(opening))


async def _close_reader(opening: asyncio.Task[LedgerReader]) -> None:
    if not opening.done():
        opening.cancel()
    await asyncio.wait([opening])
    if not opening.cancelled() and opening.exception() is None:
        await opening.result().close()
