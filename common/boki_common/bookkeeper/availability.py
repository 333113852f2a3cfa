"""Which entries of a ledger a bookie stores, as GET_LIST_OF_ENTRIES_OF_LEDGER answers it. Pure.

Big endian; Apache BookKeeper's availability format, version 0:

    header, 64 B   version i32 = 0 | number of groups i32 | zero
    group, 24 B    first i64 | last i64 | size i32 | period i32

A group stands for runs of `size` consecutive entries each, which begin at `first`, `first + period`, … up to `last`; a
period of 0 means one run. Groups ascend and do not overlap. Striping makes such patterns: of an ensemble of three with
write quorum two, a bookie stores two entries of every three.

Source: frames recorded from Apache BookKeeper 4.18.0 (`v3-list-of-entries*.txt`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from struct import Struct
from typing import Final

from boki_common.errors import ProtocolError
from boki_common.runtime.ports import Buffer

VERSION: Final = 0
ENTRIES_LIMIT: Final = 100_000_000
"""Entries that one list may stand for; more are not believed."""

_HEADER: Final = Struct(">ii56x")
_GROUP: Final = Struct(">qqii")


def encode(entries: Sequence[int]) -> bytes:
    """The list of these entries, given in ascending order without repetition."""
    groups = [_GROUP.pack(*group) for group in _groups(entries)]
    return _HEADER.pack(VERSION, len(groups)) + b"".join(groups)


def encode_within(entries: Sequence[int], bytes_limit: int) -> bytes | None:
    """As `encode`; None, without trying to the end, when the list does not fit."""
    groups = [_GROUP.pack(*group) for group in islice(_groups(entries), bytes_limit // _GROUP.size + 1)]
    size = _HEADER.size + _GROUP.size * len(groups)
    return None if size > bytes_limit else _HEADER.pack(VERSION, len(groups)) + b"".join(groups)


def decode(data: Buffer) -> Iterator[range]:
    """The runs of entries, ascending; checked before the first one is given. Raises ProtocolError: a version, length, count or
    order that cannot be."""
    if len(data) < _HEADER.size:
        raise ProtocolError(f"expected a list of entries of at least {_HEADER.size} bytes, found {len(data)}")
    version, count = _HEADER.unpack_from(data)
    if version != VERSION or len(data) != _HEADER.size + count * _GROUP.size:
        raise ProtocolError(
            f"expected version 0 and as many groups as the header says, found {version}, {count}, {len(data)} bytes"
        )
    groups = list(_GROUP.iter_unpack(memoryview(data)[_HEADER.size :]))
    below, total = 0, 0
    for first, last, size, period in groups:
        steps = (last - first) // period if period > 0 else 0
        if not below <= first <= last or size < 1 or last != first + steps * period or 0 < period <= size or period < 0:
            raise ProtocolError(f"expected ascending groups of runs, found {first} to {last}, {size} every {period}")
        below = last + size
        total += (steps + 1) * size
    if total > ENTRIES_LIMIT:
        raise ProtocolError(f"expected a list of at most {ENTRIES_LIMIT} entries, found {total}")
    return (
        range(start, start + size)
        for first, last, size, period in groups
        for start in range(first, last + 1, period or 1)
    )


def _groups(entries: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """(first, last, size, period): runs of one size at equal distances become one group. Work in Python is per group."""
    if not len(entries):
        return
    import numpy as np  # which a bookie that nobody asks needs no memory for

    column = np.asarray(entries, dtype=np.int64)
    steps = np.diff(column)
    assert (steps > 0).all(), "entries ascend"
    at = np.concatenate(([0], np.flatnonzero(steps != 1) + 1))
    starts, sizes = column[at], np.diff(at, append=len(column))
    distances = np.diff(starts)
    joins = (np.diff(sizes) == 0) & (distances < 2**31)
    # `joins`: whether a run may be in one group with the next. A group of more than one ends at the next of `breaks`.
    breaks = np.append(np.flatnonzero(~joins[1:] | (np.diff(distances) != 0)) + 1, len(starts) - 1)
    at_start, of_size, may_join, ends = (
        starts.data,
        sizes.data,
        joins.data,
        breaks.data,
    )  # quicker to index, and plain ints
    run, at_break = 0, 0
    while run < len(at_start):
        last, period = run, 0
        if run < len(may_join) and may_join[run]:
            while ends[at_break] <= run:
                at_break += 1
            last, period = ends[at_break], at_start[run + 1] - at_start[run]
        yield at_start[run], at_start[last], of_size[run], period
        run = last + 1
