"""The decision state as plain columns, for a snapshot file or ledger that somebody else writes. Pure.

    StateSnapshot
      records      positions applied, of all terms
      terms        per term: its rows of entries, its losers, its shards, its counts
      rows         runs of the index, oldest first: of one stream, earlier runs have the lower seqnums. A start takes them as
                   they are, merging nothing; what is indexed later are further runs behind them. Some rows may be dead
      marks        (book, tag) → up to where a tag is trimmed
      book_marks   book → up to where it is trimmed, 0 for one that was only trimmed by tags
      floors       book → the newest record of its forgotten streams
      writer_floors  slot → the birth of its youngest writer that was forgotten
      writers      one row per (book, writer); their answers and checksums one after another, counted per writer

Columns are little-endian numpy arrays that never change; the rest are small tuples. Rows are not copied; writers and terms are
walked, there being at most some for each session.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from boki_logbook.index.index import Index
from boki_logbook.index.places import Counts, LostEntries, PassedOver, ShardPlace, TermPlaces
from boki_logbook.index.sorted_run import NO_ROWS, U8, U64, SortedRun
from boki_logbook.index.trim_marks import MarkColumns, TrimMarks
from boki_logbook.writers.verdict import Verdicts
from boki_logbook.writers.writer_floors import WriterFloors
from boki_logbook.writers.writer_table import FLOOR, LAST, ROW_WORDS, SEQNUM, TIME, WriterTable
from boki_logbook.writers.writers import COMMITTED, Kept, WriterState

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
    """Numbers of books, or of slots."""

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


NO_PAIRS: Final = PairColumns(NO_ROWS, NO_ROWS)


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """See the module."""

    records: int
    terms: tuple[TermColumns, ...]
    rows: tuple[RowColumns, ...]
    marks: MarkColumns
    book_marks: PairColumns
    floors: PairColumns
    writers: WriterColumns
    writer_floors: PairColumns = NO_PAIRS


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
                number, one.ledger_id, one.incarnation, one.records_end, one.entries_end, one.closed, one.counts
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
        shard.restore(records_end, entries_end, closed, counts)
    places.take_columns(*columns[-7:])
    return places


# -- writers


def writer_columns_of(writers: WriterTable) -> WriterColumns:
    """All writers as columns."""
    rows = writers.columns()
    rows = rows.take(_order(rows[:, 0], rows[:, 1:LAST]), axis=0)
    last, floors, seqnums = (rows[:, word].copy() for word in (LAST, FLOOR, SEQNUM))
    none = np.zeros(len(rows), np.uint32)
    columns = WriterColumns(
        books=rows[:, 0].copy(),
        ids=rows[:, 1:LAST].tobytes(),
        last=last,
        floors=floors,
        named=none.astype(np.uint8),
        times=rows[:, TIME].astype(np.int64),
        kept_counts=none + np.uint32(1),
        crc_counts=none,
        kept_first=floors,
        kept_count=last - floors + np.uint64(1),
        kept_seqnums=seqnums,
        kept_verdicts=none.astype(np.uint8),
        actual_counts=none,
        actual_tags=NO_ROWS,
        actual_newest=NO_ROWS,
        crcs=none[:0],
    )
    return _together(columns, writers.states) if writers.states else columns


def _together(rows: WriterColumns, states: Mapping[bytes, WriterState]) -> WriterColumns:
    """The columns of all writers: of those that have rows, and of all others."""
    keys, values = list(states), list(states.values())
    runs = [state.kept for state in values]
    kept = [one for of_one in runs for one in of_one]
    actual = [pair for one in kept for pair in one.actual]
    books = np.append(rows.books, np.array([int.from_bytes(key[:8], "little") for key in keys], np.uint64))
    ids = np.frombuffer(rows.ids + b"".join(key[8:] for key in keys), np.uint64).reshape(-1, 2)
    others: list[list[int]] = [
        [state.last for state in values],
        [state.floor for state in values],
        [state.named for state in values],
        [state.time_ms for state in values],
        [len(of_one) for of_one in runs],
        [len(state.crcs) for state in values],
        [one.first for one in kept],
        [one.count for one in kept],
        [one.first_seqnum for one in kept],
        [one.verdict for one in kept],
        [len(one.actual) for one in kept],
    ]
    mine: list[Any] = [*rows[2:13]]
    columns: list[Any] = [
        np.concatenate((column, np.array(other, column.dtype))) for column, other in zip(mine, others, strict=True)
    ]
    order = _order(books, ids)
    of_kept, of_crcs = _of_each(columns[4], order), _of_each(columns[5], order)
    of_actual = _of_each(columns[10], of_kept)
    pairs = np.array(actual, np.uint64).reshape(-1, 2)[of_actual]
    crcs = np.frombuffer(b"".join(state.crcs.tobytes() for state in values), np.uint32)[of_crcs]
    whole: list[Any] = [books[order], ids[order].tobytes(), *(column[order] for column in columns[:6])]
    whole += [*(column[of_kept] for column in columns[6:]), pairs[:, 0], pairs[:, 1], crcs]
    return WriterColumns(*whole)


def _order(books: U64, ids: U64) -> NDArray[np.int64]:
    """Where writers are that ascend by book and id; `ids` are two words each, of bytes."""
    order = np.argsort(books, kind="stable")
    same = books[order[1:]] == books[order[:-1]]
    if same.any():  # writers of one book
        tied = np.append(same, False) | np.append(False, same)
        some = order[tied]
        words = ids[some].byteswap()
        order[tied] = some[np.lexsort((words[:, 1], words[:, 0], books[some]))]
    return order


def _of_each(counts: U32, order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the items of each are, which have so many, one after another, when each takes its place in an order."""
    if not counts.any():
        return np.empty(0, np.int64)
    if (counts == 1).all():
        return order
    signed = counts.astype(np.int64)
    begins, moved = np.cumsum(signed) - signed, signed[order]
    ends = np.cumsum(moved)
    return np.repeat(begins[order] - (ends - moved), moved) + np.arange(int(signed.sum()))


def verdicts_of(snapshot: StateSnapshot) -> Verdicts:
    """The writers and floors of a snapshot."""
    columns = snapshot.writers
    begins = np.cumsum(columns.kept_counts, dtype=np.int64) - columns.kept_counts
    usual = (columns.kept_counts == 1) & (columns.named == 0)
    first = begins[usual]
    usual[usual] = (
        (columns.kept_verdicts[first] == COMMITTED)
        & (columns.kept_first[first] == columns.floors[usual])
        & (columns.kept_count[first] == columns.last[usual] - columns.floors[usual] + np.uint64(1))
    )
    rows = np.zeros((int(np.count_nonzero(usual)), ROW_WORDS), np.uint64)
    rows[:, 0] = columns.books[usual]
    rows[:, 1:LAST] = np.frombuffer(columns.ids, np.uint64).reshape(-1, 2)[usual]
    rows[:, LAST], rows[:, FLOOR] = columns.last[usual], columns.floors[usual]
    rows[:, SEQNUM], rows[:, TIME] = columns.kept_seqnums[begins[usual]], columns.times[usual].astype(np.uint64)
    verdicts, writers = Verdicts(), WriterTable()
    writers.restore(rows, _states_of(columns, np.flatnonzero(~usual).tolist(), begins))
    writers.past = WriterFloors(mapping_of(snapshot.writer_floors))
    verdicts.restore(writers, mapping_of(snapshot.floors))
    return verdicts


def _states_of(
    columns: WriterColumns, chosen: list[int], begins: NDArray[np.int64]
) -> dict[tuple[int, bytes], WriterState]:
    """Some writers of the columns, the answers of which begin there."""
    crcs = array("I", columns.crcs.tobytes())
    used = np.cumsum(columns.crc_counts, dtype=np.int64) - columns.crc_counts
    pairs = np.cumsum(columns.actual_counts, dtype=np.int64) - columns.actual_counts
    states: dict[tuple[int, bytes], WriterState] = {}
    for at in chosen:
        state = WriterState(bool(columns.named[at]))
        states[int(columns.books[at]), columns.ids[16 * at : 16 * at + 16]] = state
        state.last, state.floor, state.time_ms = int(columns.last[at]), int(columns.floors[at]), int(columns.times[at])
        first = int(begins[at])
        state.keep([_kept(columns, one, int(pairs[one])) for one in range(first, first + int(columns.kept_counts[at]))])
        if state.named:
            state.crcs = crcs[int(used[at]) : int(used[at]) + int(columns.crc_counts[at])]
    return states


def _kept(columns: WriterColumns, at: int, pair: int) -> Kept:
    pairs = slice(pair, pair + int(columns.actual_counts[at]))
    actual = zip(columns.actual_tags[pairs].tolist(), columns.actual_newest[pairs].tolist(), strict=True)
    first, count, seqnum, verdict = (int(column[at]) for column in columns[8:12])
    return Kept(first, count, seqnum, verdict, tuple(actual))
