"""The decision state as plain columns, for a snapshot file or ledger that somebody else writes. Pure.

    StateSnapshot
      records      positions applied, of all terms
      terms        per term: its rows of entries, its losers, its shards, its counts
      rows         runs of the index, oldest first: of one stream, earlier runs have the lower seqnums. A start takes them as
                   they are, merging nothing; what is indexed later are further runs behind them. Some rows may be dead
      books        u64, every book with a row
      marks        (book, tag) → up to where a tag is trimmed
      book_marks   book → up to where it is trimmed, 0 for one that was only trimmed by tags
      floors       book → the newest record of its forgotten streams
      writers      one row per (book, writer); their answers and checksums one after another, counted per writer

Columns are little-endian numpy arrays that never change; the rest are small tuples. Rows are not copied; writers and terms are
walked, there being at most some for each session.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from boki_logbook.index import Index
from boki_logbook.places import Counts, LostEntries, PassedOver, ShardPlace, TermPlaces
from boki_logbook.sorted_run import U8, U64, SortedRun
from boki_logbook.trim_marks import MarkColumns, TrimMarks
from boki_logbook.verdict import Verdicts
from boki_logbook.writers import Kept, WriterState

U32 = NDArray[np.uint32]
I64 = NDArray[np.int64]
_Number = TypeVar("_Number", bound=np.generic)


class ShardColumns(NamedTuple):
    """One shard."""

    number: int
    ledger_id: int
    incarnation: str
    records_end: int
    entries_end: int
    closed: bool
    counts: Counts


class TermColumns(NamedTuple):
    """One term; the columns are those of places.py."""

    term: int
    log: int
    slots: tuple[tuple[int, int], ...]
    end_pos: int
    live: int
    last_time_ms: int
    over: bool
    shards: tuple[ShardColumns, ...]
    lost: tuple[LostEntries, ...]
    passed: tuple[PassedOver, ...]
    first_positions: U64
    entry_shards: U32
    entries: U64
    times: I64
    losers: U64
    minutes: U64
    minute_positions: U64


class RowColumns(NamedTuple):
    """One run of the index; the columns are those of sorted_run.py."""

    books: U64
    tags: U64
    offsets: U32
    seqnums: U64
    held: U8


class PairColumns(NamedTuple):
    """Numbers of books."""

    books: U64
    values: U64


class WriterColumns(NamedTuple):
    """Writers, ascending by (book, id). Row by row: `kept_counts` answers, `crc_counts` checksums; per answer `actual_counts`
    pairs of tag and newest record."""

    books: U64
    ids: bytes
    last: U64
    floors: U64
    named: U8
    times: I64
    kept_counts: U32
    crc_counts: U32
    kept_first: U64
    kept_count: U64
    kept_seqnums: U64
    kept_verdicts: U8
    actual_counts: U32
    actual_tags: U64
    actual_newest: U64
    crcs: U32


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """See the module."""

    records: int
    terms: tuple[TermColumns, ...]
    rows: tuple[RowColumns, ...]
    books: U64
    marks: MarkColumns
    book_marks: PairColumns
    floors: PairColumns
    writers: WriterColumns


# -- the index


def rows_of(index: Index) -> tuple[RowColumns, ...]:
    """The rows of an index, run by run. Only `held` ever changes; who changes it makes a copy first."""
    return tuple(RowColumns(run.books, run.tags, run.offsets, run.seqnums, run.share()[0]) for run in index.frozen())


def index_of(snapshot: StateSnapshot, *, tail_rows: int) -> Index:
    """An index with the rows and marks of a snapshot."""
    index = Index(tail_rows=tail_rows)
    runs = [SortedRun.of_columns(*rows) for rows in snapshot.rows]
    for run in runs:
        run.share()
    index.restore(runs)
    index.books = dict.fromkeys(snapshot.books.tolist())
    index.marks = TrimMarks(snapshot.marks)
    index.book_marks = mapping_of(snapshot.book_marks)
    return index


def pairs_of(numbers: Mapping[int, int]) -> PairColumns:
    """Numbers of books, ascending by book."""
    books = sorted(numbers)
    return PairColumns(np.array(books, np.uint64), np.array([numbers[book] for book in books], np.uint64))


def mapping_of(pairs: PairColumns) -> dict[int, int]:
    """The reverse of `pairs_of`."""
    return dict(zip(pairs.books.tolist(), pairs.values.tolist(), strict=True))


# -- terms


def term_columns_of(places: TermPlaces) -> TermColumns:
    """A term as columns."""
    return TermColumns(
        places.term,
        places.log,
        places.slots,
        places.end_pos,
        places.live,
        places.last_time_ms,
        places.over,
        tuple(
            ShardColumns(
                number,
                one.ledger_id,
                one.incarnation,
                one.records_end,
                one.entries_end,
                one.closed,
                one.counts,
            )
            for number, one in sorted(places.shards.items())
        ),
        tuple(places.lost),
        tuple(places.passed),
        *places.columns(),
    )


def places_of(columns: TermColumns) -> TermPlaces:
    """The reverse of `term_columns_of`."""
    places = TermPlaces(columns.term, columns.log, columns.slots)
    places.end_pos, places.live, places.last_time_ms = columns.end_pos, columns.live, columns.last_time_ms
    places.over, places.lost, places.passed = columns.over, list(columns.lost), list(columns.passed)
    for number, ledger_id, incarnation, records_end, entries_end, closed, counts in columns.shards:
        shard = places.shards[number] = ShardPlace(columns.term, number, ledger_id, incarnation)
        shard.records_end, shard.entries_end, shard.closed = records_end, entries_end, closed
        shard.entries, shard.records, shard.committed, shard.data_bytes, shard.digest = counts
    places.take_columns(*columns[-7:])
    return places


# -- writers


def _column(numbers: list[int], kind: type[_Number]) -> NDArray[_Number]:
    return np.array(numbers, kind)


def writer_columns_of(writers: Mapping[tuple[int, bytes], WriterState]) -> WriterColumns:
    """All writers as columns."""
    keys = sorted(writers)
    states = [writers[key] for key in keys]
    runs = [state.kept for state in states]
    kept = [one for of_one in runs for one in of_one]
    actual = [pair for one in kept for pair in one.actual]
    crcs = b"".join(state.crcs.tobytes() for state in states)
    return WriterColumns(
        _column([book for book, _ in keys], np.uint64),
        b"".join(writer for _, writer in keys),
        _column([state.last for state in states], np.uint64),
        _column([state.floor for state in states], np.uint64),
        _column([state.named for state in states], np.uint8),
        _column([state.time_ms for state in states], np.int64),
        _column([len(of_one) for of_one in runs], np.uint32),
        _column([len(state.crcs) for state in states], np.uint32),
        _column([one.first for one in kept], np.uint64),
        _column([one.count for one in kept], np.uint64),
        _column([one.first_seqnum for one in kept], np.uint64),
        _column([one.verdict for one in kept], np.uint8),
        _column([len(one.actual) for one in kept], np.uint32),
        _column([tag for tag, _ in actual], np.uint64),
        _column([newest for _, newest in actual], np.uint64),
        np.frombuffer(crcs, np.uint32),
    )


def verdicts_of(snapshot: StateSnapshot) -> Verdicts:
    """The writers and floors of a snapshot."""
    columns = snapshot.writers
    pairs = iter(zip(columns.actual_tags.tolist(), columns.actual_newest.tolist(), strict=True))
    answers = iter(
        [
            Kept(first, count, seqnum, verdict, tuple(next(pairs) for _ in range(actual)))
            for first, count, seqnum, verdict, actual in zip(*(one.tolist() for one in columns[8:13]), strict=True)
        ]
    )
    crcs = array("I", columns.crcs.tobytes())
    writers: dict[tuple[int, bytes], WriterState] = {}
    rows = zip(columns.books.tolist(), *(one.tolist() for one in columns[2:8]), strict=True)
    used = 0
    for at, (book, last, floor, named, time_ms, kept_count, crc_count) in enumerate(rows):
        state = writers[book, columns.ids[16 * at : 16 * at + 16]] = WriterState(bool(named))
        state.last, state.floor, state.time_ms = last, floor, time_ms
        state.keep([next(answers) for _ in range(kept_count)])
        if named:
            state.crcs = crcs[used : used + crc_count]
        used += crc_count
    verdicts = Verdicts()
    verdicts.restore(writers, mapping_of(snapshot.floors))
    return verdicts
