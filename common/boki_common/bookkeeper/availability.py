"""Which entries of a ledger a bookie holds, as GET_LIST_OF_ENTRIES_OF_LEDGER answers it. Pure.

Big endian; Apache BookKeeper's availability format, version 0:

    header, 64 B   version i32 = 0 | number of groups i32 | zero
    group, 24 B    first i64 | last i64 | size i32 | period i32

A group stands for runs of `size` consecutive entries each, which begin at `first`, `first + period`, … up to `last`; a
period of 0 means one run. Groups ascend and do not overlap. Striping makes such patterns: of an ensemble of three with
write quorum two, a bookie holds two entries of every three.

Source: frames recorded from Apache BookKeeper 4.18.0 (`v3-list-of-entries*.txt`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final

import numpy as np

from boki_common.errors import ProtocolError
from boki_common.runtime.ports import Buffer

VERSION: Final = 0
ENTRIES_LIMIT: Final = 100_000_000
"""Entries that one list may stand for; more are not believed."""

_HEADER: Final = Struct(">ii56x")
_GROUP: Final = Struct(">qqii")


def encode(entries: Sequence[int]) -> bytes:
    """The list of these entries, given in ascending order without repetition."""
    groups = [_GROUP.pack(*group) for group in _groups(_runs(entries))]
    return _HEADER.pack(VERSION, len(groups)) + b"".join(groups)


def decode(data: Buffer) -> Iterator[range]:
    """The runs of entries, ascending; checked before the first one is given.

    Raises:
        ProtocolError: a version, length, count or order that cannot be.
    """
    if len(data) < _HEADER.size:
        raise ProtocolError(f"expected a list of entries of at least {_HEADER.size} bytes, found {len(data)}")
    version, count = _HEADER.unpack_from(data)
    if version != VERSION or len(data) != _HEADER.size + count * _GROUP.size:
        raise ProtocolError(
            f"expected version 0 and as many groups as told, found {version}, {count}, {len(data)} bytes"
        )
    groups = list(_GROUP.iter_unpack(memoryview(data)[_HEADER.size :]))
    below, total = 0, 0
    for first, last, size, period in groups:
        steps = (last - first) // period if period > 0 else 0
        if first < below or size < 1 or last != first + steps * period or 0 < period <= size or period < 0:
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


def _runs(entries: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, size) of every run of consecutive entries."""
    if not entries:
        return iter(())
    column = np.asarray(entries, dtype=np.int64)
    steps = np.diff(column)
    assert (steps > 0).all(), "entries ascend"
    starts = np.concatenate(([0], np.flatnonzero(steps != 1) + 1))
    sizes = np.diff(starts, append=len(column))
    return zip(column[starts].tolist(), sizes.tolist(), strict=True)


def _groups(runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """(first, last, size, period): runs of one size at equal distances become one group."""
    group: tuple[int, int, int, int] | None = None
    for start, size in runs:
        if group is not None:
            first, last, group_size, period = group
            distance = start - last
            if size == group_size and period in (0, distance) and distance < 2**31:
                group = (first, start, size, distance)
                continue
            yield group
        group = (start, start, size, 0)
    if group is not None:
        yield group
