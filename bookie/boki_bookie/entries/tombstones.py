"""Which ledgers were deleted here, so that no stale writer makes one again (apache/bookkeeper#4462). Pure.

Ids are never given twice, and ledgers that are deleted together were mostly made together: so a tombstone costs nothing of
its own, only each run of neighbouring ids does, per day on which they were deleted. Days are counted from 1970-01-01 UTC.

A tombstone may be dropped after some days: what it refuses then, first validation refuses too (the metadata of a deleted ledger
names nobody), except for recovery adds, and no recovery is that old.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

DAY_MS: Final = 24 * 3600 * 1000


class Run(NamedTuple):
    """Ledgers `first` to `last`, deleted on `day`."""

    first: int
    last: int
    day: int


class _Runs:
    """A set of integers as runs: parallel lists, ascending, never touching."""

    __slots__ = ("firsts", "lasts")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.lasts: list[int] = []

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.firsts, number) - 1
        return at >= 0 and number <= self.lasts[at]

    def add(self, first: int, last: int) -> None:
        """All of `first` to `last`."""
        start = bisect_right(self.firsts, first)
        if start and self.lasts[start - 1] >= first - 1:
            start -= 1
            first = self.firsts[start]
        stop = bisect_right(self.firsts, last + 1)
        if stop > start:
            last = max(last, self.lasts[stop - 1])
        self.firsts[start:stop] = [first]
        self.lasts[start:stop] = [last]

    def discard(self, number: int) -> None:
        at = bisect_right(self.firsts, number) - 1
        if at < 0 or number > self.lasts[at]:
            return
        first, last = self.firsts[at], self.lasts[at]
        kept = [(first, number - 1), (number + 1, last)]
        kept = [(start, end) for start, end in kept if start <= end]
        self.firsts[at : at + 1] = [start for start, _ in kept]
        self.lasts[at : at + 1] = [end for _, end in kept]


class Tombstones:
    """See the module."""

    def __init__(self) -> None:
        self._days: dict[int, _Runs] = {}

    def __contains__(self, ledger_id: int) -> bool:
        return any(ledger_id in runs for runs in self._days.values())

    def __len__(self) -> int:
        return sum(run.last - run.first + 1 for run in self.runs())

    def add(self, run: Run) -> None:
        self._days.setdefault(run.day, _Runs()).add(run.first, run.last)

    def discard(self, ledger_id: int) -> None:
        """The ledger was made again: only while the journal is replayed, which then deletes it again."""
        for runs in self._days.values():
            runs.discard(ledger_id)

    def drop_before(self, day: int) -> int:
        """Forgets what was deleted before that day; returns how many."""
        before = len(self)
        for old in [known for known in self._days if known < day]:
            del self._days[old]
        return before - len(self)

    def runs(self) -> Iterator[Run]:
        """Everything, ascending by day and ledger."""
        for day in sorted(self._days):
            runs = self._days[day]
            for first, last in zip(runs.firsts, runs.lasts, strict=True):
                yield Run(first, last, day)
