"""Applies one metalog entry of a log: entry after entry of its data ledgers, then its commands (DESIGN §6.6).

    ranges per shard → each data ledger entry, in order → verdicts, index rows, places, losers → commands

It stops where an entry is not here yet, and goes on from there. Own entries are taken from memory, others from the header feed.
Entries that LOST commands gave up, and that no snapshot has, are passed over, also when they can be had: so do all engines. Their
records keep their positions; who sent them is answered with a gap (`answers_due`), and sends them again. An entry that is not what its
cut means is one that cannot be read (`entry_fit`): it blocks, is reported, and may be given up.

Nothing here runs per record except appends to arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

from boki_common.logs import get_logger
from boki_common.records.record_batch import RecordBatch
from boki_logbook.append.appender import Appender
from boki_logbook.append.shard import OwnEntry
from boki_logbook.apply.answers_due import AnswersDue
from boki_logbook.apply.engine_parts import EngineParts
from boki_logbook.apply.header_feed import HeaderFeed
from boki_logbook.apply.received_order import Cut
from boki_logbook.index.places import TermPlaces
from boki_logbook.read.entry_fit import make_fit
from boki_logbook.read.parked_reads import Arrival
from boki_logbook.state.state import StateDisagrees
from boki_metalog.entries.progress import ShardRange

_log = get_logger("engine.indexer")


class CutApplier:
    """See the module. Of one log. `answers`: what is due to who appended, as far as it is decided. `caching`: whether fetched
    entries go into the cache: not while rebuilding, when all of them come by."""

    def __init__(self, log: int, parts: EngineParts, own: Appender, feed: HeaderFeed) -> None:
        self.answers = AnswersDue()
        self.caching = False
        self._log = log
        self._state = parts.state
        self._given_up = parts.given_up
        self._cache = parts.cache
        self._own = own
        self._feed = feed
        self._range = 0
        self._entry = 0
        self._skipped: int | None = None
        """The first of the entries just passed over as lost; how many records they had is not known yet."""
        self._arrived: list[Arrival] = []
        """What was applied of the cut that is being applied. One item an entry."""

    @property
    def between_cuts(self) -> bool:
        """Whether what is applied ends with a metalog entry."""
        return not (self._range or self._entry)

    def needs_snapshot(self, cut: Cut) -> bool:
        """Whether the next entry of the cut was given up, and only a snapshot has what the log decided by it."""
        if cut.term.places is None or self._range == len(cut.ranges):
            return False
        one = cut.ranges[self._range]
        return self._given_up.in_snapshot_only(cut.term.info.term, one.shard, one.first_entry + self._entry)

    def apply(self, cut: Cut) -> Sequence[Arrival] | None:
        """Applies the entries of a cut from where it stopped, then its commands; None when an entry is not here yet. What came."""
        places = cut.term.places
        assert places is not None, "its term has begun"
        for one in cut.ranges[self._range :]:
            for entry in range(one.first_entry + self._entry, one.first_entry + one.entry_count):
                if not self._apply_entry(cut, places, one, entry):
                    return None
                self._entry += 1
            if self._skipped is not None:
                self._pass_over(cut, places, one, one.first_entry + one.entry_count, one.first_pos + one.record_count)
            self._range += 1
            self._entry = 0
        self._range = 0
        assert places.end_pos == cut.end_pos, "each entry was where its cut means it to be"
        for command in cut.commands:
            self._state.apply_command(places, command, time_ms=cut.time_ms)
        self.answers.cut_passed()
        arrived, self._arrived = self._arrived, []
        return arrived

    def _apply_entry(self, cut: Cut, places: TermPlaces, one: ShardRange, entry: int) -> bool:
        """The next data ledger entry; False when it is not here yet."""
        term, ledger_id, given_up = places.term, places.shards[one.shard].ledger_id, self._given_up
        own = self._own.take(term, one.shard, entry)
        batch = own.batch if own is not None else self._feed.take(ledger_id, entry)
        if batch is None and not self._feed.take_lost(ledger_id, entry):
            return False
        if batch is None or (given_up.commands and given_up.joins_nothing(term, one.shard, entry)):
            self._skip(own, entry)
            return True
        if not self._is_meant(batch, own, places, one, entry):
            return False
        if self._skipped is not None:
            self._pass_over(cut, places, one, entry, batch.first_local_id - one.first_record + one.first_pos)
        if own is not None or (self.caching and batch.has_data):
            self._cache.put(ledger_id, entry, batch)
        self._arrived.append(Arrival(batch, places.first_seqnum + places.end_pos))
        self._decide(cut, places, one, entry, batch, own)
        return True

    def _decide(
        self, cut: Cut, places: TermPlaces, one: ShardRange, entry: int, batch: RecordBatch, own: OwnEntry | None
    ) -> None:
        decision = self._state.decide_entry(places, batch, shard=one.shard, entry=entry, time_ms=cut.time_ms)
        if decision.foreign is not None:
            _log.error("what the term does not order joined nothing", log=self._log, found=decision.foreign)
        if own is not None:
            self.answers.decided(own, decision)

    def _skip(self, own: OwnEntry | None, entry: int) -> None:
        self._skipped = entry if self._skipped is None else self._skipped
        if own is not None:
            self.answers.passed_over(own, self._state.verdicts.last)

    def _pass_over(self, cut: Cut, places: TermPlaces, one: ShardRange, stop_entry: int, end_pos: int) -> None:
        """The records of lost entries, up to `stop_entry`, keep their positions, up to `end_pos`, and join no stream."""
        entry, self._skipped = self._skipped, None
        assert entry is not None
        records = end_pos - places.end_pos
        assert 0 <= records <= one.record_count, "what follows lost entries begins behind what was before them"
        self._state.pass_over(
            places, records, shard=one.shard, first_entry=entry, stop_entry=stop_entry, time_ms=cut.time_ms
        )

    def _is_meant(
        self, batch: RecordBatch, own: OwnEntry | None, places: TermPlaces, one: ShardRange, entry: int
    ) -> bool:
        """Whether an entry is the one that the cut means, and begins where the one before it ended; else it is looked for.
        Raises StateDisagrees: it is our own."""
        first = batch.first_local_id if own is None else own.records_end - batch.record_count
        stop_record, last = one.first_record + one.record_count, entry == one.first_entry + one.entry_count - 1
        begin = places.end_pos - one.first_pos + one.first_record
        fit = make_fit((places.term, one.shard, begin, stop_record, last, self._skipped is not None))
        if fit.has(first, first + batch.record_count) and (
            own is not None or (batch.term == places.term and batch.shard == one.shard)
        ):
            return True
        if own is not None:
            raise StateDisagrees(
                f"records {first} to below {first + batch.record_count} of shard {one.shard} of term {places.term}, as this engine "
                f"wrote them, are ordered as {fit}: beginning anew",
                term=places.term,
                shard=one.shard,
            )
        ledger_id = places.shards[one.shard].ledger_id
        self._cache.drop(ledger_id, entry)
        self._feed.unfit(ledger_id, entry, fit, fit.fault_of(batch) or "")
        return False
