"""Record batches kept in memory, whole, up to a number of bytes: the least recently used go first. Pure.

A batch counts with `RecordBatch.kept_bytes`. Batches are keyed by
(ledger id, entry id): what a ledger's entry holds never changes, so nothing here ever goes stale.

Aux data of records, by seqnum, shares the bytes and the order: what nobody reads goes, whichever it is. It may be overwritten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from boki_common.records.record_batch import RecordBatch

AUX_ITEM_BYTES: Final = 250
"""What keeping aux data costs besides its bytes, roughly."""

EntryKey = tuple[int, int]
"""Ledger id, entry id."""


class BatchCache:
    """Invariant: `used_bytes` is the cost of all that is kept, at most `limit_bytes`; `aux_count` items are aux data."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.hits = 0
        self.misses = 0
        self.aux_count = 0
        self.aux_changes = 0
        """How often aux data was set to something else than it was."""
        self._kept: OrderedDict[EntryKey | int, tuple[RecordBatch | bytes, int]] = OrderedDict()

    def __len__(self) -> int:
        """Batches."""
        return len(self._kept) - self.aux_count

    def get(self, ledger_id: int, entry: int) -> RecordBatch | None:
        """The batch, which becomes the most recently used."""
        found = self._kept.get((ledger_id, entry))
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self._kept.move_to_end((ledger_id, entry))
        return found[0]  # type: ignore[return-value]  # pairs are keys of batches, seqnums of aux data

    def put(self, ledger_id: int, entry: int, batch: RecordBatch) -> None:
        """Keeps a batch; one that alone is over the limit is not kept."""
        self._put((ledger_id, entry), batch, batch.kept_bytes)

    def drop(self, ledger_id: int, entry: int) -> None:
        """Keeps it no longer, if it did: it turned out not to be what its ledger holds."""
        found = self._kept.pop((ledger_id, entry), None)
        if found is not None:
            self._dropped((ledger_id, entry), found[1])

    # -- aux data

    def put_aux(self, seqnum: int, data: bytes) -> bool:
        """Keeps aux data of a record, instead of what it had; whether it did."""
        if self.aux(seqnum) != data:
            self.aux_changes += 1
        return self._put(seqnum, data, len(data) + AUX_ITEM_BYTES)

    def aux(self, seqnum: int) -> bytes | None:
        """Aux data of a record, which does not count as using it."""
        found = self._kept.get(seqnum)
        return None if found is None else found[0]  # type: ignore[return-value]  # as in `get`

    def aux_seqnums(self) -> list[int]:
        """The records that have aux data, most recently used first."""
        return [key for key in reversed(self._kept) if type(key) is int]

    def aux_rows(self, seqnums: Iterable[int]) -> dict[int, bytes]:
        """Aux data by row, of the records that have some; it becomes the most recently used."""
        kept = self._kept
        rows: dict[int, bytes] = {}
        for row, seqnum in enumerate(seqnums):
            found = kept.get(seqnum)
            if found is not None:
                kept.move_to_end(seqnum)
                rows[row] = found[0]  # type: ignore[assignment]  # as in `get`
        return rows

    def within_aux(self, seqnums: Sequence[int], limit_bytes: int) -> Sequence[int]:
        """As many of these records from the first as have at most so many bytes of aux data together; at least one."""
        total = 0
        for at, seqnum in enumerate(seqnums):
            found = self._kept.get(seqnum)
            if found is not None:
                total += found[1] - AUX_ITEM_BYTES
                if total > limit_bytes and at:
                    return seqnums[:at]
        return seqnums

    def _put(self, key: EntryKey | int, value: RecordBatch | bytes, cost: int) -> bool:
        kept = self._kept
        if key in kept:
            self._dropped(key, kept.pop(key)[1])
        if cost > self.limit_bytes:
            return False
        kept[key] = value, cost
        self.used_bytes += cost
        self.aux_count += type(key) is int
        while self.used_bytes > self.limit_bytes:
            oldest, (_, freed) = kept.popitem(last=False)
            self._dropped(oldest, freed)
        return True

    def _dropped(self, key: EntryKey | int, cost: int) -> None:
        self.used_bytes -= cost
        self.aux_count -= type(key) is int
