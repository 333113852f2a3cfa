"""What an SDK and an engine say to each other, on `net.messages`. Little endian. Pure; both sides share it.

| opcode | who | body | answer |
|---|---|---|---|
| 1 HELLO | SDK, first | msgpack {versions, features, auth} | msgpack {version, features, engine} |
| 2 APPEND | SDK | token, record batch | only a refusal (ERROR); what was ordered comes as ANSWERS |
| 3 ANSWERS | engine, push | token, rows, actual | none |
| 4 READ | SDK | token, query | token, position, flags, record columns |
| 5 READ_PREV_MANY | SDK | token, book, (tag, at most)* | token, position, record columns, one row per query |
| 6 STATUS | SDK | empty | JSON |
| 7 POSITION | SDK | token, book | token, position |

    token           count u16 | (log u32 | term u32 | entry u64)*     highest metalog position seen, per log
    answers         token | row count u32 | actual count u32 | rows | actual (tag u64 | newest u64, 0 = none)*
    row, 64 B       book u64 | writer 16 B | first u64 | first seqnum u64 | position u64 | count u32 | verdict u8 | pad 3 |
                    actual count u32 | reserved u32
    query           book u64 | tag u64 | start u64 | stop u64 | max records u32 | max bytes u32 | wait ms u32 |
                    direction u8 | consistency u8 | reserved u16
    read reply      token | position u64 | flags u8 (1 = more may follow at once) | pad 7 | record columns
    record columns  record count u32 | tag count u32 | seqnums u64* | times i64* | tags u64* | payload lengths u32* |
                    tag counts u8* | payloads

A direction of NEXT reads start ≤ seqnum < stop upwards, PREV reads stop ≤ seqnum ≤ start downwards. Verdict rows: COMMITTED
gives numbers first … first+count-1 the seqnums first seqnum …; CONFLICT and NEVER decide numbers that joined nothing; GAP refuses
number `first` because the writer's last decided number is `first seqnum`; FORGOTTEN decided them, the answer is not known
any more. Positions are seqnums: the last place of the book's log that the engine's index covers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from boki_common import limits
from boki_common.errors import ProtocolError
from boki_common.ids import Position
from boki_common.runtime.ports import Buffer

OP_HELLO: Final = 1
OP_APPEND: Final = 2
OP_ANSWERS: Final = 3
OP_READ: Final = 4
OP_READ_PREV_MANY: Final = 5
OP_STATUS: Final = 6
OP_POSITION: Final = 7

PROTOCOL_VERSION: Final = 1
READ_MORE: Final = 1

Token: TypeAlias = Mapping[int, Position]
"""Highest metalog position seen, per log."""

_TOKEN_COUNT: Final = Struct("<H")
_TOKEN_ROW: Final = Struct("<IIQ")
_ANSWERS: Final = Struct("<II")
_ROW: Final = Struct("<Q16sQQQIBxxxII")
_PAIR: Final = Struct("<QQ")
_QUERY: Final = Struct("<QQQQIIIBBH")
_READ_REPLY: Final = Struct("<QB7x")
_PREV_MANY: Final = Struct("<QII")
_BOOK: Final = Struct("<Q")
_COLUMNS: Final = Struct("<II")
_FEW_ITEMS: Final = 128


class Verdict(IntEnum):
    """What became of appended numbers."""

    COMMITTED = 0
    CONFLICT = 1
    GAP = 2
    NEVER = 3
    FORGOTTEN = 4


class Direction(IntEnum):
    NEXT = 0
    PREV = 1


class Consistency(IntEnum):
    """How new a read's view must be. SESSION waits until the index reached the token; ANY does not wait."""

    SESSION = 0
    ANY = 1


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


class Query(NamedTuple):
    """One range read; see the module for its bounds."""

    book: int
    tag: int
    start: int
    stop: int
    max_records: int
    max_bytes: int
    wait_ms: int
    direction: Direction
    consistency: Consistency


class RecordColumns(NamedTuple):
    """Records of a reply, column by column; payload i is `payloads[ends[i-1]:ends[i]]`."""

    seqnums: NDArray[np.uint64]
    times_ms: NDArray[np.int64]
    tags: NDArray[np.uint64]
    tag_counts: NDArray[np.uint8]
    payload_lengths: NDArray[np.uint32]
    payloads: memoryview


class ReadReply(NamedTuple):
    token: dict[int, Position]
    position: int
    more: bool
    records: RecordColumns


# -- tokens


def encode_token(token: Token) -> bytes:
    rows = b"".join(_TOKEN_ROW.pack(log, *token[log]) for log in sorted(token))
    return _TOKEN_COUNT.pack(len(token)) + rows


def decode_token(body: memoryview) -> tuple[dict[int, Position], memoryview]:
    """Reads a token; returns it and what follows. Raises ProtocolError."""
    if len(body) < _TOKEN_COUNT.size:
        raise ProtocolError(f"expected a session token of at least 2 bytes, found {len(body)}")
    (count,) = _TOKEN_COUNT.unpack_from(body)
    end = _TOKEN_COUNT.size + count * _TOKEN_ROW.size
    if end > len(body):
        raise ProtocolError(f"a session token of {count} logs needs {end} bytes, found {len(body)}", expected=end)
    rows = _TOKEN_ROW.iter_unpack(body[_TOKEN_COUNT.size : end])
    return {log: Position(term, entry) for log, term, entry in rows}, body[end:]


def merge_tokens(token: dict[int, Position], other: Token) -> None:
    """Raises `token` to the higher position of each log, in place."""
    for log, position in other.items():
        if position > token.get(log, Position(0, 0)):
            token[log] = position


# -- answers


def encode_answers(token: Token, rows: Sequence[AnswerRow]) -> list[Buffer]:
    packed = [encode_token(token), _ANSWERS.pack(len(rows), sum(len(row.actual) for row in rows))]
    packed.extend(_ROW.pack(*row[:7], len(row.actual), 0) for row in rows)
    packed.extend(_PAIR.pack(*pair) for row in rows for pair in row.actual)
    return [b"".join(packed)]


def decode_answers(body: memoryview) -> tuple[dict[int, Position], list[AnswerRow]]:
    """Raises ProtocolError when counts and length disagree."""
    token, body = decode_token(body)
    _expect(len(body) >= _ANSWERS.size, "answers", _ANSWERS.size, len(body))
    row_count, actual_count = _ANSWERS.unpack_from(body)
    rows_end = _ANSWERS.size + row_count * _ROW.size
    size = rows_end + actual_count * _PAIR.size
    _expect(size == len(body), "answers", size, len(body))
    pairs: list[tuple[int, int]] = list(_PAIR.iter_unpack(body[rows_end:]))
    rows, used = [], 0
    for *row, actual, _ in _ROW.iter_unpack(body[_ANSWERS.size : rows_end]):
        _expect(used + actual <= actual_count, "the actual values of all rows", actual_count, used + actual)
        rows.append(AnswerRow._make((*row, tuple(pairs[used : used + actual]))))
        used += actual
    return token, rows


# -- reads


def encode_read(token: Token, query: Query) -> list[Buffer]:
    return [encode_token(token) + _QUERY.pack(*query, 0)]


def decode_read(body: memoryview) -> tuple[dict[int, Position], Query]:
    """Raises ProtocolError; limits are checked, so that what a reply may hold is bounded."""
    token, body = decode_token(body)
    _expect(len(body) == _QUERY.size, "a query", _QUERY.size, len(body))
    *row, direction, consistency, _ = _QUERY.unpack(body)
    _expect(direction in (0, 1), "a direction of 0 or 1", "0 or 1", direction)
    _expect(consistency in (0, 1), "a consistency of 0 or 1", "0 or 1", consistency)
    query = Query._make((*row, Direction(direction), Consistency(consistency)))
    _expect(0 < query.max_records <= limits.READ_RECORDS, "max records", limits.READ_RECORDS, query.max_records)
    _expect(query.max_bytes <= limits.READ_BYTES, "max bytes", limits.READ_BYTES, query.max_bytes)
    _expect(query.wait_ms <= limits.READ_WAIT_MS, "wait ms", limits.READ_WAIT_MS, query.wait_ms)
    return token, query


def encode_read_reply(token: Token, position: int, *, more: bool, records: Sequence[Buffer]) -> list[Buffer]:
    """`records` is what `encode_records` made."""
    return [encode_token(token) + _READ_REPLY.pack(position, READ_MORE if more else 0), *records]


def decode_read_reply(body: memoryview) -> ReadReply:
    """Raises ProtocolError."""
    token, body = decode_token(body)
    _expect(len(body) >= _READ_REPLY.size, "a read reply", _READ_REPLY.size, len(body))
    position, flags = _READ_REPLY.unpack_from(body)
    return ReadReply(token, position, bool(flags & READ_MORE), decode_records(body[_READ_REPLY.size :]))


def encode_prev_many(token: Token, book: int, queries: Sequence[tuple[int, int]]) -> list[Buffer]:
    packed = b"".join(_PAIR.pack(*query) for query in queries)
    return [encode_token(token) + _PREV_MANY.pack(book, len(queries), 0) + packed]


def decode_prev_many(body: memoryview) -> tuple[dict[int, Position], int, list[tuple[int, int]]]:
    """Returns (token, book, (tag, at most) pairs). Raises ProtocolError."""
    token, body = decode_token(body)
    _expect(len(body) >= _PREV_MANY.size, "queries", _PREV_MANY.size, len(body))
    book, count, _ = _PREV_MANY.unpack_from(body)
    _expect(count <= limits.READ_MANY_QUERIES, "queries in one call", limits.READ_MANY_QUERIES, count)
    size = _PREV_MANY.size + count * _PAIR.size
    _expect(size == len(body), "queries", size, len(body))
    return token, book, list(_PAIR.iter_unpack(body[_PREV_MANY.size :]))


def encode_position(token: Token, book: int) -> list[Buffer]:
    return [encode_token(token) + _BOOK.pack(book)]


def decode_position(body: memoryview) -> tuple[dict[int, Position], int]:
    """Reads a POSITION request or its reply: (token, book or position). Raises ProtocolError."""
    token, body = decode_token(body)
    try:
        (number,) = _BOOK.unpack(body)
    except StructError as error:
        raise ProtocolError(f"expected 8 bytes after the token, found {len(body)}", found=len(body)) from error
    return token, number


# -- records


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
            _COLUMNS.pack(len(payloads), len(packed_tags) // 8),
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
    _expect(len(body) >= _COLUMNS.size, "record columns", _COLUMNS.size, len(body))
    count, tag_count = _COLUMNS.unpack_from(body)
    ends = [_COLUMNS.size]
    for item_bytes, items in ((8, count), (8, count), (8, tag_count), (4, count), (1, count)):
        ends.append(ends[-1] + item_bytes * items)
    _expect(ends[-1] <= len(body), "record columns", ends[-1], len(body))
    total = _sum(body[ends[3] : ends[4]].cast("I"))
    _expect(total == len(body) - ends[5], "payload bytes", len(body) - ends[5], total)
    tags = _sum(body[ends[4] : ends[5]])
    _expect(tags == tag_count, "tags of records", tag_count, tags)
    return RecordColumns(
        np.frombuffer(body[ends[0] : ends[1]], np.uint64),
        np.frombuffer(body[ends[1] : ends[2]], np.int64),
        np.frombuffer(body[ends[2] : ends[3]], np.uint64),
        np.frombuffer(body[ends[4] : ends[5]], np.uint8),
        np.frombuffer(body[ends[3] : ends[4]], np.uint32),
        body[ends[5] :],
    )


def _sum(column: memoryview[int]) -> int:
    """Sum of a column; a few items are not worth calling numpy for."""
    if len(column) <= _FEW_ITEMS:
        return sum(column)
    return int(np.frombuffer(column, column.format).sum(dtype=np.uint64))


def _expect(holds: bool, what: str, expected: object, found: object) -> None:
    if not holds:
        raise ProtocolError(
            f"{what}: expected {expected} bytes or items, found {found}", expected=expected, found=found
        )
