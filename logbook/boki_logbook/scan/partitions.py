"""A plan cut into pieces that travel to whoever reads them, and what such a piece holds. Pure.

    for partition in cut(plan, max_bytes=64 << 20): ...
    entries, rows = partition.entries(), partition.rows_to_deliver()

A partition is of one term, ends between two entries, and is small: what is behind `packed` is at most `PACKED_BYTES`.

    packed, little-endian
    u32 entries | u32 ledgers | u8 how rows are given (0: all, 1: spans, 2: bits) | 7 zero bytes
    ledgers u64 | shards u32, padded to 8
    per entry, column by column: first position u32, from the start | records u32 | entry u64 | time i64 | ledger u16 | given up u8,
    the last two padded to 8
    rows: spans [first, stop) u32 each, from the start; or a bit for each position, the first in the lowest bit

Bounds are journaled by streams: a plan of the same range cut at them gives the same partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from boki_common import limits
from boki_common.errors import CorruptData, InvalidArgument
from boki_logbook.index.sorted_run import U64
from boki_logbook.scan.plan import NO_SPANS, EntryColumns, Plan, TermPlan, clipped, count_of

PACKED_BYTES: Final = 224 * limits.KIB
"""Behind this a partition is cut, whatever its records: pickled it stays below 256 KiB."""
SPAN_POSITIONS: Final = 2**32 - 1
"""Positions of a partition: they count from its start."""
LEDGERS: Final = 2**16 - 1
_HEAD: Final = Struct("<IIB7x")
_ENTRY_BYTES: Final = 4 + 4 + 8 + 8 + 2 + 1
_ALL, _SPANS, _BITS = 0, 1, 2

Bounds = Sequence[Sequence[int]]
"""(term, start, stop) of each partition."""


@dataclass(frozen=True, slots=True)
class Partition:
    """See the module.

    Attributes:
        start_pos, stop_pos: what it covers of the term.
        rows: records that it must deliver; in mode `committed` those of all books and tags.
        data_bytes: that are read for it, roughly.
        metalog_ledger, metalog_stop: where entries are that no data ledger has yet.
    """

    term: int
    log: int
    start_pos: int
    stop_pos: int
    rows: int
    data_bytes: int
    mode: str
    book: int | None
    tags: tuple[int, ...]
    metalog_ledger: int
    metalog_stop: int
    packed: bytes

    def entries(self) -> EntryColumns:
        """The entries to read. Raises CorruptData."""
        return _unpack(self)[0]

    def rows_to_deliver(self) -> U64:
        """Spans of positions, (n, 2), ascending. Raises CorruptData."""
        return _unpack(self)[1]


def cut(
    plan: Plan, *, max_bytes: int = 64 * limits.MIB, least: int = 1, bounds: Bounds | None = None
) -> list[Partition]:
    """The partitions of a plan, in the order of terms and positions.

    Args:
        max_bytes: of data in one, roughly; an entry is never cut.
        least: partitions to make, if there are so many entries.
        bounds: cut there, and only there.

    Raises:
        InvalidArgument: the bounds are not of this plan.
    """
    if max_bytes < 1 or least < 1:
        raise InvalidArgument(f"expected bytes and partitions above 0, found {max_bytes} and {least}")
    if bounds is not None:
        return _cut_at(plan, bounds)
    total = sum(_bytes_of(one, 0, len(one.entries.entries)) for one in plan.terms)
    share = max(min(max_bytes, -(-total // least)), 1)
    return [_make(plan, one, low, high) for one in plan.terms for low, high in _pieces(one, share)]


def bounds_of(partitions: Sequence[Partition]) -> list[list[int]]:
    """What `cut` makes the same partitions of again."""
    return [[one.term, one.start_pos, one.stop_pos] for one in partitions]


def _cut_at(plan: Plan, bounds: Bounds) -> list[Partition]:
    terms = {one.facts.term: one for one in plan.terms}
    made = []
    for term, start, stop in bounds:
        one = terms.get(term)
        if one is None or not one.start_pos <= start < stop <= one.stop_pos:
            raise InvalidArgument(f"no positions {start} to below {stop} of term {term} are in the plan")
        low = int(np.searchsorted(one.entries.stop_positions, np.uint64(start), "right"))
        high = int(np.searchsorted(one.entries.first_positions, np.uint64(stop), "left"))
        made.append(_make(plan, one, low, high, (start, stop)))
    return made


def _pieces(term: TermPlan, share: int) -> Iterator[tuple[int, int]]:
    """Entries [low, high) of each partition of a term: as many as fit."""
    entries = term.entries
    count = len(entries.entries)
    low = 0
    while low < count:
        most = min(low + (PACKED_BYTES - _HEAD.size) // _ENTRY_BYTES, count)
        first = int(entries.first_positions[low])
        reach = np.cumsum(entries.stop_positions[low:most] - entries.first_positions[low:most]) * term.record_bytes
        high = low + max(int(np.searchsorted(reach, share, "right")), 1)
        high = min(
            high, low + max(int(np.searchsorted(entries.stop_positions[low:most], first + SPAN_POSITIONS, "right")), 1)
        )
        while high - low > 1 and _packed_bytes(term, low, high) > PACKED_BYTES:
            high = low + (high - low) // 2
        yield low, high
        low = high


def _span_of(term: TermPlan, low: int, high: int) -> tuple[int, int]:
    entries = term.entries
    if low >= high:
        return term.start_pos, term.start_pos
    start = max(int(entries.first_positions[low]), term.start_pos)
    return start, min(int(entries.stop_positions[high - 1]), term.stop_pos)


def _packed_bytes(term: TermPlan, low: int, high: int) -> int:
    start, stop = _span_of(term, low, high)
    spans = len(clipped(term.rows, start, stop))
    shards = len(np.unique(term.entries.shards[low:high]))
    return _HEAD.size + (high - low) * _ENTRY_BYTES + 24 + 12 * shards + min(8 * spans, (stop - start + 7) // 8)


def _bytes_of(term: TermPlan, low: int, high: int) -> int:
    entries = term.entries
    records = int((entries.stop_positions[low:high] - entries.first_positions[low:high]).sum())
    return int(records * term.record_bytes)


def _make(plan: Plan, term: TermPlan, low: int, high: int, span: tuple[int, int] | None = None) -> Partition:
    start, stop = _span_of(term, low, high) if span is None else span
    rows = clipped(term.rows, start, stop)
    facts, asked = term.facts, plan.asked
    return Partition(
        facts.term,
        facts.log,
        start,
        stop,
        count_of(rows),
        _bytes_of(term, low, high),
        plan.mode,
        asked.book,
        asked.tags,
        facts.metalog_ledger,
        facts.metalog_stop,
        _pack(term.entries.at(slice(low, high)), rows, start, stop),
    )


def _pack(entries: EntryColumns, rows: U64, start: int, stop: int) -> bytes:
    base = np.int64(entries.first_positions[0]) if len(entries.entries) else np.int64(start)
    shards, where = np.unique(entries.shards, return_inverse=True)
    ledgers = np.zeros(len(shards), np.uint64)
    ledgers[where] = entries.ledgers
    assert len(shards) <= LEDGERS, "a term has far fewer shards"
    firsts = entries.first_positions.astype(np.int64)
    counts = entries.stop_positions.astype(np.int64) - firsts
    how, row_bytes = _pack_rows(rows, start, stop)
    columns = (
        ledgers,
        shards.astype(np.uint32),
        (firsts - base).astype(np.uint32),
        counts.astype(np.uint32),
        entries.entries,
        entries.times,
        where.astype(np.uint16),
        entries.given_up.astype(np.uint8),
    )
    head = _HEAD.pack(len(entries.entries), len(shards), how)
    return b"".join((head, int(base).to_bytes(8, "little"), *(column.tobytes() for column in columns), row_bytes))


def _pack_rows(rows: U64, start: int, stop: int) -> tuple[int, bytes]:
    if len(rows) == 1 and int(rows[0, 0]) == start and int(rows[0, 1]) == stop:
        return _ALL, b""
    relative = (rows.astype(np.int64) - start).astype(np.uint32)
    if 8 * len(rows) <= (stop - start + 7) // 8:
        return _SPANS, relative.tobytes()
    steps = np.zeros(stop - start + 1, np.int8)
    np.add.at(steps, relative[:, 0], 1)
    np.add.at(steps, relative[:, 1], -1)
    return _BITS, np.packbits(np.cumsum(steps[:-1]).astype(np.uint8), bitorder="little").tobytes()


def _unpack(one: Partition) -> tuple[EntryColumns, U64]:
    packed = one.packed
    try:
        count, shard_count, how = _HEAD.unpack_from(packed)
        at = _HEAD.size
        base = int.from_bytes(packed[at : at + 8], "little")
        at += 8
        columns: list[NDArray[np.generic]] = []
        for kind, items in (
            (np.uint64, shard_count),
            (np.uint32, shard_count),
            (np.uint32, count),
            (np.uint32, count),
            (np.uint64, count),
            (np.int64, count),
            (np.uint16, count),
            (np.uint8, count),
        ):
            width = np.dtype(kind).itemsize * items
            columns.append(np.frombuffer(packed[at : at + width], kind, items))
            at += width
        ledgers, shards, offsets, counts, entries, times, where, given_up = columns
        firsts = offsets.astype(np.uint64) + np.uint64(base)
        found = EntryColumns(
            firsts,
            firsts + counts.astype(np.uint64),
            shards.astype(np.uint32)[where.astype(np.int64)],
            entries.astype(np.uint64),
            ledgers.astype(np.uint64)[where.astype(np.int64)],
            times.astype(np.int64),
            given_up.astype(np.bool_),
        )
        return found, _unpack_rows(how, packed[at:], one.start_pos, one.stop_pos)
    except (ValueError, IndexError, OverflowError) as error:
        raise CorruptData(f"a partition of term {one.term} cannot be read: {error}") from error


def _unpack_rows(how: int, row_bytes: bytes, start: int, stop: int) -> U64:
    if how == _ALL:
        return np.array([[start, stop]], np.uint64)
    if how == _SPANS:
        return np.frombuffer(row_bytes, np.uint32).reshape(-1, 2).astype(np.uint64) + np.uint64(start)
    bits = np.unpackbits(np.frombuffer(row_bytes, np.uint8), count=stop - start, bitorder="little")
    edges = np.flatnonzero(np.diff(bits, prepend=0, append=0).astype(np.int8))
    return edges.reshape(-1, 2).astype(np.uint64) + np.uint64(start) if len(edges) else NO_SPANS
