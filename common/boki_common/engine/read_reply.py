"""The answer to a read: record columns, and what goes with them. Pure; SDK and engine share it. Little endian.

    read reply      token | position u64 | flags u8 (1 = more may follow at once, 2 = gaps, 4 = aux, 8 = takes READ_TAGS) | pad 7 |
                    gaps if 2 | aux column if 4 | record columns
    gaps            count u32 | reserved u32 | (first u64 | last u64 | kind u32 | tag u32)*     ascending
    aux column      count u32 | bytes u32 | (row u32 | length u32)* | data
    record columns  record count u32 | tag count u32 | seqnums u64* | times i64* | tags u64* | payload lengths u32* |
                    tag counts u8* | payloads

Tokens, the kinds of gaps and what the fields mean are `engine_protocol`'s.

Most reads ask for one record. Their answer is a `Point` where it can be: one record from a cluster whose token has one log,
without gaps and aux data. It is the same bytes, made and read with one look instead of column by column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple, Protocol, SupportsInt, cast

import numpy as np
from numpy.typing import NDArray

from boki_common import limits
from boki_common.engine.engine_protocol import GapKind, GapRow, Token, decode_token, encode_token, expect
from boki_common.ids import Position, make_position
from boki_common.records.numpy_pays import FEW_ITEMS
from boki_common.runtime.ports import Buffer

READ_MORE: Final = 1
READ_GAPS: Final = 2
READ_AUX: Final = 4
READ_TAKES_TAGS: Final = 8
"""Of an answer without records: who gave it takes READ_TAGS. Engines of earlier versions do not, and end the connection."""

_READ_REPLY: Final = Struct("<QB7x")
_GAP: Final = Struct("<QQII")
_TWO: Final = Struct("<II")
POINT_TAGS: Final = 8
"""Records of more tags are answered column by column."""
_POINT: Final = "<HIIQQB7xIIQq"
"""Token of one log, position and flags, and the columns of one record up to its tags; then its length and tag count."""
_POINT_FORMS: Final = tuple(Struct(f"{_POINT}{8 * tags}sIB") for tags in range(POINT_TAGS + 1))
_POINT_READS: Final = tuple(Struct(f"{_POINT}{tags}QIB") for tags in range(POINT_TAGS + 1))
"""By tag count: as it is written, with packed tags, and as it is read."""
_NOTHING: Final = Struct("<HIIQQB7xII")
"""Token of one log, position, flags, and the counts of no record."""
_POINT_TAG_COUNT: Final = Struct("<HIIQQB7xI").size
"""Where the tag count stands."""


class Column(Protocol):
    """A column of whole numbers, where it came: few as a view, many as an array, which is quicker then."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> SupportsInt: ...

    def tolist(self) -> list[int]: ...


class RecordColumns(NamedTuple):
    """Records of a reply, column by column; payload i is `payloads[ends[i-1]:ends[i]]`."""

    seqnums: Column
    times_ms: Column
    tags: Column
    tag_counts: Column
    payload_lengths: Column
    payloads: memoryview


class ReadReply(NamedTuple):
    token: dict[int, Position]
    position: int
    more: bool
    records: RecordColumns
    gaps: tuple[GapRow, ...] = ()
    aux: Mapping[int, memoryview] = {}
    """By row of `records`."""
    takes_tags: bool = False


class Point(NamedTuple):
    """An answer that is one record."""

    log: int
    reached: Position
    """What the answer shows of the log: its token."""
    position: int
    seqnum: int
    time_ms: int
    tags: Sequence[int]
    payload: memoryview


_make_point: Final = cast(Callable[[tuple[Any, ...]], Point], partial(tuple.__new__, Point))
"""`Point._make` without a frame of Python."""


def encode_point(
    log: int, reached: Position, position: int, *, seqnum: int, time_ms: int, tags: bytes, payload: Buffer
) -> list[Buffer]:
    """The answer to a read of one record that was found, behind which more may come: `tags` are packed u64s, at most `POINT_TAGS`."""
    tag_count = len(tags) // 8
    term, entry = reached
    head = _POINT_FORMS[tag_count].pack(
        1, log, term, entry, position, READ_MORE, 1, tag_count, seqnum, time_ms, tags, len(payload), tag_count
    )
    return [head, payload]


def decode_point(body: memoryview) -> Point | None:
    """The answer as a point; None when it has another form, which `decode_read_reply` reads or refuses."""
    try:
        form = _POINT_READS[body[_POINT_TAG_COUNT]]
        logs, log, term, entry, position, flags, count, tag_count, seqnum, time_ms, *tags, length, tags_of_record = (
            form.unpack_from(body)
        )
    except (IndexError, StructError):
        return None
    payload = body[form.size :]
    if (
        logs != 1
        or flags > READ_MORE
        or count != 1
        or not seqnum
        or tags_of_record != tag_count
        or len(payload) != length
    ):
        return None
    return _make_point((log, make_position((term, entry)), position, seqnum, time_ms, tags, payload))


class Nothing(NamedTuple):
    """An answer that has neither records nor gaps, and no more to come."""

    log: int
    reached: Position
    position: int


def decode_nothing(body: memoryview) -> Nothing | None:
    """The answer of one log that has nothing; None when it has another form, which `decode_read_reply` reads or refuses."""
    try:
        logs, log, term, entry, position, flags, count, tag_count = _NOTHING.unpack(body)
    except StructError:  # of another length
        return None
    if logs != 1 or flags & ~READ_TAKES_TAGS or count or tag_count:
        return None
    return Nothing(log, make_position((term, entry)), position)


def encode_read_reply(
    token: Token,
    position: int,
    *,
    more: bool,
    records: Sequence[Buffer],
    gaps: Sequence[GapRow] = (),
    aux: Mapping[int, bytes] = {},
    takes_tags: bool = False,
) -> list[Buffer]:
    """`records` is what `encode_records` made; `aux` is the cached data of some of its rows."""
    flags = (READ_MORE if more else 0) | (READ_TAKES_TAGS if takes_tags else 0)
    extra: list[Buffer] = []
    if gaps:
        flags |= READ_GAPS
        extra.append(_TWO.pack(len(gaps), 0))
        extra.extend(_GAP.pack(*gap) for gap in gaps)
    if aux:
        flags |= READ_AUX
        extra.append(_TWO.pack(len(aux), sum(map(len, aux.values()))))
        extra.extend(_TWO.pack(row, len(data)) for row, data in aux.items())
        extra.extend(aux.values())
    return [b"".join((encode_token(token), _READ_REPLY.pack(position, flags), *extra)), *records]


def decode_read_reply(body: memoryview) -> ReadReply:
    """Raises ProtocolError."""
    token, body = decode_token(body)
    expect(len(body) >= _READ_REPLY.size, "a read reply", _READ_REPLY.size, len(body))
    position, flags = _READ_REPLY.unpack_from(body)
    body = body[_READ_REPLY.size :]
    gaps: tuple[GapRow, ...] = ()
    aux: dict[int, memoryview] = {}
    if flags & READ_GAPS:
        gaps, body = _decode_gaps(body)
    if flags & READ_AUX:
        aux, body = _decode_aux(body)
    records = decode_records(body)
    if aux:
        count = len(records.seqnums)
        expect(all(row < count for row in aux), "rows with aux data", count, max(aux))
    return ReadReply(token, position, bool(flags & READ_MORE), records, gaps, aux, bool(flags & READ_TAKES_TAGS))


def _decode_gaps(body: memoryview) -> tuple[tuple[GapRow, ...], memoryview]:
    expect(len(body) >= _TWO.size, "gaps", _TWO.size, len(body))
    count, _ = _TWO.unpack_from(body)
    end = _TWO.size + count * _GAP.size
    expect(end <= len(body), "gaps", end, len(body))
    rows = list(_GAP.iter_unpack(body[_TWO.size : end]))
    for first, last, kind, tag in rows:
        expect(tag <= limits.READ_TAGS, "a tag of a gap", limits.READ_TAGS, tag)
        expect(kind in (1, 2), "a kind of gap, 1 or 2", "1 or 2", kind)
        expect(first <= last, "a gap that ends at or above its start", first, last)
    return tuple(GapRow(first, last, GapKind(kind), tag) for first, last, kind, tag in rows), body[end:]


def _decode_aux(body: memoryview) -> tuple[dict[int, memoryview], memoryview]:
    expect(len(body) >= _TWO.size, "an aux column", _TWO.size, len(body))
    count, size = _TWO.unpack_from(body)
    start = _TWO.size * (count + 1)
    expect(start + size <= len(body), "an aux column", start + size, len(body))
    rows = list(_TWO.iter_unpack(body[_TWO.size : start]))
    total = sum(length for _, length in rows)
    expect(total == size, "aux bytes", size, total)
    aux: dict[int, memoryview] = {}
    for row, length in rows:
        aux[row] = body[start : start + length]
        start += length
    return aux, body[start:]


def encode_records(
    seqnums: Sequence[int] | NDArray[np.uint64],
    times_ms: Sequence[int] | NDArray[np.int64],
    tags: Sequence[Buffer],
    tag_counts: Sequence[int],
    payloads: Sequence[Buffer],
) -> list[Buffer]:
    """Record columns; `tags` are packed u64s per record, payloads are not copied.

    A row with seqnum 0 (no such record) has no tags and an empty payload.
    """
    packed_tags = b"".join(tags)
    head = b"".join(
        [
            _TWO.pack(len(payloads), len(packed_tags) // 8),
            np.asarray(seqnums, np.uint64).tobytes(),
            np.asarray(times_ms, np.int64).tobytes(),
            packed_tags,
            np.fromiter(map(len, payloads), np.uint32, len(payloads)).tobytes(),
            bytes(tag_counts),
        ]
    )
    return [head, *payloads]


def decode_records(body: memoryview) -> RecordColumns:
    """Raises ProtocolError when counts, sums and length disagree."""
    expect(len(body) >= _TWO.size, "record columns", _TWO.size, len(body))
    count, tag_count = _TWO.unpack_from(body)
    times_start = _TWO.size + 8 * count
    tags_start = times_start + 8 * count
    lengths_start = tags_start + 8 * tag_count
    counts_start = lengths_start + 4 * count
    start = counts_start + count
    expect(start <= len(body), "record columns", start, len(body))
    lengths, counts = body[lengths_start:counts_start].cast("I"), body[counts_start:start]
    total, tags = _sum(lengths), _sum(counts)
    if total != len(body) - start:
        expect(False, "payload bytes", len(body) - start, total)
    if tags != tag_count:
        expect(False, "tags of records", tag_count, tags)
    payloads = body[start:]
    if count + tag_count <= FEW_ITEMS:
        return RecordColumns(
            body[_TWO.size : times_start].cast("Q"),
            body[times_start:tags_start].cast("q"),
            body[tags_start:lengths_start].cast("Q"),
            counts,
            lengths,
            payloads,
        )
    return RecordColumns(
        np.frombuffer(body[_TWO.size : times_start], np.uint64),
        np.frombuffer(body[times_start:tags_start], np.int64),
        np.frombuffer(body[tags_start:lengths_start], np.uint64),
        np.frombuffer(counts, np.uint8),
        np.frombuffer(lengths, np.uint32),
        payloads,
    )


def _sum(column: memoryview[int]) -> int:
    """Sum of a column; a few items are not worth calling numpy for."""
    if len(column) <= FEW_ITEMS:
        return sum(column)
    return int(np.frombuffer(column, column.format).sum(dtype=np.uint64))
