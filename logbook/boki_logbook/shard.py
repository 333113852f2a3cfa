"""One shard of this engine: one data ledger in one term, and what was sent to it. Pure bookkeeping.

    submitted ≥ acked (reported) ≥ cut (ordered) ≥ applied          entries, counted from 0

Entries are kept until they are applied: the index needs their headers, the cache their data, and what turns out not to be
cut is appended again elsewhere, under the same numbers and in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from boki_common.record_batch import RecordBatch
from boki_logbook.cache import BATCH_BYTES
from boki_logbook.ports import AppendSource, LedgerWriter
from boki_logbook.pushed_headers import AckedEntry
from boki_metalog.term_order import ALL_SLOTS


class Piece(NamedTuple):
    """One batch as an SDK sent it."""

    batch: RecordBatch
    source: AppendSource
    request_id: int
    arrived_s: float
    """Time of the event loop."""
    slots: int = ALL_SLOTS
    """The slots of its books, as bits; all of them when nobody looked, because there is one log."""

    @property
    def cost(self) -> int:
        """What keeping it costs, roughly: many tiny batches must not fill the memory unseen."""
        return self.batch.size + BATCH_BYTES


class OwnEntry(NamedTuple):
    """One entry that this engine wrote: `batch` is the pieces joined."""

    entry: int
    batch: RecordBatch
    pieces: Sequence[Piece]
    cost: int


class _Unacked(NamedTuple):
    entry: int
    records_end: int
    sent_s: float


class Shard:
    """See the module. Counters only grow; `cut_entries` ≤ `acked_entries` ≤ `submitted_entries`.

    `slots`: those of its term, as bits; no other book's record may come here.
    """

    __slots__ = (
        "_entries",
        "_unacked",
        "acked_entries",
        "acked_records",
        "bytes",
        "cut_entries",
        "failed",
        "number",
        "opened_s",
        "retiring",
        "slots",
        "submitted_entries",
        "submitted_records",
        "term",
        "writer",
    )

    def __init__(self, term: int, number: int, writer: LedgerWriter, opened_s: float, slots: int = ALL_SLOTS) -> None:
        self.term = term
        self.slots = slots
        self.number = number
        self.writer = writer
        self.opened_s = opened_s
        self.bytes = 0
        self.submitted_entries = self.submitted_records = 0
        self.acked_entries = self.acked_records = 0
        self.cut_entries = 0
        self.failed = False
        self.retiring = False
        self._entries: deque[OwnEntry] = deque()
        self._unacked: deque[_Unacked] = deque()

    @property
    def in_flight(self) -> int:
        """Entries that wait for their ack quorum."""
        return len(self._unacked)

    @property
    def unacked_since_s(self) -> float | None:
        """When the oldest of them was sent; None when all are acknowledged."""
        return self._unacked[0].sent_s if self._unacked else None

    @property
    def accepting(self) -> bool:
        return not self.failed and not self.retiring

    @property
    def finished(self) -> bool:
        """Nothing more will be reported, and all that was is cut: the next shard may begin."""
        return (self.failed or (self.retiring and not self._unacked)) and self.cut_entries >= self.acked_entries

    @property
    def drained(self) -> bool:
        """Nothing is left that the index or another shard needs."""
        return not self._entries

    def submitted(self, entry: int, batch: RecordBatch, pieces: Sequence[Piece], now_s: float) -> None:
        """Takes note of the next entry."""
        assert entry == self.submitted_entries, f"ledger {self.writer.ledger_id} gave entry id {entry} out of turn"
        cost = 0
        for piece in pieces:
            cost += piece.cost
        self._entries.append(OwnEntry(entry, batch, pieces, cost))
        self.submitted_entries += 1
        self.submitted_records += batch.record_count
        self.bytes += batch.size
        self._unacked.append(_Unacked(entry, self.submitted_records, now_s))

    def acked(self, last_acked: int) -> float | None:
        """Entries up to `last_acked` are durable. Returns when the newest of them was sent, None if none is new."""
        sent_s = None
        while self._unacked and self._unacked[0].entry <= last_acked:
            entry, self.acked_records, sent_s = self._unacked.popleft()
            self.acked_entries = entry + 1
        return sent_s

    def newly_acked(self, first: int, first_record: int) -> list[AckedEntry]:
        """The acked entries from `first` on, the first of whose records has the number `first_record`."""
        begin = self._entries[0].entry if self._entries else first
        assert begin <= first, "what was not acked was applied"
        found = []
        for own in islice(self._entries, first - begin, self.acked_entries - begin):
            found.append(AckedEntry(own.entry, first_record, own.batch))
            first_record += own.batch.record_count
        return found

    def take(self, entry: int) -> OwnEntry | None:
        """The next entry to apply, in order; it is not kept any longer."""
        if self._entries and self._entries[0].entry == entry:
            return self._entries.popleft()
        return None

    def take_uncut(self) -> list[Piece]:
        """The pieces of all entries beyond the cut, in order. Only for a shard that ended: they will never be ordered here."""
        pieces: list[Piece] = []
        while self._entries and self._entries[-1].entry >= self.cut_entries:
            pieces[:0] = self._entries.pop().pieces
        return pieces
