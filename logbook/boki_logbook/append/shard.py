"""One shard of this engine: one data ledger in one term, and what was sent to it. Pure bookkeeping.

    submitted ≥ acked (reported) ≥ cut (ordered) ≥ applied          entries, counted from 0

Entries are kept until they are applied: the index needs their headers, the cache their data, and what turns out not to be
cut is appended again elsewhere, under the same numbers and in the same order.

An entry may be *carried* (ADR 21): the metalog orders it, with its bytes, before the ledger has it. That is for a shard of
which all is cut. So the cut may be ahead of what is acked, by carried entries alone; at most one of these is not cut, and
what is not acked is first some that are carried, then some that are not. They are `unwritten` until the ledger gets them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, cast

from boki_common import limits
from boki_common.records.record_batch import RecordBatch
from boki_common.runtime.ports import Buffer
from boki_ledger.ledgers import LedgerWriter
from boki_logbook.peers.pushed_headers import AckedEntry
from boki_logbook.ports import AppendSource
from boki_logbook.state.state import StateDisagrees
from boki_metalog.terms.term_order import ALL_SLOTS


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
    """See the module. Counters only grow; `cut_entries` ≤ max(`acked_entries`, `carried_entries`) ≤ `submitted_entries`.

    Invariant: `_entries` are consecutive and end with the one submitted last, until `take_uncut` took the rest of an ended shard.
    """

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
        """Of what is acked, `acked_records` counts the records up to the last entry that was not applied before."""
        self.carried_entries = 0
        """Where the last entry ends that was carried."""
        self.cut_entries = 0
        self.in_flight = 0
        """Entries that wait for their ack quorum, and are not carried."""
        self.unwritten: deque[Sequence[Buffer]] = deque()
        """The payloads of the carried entries that its ledger was not given yet; all entries before them it was."""
        self.accepting = True
        self.failed = self.retiring = False
        self._entries: deque[OwnEntry] = deque()

    @property
    def uncut_since_s(self) -> float | None:
        """When the oldest batch arrived here that is not ordered yet; None when all are, or nothing is kept."""
        entries = self._entries
        if self.submitted_entries == self.cut_entries or not entries:
            return None
        return entries[max(self.cut_entries - entries[0].entry, 0)].pieces[0].arrived_s

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
        reported = max(self.acked_entries, self.carried_entries)
        return (self.failed or (self.retiring and not self.in_flight)) and self.cut_entries >= reported

    @property
    def may_carry(self) -> bool:
        """Whether its next entry may be carried: nothing of it is on its way to being ordered. Never the first: a ledger without
        entries is one that nothing was ordered of, and may be deleted."""
        return (
            self.accepting
            and self.acked_entries > 0
            and self.cut_entries == self.submitted_entries
            and self.submitted_entries - self.acked_entries < limits.CARRIED_BEHIND
        )

    @property
    def drained(self) -> bool:
        """Nothing is left that the index or another shard needs."""
        return not self._entries

    @property
    def carrying(self) -> bool:
        """Whether an entry is carried that is neither cut nor written."""
        return self.carried_entries > self.cut_entries and bool(self.unwritten)

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

    def carried(self, payload: Sequence[Buffer]) -> None:
        """The entry that was submitted last is carried, and not written yet."""
        self.in_flight -= 1
        self.carried_entries = self.submitted_entries
        self.unwritten.append(payload)

    def acked(self, last_acked: int) -> float | None:
        """Entries up to `last_acked` are durable. Returns when the newest of them was sent, None if none is to be reported:
        none is new, or they are cut already."""
        if last_acked < self.acked_entries:
            return None
        stop = self.acked_entries = last_acked + 1
        self.in_flight = self.submitted_entries - max(stop, self.carried_entries)
        if stop <= self.cut_entries:
            return None
        newest = self._entries[stop - self.submitted_entries - 1]
        assert newest.entry == last_acked, (
            f"entry {last_acked} of ledger {self.writer.ledger_id} was acked, and not sent"
        )
        self.acked_records = newest.records_end
        return newest.sent_s

    def cut(self, entries_end: int) -> None:
        """The metalog orders it up to `entries_end`, more than before. Raises StateDisagrees: nobody here reported that."""
        if entries_end > max(self.acked_entries, self.carried_entries):
            raise StateDisagrees(
                f"{entries_end} entries of shard {self.number} of term {self.term} are ordered, and this engine, which writes "
                f"it, reported {self.acked_entries}: somebody else did; beginning anew, with what is in its data ledger",
                term=self.term,
                shard=self.number,
            )
        self.cut_entries = entries_end

    def newly_acked(self, first: int) -> list[AckedEntry]:
        """The acked entries from `first` on that are not cut: those that were carried, others have from the metalog."""
        first = max(first, self.cut_entries)
        begin = self._entries[0].entry if self._entries else first
        assert begin <= first, "what is not cut was applied"
        return [
            AckedEntry(own.entry, own.records_end - own.batch.record_count, own.batch)
            for own in islice(self._entries, first - begin, self.acked_entries - begin)
        ]

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
        if self.carried_entries > self.cut_entries and self.unwritten:
            self.unwritten.pop()
        self.in_flight = 0
        return pieces
