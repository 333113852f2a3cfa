"""What a plan says of the logs: offsets, terms, what is committed. Pure values.

    Offset      log → (term, pos): everything of the log before that is done. (0, 0) is before its first term
    Committed   the terms that a state knows, as far as whole cuts go, and the offset behind all of it

An offset names every log that ever had a term: the number of a log that was removed may be given again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from boki_common.ids import INVALID_TAG, U64_MAX

Offset: TypeAlias = Mapping[int, tuple[int, int]]
NOWHERE: Final = (0, 0)
LIVE: Final = "live"
"""Rows that are live now."""
COMMITTED: Final = "committed"
"""Rows that were ever committed, dead or alive: what a stream shows, which must show the same again."""


class TermFacts(NamedTuple):
    """A term, as far as whole cuts of it are applied.

    Attributes:
        end_pos: positions that are ordered, and applied whole.
        ended: no more will come.
        committed, live: records of the term, the ones of a half applied cut among them.
        gone: no record is live, and where they lie is forgotten.
        digest: of what was decided of it (`places`); that of a term that has ended never changes but by a LOST command.
        metalog_ledger, metalog_stop: the ledger, and the entries of it that are known to be acknowledged; -1: not known.
    """

    term: int
    log: int
    slots: tuple[tuple[int, int], ...]
    end_pos: int
    ended: bool
    committed: int
    live: int
    last_time_ms: int
    gone: bool
    digest: int
    metalog_ledger: int = -1
    metalog_stop: int = 0


class Committed(NamedTuple):
    """One consistent state of all logs. `terms` ascend; `time_ms` is the newest cut's."""

    terms: tuple[TermFacts, ...]
    time_ms: int

    @property
    def end(self) -> dict[int, tuple[int, int]]:
        """Behind everything, in every log that ever had a term."""
        return {one.log: (one.term, one.end_pos) for one in self.terms}


class ScanRange(NamedTuple):
    """What to plan: [start, end) of each log, the first position included. A log that `end` does not name is left out; one that
    `start` does not name begins at its beginning.

    Attributes:
        book: only records of it. None: of all books.
        tags: only records with one of these. Empty: with any, or none.
    """

    start: Offset
    end: Offset
    book: int | None = None
    tags: tuple[int, ...] = ()

    def positions_of(self, term: int, log: int, end_pos: int) -> tuple[int, int]:
        """The positions of a term that are in the range, [first, stop)."""
        if log not in self.end:
            return 0, 0
        from_term, from_pos = self.start.get(log, NOWHERE)
        to_term, to_pos = self.end[log]
        first = 0 if term > from_term else from_pos if term == from_term else end_pos
        stop = end_pos if term < to_term else min(to_pos, end_pos) if term == to_term else 0
        return (first, stop) if first < stop else (0, 0)

    def fault(self) -> str | None:
        """What cannot be right of it; None: nothing."""
        if self.book is not None and not 0 <= self.book <= U64_MAX:
            return f"expected a book from 0 to 2**64-1, found {self.book}"
        for tag in self.tags:
            if not 0 < tag < INVALID_TAG:
                return f"expected tags from 1 to 2**64-2, found {tag}"
        for log, (term, pos) in (*self.start.items(), *self.end.items()):
            if log < 0 or term < 0 or pos < 0 or (not term and pos):
                return f"expected a term and a position of log {log}, found {term}, {pos}"
        return None


def reached(committed: Committed, offset: Offset) -> bool:
    """Whether a state is at or behind an offset in every log that it names."""
    end = committed.end
    return all(end.get(log, NOWHERE) >= place for log, place in offset.items() if place != NOWHERE)


def first_missing(committed: Committed, offset: Offset) -> tuple[int, tuple[int, int], tuple[int, int]] | None:
    """A log in which a state is behind an offset: (log, where the state ends, what the offset says); None: in none."""
    end = committed.end
    for log, place in sorted(offset.items()):
        if place != NOWHERE and end.get(log, NOWHERE) < place:
            return log, end.get(log, NOWHERE), place
    return None
