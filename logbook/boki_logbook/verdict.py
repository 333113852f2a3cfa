"""What becomes of each numbered append: duplicates first, then conditions (DESIGN §6.6, §6.9). Pure.

Every indexing engine decides the same records in the same order from the log alone, so this module knows no clock, no
connection and no entry: it takes runs in the order of the log and says per run what its numbers are worth. For number n of
a writer whose last decided number in the book is `last`:

    n ≤ last       duplicate: the answer of the first, or FORGOTTEN when nobody may ask for it any more
    n > last + 1   gap: not decided, nothing changes; the answer carries `last`
    n = last + 1   decided now and for ever, also when it loses:
                     VOID run                        NEVER
                     an expectation does not hold    CONFLICT, with the newest seqnum of each expected tag
                     else                            COMMITTED

An expectation (tag, s) holds iff the stream has no record newer than s; s = 0 expects that it never had one. The records
committed before it, in the same batch too, count.

A run without expectations costs O(1), however many records it has. Answers are kept as runs per (book, writer), from the
writer's *floor* on. A session writer's floor rises to the `low` of its runs (what the SDK still awaits); every writer's is
at most `limits.WINDOW_RECORDS` below its end. An END run drops a session writer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple, Protocol, TypeAlias

from boki_common import limits
from boki_common.engine_protocol import Verdict
from boki_common.record_batch import RUN_END, RUN_NAMED, RUN_VOID, Expectation, Run

# Plain ints for the hot path: comparing enum members costs more.
COMMITTED: Final = int(Verdict.COMMITTED)
CONFLICT: Final = int(Verdict.CONFLICT)
GAP: Final = int(Verdict.GAP)
NEVER: Final = int(Verdict.NEVER)
FORGOTTEN: Final = int(Verdict.FORGOTTEN)

Actual: TypeAlias = tuple[tuple[int, int], ...]
"""(tag, newest seqnum or 0) of each expected tag of a record that lost."""

Span: TypeAlias = tuple[int, int]
"""A half-open range of records within a batch."""


class Streams(Protocol):
    """The streams that conditions look at and committed records join."""

    def commit(self, first: int, stop: int) -> None:
        """Records [first, stop) of the batch join their streams. Called in ascending order, before any later `newest`."""

    def newest(self, book: int, tag: int) -> int:
        """Seqnum of the newest record that ever joined the stream; 0 if none did."""


class Answer(NamedTuple):
    """What became of numbers first … first + count - 1 of one run.

    `first_seqnum`: COMMITTED: the seqnum of `first`, dense from there; GAP: the writer's last decided number; else 0.
    """

    run: int
    first: int
    count: int  # type: ignore[assignment]  # the field, not tuple's method
    first_seqnum: int
    verdict: int
    actual: Actual


class _Kept(NamedTuple):
    """Answers that a writer may still ask for: numbers first … first + count - 1."""

    first: int
    count: int  # type: ignore[assignment]  # the field, not tuple's method
    first_seqnum: int
    verdict: int
    actual: Actual


_first_of = itemgetter(0)
_NOBODY: Final[Actual] = ()


class WriterState:
    """What is known of one writer in one book.

    Invariant: the kept runs are ascending, dense, end at `last`, and cover every number from `floor` to `last`.
    """

    __slots__ = ("floor", "kept", "last", "named")

    def __init__(self, named: bool) -> None:
        self.last = 0
        self.floor = 1
        self.named = named
        self.kept: list[_Kept] = []

    def decided(self, first: int, count: int, first_seqnum: int, verdict: int, actual: Actual = _NOBODY) -> None:
        """Takes note of the next numbers. O(1): adjacent answers of one kind become one run."""
        assert first == self.last + 1 and count > 0
        self.last = first + count - 1
        kept = self.kept
        if kept:
            before = kept[-1]
            if before.verdict == verdict and (
                verdict == NEVER or (verdict == COMMITTED and before.first_seqnum + before.count == first_seqnum)
            ):
                kept[-1] = _Kept(before.first, before.count + count, before.first_seqnum, verdict, actual)
                return
        kept.append(_Kept(first, count, first_seqnum, verdict, actual))

    def forget(self, low: int) -> None:
        """Raises the floor to what the writer awaits, and to its window; drops the answers below it."""
        floor = self.last - limits.WINDOW_RECORDS + 1
        if not self.named:
            floor = max(floor, min(low, self.last + 1))
        if floor <= self.floor:
            return
        self.floor = floor
        kept = self.kept
        stale = 0
        while stale < len(kept) and kept[stale].first + kept[stale].count <= floor:
            stale += 1
        del kept[:stale]

    def recall(self, run: int, first: int, stop: int) -> Iterator[Answer]:
        """The answers once given to numbers [first, stop), all of them decided."""
        assert stop <= self.last + 1
        if first < self.floor:
            forgotten = min(stop, self.floor)
            yield Answer(run, first, forgotten - first, 0, FORGOTTEN, _NOBODY)
            first = forgotten
        at = bisect_right(self.kept, first, key=_first_of) - 1
        while first < stop:
            kept = self.kept[at]
            end = min(stop, kept.first + kept.count)
            seqnum = kept.first_seqnum + first - kept.first if kept.verdict == COMMITTED else 0
            yield Answer(run, first, end - first, seqnum, kept.verdict, kept.actual)
            first, at = end, at + 1


class Decision:
    """The verdicts on one batch: answers in order of the runs, and the records that join no stream."""

    __slots__ = ("_joined", "_streams", "answers", "losers")

    def __init__(self, streams: Streams) -> None:
        self.answers: list[Answer] = []
        self.losers: list[Span] = []
        self._streams = streams
        self._joined = 0

    def commit_before(self, record: int) -> None:
        """Tells the streams of the committed records before `record` that they do not know yet."""
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
    """The writers of all books, and the rule."""

    def __init__(self) -> None:
        self._writers: dict[tuple[int, bytes], WriterState] = {}

    def __len__(self) -> int:
        return len(self._writers)

    def last(self, book: int, writer: bytes) -> int:
        """The last decided number of a writer in a book, 0 if none."""
        state = self._writers.get((book, writer))
        return 0 if state is None else state.last

    def state(self) -> dict[tuple[int, bytes], tuple[int, int, tuple[tuple[object, ...], ...]]]:
        """Everything that is known, as plain values: equal for two engines at one position."""
        return {key: (one.last, one.floor, tuple(map(tuple, one.kept))) for key, one in sorted(self._writers.items())}

    def decide(
        self, runs: Sequence[Run], expectations: Sequence[Expectation], first_seqnum: int, streams: Streams
    ) -> Decision:
        """Decides one batch whose records have the seqnums first_seqnum, +1, ….

        Args:
            runs: in the order of the batch.
            expectations: of all runs, in the same order; each names a record relative to its run.
            streams: told which records join, before it is asked for anything newer.
        """
        decision = Decision(streams)
        answers, writers = decision.answers, self._writers
        start = 0  # record of the batch where the run begins
        expected = 0
        for at, run in enumerate(runs):
            book, writer, first, low, count, _, expectation_count, flags = run
            state = writers.get((book, writer))
            if state is None:
                state = WriterState(bool(flags & RUN_NAMED))
                if first == 1 and count:  # else nothing is decided, and nothing is kept
                    writers[book, writer] = state
            if first == state.last + 1 and count and not expectation_count and not flags & RUN_VOID:
                seqnum = first_seqnum + start
                state.decided(first, count, seqnum, COMMITTED)
                answers.append(Answer(at, first, count, seqnum, COMMITTED, _NOBODY))
            elif count:
                wanted = expectations[expected : expected + expectation_count]
                self._decide(at, run, state, wanted, start, first_seqnum + start, decision)
            if low > state.floor or state.last - state.floor >= limits.WINDOW_RECORDS:
                state.forget(low)
            if flags & RUN_END and not flags & RUN_NAMED and state.last == first + count - 1:
                writers.pop((book, writer), None)
            start += count
            expected += expectation_count
        decision.commit_before(start)
        return decision

    def _decide(
        self,
        at: int,
        run: Run,
        state: WriterState,
        expectations: Sequence[Expectation],
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
            decision.answers.extend(state.recall(at, first, known))
            decision.lose(start, start + known - first)
        if fresh >= stop:
            return
        if run.flags & RUN_VOID:
            state.decided(fresh, stop - fresh, 0, NEVER)
            decision.answers.append(Answer(at, fresh, stop - fresh, 0, NEVER, _NOBODY))
            decision.lose(start + fresh - first, start + run.count)
            return
        for record, wanted in _by_record(expectations, fresh - first):
            number = first + record
            decision.commit_before(start + record)
            actual = tuple((one.tag, decision._streams.newest(run.book, one.tag)) for one in wanted)
            if all(newest <= one.seqnum for one, (_, newest) in zip(wanted, actual, strict=True)):
                continue
            self._commit(at, state, number, first, start_seqnum, decision)
            state.decided(number, 1, 0, CONFLICT, actual)
            decision.answers.append(Answer(at, number, 1, 0, CONFLICT, actual))
            decision.lose(start + record, start + record + 1)
        self._commit(at, state, stop, first, start_seqnum, decision)

    @staticmethod
    def _commit(at: int, state: WriterState, stop: int, first: int, start_seqnum: int, decision: Decision) -> None:
        """Numbers from the last decided one to `stop` (exclusive) are committed."""
        number = state.last + 1
        if number < stop:
            seqnum = start_seqnum + number - first
            state.decided(number, stop - number, seqnum, COMMITTED)
            decision.answers.append(Answer(at, number, stop - number, seqnum, COMMITTED, _NOBODY))


def _by_record(expectations: Sequence[Expectation], fresh: int) -> Iterator[tuple[int, list[Expectation]]]:
    """(record of the run, its expectations) for records from `fresh` on, ascending; expectations come sorted or not."""
    grouped: dict[int, list[Expectation]] = {}
    for expectation in expectations:
        if expectation.record >= fresh:
            grouped.setdefault(expectation.record, []).append(expectation)
    for record in sorted(grouped):
        yield record, grouped[record]
