"""What becomes of each numbered append: duplicates first, then conditions (DESIGN §6.6, §6.9). Pure.

Every indexing engine decides the same records in the same order from the log alone, so this module knows no clock, no
connection and no entry: it takes runs in the order of the log and says per run what its numbers are worth. For number n of
a writer whose last decided number in the book is `last`:

    n ≤ last       duplicate: the answer of the first, or FORGOTTEN when nobody may ask for it any more; of a named writer
                   REUSED if the record, or the one that a VOID run says it voids (void_checksums.py), is another one
    n > last + 1   gap: not decided, nothing changes; the answer carries `last`
    n = last + 1   decided now and for ever, also when it loses:
                     VOID run                        NEVER
                     an expectation does not hold    CONFLICT, with the newest seqnum of each expected tag
                     else                            COMMITTED
    n = 1, and the writer is not known and as old as one that was forgotten (writer_floors.py)
                   TOO_OLD: not decided, nothing changes; the answer carries the floor
    FOREIGN run    gap: not decided, nothing changes (foreign_runs.py)

An expectation (tag, s) holds iff the stream has no record newer than s; s = 0 expects that it never had one. The records
committed before it, in the same batch too, count. Of a stream that nothing is known of, s below the book's floor may have
been forgotten: it fails. A stream that is known was never forgotten since, so it is judged by its newest record.

A run without expectations costs O(1), however many records it has. The expectations of a run are looked at together: when
all hold by what was decided before the batch, and no record of the batch before theirs joined one of their streams, the run is
as one that has none; else they are looked at record by record. Many runs that are all of different writers, in turn and
without conditions that may fail are decided together (`decide_unconditional`). What is known of writers, and for how long, is in
writers.py and writer_table.py. An ordered EXPIRE forgets a writer, and nothing else does: END runs of DESIGN §6.9 are as any other
(ADR 23).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import repeat
from operator import gt, itemgetter
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from boki_common import limits
from boki_common.engine.engine_protocol import NEWEST_FORGOTTEN
from boki_common.errors import TooManyWriters
from boki_common.records.batch_layout import NO_EXPECTATIONS, Expectations
from boki_common.records.record_batch import RUN_NAMED, RUN_VOID, Run
from boki_logbook.writers.foreign_runs import RUN_FOREIGN, ForeignRuns
from boki_logbook.writers.writer_table import FLOOR, LAST, SEQNUM, TIME, WRITER_KEY, WriterTable
from boki_logbook.writers.writers import COMMITTED, CONFLICT, DUPLICATE, GAP, NEVER, TOO_OLD, WriterState, make_answer
from boki_logbook.writers.writers import NOBODY as _NOBODY
from boki_logbook.writers.writers import Answer as Answer

BOOK_NAMED_WRITERS: Final = 1 << 20
"""Named writers of one book. An engine refuses the first append of one more before it is numbered: nothing that can be
refused is numbered. So several engines together may let in a few more."""
NAMED_WRITERS_SPARED: Final = 1 << 16
"""Writers that may begin beyond that, having been admitted while there was room."""

_pack_key = WRITER_KEY.pack

Span: TypeAlias = tuple[int, int]
"""A half-open range of records within a batch."""
_Pair: TypeAlias = tuple[int, int]
"""A tag, and what is expected of its stream."""


class Streams(Protocol):
    """The streams that conditions look at and committed records join."""

    def commit(self, first: int, stop: int) -> None:
        """Records [first, stop) of the batch join their streams. Called in ascending order, before any later `newest`."""

    def newest(self, book: int, tag: int) -> int:
        """Seqnum of the newest record that ever joined the stream; 0 if none did."""

    def newest_before(self, book: int, tags: Sequence[int], records: Sequence[int]) -> list[int] | None:
        """`newest` of some streams, each as it is before a record of the batch joins; None where an earlier record of the batch
        may join one of them."""


class Decision:
    """The verdicts on one batch: answers in order of the runs, and the records that join no stream."""

    __slots__ = ("_answers", "_committed", "_joined", "_streams", "first_seqnum", "foreign", "losers")

    def __init__(self, streams: Streams, first_seqnum: int, committed: NDArray[np.void] | None = None) -> None:
        """`committed`: many runs (`RecordBatch.run_columns`) that are all committed, one after another."""
        self.first_seqnum = first_seqnum
        """Of the first record of the batch."""
        self.losers: list[Span] = []
        self.foreign: ForeignRuns | None = None
        """What the batch has of books that its term does not order."""
        self._answers: list[Answer] = []
        self._committed = committed
        """Runs whose answers nobody asked for yet."""
        self._streams = streams
        self._joined = 0

    @property
    def answers(self) -> list[Answer]:
        """Row by row. Of many runs that are all committed they are made when they are asked for."""
        runs = self._committed
        if runs is not None:
            self._committed = None
            counts = runs["count"].astype(np.uint64)
            seqnums = np.cumsum(counts) - counts + np.uint64(self.first_seqnum)
            columns = zip(runs["first"].tolist(), counts.tolist(), seqnums.tolist(), strict=True)
            self._answers = [
                make_answer((at, first, count, seqnum, COMMITTED, _NOBODY))
                for at, (first, count, seqnum) in enumerate(columns)
            ]
        return self._answers

    def all_committed(self, runs: int) -> bool:
        """Whether each of so many runs was committed as a whole, one after another."""
        return self._committed is not None or (not self.losers and len(self._answers) == runs)

    def commit_before(self, record: int) -> None:
        """Joins the committed records before `record` to their streams, those that were not yet."""
        if self._joined < record:
            self._streams.commit(self._joined, record)
            self._joined = record

    def lose(self, first: int, stop: int) -> None:
        """Records [first, stop) join nothing."""
        self.commit_before(first)
        self._joined = stop
        if self.losers and self.losers[-1][1] == first:
            self.losers[-1] = (self.losers[-1][0], stop)
        else:
            self.losers.append((first, stop))


class Verdicts:
    """The writers of all books, their floors, and the rule."""

    def __init__(self) -> None:
        self.writers = WriterTable()
        self._named: dict[int, int] = {}
        self.floors: dict[int, int] = {}

    def restore(self, writers: WriterTable, floors: dict[int, int]) -> None:
        """Takes what was known of writers and floors."""
        self.writers, self.floors = writers, floors
        books = (WRITER_KEY.unpack(key)[0] for key, state in writers.states.items() if state.named)
        self._named = dict(Counter(books))

    def last(self, book: int, writer: bytes) -> int:
        """The last decided number of a writer in a book, 0 if none."""
        return self.writers.last(book, writer)

    def state(self) -> dict[tuple[int, bytes], tuple[object, ...]]:
        """All that is known of writers, as plain values: equal for two engines at one position."""
        return {
            key: (one.last, one.floor, tuple(map(tuple, one.kept)), one.named, one.time_ms, one.crcs.tolist())
            for key, one in sorted(self.writers.items(), key=_key_of)
        }

    # -- writers come and go

    def admits(self, book: int, writer: bytes) -> bool:
        """Whether a named writer may begin, or go on, in a book; asked before its append is numbered."""
        return self._named.get(book, 0) < BOOK_NAMED_WRITERS or (book, writer) in self.writers

    def check_named(self, runs: Sequence[Run]) -> None:
        """Check a batch before it is numbered. Raises TooManyWriters: a named writer begins in a book that has none to spare. SDKs ask
        before (`admits`), so this meets peers that do not; `NAMED_WRITERS_SPARED` lets those in that asked at the same time."""
        for run in runs:
            begins = run.first == 1 and run.flags & RUN_NAMED
            most = BOOK_NAMED_WRITERS + NAMED_WRITERS_SPARED
            if begins and self._named.get(run.book, 0) >= most and (run.book, run.writer) not in self.writers:
                raise TooManyWriters(
                    f"expected at most {BOOK_NAMED_WRITERS} named writers of book {run.book}: ask for the writer before it appends",
                    found=self._named[run.book],
                    book=run.book,
                )

    def expire(self, book: int, writer: bytes, last: int, *, for_good: bool = True) -> bool:
        """Forgets a writer, unless it went on: False. `for_good`: a session writer does not begin anew, nor one as old."""
        if last != self.writers.last(book, writer) or not last:
            return False
        state = self.writers.pop(WRITER_KEY.pack(book, writer))
        if state is not None and state.named:
            self._named[book] -= 1
            if not self._named[book]:
                del self._named[book]
        elif for_good:
            self.writers.past.forgotten(book, writer)
        return True

    # -- floors

    def floor(self, book: int) -> int:
        """The newest record of the streams that the book has forgotten; 0 if it has forgotten none."""
        return self.floors.get(book, 0)

    def raise_floor(self, book: int, seqnum: int) -> None:
        """Streams were forgotten whose newest record was this."""
        if seqnum > self.floors.get(book, 0):
            self.floors[book] = seqnum

    def seen(self, book: int, newest: int, expected: int) -> int:
        """The newest record of a stream, as a failed expectation is answered: NEWEST_FORGOTTEN if it may have been above."""
        return NEWEST_FORGOTTEN if not newest and 0 < expected < self.floors.get(book, 0) else newest

    def expectations_hold(self, book: int, newest: Sequence[int], expected: Sequence[int]) -> bool:
        """Whether all of some expectations hold; `newest` of their streams."""
        if book in self.floors:
            newest = list(map(self.seen, repeat(book), newest, expected))
        return not any(map(gt, newest, expected))

    # -- the rule

    def decide(
        self,
        runs: Sequence[Run],
        expectations: Expectations,
        first_seqnum: int,
        streams: Streams,
        time_ms: int = 0,
        crcs: Sequence[int] = (),
    ) -> Decision:
        """Decides one batch whose records have the seqnums first_seqnum, +1, ….

        Args:
            runs: in the order of the batch.
            expectations: of all runs, in the same order.
            streams: called with the records that join, before it is asked for anything newer.
            time_ms: of the cut.
            crcs: one per record of a NAMED run.
        """
        decision = Decision(streams, first_seqnum)
        answers, writers = decision.answers, self.writers
        rows, words = writers.rows, writers.words
        start = expected = checked = 0  # where the run begins: its records, expectations, checksums
        for at, run in enumerate(runs):
            book, writer, first, low, count, _, expectation_count, flags = run
            key, seqnum = _pack_key(book, writer), first_seqnum + start
            holds, wanted = True, NO_EXPECTATIONS
            if expectation_count:
                wanted = expectations.part(expected, expected + expectation_count)
                expected += expectation_count
                holds = self._all_hold(book, wanted, start, streams)  # then it is as one without
            plain = holds and first == low and 0 < count <= limits.WINDOW_RECORDS and not flags
            if plain:
                # Of a writer that has a row, or can have one, that is nearly always all there is to look at.
                row = rows.get(key)
                if row is None:
                    row, words = writers.row_of(key, first), writers.words
                if row is not None and words[row + LAST] == first - 1:
                    words[row + LAST] = first + count - 1
                    words[row + FLOOR] = first
                    words[row + SEQNUM] = seqnum
                    words[row + TIME] = time_ms
                    answers.append(make_answer((at, first, count, seqnum, COMMITTED, _NOBODY)))
                    start += count
                    continue
            state = None if flags & RUN_FOREIGN else writers.state(key) or self._begin(run, key)
            if state is None:
                self._refuse(at, run, start, decision)
                start, checked = start + count, checked + (count if flags & RUN_NAMED else 0)
                continue
            state.time_ms = time_ms
            if first == state.last + 1 and count and holds and not flags & RUN_VOID:
                state.decided(first, count, seqnum, COMMITTED)
                answers.append(make_answer((at, first, count, seqnum, COMMITTED, _NOBODY)))
            elif count:
                of_run = crcs[checked : checked + count] if flags & RUN_NAMED else ()
                self._decide(at, run, state, wanted, of_run, start, seqnum, decision)
            if flags & RUN_NAMED:
                state.note(first, crcs[checked : checked + count])
                checked += count
            if low > state.floor or state.last - state.floor >= limits.WINDOW_RECORDS:
                state.forget(low)
            start += count
        if decision._joined < start:
            streams.commit(decision._joined, start)
        return decision

    def decide_unconditional(
        self, runs: NDArray[np.void], expectations: Expectations, first_seqnum: int, streams: Streams, time_ms: int
    ) -> Decision | None:
        """`decide` of many runs (`RecordBatch.run_columns`) where all are as nearly all are. Returns none where one is not:
        nothing was decided, and `decide` is to look at them one by one."""
        expected = start = 0
        if expectations.tags:
            columns = (runs[name].tolist() for name in ("book", "count", "expectation_count"))
            for book, count, expectation_count in zip(*columns, strict=True):
                wanted = expectations.part(expected, expected + expectation_count)
                if expectation_count and not self._all_hold(book, wanted, start, streams):
                    return None
                start, expected = start + count, expected + expectation_count
        if not self.writers.commit_unconditional(runs, first_seqnum, time_ms):
            return None
        decision = Decision(streams, first_seqnum, committed=runs)
        streams.commit(0, int(runs["count"].sum()))
        return decision

    def _refuse(self, at: int, run: Run, start: int, decision: Decision) -> None:
        """The run is of a writer that may have been forgotten, or of a book that is not here."""
        if run.flags & RUN_FOREIGN:
            answer = at, run.first, run.count, 0, GAP, _NOBODY
        else:
            answer = at, run.first, run.count, self.writers.past.of(run.book), TOO_OLD, _NOBODY
        if run.count:
            decision.answers.append(make_answer(answer))
            decision.lose(start, start + run.count)

    def _begin(self, run: Run, key: bytes) -> WriterState | None:
        """A writer that is not known; None if it may be one that was forgotten."""
        begins = run.first == 1 and run.count
        if begins and not run.flags & RUN_NAMED and self.writers.past.refuses(run.book, run.writer):
            return None
        state = WriterState(bool(run.flags & RUN_NAMED))
        if begins:  # else nothing is decided, and nothing is kept
            self.writers.states[key] = state
            if state.named:
                self._named[run.book] = self._named.get(run.book, 0) + 1
        return state

    def _decide(
        self,
        at: int,
        run: Run,
        state: WriterState,
        expectations: Expectations,
        crcs: Sequence[int],
        start: int,
        start_seqnum: int,
        decision: Decision,
    ) -> None:
        """A run with a duplicate, a gap, a void or expectations."""
        first, stop = run.first, run.first + run.count
        fresh = state.last + 1
        if first > fresh:
            decision.answers.append(Answer(at, first, run.count, state.last, GAP, _NOBODY))
            decision.lose(start, start + run.count)
            return
        if first < fresh:
            known = min(fresh, stop)
            before = len(decision.answers)
            decision.answers.extend(state.recall(at, first, known))
            if crcs and state.named:
                void = bool(run.flags & RUN_VOID)
                decision.answers[before:] = list(state.checked(decision.answers[before:], first, crcs, void=void))
            decision.answers[before:] = [
                one._replace(actual=DUPLICATE) if one.verdict == COMMITTED else one for one in decision.answers[before:]
            ]
            decision.lose(start, start + known - first)
        if fresh >= stop:
            return
        if run.flags & RUN_VOID:
            state.decided(fresh, stop - fresh, 0, NEVER)
            decision.answers.append(Answer(at, fresh, stop - fresh, 0, NEVER, _NOBODY))
            decision.lose(start + fresh - first, start + run.count)
            return
        for record, wanted in by_record(expectations, fresh - first):
            number = first + record
            decision.commit_before(start + record)
            holds, newest = self._look(run.book, wanted, decision._streams)
            if holds:
                continue
            actual = tuple(newest)
            self._commit(at, state, number, first, start_seqnum, decision)
            state.decided(number, 1, 0, CONFLICT, actual)
            decision.answers.append(Answer(at, number, 1, 0, CONFLICT, actual))
            decision.lose(start + record, start + record + 1)
        self._commit(at, state, stop, first, start_seqnum, decision)

    def _all_hold(self, book: int, wanted: Expectations, start: int, streams: Streams) -> bool:
        """Whether all expectations of a run hold, whatever becomes of the records of the batch; False: not known so."""
        tags, expected, records = wanted
        newest = streams.newest_before(book, tags, [start + record for record in records] if start else records)
        return newest is not None and self.expectations_hold(book, newest, expected)

    def _look(self, book: int, wanted: Sequence[_Pair], streams: Streams) -> tuple[bool, list[tuple[int, int]]]:
        """Whether all expectations of a record hold, and the newest record of each stream they name."""
        holds = True
        actual: list[tuple[int, int]] = []
        for tag, expected in wanted:
            newest = streams.newest(book, tag)
            if not newest and expected:
                newest = self.seen(book, newest, expected)
            holds = holds and newest <= expected
            actual.append((tag, newest))
        return holds, actual

    @staticmethod
    def _commit(at: int, state: WriterState, stop: int, first: int, start_seqnum: int, decision: Decision) -> None:
        """Numbers from the last decided one to `stop` (exclusive) are committed."""
        number = state.last + 1
        if number < stop:
            seqnum = start_seqnum + number - first
            state.decided(number, stop - number, seqnum, COMMITTED)
            decision.answers.append(Answer(at, number, stop - number, seqnum, COMMITTED, _NOBODY))


_record_of = _key_of = itemgetter(0)


def by_record(expectations: Expectations, fresh: int = 0) -> list[tuple[int, list[_Pair]]]:
    """(record of the run, its expectations) for records from `fresh` on, ascending; expectations come sorted or not."""
    grouped: dict[int, list[_Pair]] = {}
    for tag, seqnum, record in zip(*expectations, strict=True):
        if record >= fresh:
            grouped.setdefault(record, []).append((tag, seqnum))
    return sorted(grouped.items(), key=_record_of)
