"""What the log has decided: rows of streams, verdicts and writers, places of records, per engine for all logs. Pure.

    apply_entry     one entry of a data ledger, in the order of the log: verdicts, then rows, places, losers
    apply_command   one command of a metalog entry, after the records of its cut: Trim, Expire, Lost

Rules:
- It follows from the log alone: two engines that applied the same entries have equal states, also after a rebuild.
- What a log says of books that its term does not order changes nothing (`foreign_runs`).
- Nothing here runs per record, except appends to arrays in `index`.
- The caller feeds it in order: a term after all terms below it that share slots with it, entries as the cuts say.

It does not know where entries come from, who asked, and when an answer may leave.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np

from boki_common import limits
from boki_common.errors import BokiError, CorruptData
from boki_common.records.batch_layout import NO_EXPECTATIONS
from boki_common.records.numpy_pays import FEW_RUNS
from boki_common.records.record_batch import RecordBatch, Run
from boki_logbook.index.batch_streams import BatchStreams
from boki_logbook.index.index import TAIL_ROWS, Index
from boki_logbook.index.places import MINUTE_MS, LostEntries, Places, TermPlaces
from boki_logbook.index.sorted_run import U64
from boki_logbook.state.some_slots import indexed, keep_own, own_columns
from boki_logbook.state.state_snapshot import (
    StateSnapshot,
    index_of,
    pairs_of,
    places_of,
    rows_of,
    term_columns_of,
    verdicts_of,
    writer_columns_of,
)
from boki_logbook.writers.foreign_runs import ForeignRuns, SlotGuard, passed_over
from boki_logbook.writers.verdict import Decision, Span, Verdicts
from boki_logbook.writers.writers import Actual
from boki_metalog.entries.metalog_entry import Command, Expire, Lost, Trim
from boki_metalog.terms.term_order import ALL_SLOTS, slot_mask

FOREIGN_REPORTED: Final = 16
FORGET_AGE_S: Final = 3_600.0
"""A trim with `forget` of an earlier version, which says no time, drops an emptied stream whose newest record is older. Whole minutes
count."""


class StateDisagrees(BokiError):
    """What this engine applied, or wrote, is not what the log says: the state has to be built anew, of what others can read."""


class DecisionState:
    """See the module. Invariant: `records` counts all positions applied, of all terms."""

    def __init__(self, *, tail_rows: int = TAIL_ROWS, slots: int = ALL_SLOTS) -> None:
        """`slots`: only books of these are known, the bits of a number; see some_slots.py."""
        self._slots = slots
        self.index = Index(tail_rows=tail_rows)
        self.verdicts = Verdicts()
        self.places = Places()
        self.records = 0
        self.foreign: deque[ForeignRuns] = deque(maxlen=FOREIGN_REPORTED)
        """The newest entries that had what their terms do not order, for people."""
        self._current: dict[int, TermPlaces] = {}
        self._guards: dict[int, SlotGuard | None] = {}
        """Of terms that are applied now; None: everything that may come belongs there."""
        self._streams = BatchStreams(self.index)
        self._unindexed: tuple[TermPlaces, int, int, RecordBatch, Sequence[Span]] | None = None
        """The entry decided last, and the spans of its losers, while its records have not joined their streams."""

    # -- terms

    def begin_term(self, term: int, log: int, slots: Sequence[tuple[int, int]]) -> TermPlaces:
        """Entries of a new term follow; a term begins once, and ends the one before it of its log. `slots`: (first, last)
        inclusive ranges of the slots that the term orders."""
        before = self._current.get(log)
        if before is not None:
            self.end_term(before.term)
        places = self._current[log] = self.places.begin(term, log, slots)
        return places

    def end_term(self, term: int) -> None:
        """All of a term is applied: it is over."""
        self.index_decided()
        self._guards.pop(term, None)
        self.places.terms[term].end()

    def log_times(self) -> dict[int, int]:
        """The time of the newest cut of each log, in ms."""
        times: dict[int, int] = {}
        for places in self.places.terms.values():
            times[places.log] = max(times.get(places.log, 0), places.last_time_ms)
        return times

    def live(self, term: int) -> bool:
        """Whether the term is needed: it goes on, or has a live record, or is not known here. Else it may be reclaimed."""
        places = self.places.terms.get(term)
        return places is None or not places.over or places.live > 0

    # -- applying

    def apply_entry(self, places: TermPlaces, batch: RecordBatch, *, shard: int, entry: int, time_ms: int) -> Decision:
        """`decide_entry` and `index_decided`."""
        decision = self.decide_entry(places, batch, shard=shard, entry=entry, time_ms=time_ms)
        self.index_decided()
        return decision

    def decide_entry(self, places: TermPlaces, batch: RecordBatch, *, shard: int, entry: int, time_ms: int) -> Decision:
        """Decides the next entry in the order of the log. Its records take the positions from `places.end_pos` on.

        They join their streams, and are counted, with the next call that changes the state, or `index_decided`: who waits for the
        verdicts can be answered before. Nothing may be looked up between.
        """
        if self._unindexed is not None:
            self.index_decided()
        start = places.end_pos
        first_seqnum = places.first_seqnum + start
        streams = self._streams
        streams.begin(batch, first_seqnum)
        decision = None
        expectations = batch.expectations if batch.expectation_count else NO_EXPECTATIONS
        guard = self._guard(places)
        foreign = () if guard is None else guard.foreign(batch)
        if batch.run_count > FEW_RUNS and not foreign:
            decision = self.verdicts.decide_unconditional(
                batch.run_columns, expectations, first_seqnum, streams, time_ms
            )
        if decision is None:
            runs = passed_over(batch.runs, foreign) if foreign else batch.runs
            crcs = batch.crc_values if batch.crc_count else ()
            decision = self.verdicts.decide(runs, expectations, first_seqnum, streams, time_ms, crcs)
        if foreign:
            decision.foreign = self._foreign(places, shard, entry, [batch.runs[at] for at in foreign])
        places.add_entry(shard, entry, batch.record_count, time_ms)
        self.records += batch.record_count
        self._unindexed = places, shard, entry, batch, decision.losers
        return decision

    def _guard(self, places: TermPlaces) -> SlotGuard | None:
        """What of a term's entries is to be decided here; None: all of them, unseen."""
        term = places.term
        if term not in self._guards:
            slots = slot_mask(places.slots) & self._slots
            self._guards[term] = None if slots == ALL_SLOTS else SlotGuard(slots)
        return self._guards[term]

    def _foreign(self, places: TermPlaces, shard: int, entry: int, runs: Sequence[Run]) -> ForeignRuns | None:
        """What the term does not order, and not what is merely not indexed here."""
        slots = slot_mask(places.slots)
        found = [run for run in runs if not indexed(run.book, slots)]
        if not found:
            return None
        runs_elsewhere = ForeignRuns(places.term, shard, entry, sum(run.count for run in found), found[0].book)
        self.foreign.append(runs_elsewhere)
        return runs_elsewhere

    def index_decided(self) -> None:
        """All that was decided can be looked up."""
        if self._unindexed is None:
            return
        places, shard, entry, batch, losers = self._unindexed
        self._unindexed = None
        self._streams.join()
        start = places.end_pos - batch.record_count
        for first, stop in losers:
            places.add_losers(start + first, start + stop)
        places.count_entry(shard, entry, batch.record_count, losers, batch.raw_data_bytes)

    def pass_over(
        self, places: TermPlaces, records: int, *, shard: int, first_entry: int, stop_entry: int, time_ms: int
    ) -> None:
        """Lost entries had so many records: these keep their positions and join no stream."""
        self.index_decided()
        places.pass_over(shard, first_entry, stop_entry, records, time_ms)
        self.places.passed[places.term] = places
        self.records += records

    def agrees(self, lost: Lost) -> bool:
        """Whether the state is what it should be behind a LOST command: what it gave up as never indexed is not applied."""
        places = self.places.terms.get(lost.term)
        return lost.indexed or places is None or not places.applied(lost.shard, lost.first_entry, lost.stop_entry)

    def apply_command(self, places: TermPlaces, command: Command, *, time_ms: int) -> set[int]:
        """Obeys a command of a metalog entry, after the records of its cut; returns the books it touched.

        A Trim of n pairs costs some 10 µs a pair, 1 µs per row that dies, for tag 0 a look at each row of the book in memory, and
        now and then the rewriting of one run of the index (`index.MERGED_ROWS` rows at most).

        Raises:
            StateDisagrees: entries were applied that a Lost gives up.
        """
        self.index_decided()
        guard = self._guard(places)
        if guard is not None and isinstance(command, (Trim, Expire)) and not indexed(command.book, guard.slots):
            return set()
        if isinstance(command, Trim):
            self._trim(command, time_ms)
            return {command.book}
        if isinstance(command, Expire):
            book, writer, last, for_good = command
            return {book} if self.verdicts.expire(book, writer, last, for_good=for_good) else set()
        if isinstance(command, Lost):
            self._lose(command)
        return set()

    def _lose(self, command: Lost) -> None:
        places = self.places.terms.get(command.term)
        if not self.agrees(command):
            raise StateDisagrees(
                f"entries {command.first_entry} to below {command.stop_entry} of shard {command.shard} of term {command.term} "
                "were given up, and are applied here: the state is built anew",
                term=command.term,
                shard=command.shard,
            )
        if places is not None:
            places.lost.append(LostEntries(*command[1:]))

    def _trim(self, command: Trim, time_ms: int) -> None:
        pairs = command.pairs
        assert len(pairs) <= limits.TRIM_PAIRS, f"{len(pairs)} pairs in one Trim"
        self._died(self.index.trim(command.book, pairs))
        if command.forget:
            before_ms = command.forget_before_ms
            if before_ms is None:  # of an earlier version: it goes by the time of the log alone
                before_ms = time_ms - round(FORGET_AGE_S * 1000)
            before, minute = before_ms // MINUTE_MS, self.places.minute
            tags = list(dict.fromkeys(tag for tag, _ in pairs))
            floor = self.index.forget(command.book, tags, lambda seqnum: minute(seqnum) < before)
            self.verdicts.raise_floor(command.book, floor)

    def _died(self, seqnums: U64) -> None:
        """Records are live no more: terms count them, and shrink."""
        terms, counts = np.unique(seqnums >> np.uint64(limits.POSITION_BITS), return_counts=True)
        for term, count in zip(terms.tolist(), counts.tolist(), strict=True):
            self.places.terms[term].records_died(count)

    # -- snapshots

    def snapshot_state(self) -> StateSnapshot:
        """All of it, as columns that never change. The tail of the index is frozen for it."""
        index, verdicts = self.index, self.verdicts
        return StateSnapshot(
            records=self.records,
            terms=tuple(term_columns_of(self.places.terms[term]) for term in sorted(self.places.terms)),
            rows=rows_of(index),
            marks=index.marks.columns(),
            book_marks=pairs_of(index.book_marks),
            floors=pairs_of(verdicts.floors),
            writer_floors=pairs_of(verdicts.writers.past.by_slot),
            writers=writer_columns_of(verdicts.writers),
        )

    @classmethod
    def from_snapshot(
        cls, snapshot: StateSnapshot, *, tail_rows: int = TAIL_ROWS, slots: int = ALL_SLOTS
    ) -> DecisionState:
        """The state that a snapshot was taken of, or what it has of some slots; it goes on as that one would."""
        state = cls(tail_rows=tail_rows, slots=slots)
        state.verdicts = verdicts_of(snapshot)
        if slots != ALL_SLOTS:
            snapshot = own_columns(snapshot, slots)
            keep_own(state.verdicts, slots)
        state.records = snapshot.records
        state.index = index_of(snapshot, tail_rows=tail_rows)
        for columns in snapshot.terms:
            places = state.places.terms[columns.term] = places_of(columns)
            if not places.over:
                state._current[places.log] = places
            if places.passed:
                state.places.passed[columns.term] = places
        state._streams = BatchStreams(state.index)
        return state

    # -- looking

    def expectations_hold(self, book: int, tags: Sequence[int], expected: Sequence[int]) -> bool:
        """Whether all of these expectations hold now, each of a tag."""
        return self.verdicts.expectations_hold(book, self.index.newest_of(book, tags), expected)

    def would_fail(self, book: int, expectations: Sequence[tuple[int, int]]) -> Actual | None:
        """What a record with these (tag, seqnum) expectations will certainly be answered: it fails now, and for ever.

        An expectation of no record at all holds again when its stream is forgotten, so it alone decides nothing here. Must not
        be used to answer a run that was sent before: its number may be decided already.

        Returns:
            The `actual` of the Conflict, or None if the log has to decide.
        """
        newest, seen = self.index.newest, self.verdicts.seen
        for tag, expected in expectations:
            if expected and seen(book, newest(book, tag), expected) > expected:
                return tuple((tag, seen(book, newest(book, tag), expected)) for tag, expected in expectations)
        return None


def checked_state(snapshot: StateSnapshot, *, slots: int = ALL_SLOTS) -> DecisionState:
    """The state of a snapshot that was read. Its digests may be right and its content not. Raises CorruptData: no state can be
    made of it."""
    try:
        return DecisionState.from_snapshot(snapshot, slots=slots)
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        raise CorruptData(f"no state can be made of an index snapshot: {type(error).__name__}: {error}") from error
