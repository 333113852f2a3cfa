"""Where records lie: seqnum → data ledger, entry and time, from one row per *entry* of each term (DESIGN §7). Pure.

    per term    first_pos u64 | shard u32 | entry u64 | time_ms i64      one row per entry, in order of the log
                shard → data ledger, how far it is ordered, whether it is closed
                spans of positions that lost (duplicates, gaps, voids, conflicts): no stream has them, but verdicts that were
                reached once must be known to whoever reads the ledgers without the history before them

A cut never splits an entry and positions are dense, so a record's entry is the last row at or below its position.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from boki_common import ids


class EntryPlace(NamedTuple):
    """One entry of a data ledger and the seqnums of its records, [first_seqnum, stop_seqnum)."""

    ledger_id: int
    entry: int
    first_seqnum: int
    stop_seqnum: int
    time_ms: int


class ShardPlace:
    """A shard of a term: one data ledger, and how far it is ordered."""

    __slots__ = ("closed", "entries_end", "incarnation", "ledger_id", "number", "records_end", "term")

    def __init__(self, term: int, number: int, ledger_id: int, incarnation: str) -> None:
        self.term = term
        self.number = number
        self.ledger_id = ledger_id
        self.incarnation = incarnation
        self.records_end = 0
        self.entries_end = 0
        self.closed = False


class TermPlaces:
    """The entries of one term, as far as they are indexed."""

    __slots__ = (
        "_entries",
        "_first_positions",
        "_losers",
        "_shards",
        "_times",
        "end_pos",
        "log",
        "shards",
        "slots",
        "term",
    )

    def __init__(self, term: int, log: int, slots: Sequence[tuple[int, int]] = ()) -> None:
        self.term = term
        self.log = log
        self.slots = tuple(slots)
        self.end_pos = 0
        self.shards: dict[int, ShardPlace] = {}
        self._first_positions = array("Q")
        self._shards = array("I")
        self._entries = array("Q")
        self._times = array("q")
        self._losers = array("Q")

    @property
    def entry_count(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        return 28 * len(self._entries) + 8 * len(self._losers)

    def add_entry(self, shard: int, entry: int, record_count: int, time_ms: int) -> None:
        """The next entry in the order of the log; one without records has no row."""
        if not record_count:
            return
        self._first_positions.append(self.end_pos)
        self._shards.append(shard)
        self._entries.append(entry)
        self._times.append(time_ms)
        self.end_pos += record_count

    def add_losers(self, first_pos: int, stop_pos: int) -> None:
        """Records at [first_pos, stop_pos) joined no stream."""
        if self._losers and self._losers[-1] == first_pos:
            self._losers[-1] = stop_pos
        else:
            self._losers.extend((first_pos, stop_pos))

    def losers(self) -> list[tuple[int, int]]:
        """Spans of positions that joined no stream, ascending, not touching."""
        spans = self._losers.tolist()
        return list(zip(spans[::2], spans[1::2], strict=True))

    def locate(self, pos: int) -> EntryPlace | None:
        """The entry that holds a position; None beyond what is indexed."""
        if pos >= self.end_pos:
            return None
        row = bisect_right(self._first_positions, pos) - 1
        first = self._first_positions[row]
        stop = self._first_positions[row + 1] if row + 1 < len(self._first_positions) else self.end_pos
        ledger_id = self.shards[self._shards[row]].ledger_id
        return EntryPlace(
            ledger_id, self._entries[row], ids.seqnum(self.term, first), ids.seqnum(self.term, stop), self._times[row]
        )

    def seek(self, time_ms: int) -> int | None:
        """The first position that was ordered at or after a time; None beyond what is indexed."""
        row = bisect_left(self._times, time_ms)
        return self._first_positions[row] if row < len(self._times) else None


class Places:
    """The entries of all terms."""

    def __init__(self) -> None:
        self.terms: dict[int, TermPlaces] = {}

    def begin(self, term: int, log: int, slots: Sequence[tuple[int, int]] = ()) -> TermPlaces:
        """The rows of a term; a term begins once."""
        assert term not in self.terms
        places = self.terms[term] = TermPlaces(term, log, slots)
        return places

    def locate(self, seqnum: int) -> EntryPlace:
        """The entry of a record that is in the index: the caller got the seqnum from there."""
        place = self.terms[ids.term_of(seqnum)].locate(ids.pos_of(seqnum))
        assert place is not None, f"seqnum {seqnum} is in the index, but its entry is not"
        return place

    def seek(self, book: int, time_ms: int) -> int:
        """Seqnum of the first place of a book's log that was ordered at or after a time; 0 when there is none yet.

        Times never decrease along a book: a term begins no earlier than those before it ended.
        """
        slot = ids.slot_of(book)
        for term in sorted(self.terms):
            places = self.terms[term]
            if any(first <= slot <= last for first, last in places.slots):
                pos = places.seek(time_ms)
                if pos is not None:
                    return ids.seqnum(term, pos)
        return 0

    def time_ms(self, seqnum: int) -> int:
        """When a record was ordered."""
        return self.locate(seqnum).time_ms

    @property
    def bytes(self) -> int:
        return sum(term.bytes for term in self.terms.values())

    @property
    def entry_count(self) -> int:
        return sum(term.entry_count for term in self.terms.values())
