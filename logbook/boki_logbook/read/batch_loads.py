"""Batches of entries that reads need: from the cache, or from their data ledgers, each once however many ask for it.

A cut covers every entry that is asked for here, so "no such entry" only means that it is not found yet: it is looked for again,
`LOAD_TRIES` times, before the read fails as one that cannot be answered now. What was read goes into the cache.

An entry whose bytes are what was written, and cannot be made sense of, is `unreadable`: no other copy is better. Its records are as
lost as those that nobody has, and readers get a gap.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from boki_common import limits
from boki_common.errors import CorruptData, DigestMismatch, EntryUnknown, NetworkError, NoSuchEntry, NoSuchLedger
from boki_common.logs import get_logger
from boki_common.records.record_batch import RecordBatch
from boki_logbook.index.places import EntryPlace
from boki_logbook.read.cache import BatchCache, EntryKey
from boki_logbook.read.carried_entries import CarriedEntries
from boki_logbook.read.entry_source import EntrySource
from boki_logbook.settings import EngineSettings

LOAD_TRIES: Final = 3
"""How often an entry that must be there is looked for before the read fails."""

_log = get_logger("engine.reader")


class UnreadableEntry(CorruptData):
    """Nothing can be made of an entry, by anybody."""


class BatchLoads:
    """See the module. How many are loaded at once is up to the callers."""

    def __init__(
        self, *, cache: BatchCache, source: EntrySource, carried: CarriedEntries, settings: EngineSettings
    ) -> None:
        self._cache = cache
        self._source = source
        self._carried = carried
        self._settings = settings
        self._loading: dict[EntryKey, asyncio.Task[RecordBatch]] = {}
        self.unreadable: OrderedDict[EntryKey, str] = OrderedDict()
        """Entries that were read, and why nothing can be made of them; the last `limits.UNREADABLE_KEPT`."""

    def unreadable_entry(self, place: EntryPlace, error: CorruptData) -> UnreadableEntry:
        """Takes note of an entry that no reader can make sense of; what to raise."""
        key = place.ledger_id, place.entry
        if key not in self.unreadable:
            _log.error(
                "an entry cannot be read by anybody: its records are a gap", ledger_id=key[0], entry=key[1], error=error
            )
        self.unreadable[key] = str(error)
        if len(self.unreadable) > limits.UNREADABLE_KEPT:
            self.unreadable.popitem(last=False)
        self._cache.drop(*key)
        return UnreadableEntry(str(error), ledger_id=key[0], entry=key[1])

    async def load_all(self, places: Iterable[EntryPlace]) -> list[RecordBatch]:
        """The batches of some entries, from the cache or all at once from their ledgers. Raises UnreadableEntry: nobody can
        make sense of one; it is among `unreadable` now. EntryUnknown, DigestMismatch, …: one cannot be read now."""
        batches: list[RecordBatch | asyncio.Task[RecordBatch]] = []
        for place in places:
            key = place.ledger_id, place.entry
            batch = self._cache.get(*key)
            batches.append(batch if batch is not None else self._loading.get(key) or self._start(place))
        waiting = [task for task in batches if isinstance(task, asyncio.Task)]
        if waiting:
            await asyncio.wait(waiting)
        return [task.result() if isinstance(task, asyncio.Task) else task for task in batches]

    def _start(self, place: EntryPlace) -> asyncio.Task[RecordBatch]:
        key = place.ledger_id, place.entry
        task = self._loading[key] = asyncio.ensure_future(self._load(place))
        task.add_done_callback(lambda done: self._loaded(key, done))
        return task

    def _loaded(self, key: EntryKey, task: asyncio.Task[RecordBatch]) -> None:
        del self._loading[key]
        if not task.cancelled():
            task.exception()  # whoever waits for it gets it; those who gave up need no warning

    async def _load(self, place: EntryPlace) -> RecordBatch:
        """Reads an entry that a cut covers: "no such entry" only means that it is not found yet, or still in the metalog."""
        ledger_id, entry = place.ledger_id, place.entry
        backoff, tried = self._settings.backoff(), 0
        while True:
            try:
                (batch,) = await self._source.read(ledger_id, entry, entry)
                if batch.record_count != place.stop_seqnum - place.first_seqnum:
                    raise CorruptData(
                        f"entry {entry} of data ledger {ledger_id} was indexed with {place.stop_seqnum - place.first_seqnum} records, "
                        f"and has {batch.record_count}"
                    )
                break
            except CorruptData as error:
                raise self.unreadable_entry(place, error) from error
            except (NoSuchEntry, NoSuchLedger, EntryUnknown, NetworkError, DigestMismatch) as error:
                tried += 1
                damaged = isinstance(error, DigestMismatch)  # all copies: to look again helps nobody
                if damaged or tried == LOAD_TRIES:
                    carried = await self._carried.batch_at(place)
                    if carried is not None:
                        batch = carried
                        break
                    if damaged:
                        raise
                    raise EntryUnknown(
                        f"entry {entry} of data ledger {ledger_id} is ordered, but cannot be read now: {error}; "
                        "try again when its bookies are back",
                        ledger_id=ledger_id,
                        entry=entry,
                    ) from error
            await asyncio.sleep(backoff.next())
        self._cache.put(ledger_id, entry, batch)
        return batch

    async def close(self) -> None:
        """Ends all loads."""
        for task in list(self._loading.values()):
            task.cancel()
        while self._loading:
            await asyncio.wait(list(self._loading.values()))
