"""How far a stream goes in one step when its reader limits it, without breaking the order of any book. Pure.

    end = limited(plan, max_rows=10_000)        # an offset between the start of the plan and its end

A book moves with its slot: what log B orders of it in a later term comes behind what log A ordered in an earlier one. So a limit
for each log alone would show the later record first.

Rules:
- Each log gets a share of the limit, cut at entries, and at least one entry: nobody starves.
- A term is entered only when all terms that it comes directly after (`term_order`) have ended *in the offset*, empty ones too.
- What is behind a start that is in the middle of an entry is shown from there on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np

from boki_logbook.index.sorted_run import U64
from boki_logbook.scan.facts import NOWHERE
from boki_logbook.scan.plan import Plan, TermPlan
from boki_metalog.terms.term_order import slot_mask, terms_before


def limited(plan: Plan, *, max_rows: int | None = None, max_bytes: int | None = None) -> dict[int, tuple[int, int]]:
    """The offset up to which a step goes; that of the plan's end if there is no limit.

    Args:
        plan: of committed rows, from the offset that was reached.
        max_rows: records of all logs together, roughly: each log may have an entry more than its share.
        max_bytes: of data, going by averages.
    """
    end = dict(plan.asked.end)
    if max_rows is None and max_bytes is None:
        return {**plan.asked.start, **end}
    return _Steps(plan, max_rows, max_bytes).run()


class _Steps:
    """Goes through the terms of all logs in turn. Invariant: `offset` never goes beyond the plan's end."""

    def __init__(self, plan: Plan, max_rows: int | None, max_bytes: int | None) -> None:
        self.offset: dict[int, tuple[int, int]] = dict(plan.asked.start)
        self._end = dict(plan.asked.end)
        self._terms = {one.facts.term: one for one in plan.terms}
        self._facts = {one.term: one for one in plan.committed.terms}
        self._of_log: dict[int, list[int]] = {log: [] for log in self._end}
        for one in plan.committed.terms:
            if one.log in self._of_log and one.term <= self._end[one.log][0]:
                self._of_log[one.log].append(one.term)
        self._numbers = sorted(self._facts)
        logs = max(len(self._end), 1)
        self._rows = None if max_rows is None else max(max_rows // logs, 1)
        self._bytes = None if max_bytes is None else max(max_bytes // logs, 1)
        self._taken: dict[int, tuple[int, float]] = {}

    def run(self) -> dict[int, tuple[int, int]]:
        moved = True
        while moved:
            moved = False
            for log in sorted(self._end):
                moved = self._advance(log) or moved
        return self.offset

    def _advance(self, log: int) -> bool:
        """Takes what a log may have of its term, or enters its next term; whether anything moved."""
        term, pos = self.offset.get(log, NOWHERE)
        if term and pos < self._end_of(term):
            return self._take(log, term, pos)
        own = self._of_log[log]
        at = bisect_right(own, term)
        following = own[at] if at < len(own) else None
        if following is None or not all(map(self._ended, self._before(following))):
            return False
        self.offset[log] = following, 0
        return True

    def _end_of(self, term: int) -> int:
        """Where the plan ends in a term."""
        facts = self._facts.get(term)
        if facts is None:
            return 0
        last, pos = self._end.get(facts.log, NOWHERE)
        return min(pos, facts.end_pos) if term == last else facts.end_pos if term < last else 0

    def _ended(self, term: int) -> bool:
        """Whether a term is behind the offset, to its end."""
        facts = self._facts.get(term)
        if facts is None:
            return True  # before everything that the state knows
        at, pos = self.offset.get(facts.log, NOWHERE)
        return at > term or (at == term and facts.ended and pos == facts.end_pos)

    def _before(self, term: int) -> tuple[int, ...]:
        facts = self._facts[term]
        return terms_before(slot_mask(facts.slots), self._earlier(term), facts.log)

    def _earlier(self, term: int) -> Iterator[tuple[int, int, int]]:
        """The terms before one, the newest first; as far as somebody asks: there may be ten thousand."""
        for at in range(bisect_left(self._numbers, term) - 1, -1, -1):
            one = self._facts[self._numbers[at]]
            yield one.term, one.log, slot_mask(one.slots)

    def _take(self, log: int, term: int, pos: int) -> bool:
        plan, stop = self._terms.get(term), self._end_of(term)
        rows, size = self._taken.get(log, (0, 0.0))
        if (self._rows is not None and rows >= self._rows) or (self._bytes is not None and size >= self._bytes):
            return False
        if plan is not None and len(plan.entries.entries):
            stop, rows, size = self._cut(plan, pos, stop, rows, size)
        self._taken[log] = rows, size
        self.offset[log] = term, stop
        return True

    def _cut(self, plan: TermPlan, pos: int, stop: int, rows: int, size: float) -> tuple[int, int, float]:
        """The end of the last entry that fits, and what is taken then."""
        entries = plan.entries
        low = int(np.searchsorted(entries.stop_positions, np.uint64(pos), "right"))
        high = int(np.searchsorted(entries.first_positions, np.uint64(stop), "left"))
        stops = np.minimum(entries.stop_positions[low:high], np.uint64(stop))
        counts = rows + _rows_below(plan.rows, stops) - int(_rows_below(plan.rows, np.array([pos], np.uint64))[0])
        sizes = size + (stops - np.uint64(pos)) * plan.record_bytes
        fit = len(stops)
        if self._rows is not None:
            fit = min(fit, int(np.searchsorted(counts, self._rows, "right")))
        if self._bytes is not None:
            fit = min(fit, int(np.searchsorted(sizes, self._bytes, "right")))
        nothing_yet = not rows and not size
        if not fit and nothing_yet:
            fit = 1
        if fit < len(stops):  # the share is used up
            rows = self._rows if self._rows is not None else rows
            size = float(self._bytes) if self._bytes is not None else size
            return (int(stops[fit - 1]) if fit else pos), max(rows, 0), size
        return stop, int(counts[-1]), float(sizes[-1])


def _rows_below(spans: U64, positions: U64) -> U64:
    """How many positions of ascending spans are below each of some."""
    if not len(spans):
        return np.zeros(len(positions), np.uint64)
    before = np.append(np.uint64(0), np.cumsum(spans[:, 1] - spans[:, 0]))
    at = np.searchsorted(spans[:, 0], positions, "left")
    inside = np.minimum(spans[np.maximum(at, 1) - 1, 1], positions) - spans[np.maximum(at, 1) - 1, 0]
    return np.where(at > 0, before[np.maximum(at, 1) - 1] + inside, 0).astype(np.uint64)
