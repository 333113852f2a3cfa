"""The runs of a record batch: rows of 56 bytes, consecutive numbers of one writer in one book each. Pure.

    book u64 | writer 16 B | first u64 | low u64 | count u32 | tag count u32 | expectation count u32 | flags u32

`sums_of_runs` and `sums_of_columns` check each run by itself and sum up what the batch must have of everything: the first run
by run, the second by columns, for many. Whether the batch has it is looked at in `record_batch`, whose layout this is part of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from boki_common.errors import ProtocolError

RUN_NAMED: Final = 1
RUN_VOID: Final = 2
RUN_END: Final = 4
RUN_RESENT: Final = 8
_RUN_FLAGS: Final = RUN_NAMED | RUN_VOID | RUN_END | RUN_RESENT

RUN_ROW: Final = Struct("<Q16sQQIIII")
RUN_KEY: Final = Struct("<Q16s")
"""Book and writer: what a row begins with."""
RUN_OF_KEY: Final = Struct("<24sQQIIII")
"""A row whose book and writer were packed before."""
RUN_COLUMNS: Final = np.dtype(
    {
        "names": ["book", "writer", "key", "first", "low", "count", "tag_count", "expectation_count", "flags"],
        "formats": ["<u8", "V16", "V24", "<u8", "<u8", "<u4", "<u4", "<u4", "<u4"],
        "offsets": [0, 8, 0, 24, 32, 40, 44, 48, 52],
        "itemsize": RUN_ROW.size,
    }
)
"""`key` is book and writer together."""


class Run(NamedTuple):
    """One row of the run column."""

    book: int
    writer: bytes
    first: int
    low: int
    count: int  # type: ignore[assignment]  # the field, not tuple's method: the word of the protocol
    tag_count: int
    expectation_count: int
    flags: int


make_run: Final = cast(Callable[[tuple[Any, ...]], Run], partial(tuple.__new__, Run))
"""`Run._make` without a frame of Python, for what runs per run."""


def sums_of_runs(runs: Sequence[Run]) -> tuple[int, int, int, int]:
    """Checks each run by itself; sums of records, tags, expectations, and records of NAMED runs."""
    records = tags = expectations = named = 0
    for _, _, first, low, count, tag_count, expectation_count, flags in runs:
        records += count
        tags += tag_count
        expectations += expectation_count
        if flags:
            named += count if flags & RUN_NAMED else 0
            if flags & ~_RUN_FLAGS:
                raise wrong("run flags", _RUN_FLAGS, flags)
        if not count and not flags & RUN_END:
            raise wrong("records in a run", 1, count)
        if not 0 < low <= first:
            raise wrong("a run that begins at or above its low", 1, first)
    return records, tags, expectations, named


def sums_of_columns(runs: NDArray[np.void]) -> tuple[int, int, int, int]:
    """`sums_of_runs` for many, by columns."""
    counts, flags, lows = runs["count"], runs["flags"], runs["low"]
    if not ((lows > 0) & (lows <= runs["first"])).all():
        raise wrong("a run that begins at or above its low", 1, "another")
    named = 0
    if flags.any():
        if (flags & ~np.uint32(_RUN_FLAGS)).any():
            raise wrong("run flags", _RUN_FLAGS, int(flags.max()))
        named = int(counts[flags & RUN_NAMED != 0].sum(dtype=np.uint64))
    if not ((counts > 0) | (flags & RUN_END != 0)).all():
        raise wrong("records in a run", 1, 0)
    records, tags, expectations = (
        int(runs[name].sum(dtype=np.uint64)) for name in ("count", "tag_count", "expectation_count")
    )
    return records, tags, expectations, named


def wrong(what: str, expected: object, found: object) -> ProtocolError:
    """What to raise when a batch cannot be."""
    return ProtocolError(f"in a record batch, {what}: expected {expected}, found {found}", expected=expected)
