"""One shard of this engine: one data ledger in one term, and what was sent to it. Pure bookkeeping.

    submitted ≥ acked (reported) ≥ cut (ordered) ≥ applied          entries, counted from 0

Entries are kept until they are applied: the index needs their headers, the cache their data, and what turns out not to be
cut is appended again elsewhere, under the same numbers and in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, cast

from boki_common.record_batch import RecordBatch
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


make_piece: Final = cast(
    Callable[[tuple[RecordBatch, AppendSource, int, float, int]], Piece], partial(tuple.__new__, Piece)
)
"""Without a frame of Python: one for each batch that an SDK sends."""


class OwnEntry(NamedTuple):
    """One entry that this engine wrote: `batch` is the pieces joined, `cost` what keeping these costs, roughly."""

    entry: int
    batch: RecordBatch
    pieces: Sequence[Piece]
    cost: int
    records_end: int
    """Records of the shard up to its end."""
    sent_s: float
    """Time of the event loop."""


_make_own: Final = cast(
    Callable[[tuple[int, RecordBatch, Sequence[Piece], int, int, float]], OwnEntry], partial(tuple.__new__, OwnEntry)
)


class Shard:
    """See the module. Counters only grow; `cut_entries` ≤ `acked_entries` ≤ `submitted_entries`.

    Invariant: `_entries` are consecutive and end with the one submitted last, until `take_uncut` took the rest of an ended shard.
    """

    __slots__ = (
        "_entries",
        "accepting",
        "acked_entries",
        "acked_records",
        "bytes",
        "cut_entries",
        "failed",
        "foreign_slots",
        "in_flight",
        "number",
        "opened_s",
        "retiring",
        "submitted_entries",
        "submitted_records",
        "term",
        "writer",
    )

    def __init__(self, term: int, number: int, writer: LedgerWriter, opened_s: float, slots: int = ALL_SLOTS) -> None:
        self.term = term
        self.foreign_slots = ALL_SLOTS & ~slots
        """The slots that are not of its term, as bits; no record of their books may come here."""
        self.number = number
        self.writer = writer
        self.opened_s = opened_s
        self.bytes = 0
        self.submitted_entries = self.submitted_records = 0
        self.acked_entries = self.acked_records = 0
        self.cut_entries = 0
        self.in_flight = 0
        """Entries that wait for their ack quorum."""
        self.accepting = True
        self.failed = self.retiring = False
        self._entries: deque[OwnEntry] = deque()

    @property
    def unacked_since_s(self) -> float | None:
        """When the oldest of those in flight was sent; None when all are acknowledged."""
        return self._entries[-self.in_flight].sent_s if self.in_flight else None

    def fail(self) -> None:
        """Its ledger takes nothing any more."""
        self.failed, self.accepting = True, False

    def retire(self) -> None:
        """Everything sent is acked and cut before the next shard begins."""
        self.retiring, self.accepting = True, False

    @property
    def finished(self) -> bool:
        """Nothing more will be reported, and all that was is cut: the next shard may begin."""
        return (self.failed or (self.retiring and not self.in_flight)) and self.cut_entries >= self.acked_entries

    @property
    def drained(self) -> bool:
        """Nothing is left that the index or another shard needs."""
        return not self._entries

    def submitted(self, entry: int, batch: RecordBatch, pieces: Sequence[Piece], now_s: float) -> None:
        """Takes note of the next entry."""
        assert entry == self.submitted_entries, f"ledger {self.writer.ledger_id} gave entry id {entry} out of turn"
        cost = 0
        for piece in pieces:
            cost += piece.batch.kept_bytes
        self.submitted_entries = entry + 1
        self.submitted_records = records_end = self.submitted_records + batch.record_count
        self.in_flight += 1
        self.bytes += batch.size
        self._entries.append(_make_own((entry, batch, pieces, cost, records_end, now_s)))

    def acked(self, last_acked: int) -> float | None:
        """Entries up to `last_acked` are durable. Returns when the newest of them was sent, None if none is new."""
        if last_acked < self.acked_entries:
            return None
        in_flight = self.submitted_entries - 1 - last_acked
        newest = self._entries[-1 - in_flight]
        assert newest.entry == last_acked, (
            f"entry {last_acked} of ledger {self.writer.ledger_id} was acked, and not sent"
        )
        self.acked_entries, self.acked_records, self.in_flight = last_acked + 1, newest.records_end, in_flight
        return newest.sent_s

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
        self.in_flight = 0
        return pieces
