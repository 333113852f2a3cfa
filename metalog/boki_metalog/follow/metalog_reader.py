"""Reads the entries of one metalog ledger, batch after batch, for a follower that is behind.

Entries up to `end` are known to be acknowledged: the ledger is closed behind them (`closed_at`), or its sequencer reported so. After a
failure the ledger is opened anew, so its metadata is read again and other copies are asked.
"""

from __future__ import annotations

from typing import Final

from boki_common.errors import BokiError, CorruptData
from boki_ledger.ledgers import LedgerReader, Ledgers
from boki_metalog.settings import FollowerSettings

FIRST_BATCH_ENTRIES: Final = 64


class MetalogReader:
    """See the module. A batch holds about `settings.read_bytes`: its size follows that of the entries read before."""

    def __init__(
        self, ledgers: Ledgers, ledger_id: int, *, end: int, closed_at: int | None, settings: FollowerSettings
    ) -> None:
        """`closed_at`: the last entry of the ledger, which is closed, at `end` or behind it; None: nobody knows."""
        self._ledgers = ledgers
        self._ledger_id = ledger_id
        self._end = end
        self._closed_at = closed_at
        self._settings = settings
        self._batch = min(FIRST_BATCH_ENTRIES, settings.read_entries)
        self._reader: LedgerReader | None = None

    async def read(self, first: int) -> list[memoryview]:
        """The entries from `first` on, at least one, at most to `end`. Raises EntryUnknown, NoSuchEntry, MetadataUnavailable,
        …: try again; CorruptData: the ledger is not closed where it must be."""
        assert first < self._end
        last = min(first + self._batch, self._end) - 1
        try:
            if self._reader is None:
                self._reader = await self._open()
            payloads = await self._reader.read(first, last)
        except BokiError:
            await self.close()
            raise
        assert len(payloads) == last - first + 1, "a ledger reader gives what was asked or raises"
        size = sum(map(len, payloads))
        if 2 * size <= self._settings.read_bytes:
            self._batch = min(2 * self._batch, self._settings.read_entries)
        elif size > self._settings.read_bytes:
            self._batch = max(self._batch // 2, 1)
        return payloads

    async def close(self) -> None:
        """Releases the ledger. Idempotent."""
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()

    async def _open(self) -> LedgerReader:
        reader = await self._ledgers.open(self._ledger_id, recover=False)
        try:
            if self._closed_at is not None and (not reader.closed or reader.last_entry != self._closed_at):
                raise CorruptData(
                    f"expected metalog ledger {self._ledger_id} closed at entry {self._closed_at}, as its term's record says, "
                    f"found {'closed' if reader.closed else 'open'} at {reader.last_entry}",
                    ledger_id=self._ledger_id,
                    expected=self._closed_at,
                    found=reader.last_entry,
                )
        except BaseException:
            await reader.close()
            raise
        reader.confirm(self._end - 1)
        return reader
