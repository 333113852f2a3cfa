"""The plan of a range: which records it has, where they lie, what of it is lost. Pure.

    builder = PlanBuilder(asked, mode)
    builder.take(page)                  # every page of a scan, in their order
    plan = builder.finish()

One plan for all who read logs past an engine: made of the pages of an engine's state, or of a snapshot's. Rows are positions of
terms, as spans [first, stop); what holds them are entries of data ledgers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from boki_common.errors import ProtocolError
from boki_common.ids import seqnum
from boki_logbook.index.sorted_run import NO_ROWS, U64
from boki_logbook.scan.facts import LIVE, Committed, ScanRange, TermFacts
from boki_logbook.scan.pages import Page, SpanOfTerm

NO_SPANS: Final[U64] = np.empty((0, 2), np.uint64)


class LostSpan(NamedTuple):
    """Positions of which the data was given up by an ordered command, and why."""

    first_pos: int
    stop_pos: int
    evidence: bytes


class EntryColumns(NamedTuple):
    """Entries that hold a range of a term, ascending: one row each."""

    first_positions: U64
    stop_positions: U64
    shards: NDArray[np.uint32]
    entries: U64
    ledgers: U64
    times: NDArray[np.int64]
    given_up: NDArray[np.bool_]

    def at(self, chosen: NDArray[np.bool_] | slice) -> EntryColumns:
        """Some of them."""
        return EntryColumns._make(column[chosen] for column in self)


@dataclass(frozen=True, slots=True)
class TermPlan:
    """What a range has of a term. `rows`: spans of positions to deliver, (n, 2).

    Attributes:
        committed_rows: records of the range that won, dead or alive.
        lost: what was given up before it was indexed: nobody knows what it was.
        given_up: what was given up after that: its records are among the rows, and cannot be had.
        gone: records that won, are dead, and of which nobody knows where they lie: a plan of committed rows lacks them.
        record_bytes: of data, on average.
    """

    facts: TermFacts
    start_pos: int
    stop_pos: int
    rows: U64
    committed_rows: int
    lost: tuple[LostSpan, ...]
    given_up: tuple[LostSpan, ...]
    gone: int
    entries: EntryColumns
    record_bytes: float

    @property
    def row_count(self) -> int:
        return count_of(self.rows)


@dataclass(frozen=True, slots=True)
class Plan:
    """See the module. `terms` ascend; those without anything in the range are not among them."""

    asked: ScanRange
    mode: str
    committed: Committed
    terms: tuple[TermPlan, ...]

    @property
    def rows(self) -> int:
        """Records to deliver; of committed ones those of all books and tags."""
        return sum(one.row_count for one in self.terms)

    @property
    def committed_rows(self) -> int:
        return sum(one.committed_rows for one in self.terms)

    @property
    def gone(self) -> int:
        return sum(one.gone for one in self.terms)

    @property
    def lost(self) -> int:
        """Positions that were given up before they were indexed."""
        return sum(span.stop_pos - span.first_pos for one in self.terms for span in one.lost)


class _Collected:
    """What has come of one term."""

    def __init__(self, span: SpanOfTerm) -> None:
        self.span = span
        self.columns: tuple[list[bytes], ...] = ([], [], [], [])
        self.losers: list[bytes] = []


class PlanBuilder:
    """See the module."""

    def __init__(self, asked: ScanRange, mode: str) -> None:
        self._asked = asked
        self._mode = mode
        self._facts: list[TermFacts] = []
        self._terms: dict[int, _Collected] = {}
        self._rows: list[bytes] = []
        self._time_ms = 0
        self.whole = False
        """Whether the last page has come."""

    def take(self, page: Page) -> None:
        """The next page. Raises ProtocolError: it cannot be right."""
        self._facts += page.terms
        self._time_ms = max(self._time_ms, page.time_ms)
        for span in page.spans:
            self._terms[span.term] = _Collected(span)
        if page.term:
            found = self._terms.get(page.term)
            if found is None:
                raise ProtocolError(f"a page has entries of term {page.term}, which the scan did not name")
            columns = (page.first_positions, page.entry_shards, page.entries, page.times)
            for column, width in zip(columns, (8, 4, 8, 8), strict=True):
                if len(column) * 8 != len(page.first_positions) * width:
                    raise ProtocolError(
                        f"a page has {len(column)} bytes of a column of {len(page.first_positions) // 8} rows"
                    )
            for kept, column in zip(found.columns, columns, strict=True):
                kept.append(column)
            found.losers.append(page.losers)
        self._rows.append(page.rows)
        self.whole = self.whole or page.last

    def finish(self) -> Plan:
        """The plan. Raises ProtocolError: pages do not fit together."""
        assert self.whole, "a plan is made of all pages"
        committed = Committed(tuple(self._facts), self._time_ms)
        facts = {one.term: one for one in committed.terms}
        rows = united(_pairs(b"".join(self._rows)))
        made = []
        for term, collected in sorted(self._terms.items()):
            if term not in facts:
                raise ProtocolError(f"a scan has entries of term {term}, of which it has nothing else")
            made.append(self._term(facts[term], collected, rows))
        return Plan(self._asked, self._mode, committed, tuple(made))

    def _term(self, facts: TermFacts, collected: _Collected, rows: U64) -> TermPlan:
        span = collected.span
        start, stop = span.first_pos, span.stop_pos
        losers = clipped(united(_pairs(b"".join(collected.losers))), start, stop)
        entries = _entries(collected)
        committed, gone = stop - start - count_of(losers), 0
        if not len(entries.first_positions):
            committed, returned = min(facts.committed, stop - start), NO_SPANS
            gone = 0 if self._mode == LIVE else committed
        elif span.whole:
            returned = without(start, stop, losers)
        else:
            base = np.uint64(seqnum(facts.term, 0))
            low, high = seqnum(facts.term, start), seqnum(facts.term, stop - 1) + 1
            returned = clipped(rows, low, high) - base
        if self._mode == LIVE:
            entries = _with_rows(entries, returned)
        passed = [(one[3], one[4], _evidence(span, *one[:3])) for one in span.passed]
        lost = tuple(
            LostSpan(max(first, start), min(last, stop), why)
            for first, last, why in passed
            if max(first, start) < min(last, stop)
        )
        return TermPlan(
            facts,
            start,
            stop,
            returned,
            committed,
            lost,
            _given_up_spans(span, entries),
            gone,
            entries,
            _record_bytes(span),
        )


def _evidence(span: SpanOfTerm, shard: int, first_entry: int, stop_entry: int) -> bytes:
    for number, first, stop, why in span.lost:
        if number == shard and first <= first_entry and stop_entry <= stop:
            return why
    return b""


def _entries(collected: _Collected) -> EntryColumns:
    span = collected.span
    joined = [b"".join(column) for column in collected.columns]
    firsts = np.frombuffer(joined[0], np.uint64)
    shards = np.frombuffer(joined[1], np.uint32)
    entries, times = np.frombuffer(joined[2], np.uint64), np.frombuffer(joined[3], np.int64)
    stops = np.append(firsts[1:], np.uint64(span.entries_stop)) if len(firsts) else NO_ROWS
    if (stops <= firsts).any() or (len(firsts) and int(firsts[0]) > span.first_pos):
        raise ProtocolError(f"entries of term {span.term} do not follow one another")
    numbers = np.array([one[0] for one in span.shards], np.uint32)
    known = np.array([one[1] for one in span.shards], np.uint64)
    at = np.searchsorted(numbers, shards)
    if len(shards) and (not len(numbers) or (at == len(numbers)).any() or (numbers[at] != shards).any()):
        raise ProtocolError(f"an entry of term {span.term} is of a shard that the term does not have")
    ledgers = known[at] if len(shards) else NO_ROWS
    given_up = np.zeros(len(firsts), np.bool_)
    for shard, first, stop, _ in span.lost:
        given_up |= (shards == shard) & (entries >= np.uint64(first)) & (entries < np.uint64(stop))
    for shard, first, stop, _, _ in span.passed:
        given_up &= ~((shards == shard) & (entries >= np.uint64(first)) & (entries < np.uint64(stop)))
    return EntryColumns(firsts, stops, shards, entries, ledgers, times, given_up)


def _given_up_spans(span: SpanOfTerm, entries: EntryColumns) -> tuple[LostSpan, ...]:
    found = []
    for at in np.flatnonzero(entries.given_up).tolist():
        shard, entry = int(entries.shards[at]), int(entries.entries[at])
        first = max(int(entries.first_positions[at]), span.first_pos)
        stop = min(int(entries.stop_positions[at]), span.stop_pos)
        found.append(LostSpan(first, stop, _evidence(span, shard, entry, entry + 1)))
    return tuple(found)


def _with_rows(entries: EntryColumns, rows: U64) -> EntryColumns:
    """The entries that hold a row."""
    if not len(rows):
        return entries.at(slice(0, 0))
    following = np.searchsorted(rows[:, 1], entries.first_positions, "right")
    inside = following < len(rows)
    inside[inside] = rows[following[inside], 0] < entries.stop_positions[inside]
    return entries.at(inside)


def _record_bytes(span: SpanOfTerm) -> float:
    records = sum(one[2] for one in span.shards)
    return sum(one[3] for one in span.shards) / records if records else 0.0


# -- spans


def _pairs(data: bytes) -> U64:
    if len(data) % 16:
        raise ProtocolError(f"expected spans of 16 bytes, found {len(data)} bytes")
    return np.frombuffer(data, np.uint64).reshape(-1, 2)


def united(spans: U64) -> U64:
    """Spans in any order, some of them overlapping, as the spans of what is in any of them: ascending, not touching."""
    if not len(spans):
        return NO_SPANS
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reach = np.maximum.accumulate(spans[:, 1])
    begins = np.append(True, spans[1:, 0] > reach[:-1])
    ends = np.append(begins[1:], True)
    return np.column_stack((spans[begins, 0], reach[ends]))


def clipped(spans: U64, first: int, stop: int) -> U64:
    """What of ascending spans lies in [first, stop)."""
    low = int(np.searchsorted(spans[:, 1], np.uint64(first), "right"))
    high = int(np.searchsorted(spans[:, 0], np.uint64(stop), "left"))
    return np.clip(spans[low:high], np.uint64(first), np.uint64(stop)) if low < high else NO_SPANS


def without(first: int, stop: int, spans: U64) -> U64:
    """[first, stop) without ascending spans that lie in it."""
    firsts = np.append(np.uint64(first), spans[:, 1])
    stops = np.append(spans[:, 0], np.uint64(stop))
    kept = firsts < stops
    return np.column_stack((firsts[kept], stops[kept]))


def count_of(spans: U64) -> int:
    """How many positions are in spans that do not overlap."""
    return int((spans[:, 1] - spans[:, 0]).sum()) if len(spans) else 0
