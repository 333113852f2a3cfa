"""ANSWERS: what became of appended runs, pushed by an engine, one row a run (`engine_protocol` has the table). Pure.

What one turn answers may be any number of rows, of which each has up to `limits.RECORD_EXPECTATIONS` actual values. So it leaves in
messages of a size, in order; each carries the token of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from boki_common import limits
from boki_common.engine.engine_protocol import PAIR, Token, decode_token, encode_token, expect
from boki_common.ids import Position, make_position
from boki_common.records.numpy_pays import FEW_ROWS

_ANSWERS: Final = Struct("<II")
_ROW: Final = Struct("<Q16sQQQIBBxxII")
_ANSWERS_OF_ONE: Final = Struct("<HIIQIIQ16sQQQIBBxxII")
"""A token of one log, counts and one row."""
ANSWERS_BYTES: Final = 1 * limits.MIB
"""Rows of one message, with their actual values; a single row may be on its own."""
_ROW_COLUMNS: Final = np.dtype(
    {
        "names": ["key", "book", "writer", "first", "first_seqnum", "position", "count", "others", "actual"],
        "formats": ["V24", "<u8", "V16", "<u8", "<u8", "<u8", "<u4", "<u4", "<u4"],
        "offsets": [0, 0, 8, 24, 32, 40, 48, 52, 56],
        "itemsize": _ROW.size,
    }
)
"""`key` is book and writer together; `others`, verdict and flags, are all 0 in the row of what was committed, as `actual` is."""
FEW_ROWS_BYTES: Final = FEW_ROWS * _ROW.size
"""What an ANSWERS of more has more than; where it does, `decode_committed` is worth trying."""


class AnswerRow(NamedTuple):
    """The verdict of consecutive numbers of one writer in one book."""

    book: int
    writer: bytes
    first: int
    first_seqnum: int
    position: int
    count: int  # type: ignore[assignment]  # the field, not tuple's method
    verdict: int
    actual: tuple[tuple[int, int], ...] = ()
    flags: int = 0


make_answer_row: Final = cast(Callable[[tuple[Any, ...]], AnswerRow], partial(tuple.__new__, AnswerRow))
"""`AnswerRow._make` without a frame of Python, for what runs per row; the tuple must have all nine fields."""
_Row: TypeAlias = tuple[int, bytes, int, int, int, int, int, tuple[tuple[int, int], ...], int]
"""An `AnswerRow`, or a tuple of its fields."""


class Answers:
    """Rows of one ANSWERS, in the order they are added."""

    __slots__ = ("_count", "_packed", "_pairs", "_rows")

    def __init__(self, rows: list[_Row] | None = None) -> None:
        """`rows` are this object's from now on."""
        self._rows = rows or []
        """Added last, and not packed yet."""
        self._packed: list[bytes] = []
        self._pairs: list[bytes] = []
        self._count = 0
        """How many are packed."""

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self._count + len(self._rows)

    def add(self, rows: Iterable[_Row]) -> None:
        """Adds rows."""
        self._rows += rows

    def _pack(self) -> None:
        pack, packed, rows = _ROW.pack, self._packed, self._rows
        for book, writer, first, first_seqnum, position, count, verdict, actual, flags in rows:
            packed.append(pack(book, writer, first, first_seqnum, position, count, verdict, flags, len(actual), 0))
            if actual:
                self._pairs += [PAIR.pack(*pair) for pair in actual]
        self._count += len(rows)
        self._rows = []

    def add_committed(self, runs: NDArray[np.void], first_seqnum: int, position: int) -> None:
        """Adds a row for each of some runs (`RecordBatch.run_columns`) whose records were all committed, one after another."""
        if self._rows:
            self._pack()
        counts = runs["count"]
        rows = np.zeros(len(runs), _ROW_COLUMNS)
        rows["key"], rows["first"], rows["count"] = runs["key"], runs["first"], counts
        ends = np.cumsum(counts, dtype=np.uint64)
        rows["first_seqnum"] = ends - counts + np.uint64(first_seqnum)
        rows["position"] = position
        self._packed.append(rows.tobytes())
        self._count += len(runs)

    def encode(self, token: Token) -> list[bytes]:
        """Return the bodies of the messages: one, or a few where the rows are over `ANSWERS_BYTES` together."""
        rows = self._rows
        if not self._count and len(rows) == len(token) == 1:  # one append, as it was asked for
            ((log, (term, entry)),) = token.items()
            (*row, actual, flags) = rows[0]
            if not actual:
                return [_ANSWERS_OF_ONE.pack(1, log, term, entry, 1, 0, *row, flags, 0, 0)]
        self._pack()
        seen, count, pairs = encode_token(token), self._count, self._pairs
        if count * _ROW.size + len(pairs) * PAIR.size > ANSWERS_BYTES:
            return [b"".join([seen, *part]) for part in self._parts()]
        return [b"".join([seen, _ANSWERS.pack(count, len(pairs)), *self._packed, *pairs])]

    def _parts(self) -> Iterator[list[bytes]]:
        """Yield the counts, rows and actual values of each message; a row and its values stay together."""
        rows, pairs = b"".join(self._packed), self._pairs
        actual = np.frombuffer(rows, _ROW_COLUMNS)["actual"].astype(np.int64)
        values = np.concatenate(([0], np.cumsum(actual)))
        sizes = np.arange(self._count + 1) * _ROW.size + values * PAIR.size
        first = 0
        while first < self._count:
            stop = max(int(np.searchsorted(sizes, sizes[first] + ANSWERS_BYTES, "right")) - 1, first + 1)
            of_rows = pairs[values[first] : values[stop]]
            yield [_ANSWERS.pack(stop - first, len(of_rows)), rows[first * _ROW.size : stop * _ROW.size], *of_rows]
            first = stop


def encode_answers(token: Token, rows: Sequence[AnswerRow]) -> list[bytes]:
    """`Answers.encode` of these rows."""
    return Answers([*rows]).encode(token)


def decode_answers(body: memoryview) -> tuple[dict[int, Position], list[AnswerRow]]:
    """Raises ProtocolError when counts and length disagree."""
    try:
        (
            logs, log, term, entry, row_count, actual_count,
            book, writer, first, first_seqnum, position, count, verdict, flags, actual, _,
        ) = _ANSWERS_OF_ONE.unpack(body)  # fmt: skip
        if logs == row_count == 1 and not actual_count and not actual:
            row = book, writer, first, first_seqnum, position, count, verdict, (), flags
            return {log: make_position((term, entry))}, [make_answer_row(row)]
    except StructError:
        pass  # of another length: other counts
    token, body = decode_token(body)
    expect(len(body) >= _ANSWERS.size, "answers", _ANSWERS.size, len(body))
    row_count, actual_count = _ANSWERS.unpack_from(body)
    rows_end = _ANSWERS.size + row_count * _ROW.size
    size = rows_end + actual_count * PAIR.size
    expect(size == len(body), "answers", size, len(body))
    pairs: list[tuple[int, int]] = list(PAIR.iter_unpack(body[rows_end:]))
    rows, used, make, shown = [], 0, make_answer_row, 0
    for book, writer, first, first_seqnum, position, count, verdict, flags, actual, _ in _ROW.iter_unpack(
        body[_ANSWERS.size : rows_end]
    ):
        if position == shown:
            position = shown  # one object for all: whoever keeps it touches no other memory when it changes
        else:
            shown = position
        found: tuple[tuple[int, int], ...] = ()
        if actual:
            expect(used + actual <= actual_count, "the actual values of all rows", actual_count, used + actual)
            found = tuple(pairs[used : used + actual])
            used += actual
        rows.append(make((book, writer, first, first_seqnum, position, count, verdict, found, flags)))
    return token, rows


class CommittedRows(NamedTuple):
    """An ANSWERS of many rows of which each says that its numbers were committed, and all show the same position.

    `rows`: book and writer together, first, count, first seqnum.
    """

    token: dict[int, Position]
    position: int
    rows: Iterable[tuple[bytes, int, int, int]]


def decode_committed(body: memoryview) -> CommittedRows | None:
    """Reads an ANSWERS by columns, at a third of the cost; None where it has few rows or others: `decode_answers` reads it."""
    token, body = decode_token(body)
    if len(body) <= _ANSWERS.size + FEW_ROWS_BYTES:
        return None
    row_count, actual_count = _ANSWERS.unpack_from(body)
    if actual_count or _ANSWERS.size + row_count * _ROW.size != len(body):
        return None
    rows = np.frombuffer(body, _ROW_COLUMNS, row_count, _ANSWERS.size)
    positions = rows["position"]
    position = positions[0]
    if rows["others"].any() or rows["actual"].any() or (positions != position).any():
        return None
    columns = (rows[name].tolist() for name in ("key", "first", "count", "first_seqnum"))
    return CommittedRows(token, int(position), zip(*columns, strict=True))
