"""What is known of the writers of books: last numbers, answers that may be asked for again, checksums (DESIGN §6.9). Pure.

Answers are kept as runs per (book, writer), from the writer's *floor* on. A session writer's floor rises to the `low` of its
runs (what the SDK still awaits); every writer's is at most `limits.WINDOW_RECORDS` below its end. A named writer's number may
come again from a program that was restarted, so one checksum per number is kept as long as its answer: another record under
a number that is taken is REUSED, and is never given the answer of the first.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias, cast

from boki_common import limits
from boki_common.engine.engine_protocol import Verdict
from boki_common.records.void_checksums import compared_to

# Plain ints for the hot path: comparing enum members costs more.
COMMITTED: Final = int(Verdict.COMMITTED)
CONFLICT: Final = int(Verdict.CONFLICT)
GAP: Final = int(Verdict.GAP)
NEVER: Final = int(Verdict.NEVER)
FORGOTTEN: Final = int(Verdict.FORGOTTEN)
REUSED: Final = int(Verdict.REUSED)
TOO_OLD: Final = int(Verdict.TOO_OLD)

Actual: TypeAlias = tuple[tuple[int, int], ...]
"""(tag, newest seqnum or 0) of each expected tag of a record that lost."""


class _Duplicate(tuple[tuple[int, int], ...]):
    """Nothing of its own: it is recognised by being this object."""

    __slots__ = ()


DUPLICATE: Final[Actual] = _Duplicate()
"""Instead of `NOBODY`, in an answer to numbers that were committed before: what was sent again is not in the log itself."""


class Answer(NamedTuple):
    """What became of numbers first … first + count - 1 of one run.

    `first_seqnum`: COMMITTED: the seqnum of `first`, dense from there; GAP: the writer's last decided number;
    TOO_OLD: the floor, which a new writer's birth has to be above; else 0.
    """

    run: int
    first: int
    count: int  # type: ignore[assignment]  # the field, not tuple's method
    first_seqnum: int
    verdict: int
    actual: Actual


class Kept(NamedTuple):
    """Answers that a writer may still ask for: numbers first … first + count - 1."""

    first: int
    count: int  # type: ignore[assignment]  # the field, not tuple's method
    first_seqnum: int
    verdict: int
    actual: Actual


make_answer: Final = cast(Callable[[tuple[Any, ...]], Answer], partial(tuple.__new__, Answer))
"""`Answer._make` without a frame of Python, for what runs per run."""
_make_kept: Final = cast(Callable[[tuple[Any, ...]], Kept], partial(tuple.__new__, Kept))
_first_of = itemgetter(0)
_NO_CRCS: Final = array("I")
NOBODY: Final[Actual] = ()


class WriterState:
    """What is known of one writer in one book.

    Invariant: the kept runs are ascending, dense, end at `last`, and cover every number from `floor` to `last`. So do the
    checksums of a named writer; those of voided numbers mean nothing.

    Nearly every writer has one kept run, committed, that begins at its floor: of that only the seqnum is stored. Where writers are
    many, what is not in memory need not come into the processor's cache either.
    """

    __slots__ = ("_runs", "_seqnum", "crcs", "floor", "last", "named", "time_ms")

    def __init__(self, named: bool) -> None:
        self.last = 0
        self.floor = 1
        self.named = named
        self._runs: list[Kept] | None = []
        """None: the one run from `floor` to `last`, committed, whose first seqnum is this:"""
        self._seqnum = 0
        self.crcs = _NO_CRCS if not named else array("I")
        self.time_ms = 0
        """When the writer was last active: the time of the cut."""

    @property
    def kept(self) -> list[Kept]:
        """The kept runs, for looking at."""
        if self._runs is None:
            return [Kept(self.floor, self.last - self.floor + 1, self._seqnum, COMMITTED, NOBODY)]
        return self._runs

    @property
    def fits_row(self) -> bool:
        """Whether its four numbers are all that is known of it."""
        return self._runs is None and not self.named

    @property
    def as_table_row(self) -> tuple[int, int, int, int]:
        """What `take_table_row` takes."""
        assert self.fits_row
        return self.last, self.floor, self._seqnum, self.time_ms

    def take_table_row(self, last: int, floor: int, seqnum: int, time_ms: int) -> None:
        """Numbers from `floor` to `last` are committed, from that seqnum on; nothing else is known."""
        self.last, self.floor, self._seqnum, self.time_ms = last, floor, seqnum, time_ms
        self._runs = None

    def keep(self, runs: list[Kept]) -> None:
        """Takes the kept runs of a writer whose `last` and `floor` are set."""
        if len(runs) == 1 and runs[0].verdict == COMMITTED:
            self._runs, self._seqnum = None, runs[0].first_seqnum + self.floor - runs[0].first
        else:
            self._runs = runs

    def decided(self, first: int, count: int, first_seqnum: int, verdict: int, actual: Actual = NOBODY) -> None:
        """Takes note of the next numbers. O(1): adjacent answers of one kind become one run."""
        assert first == self.last + 1 and count > 0
        kept = self._runs = self.kept
        self.last = first + count - 1
        if kept:
            before = kept[-1]
            if before.verdict == verdict and (
                verdict == NEVER or (verdict == COMMITTED and before.first_seqnum + before.count == first_seqnum)
            ):
                kept[-1] = Kept(before.first, before.count + count, before.first_seqnum, verdict, actual)
                return
        kept.append(_make_kept((first, count, first_seqnum, verdict, actual)))

    def forget(self, low: int) -> None:
        """Raises the floor to what the writer awaits, and to its window; drops the answers below it."""
        floor = self.last - limits.WINDOW_RECORDS + 1
        if not self.named:
            floor = max(floor, min(low, self.last + 1))
        if floor <= self.floor:
            return
        if self.named:
            del self.crcs[: floor - self.floor]
        kept = self.kept
        self.floor = floor
        stale = 0
        while stale < len(kept) and kept[stale].first + kept[stale].count <= floor:
            stale += 1
        self.keep(kept[stale:])

    def note(self, first: int, crcs: Sequence[int]) -> None:
        """Keeps the checksums of the numbers of a named run, first …, that were decided with it."""
        if self.named:
            self._fill(first)
            known = self.floor + len(self.crcs)
            if known <= self.last:
                self.crcs.extend(crcs[known - first :])

    def _fill(self, number: int) -> None:
        """Numbers below `number` that came without a checksum, by a mistake of their SDK, get one that fits no record."""
        missing = min(number, self.last + 1) - self.floor - len(self.crcs)
        if missing > 0:
            self.crcs.extend(bytes(missing))

    def checked(
        self, answers: Iterable[Answer], first: int, crcs: Sequence[int], *, void: bool = False
    ) -> Iterator[Answer]:
        """Yield recalled answers to a run from `first` on; numbers whose record is another one are REUSED.

        Args:
            crcs: of the records that were sent, or, in a `void` run, of those whose numbers are voided.
        """
        self._fill(self.last + 1)
        for answer in answers:
            if answer.verdict in (FORGOTTEN, NEVER):
                yield answer
                continue
            low, begin = answer.first - first, answer.first - self.floor
            kept, sent = self.crcs[begin : begin + answer.count], array("I", crcs[low : low + answer.count])
            if void:
                sent = array("I", map(compared_to, kept, sent))
            if kept == sent:
                yield answer
                continue
            for at in range(answer.count):  # rare: a mistake in a program
                number = answer.first + at
                if kept[at] == sent[at]:
                    seqnum = answer.first_seqnum + at if answer.verdict == COMMITTED else 0
                    yield Answer(answer.run, number, 1, seqnum, answer.verdict, answer.actual)
                else:
                    yield Answer(answer.run, number, 1, 0, REUSED, NOBODY)

    def recall(self, run: int, first: int, stop: int) -> Iterator[Answer]:
        """The answers once given to numbers [first, stop), all of them decided."""
        assert stop <= self.last + 1
        if first < self.floor:
            forgotten = min(stop, self.floor)
            yield Answer(run, first, forgotten - first, 0, FORGOTTEN, NOBODY)
            first = forgotten
        runs = self.kept
        at = bisect_right(runs, first, key=_first_of) - 1
        while first < stop:
            kept = runs[at]
            end = min(stop, kept.first + kept.count)
            seqnum = kept.first_seqnum + first - kept.first if kept.verdict == COMMITTED else 0
            yield Answer(run, first, end - first, seqnum, kept.verdict, kept.actual)
            first, at = end, at + 1
