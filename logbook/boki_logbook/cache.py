"""Record batches kept in memory, whole, up to a number of bytes: the least recently used go first. Pure.

A batch counts with its size and, once somebody read compressed data, with the decompressed data too. Batches are keyed by
(ledger id, entry id): what a ledger's entry holds never changes, so nothing here ever goes stale.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from boki_common.record_batch import RecordBatch

BATCH_BYTES: Final = 1_500
"""A batch's own objects and views, roughly: batches of one small record must not fill the memory unseen."""

EntryKey = tuple[int, int]
"""Ledger id, entry id."""


class BatchCache:
    """Invariant: `used_bytes` is the sum of the costs of all batches kept, and at most `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.hits = 0
        self.misses = 0
        self._batches: OrderedDict[EntryKey, tuple[RecordBatch, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._batches)

    def get(self, ledger_id: int, entry: int) -> RecordBatch | None:
        """The batch, which becomes the most recently used."""
        found = self._batches.get((ledger_id, entry))
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self._batches.move_to_end((ledger_id, entry))
        return found[0]

    def put(self, ledger_id: int, entry: int, batch: RecordBatch) -> None:
        """Keeps a batch; one that alone is over the limit is not kept."""
        key = ledger_id, entry
        known = self._batches.pop(key, None)
        if known is not None:
            self.used_bytes -= known[1]
        cost = batch_bytes(batch)
        if cost > self.limit_bytes:
            return
        self._batches[key] = batch, cost
        self.used_bytes += cost
        while self.used_bytes > self.limit_bytes:
            _, (_, freed) = self._batches.popitem(last=False)
            self.used_bytes -= freed


def batch_bytes(batch: RecordBatch) -> int:
    """What keeping a batch costs: compressed data is kept in both forms once it is read, so it counts from the start."""
    compressed = batch.data_bytes != batch.raw_data_bytes
    return batch.size + BATCH_BYTES + (batch.raw_data_bytes if compressed else 0)
