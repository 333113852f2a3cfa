"""What the log has decided: rows of streams, verdicts and writers, places of records, per engine for all logs. Pure.

    apply_entry     one entry of a data ledger, in the order of the log: verdicts, then rows, places, losers

Rules:
- It follows from the log alone: two engines that applied the same entries have equal states, also after a rebuild.
- Nothing here runs per record, except appends to arrays in `index`.
- The caller feeds it in order: a term after all terms below it that share slots with it, entries as the cuts say.

It does not know where entries come from, who asked, and when an answer may leave.
"""

from __future__ import annotations

from collections.abc import Sequence

from boki_common import ids
from boki_common.record_batch import RecordBatch
from boki_logbook.index import Index
from boki_logbook.places import Places, TermPlaces
from boki_logbook.verdict import Decision, Verdicts


class _BatchStreams:
    """The index as conditions of one batch see it: its committed records join it on the way."""

    __slots__ = ("_index", "batch", "first_seqnum", "newest")

    def __init__(self, index: Index) -> None:
        self._index = index
        self.newest = index.newest
        self.batch: RecordBatch
        self.first_seqnum = 0

    def commit(self, first: int, stop: int) -> None:
        self._index.add(self.batch, first, stop, self.first_seqnum)


class DecisionState:
    """See the module. Invariant: `records` counts all positions applied, of all terms."""

    def __init__(self) -> None:
        self.index = Index()
        self.verdicts = Verdicts()
        self.places = Places()
        self.records = 0
        self._streams = _BatchStreams(self.index)

    def begin_term(self, term: int, log: int, slots: Sequence[tuple[int, int]]) -> TermPlaces:
        """Entries of a new term follow; a term begins once.

        Args:
            slots: (first, last) inclusive ranges of the slots that the term orders.
        """
        return self.places.begin(term, log, slots)

    def apply_entry(self, places: TermPlaces, batch: RecordBatch, *, shard: int, entry: int, time_ms: int) -> Decision:
        """Decides the next entry in the order of the log. Its records take the positions from `places.end_pos` on."""
        start = places.end_pos
        first_seqnum = ids.seqnum(places.term, start)
        streams = self._streams
        streams.batch, streams.first_seqnum = batch, first_seqnum
        decision = self.verdicts.decide(
            batch.runs, batch.expectations, first_seqnum, streams, time_ms, batch.crc_values
        )
        places.add_entry(shard, entry, batch.record_count, time_ms)
        for first, stop in decision.losers:
            places.add_losers(start + first, start + stop)
        self.records += batch.record_count
        return decision

    def pass_over(self, places: TermPlaces, records: int, *, shard: int, entry: int, time_ms: int) -> None:
        """Lost entries, from `entry` on, had so many records: these keep their positions and join no stream."""
        start = places.end_pos
        places.add_entry(shard, entry, records, time_ms)
        if records:
            places.add_losers(start, start + records)
        self.records += records

    def mark(self, book: int, tag: int) -> int:
        """Reads of the stream below this are answered Trimmed; 0: it was never trimmed."""
        return self.index.mark(book, tag)

    def newest(self, book: int, tag: int) -> int:
        """Seqnum of the newest record that ever joined the stream, 0 if none did."""
        return self.index.newest(book, tag)

    def writer_last(self, book: int, writer: bytes) -> int:
        """The last decided number of a writer in a book, 0 if none."""
        return self.verdicts.last(book, writer)
