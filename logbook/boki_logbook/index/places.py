"""Where records lie: seqnum → data ledger, entry and time, from one row per *entry* of each term (DESIGN §7). Pure.

    per term    first_pos u64 | shard u32 | entry u64 | time_ms i64      one row per entry, in order of the log
                shard → data ledger, how far it is ordered, whether it is closed
                spans of positions that lost (duplicates, gaps, voids, conflicts): no stream has them, but verdicts that were
                reached once must be known to whoever reads the ledgers without the history before them

A cut never splits an entry and positions are dense, so a record's entry is the last row at or below its position.

Per shard it is counted what was ordered, and a *digest* rolls over all positions and losers: with e the xxh3-64 of (shard,
entry, first position, records, losers as spans within the entry), digest = (digest * DIGEST_FACTOR + e) mod 2**64, entry after
entry. The digest of a term is the same over those of its shards, by their numbers: positions are of the term, so it tells
orders apart too. Equal digests: the same entries at the same places with the same verdicts.

A term that is over and has no live record keeps its counts and the minutes of its records; rows and losers go (`shrink`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Final, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from boki_common import ids, limits
from boki_logbook.index.sorted_run import U64

DIGEST_FACTOR: Final = 0x9E37_79B9_7F4A_7C15
_DIGEST_MASK: Final = 2**64 - 1
_DIGESTED: Final = Struct("<IQQI")
_SPAN: Final = Struct("<II")
MINUTE_MS: Final = 60_000


class EntryPlace(NamedTuple):
    """One entry of a data ledger and the seqnums of its records, [first_seqnum, stop_seqnum)."""

    ledger_id: int
    entry: int
    first_seqnum: int
    stop_seqnum: int
    time_ms: int


_make_place: Final = cast(Callable[[tuple[int, int, int, int, int]], EntryPlace], partial(tuple.__new__, EntryPlace))
"""`EntryPlace._make` without a frame of Python: one for each record that is read."""


class Counts(NamedTuple):
    """What was ordered of a term, or of one of its shards. See the module for the digest."""

    entries: int
    records: int
    committed: int
    data_bytes: int
    digest: int


Evidence: TypeAlias = bytes
"""UTF-8 JSON, for people."""


class LostEntries(NamedTuple):
    """Entries of a shard that an ordered command gave up."""

    shard: int
    first_entry: int
    stop_entry: int
    evidence: Evidence
    indexed: bool = False


class PassedOver(NamedTuple):
    """Entries of a shard that were given up before they were applied: their records, at [first_pos, stop_pos), are unknown
    and joined nothing."""

    shard: int
    first_entry: int
    stop_entry: int
    first_pos: int
    stop_pos: int


@dataclass(slots=True, eq=False)
class ShardPlace:
    """A shard of a term: one data ledger, how far it is ordered, and what is applied of it. Its methods alone change it."""

    term: int
    number: int
    ledger_id: int
    incarnation: str
    records_end: int = 0
    entries_end: int = 0
    closed: bool = False
    entries: int = 0
    records: int = 0
    committed: int = 0
    data_bytes: int = 0
    digest: int = 0

    @property
    def counts(self) -> Counts:
        """What is applied of it."""
        return Counts(self.entries, self.records, self.committed, self.data_bytes, self.digest)

    def cut(self, records_end: int, entries_end: int) -> None:
        """It is ordered up to these ends."""
        self.records_end, self.entries_end = records_end, entries_end

    def close(self) -> None:
        """Nothing more of it will be ordered."""
        self.closed = True

    def restore(self, records_end: int, entries_end: int, closed: bool, counts: Counts) -> None:
        """Goes on from a snapshot."""
        self.records_end, self.entries_end, self.closed = records_end, entries_end, closed
        self.entries, self.records, self.committed, self.data_bytes, self.digest = counts

    def applied(self, records: int, committed: int, data_bytes: int, packed: bytes) -> None:
        """Its next entry is applied; `packed` is what distinguishes it from another."""
        self.entries += 1
        self.records += records
        self.committed += committed
        self.data_bytes += data_bytes
        self.digest = (self.digest * DIGEST_FACTOR + xxh3_64_intdigest(packed)) & _DIGEST_MASK

    def passed_over(self, entries: int) -> None:
        """So many more entries were given up."""
        self.entries += entries


class TermPlaces:
    """The entries of one term, as far as they are indexed. Invariant: `live` of its committed records are live."""

    def __init__(self, term: int, log: int, slots: Sequence[tuple[int, int]] = ()) -> None:
        self.term = term
        self.log = log
        self.slots = tuple(slots)
        self.first_seqnum: Final = ids.seqnum(term, 0)
        self.end_pos = 0
        self.shards: dict[int, ShardPlace] = {}
        self._first_positions = array("Q")
        self._shards = array("I")
        self._entries = array("Q")
        self._times = array("q")
        self._losers = array("Q")
        self._minutes = array("Q")
        self._minute_positions = array("Q")
        self._minute_end_ms = 0
        self.live = 0
        self.last_time_ms = 0
        self.over = False
        """Whether nothing more will be ordered in it."""
        self.lost: list[LostEntries] = []
        self.passed: list[PassedOver] = []

    @property
    def entry_count(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        return 28 * len(self._entries) + 8 * len(self._losers) + 16 * len(self._minutes)

    def add_entry(self, shard: int, entry: int, record_count: int, time_ms: int) -> None:
        """The next entry in the order of the log; one without records has no row."""
        if not record_count:
            return
        self._first_positions.append(self.end_pos)
        self._shards.append(shard)
        self._entries.append(entry)
        self._times.append(time_ms)
        if time_ms >= self._minute_end_ms:
            minute = time_ms // MINUTE_MS
            self._minutes.append(minute)
            self._minute_positions.append(self.end_pos)
            self._minute_end_ms = (minute + 1) * MINUTE_MS
        self.last_time_ms = time_ms
        self.end_pos += record_count

    def count_entry(
        self, shard: int, entry: int, record_count: int, losers: Sequence[tuple[int, int]], data_bytes: int
    ) -> None:
        """Counts the entry that was added last; `losers` are spans of its records."""
        packed = _DIGESTED.pack(shard, entry, self.end_pos - record_count, record_count)
        committed = record_count
        for span in losers:
            packed += _SPAN.pack(*span)
            committed += span[0] - span[1]
        self.shards[shard].applied(record_count, committed, data_bytes, packed)
        self.live += committed

    def pass_over(self, shard: int, first_entry: int, stop_entry: int, record_count: int, time_ms: int) -> None:
        """Entries that were given up had so many records: these take their positions, and are counted as losers."""
        first_pos = self.end_pos
        self.add_entry(shard, first_entry, record_count, time_ms)
        if record_count:
            self.add_losers(first_pos, self.end_pos)
        self.count_entry(shard, first_entry, record_count, [(0, record_count)] if record_count else [], 0)
        self.shards[shard].passed_over(stop_entry - first_entry - 1)
        self.passed.append(PassedOver(shard, first_entry, stop_entry, first_pos, self.end_pos))

    def applied(self, shard: int, first_entry: int, stop_entry: int) -> bool:
        """Whether any of these entries was applied, not passed over. Entries of a shard are applied in their order."""
        place = self.shards.get(shard)
        stop = stop_entry if place is None else min(stop_entry, place.entries)
        for passed in self.passed:
            if passed.shard == shard and passed.first_entry <= first_entry:
                first_entry = max(first_entry, passed.stop_entry)
        return place is not None and first_entry < stop

    @property
    def counts(self) -> Counts:
        """What is applied of it."""
        entries = records = committed = data_bytes = digest = 0
        for _, shard in sorted(self.shards.items()):
            entries += shard.entries
            records += shard.records
            committed += shard.committed
            data_bytes += shard.data_bytes
            digest = (digest * DIGEST_FACTOR + shard.digest) & _DIGEST_MASK
        return Counts(entries, records, committed, data_bytes, digest)

    def end(self) -> None:
        """All of it is applied."""
        self.over = True
        self._shrink()

    def records_died(self, count: int) -> None:
        """So many of its records are live no more."""
        self.live -= count
        assert self.live >= 0, f"more records of term {self.term} died than lived"
        self._shrink()

    def _shrink(self) -> None:
        """Lets go of the rows if nobody can ask for them any more: the term is over and without live records."""
        if self.over and not self.live:
            self._first_positions, self._shards = array("Q"), array("I")
            self._entries, self._times, self._losers = array("Q"), array("q"), array("Q")

    def columns(self) -> tuple[U64, NDArray[np.uint32], U64, NDArray[np.int64], U64, U64, U64]:
        """First positions, shards, entries, times, losers, minutes, minute positions, copied."""
        return (
            np.array(self._first_positions, np.uint64),
            np.array(self._shards, np.uint32),
            np.array(self._entries, np.uint64),
            np.array(self._times, np.int64),
            np.array(self._losers, np.uint64),
            np.array(self._minutes, np.uint64),
            np.array(self._minute_positions, np.uint64),
        )

    def arrays(self) -> tuple[array[int], array[int], array[int], array[int], array[int]]:
        """First positions, shards, entries, times and losers themselves, for who takes a part of them later: they grow at their
        ends, but for the last bound of the losers, and are replaced, not emptied. A view of one must not outlive its turn."""
        return self._first_positions, self._shards, self._entries, self._times, self._losers

    def take_columns(
        self,
        first_positions: U64,
        shards: NDArray[np.uint32],
        entries: U64,
        times: NDArray[np.int64],
        losers: U64,
        minutes: U64,
        minute_positions: U64,
    ) -> None:
        """Takes what `columns` gave."""
        for mine, column in (
            (self._first_positions, first_positions),
            (self._shards, shards),
            (self._entries, entries),
            (self._times, times),
            (self._losers, losers),
            (self._minutes, minutes),
            (self._minute_positions, minute_positions),
        ):
            assert not mine, "columns are taken into an empty term"
            mine.frombytes(column.view(np.uint8).data)
        self._minute_end_ms = (self._minutes[-1] + 1) * MINUTE_MS if self._minutes else 0

    def minute(self, pos: int) -> int:
        """The minute in which a position was ordered, by the cuts' time; known also when the rows are gone."""
        return self._minutes[bisect_right(self._minute_positions, pos) - 1]

    def evidence(self, shard: int, entry: int) -> Evidence | None:
        """Why an entry is lost; None if it is not."""
        for lost in self.lost:
            if lost.shard == shard and lost.first_entry <= entry < lost.stop_entry:
                return lost.evidence
        return None

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
        """The entry that holds a position; None beyond what is indexed, and in a term whose rows are gone."""
        if pos >= self.end_pos or not self._entries:
            return None
        firsts = self._first_positions
        row = bisect_right(firsts, pos) - 1
        stop = firsts[row + 1] if row + 1 < len(firsts) else self.end_pos
        ledger_id = self.shards[self._shards[row]].ledger_id
        term = self.term << limits.POSITION_BITS
        return _make_place((ledger_id, self._entries[row], term | firsts[row], term | stop, self._times[row]))

    def row(self, pos: int) -> tuple[int, int] | None:
        """Shard and entry of a position; None as `locate`."""
        if pos >= self.end_pos or not self._entries:
            return None
        at = bisect_right(self._first_positions, pos) - 1
        return self._shards[at], self._entries[at]

    def seek(self, time_ms: int) -> int | None:
        """The first position that was ordered at or after a time, or one before it with dead records only between; None
        beyond what is indexed."""
        if not self._times and self.last_time_ms >= time_ms and self._minutes:
            return self._minute_positions[min(bisect_left(self._minutes, time_ms // MINUTE_MS), len(self._minutes) - 1)]
        row = bisect_left(self._times, time_ms)
        return self._first_positions[row] if row < len(self._times) else None


class Places:
    """The entries of all terms."""

    def __init__(self) -> None:
        self.terms: dict[int, TermPlaces] = {}
        self.passed: dict[int, TermPlaces] = {}
        """The terms in which entries were passed over."""

    def begin(self, term: int, log: int, slots: Sequence[tuple[int, int]] = ()) -> TermPlaces:
        """The rows of a term; a term begins once."""
        assert term not in self.terms
        places = self.terms[term] = TermPlaces(term, log, slots)
        return places

    def locate(self, seqnum: int) -> EntryPlace:
        """The entry of a record that is in the index: the caller got the seqnum from there."""
        term = seqnum >> limits.POSITION_BITS
        place = self.terms[term].locate(seqnum - (term << limits.POSITION_BITS))
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

    def minute(self, seqnum: int) -> int:
        """The minute in which a record was ordered, dead or alive."""
        return self.terms[ids.term_of(seqnum)].minute(ids.pos_of(seqnum))

    def evidence(self, seqnum: int) -> Evidence | None:
        """Why the entry of a record is lost; None if it is not."""
        places = self.terms[ids.term_of(seqnum)]
        row = places.row(ids.pos_of(seqnum)) if places.lost else None
        return None if row is None else places.evidence(*row)

    def lost_spans(self, book: int, first: int, stop: int) -> list[tuple[int, int]]:
        """Seqnums in [first, stop) of which nobody knows whether they were records of the book; ascending, not touching."""
        slot = ids.slot_of(book)
        spans: list[tuple[int, int]] = []
        for term in sorted(self.passed):
            places = self.passed[term]
            if not any(low <= slot <= high for low, high in places.slots):
                continue
            for passed in places.passed:
                begin, end = places.first_seqnum + passed.first_pos, places.first_seqnum + passed.stop_pos
                begin, end = max(begin, first), min(end, stop)
                if begin >= end:
                    continue
                if spans and spans[-1][1] == begin:
                    begin = spans.pop()[0]
                spans.append((begin, end))
        return spans

    @property
    def last_time_ms(self) -> int:
        """The newest cut time of all terms; 0 before the first."""
        return max((term.last_time_ms for term in self.terms.values()), default=0)

    def time_ms(self, seqnum: int) -> int:
        """When a record was ordered."""
        return self.locate(seqnum).time_ms

    @property
    def bytes(self) -> int:
        return sum(term.bytes for term in self.terms.values())

    @property
    def entry_count(self) -> int:
        return sum(term.entry_count for term in self.terms.values())
