"""What a state knows of a range, page by page: where its entries lie, what lost, which records are live. Pure.

    captured = capture(state, frontier, asked, mode, metalog)      # one turn: all of one moment
    for page in pages_of(captured): ...                            # a page a turn; the state goes on meanwhile

    page, msgpack (`Page`)
    terms      facts of terms, of every one that is known, ascending
    spans      terms that the range has something of, and what was lost of them
    entries    first positions u64 | shards u32 | entries u64 | times i64, of one term
    losers     positions [first, stop) u64 each, of one term
    rows       live seqnums [first, stop) u64 each, in no order

Rules:
- Columns of terms are kept by reference, the array objects themselves, with as many items as they had: they only grow at their
  ends, and are replaced when they shrink. No view of one outlives the page that copies from it: an array with a view cannot grow.
- Of the index `held` is shared, which who trims copies first; of its tail the streams are copied.
- Facts of terms that have ended, and that the range has nothing of, are given as they are when their page is made: nothing of them
  changes but how many records live.
- Nothing behind the last whole cut of a log is looked at (`caps`).
- Live is what `held` of the rows says, of tag 0, or of the tags that are asked for; never what marks say: they are forgotten.
- A term of which nothing has died needs no rows, unless a book or tags are asked for: what did not lose, lives.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from boki_common.ids import ALL_RECORDS, pos_of, seqnum, term_of
from boki_logbook.index.index import Index
from boki_logbook.index.places import TermPlaces
from boki_logbook.index.sorted_run import LIVE as HELD_LIVE
from boki_logbook.index.sorted_run import U8, U64
from boki_logbook.scan.facts import LIVE, ScanRange, TermFacts
from boki_logbook.state.state import DecisionState

PAGE_TERMS: Final = 512
"""Facts of terms in a page; those that a range has something of may be large by what was lost."""
PAGE_ENTRIES: Final = 8 * 1024
PAGE_ROWS: Final = 64 * 1024
"""Rows looked at for a page, which takes half a millisecond."""

Metalog = Callable[[int], tuple[int, int] | None]
"""Term → its metalog ledger, and how many entries of it are acknowledged; None: not known."""


class SpanOfTerm(msgspec.Struct, frozen=True, array_like=True):
    """What the range has of a term: positions [first_pos, stop_pos). `shards`: number, data ledger, records, bytes of data.

    `whole`: everything that did not lose is to be shown; else what `rows` say. `entries_stop`: position behind the last entry.
    """

    term: int
    first_pos: int
    stop_pos: int
    whole: bool
    entries_stop: int
    shards: tuple[tuple[int, int, int, int], ...]
    lost: tuple[tuple[int, int, int, bytes], ...]
    """Shard, first and stop entry, evidence: what LOST commands gave up."""
    passed: tuple[tuple[int, int, int, int, int], ...]
    """Shard, first and stop entry, first and stop position: of them what was never indexed."""


class Page(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """See the module. `time_ms`: of the newest cut, with facts of terms."""

    terms: tuple[TermFacts, ...] = ()
    spans: tuple[SpanOfTerm, ...] = ()
    term: int = 0
    first_positions: bytes = b""
    entry_shards: bytes = b""
    entries: bytes = b""
    times: bytes = b""
    losers: bytes = b""
    rows: bytes = b""
    time_ms: int = 0
    last: bool = False


class Streams(NamedTuple):
    """Streams of one part of the index. `gone`: which are forgotten."""

    books: U64
    tags: U64
    offsets: NDArray[np.uint32]
    seqnums: U64
    held: U8
    gone: U8 | None


class _Columns(NamedTuple):
    """The rows of entries [low, high) of a term, and so many bounds of losers."""

    first_positions: array[int]
    shards: array[int]
    entries: array[int]
    times: array[int]
    losers: array[int]
    low: int
    high: int
    losers_low: int
    losers_high: int


class Captured(NamedTuple):
    """What was taken of a state in one turn. `facts`: of terms, or terms of which they are given later; `bounds`: seqnums in which
    rows are looked for, [first, stop) in turn."""

    facts: list[TermFacts | TermPlaces]
    time_ms: int
    metalog: Metalog
    spans: tuple[SpanOfTerm, ...]
    columns: tuple[_Columns, ...]
    bounds: U64
    streams: tuple[Streams, ...]
    asked: ScanRange


def caps(state: DecisionState, covered: Mapping[int, int]) -> dict[int, int]:
    """Term that goes on → the position up to which whole cuts of it are applied. `covered`: of each log (`frontier`)."""
    found: dict[int, int] = {}
    for term, places in state.places.terms.items():
        if not places.over:
            last = covered.get(places.log, 0)
            found[term] = pos_of(last) + 1 if last and term_of(last) == term else 0
    return found


def capture(
    state: DecisionState, covered: Mapping[int, int] | None, asked: ScanRange, mode: str, metalog: Metalog
) -> Captured:
    """Takes what pages of a range are made of; costs what it takes to copy the tail of the index, and an item a term.
    `covered`: of each log, what whole cuts cover (`Frontier.covered`); None: a state that ends with whole cuts."""
    state.index_decided()
    ends = {} if covered is None else caps(state, covered)
    facts: list[TermFacts | TermPlaces] = []
    spans, columns, bounds = [], [], []
    logs = asked.end
    for term in sorted(state.places.terms):
        places = state.places.terms[term]
        if places.over and places.log not in logs:
            facts.append(places)
            continue
        end_pos = min(places.end_pos, ends.get(term, places.end_pos))
        first, stop = asked.positions_of(term, places.log, end_pos)
        if first == stop:
            facts.append(places if places.over else _facts_of(places, end_pos, metalog))
            continue
        facts.append(_facts_of(places, end_pos, metalog))
        committed = places.counts.committed
        whole = mode != LIVE or (places.live == committed and asked.book is None and not asked.tags)
        columns.append(_columns_of(places, first, stop))
        spans.append(_span_of(places, first, stop, columns[-1].high, whole=whole))
        if not whole and places.live:
            bounds += [seqnum(term, first), seqnum(term, stop - 1) + 1]
    streams = streams_of(state.index, asked) if bounds else ()
    return Captured(
        facts,
        state.places.last_time_ms,
        metalog,
        tuple(spans),
        tuple(columns),
        np.array(bounds, np.uint64),
        streams,
        asked,
    )


def _facts_of(places: TermPlaces, end_pos: int, metalog: Metalog) -> TermFacts:
    counts = places.counts
    ledger, stop = metalog(places.term) or (-1, 0)
    gone = places.over and not places.live and counts.records > 0
    return TermFacts(
        places.term, places.log, places.slots, end_pos, places.over, counts.committed, places.live, places.last_time_ms,
        gone, counts.digest, ledger, stop,
    )  # fmt: skip


def _span_of(places: TermPlaces, first: int, stop: int, high: int, *, whole: bool) -> SpanOfTerm:
    firsts = places.arrays()[0]
    return SpanOfTerm(
        places.term,
        first,
        stop,
        whole,
        firsts[high] if high < len(firsts) else places.end_pos,
        tuple((number, one.ledger_id, one.records, one.data_bytes) for number, one in sorted(places.shards.items())),
        tuple(one[:4] for one in places.lost),
        tuple(places.passed),
    )


def _columns_of(places: TermPlaces, first: int, stop: int) -> _Columns:
    firsts, shards, entries, times, losers = places.arrays()
    low = max(bisect_right(firsts, first) - 1, 0)
    high = bisect_left(firsts, stop)
    losers_low = max(bisect_right(losers, first) - 1, 0) // 2 * 2
    losers_high = min((bisect_left(losers, stop) + 1) // 2 * 2, len(losers))
    return _Columns(firsts, shards, entries, times, losers, low, high, losers_low, losers_high)


def streams_of(index: Index, asked: ScanRange) -> tuple[Streams, ...]:
    """The parts of an index that may have rows of what is asked, as they are now."""
    parts = []
    for run in index.runs:
        held, gone = run.share()
        forgotten = None if gone is None else np.frombuffer(bytes(gone), np.uint8)
        low, high = 0, len(run.books)
        if asked.book is not None:
            low, high = (int(np.searchsorted(run.books, np.uint64(asked.book), side)) for side in ("left", "right"))
        if low < high:
            gone_here = None if forgotten is None else forgotten[low:high]
            parts.append(
                Streams(
                    run.books[low:high], run.tags[low:high], run.offsets[low : high + 1], run.seqnums, held, gone_here
                )
            )
    for books, tags, lengths, seqnums, held in index.tail.segments():
        offsets = np.append(0, np.cumsum(lengths)).astype(np.uint32)
        parts.append(Streams(books, tags, offsets, seqnums, held, None))
    return tuple(parts)


# -- pages


def pages_of(captured: Captured) -> Iterator[Page]:
    """All pages; making one takes a millisecond or two, and looks at nothing that changes but as the module says."""
    terms, spans = captured.facts, captured.spans
    for at in range(0, max(len(terms), 1), PAGE_TERMS):
        page_terms = (
            _facts_of(one, one.end_pos, captured.metalog) if isinstance(one, TermPlaces) else one
            for one in terms[at : at + PAGE_TERMS]
        )
        yield Page(terms=tuple(page_terms), time_ms=captured.time_ms)
    for at in range(0, len(spans), PAGE_TERMS):
        yield Page(spans=spans[at : at + PAGE_TERMS])
    for span, columns in zip(spans, captured.columns, strict=True):
        yield from _pages_of_term(span.term, columns)
    if len(captured.bounds):
        for part in captured.streams:
            for rows in _rows_of(part, captured.asked, captured.bounds):
                yield Page(rows=rows)
    yield Page(last=True)


def _pages_of_term(term: int, columns: _Columns) -> Iterator[Page]:
    firsts, shards, entries, times, losers = columns[:5]
    for low in range(columns.low, columns.high, PAGE_ENTRIES):
        high = min(low + PAGE_ENTRIES, columns.high)
        yield Page(
            term=term,
            first_positions=firsts[low:high].tobytes(),
            entry_shards=shards[low:high].tobytes(),
            entries=entries[low:high].tobytes(),
            times=times[low:high].tobytes(),
        )
    for low in range(columns.losers_low, columns.losers_high, PAGE_ROWS):
        yield Page(term=term, losers=losers[low : min(low + PAGE_ROWS, columns.losers_high)].tobytes())


def _rows_of(part: Streams, asked: ScanRange, bounds: U64) -> Iterator[bytes]:
    """Live rows of a part that are in the bounds, some streams or some rows at a time, as spans."""
    low, streams = 0, len(part.books)
    while low < streams:
        limit = min(int(part.offsets[low]) + PAGE_ROWS, int(part.offsets[-1]))
        high = int(np.searchsorted(part.offsets, np.uint32(limit), "right")) - 1
        high = min(max(high, low + 1), low + PAGE_ROWS, streams)
        wanted = _wanted(part, asked, low, high)
        if wanted.any():
            first, stop = int(part.offsets[low]), int(part.offsets[high])
            for begin in range(first, stop, PAGE_ROWS):  # one stream may have more
                end = min(begin + PAGE_ROWS, stop)
                rows = _live(part, wanted, asked, bounds, low, high, begin, end)
                yield spans_of(rows).tobytes()
        else:
            yield b""
        low = high


def _wanted(part: Streams, asked: ScanRange, low: int, high: int) -> NDArray[np.bool_]:
    tags = part.tags[low:high]
    if asked.tags:
        wanted = np.isin(tags, np.array(asked.tags, np.uint64))
    else:
        wanted = tags == np.uint64(ALL_RECORDS)
    if asked.book is not None:
        wanted &= part.books[low:high] == np.uint64(asked.book)
    if part.gone is not None:
        wanted &= part.gone[low:high] == 0
    return wanted


def _live(
    part: Streams,
    wanted: NDArray[np.bool_],
    asked: ScanRange,
    bounds: U64,
    low: int,
    high: int,
    begin: int,
    end: int,
) -> U64:
    """Seqnums of rows [begin, end) of wanted streams [low, high) that live, and lie in the bounds."""
    offsets = np.clip(part.offsets[low : high + 1].astype(np.int64), begin, end)
    chosen = np.repeat(wanted, np.diff(offsets))
    held = part.held[begin:end]
    chosen &= (held == HELD_LIVE) if asked.tags else (held > 0)
    rows: U64 = part.seqnums[begin:end][chosen]
    inside = np.searchsorted(bounds, rows, "right") & 1
    return rows[inside.astype(np.bool_)]


def spans_of(rows: U64) -> U64:
    """Numbers as [first, stop) of those that follow one another, in the order given."""
    if not len(rows):
        return rows
    breaks = np.flatnonzero(rows[1:] != rows[:-1] + np.uint64(1)) + 1
    first = rows[np.append(0, breaks)]
    stop = rows[np.append(breaks - 1, len(rows) - 1)] + np.uint64(1)
    return np.column_stack((first, stop)).reshape(-1)
