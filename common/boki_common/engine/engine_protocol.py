"""What an SDK and an engine say to each other, on `net.messages`. Little endian. Pure; both sides share it.

| opcode | who | body | answer |
|---|---|---|---|
| 1 HELLO | SDK, first | msgpack {versions, features, auth, role} | msgpack {version, features, engine, engines, cluster, now_ms} |
| 2 APPEND | SDK | token, record batch | only a refusal (ERROR); what was ordered comes as ANSWERS |
| 3 ANSWERS | engine, push | token, rows, actual | none |
| 4 READ | SDK | token, query | token, position, flags, record columns |
| 5 READ_PREV_MANY | SDK | token, book, (tag, at most)* | token, position, record columns, one row per query |
| 6 STATUS | SDK | empty | JSON |
| 7 POSITION | SDK | token, book | token, position |
| 8 TRIM | SDK | token, trim | token, position; once it is ordered and applied here |
| 9 SET_AUX | SDK | aux | kept u8 |
| 10 WRITER | SDK | token, book, writer 16 B | token, number; the writer's last decided number, linearizable |
| 11 SEEK | SDK | token, seek | token, position, seqnum u64 |
| 12 HEADERS | engine | empty | empty; from then on pushes: headers of its entries (`boki_logbook.peers.pushed_headers`) |
| 13 READS | SDK, push | token, reads (`reads_together`) | READS, engine, push: answers; to single ones what answers a READ or refuses it |
| 14 READ_TAGS | SDK | token, query, tags (`tag_reads`) | as of READ; its gaps name tags |
| 15 SCAN | who plans | msgpack (`boki_logbook.scan.messages`) | a page of what the engine's state says of a range |

    token           count u16 | (log u32 | term u32 | entry u64)*     highest metalog position seen, per log
    answers         token | row count u32 | actual count u32 | rows | actual (tag u64 | newest u64, 0 = none)*
    row, 64 B       book u64 | writer 16 B | first u64 | first seqnum u64 | position u64 | count u32 | verdict u8 |
                    flags u8 (2 = in the log before) | pad 2 | actual count u32 | reserved u32
    query           book u64 | tag u64 | start u64 | stop u64 | max records u32 | max bytes u32 | wait ms u32 |
                    direction u8 | consistency u8 | reserved u16
    queries         book u64 | count u32 | consistency u32 | (tag u64 | at most u64)*
    trim            book u64 | count u32 | flags u32 (1 = forget) | (tag u64 | before u64)*
    aux             book u64 | seqnum u64 | data
    seek            book u64 | time ms i64 | consistency u32 | reserved u32

A direction of NEXT reads start ≤ seqnum < stop upwards, PREV reads stop ≤ seqnum ≤ start downwards. Verdict rows: COMMITTED
gives numbers first … first+count-1 the seqnums first seqnum …; CONFLICT and NEVER decide numbers that joined nothing; GAP refuses
number `first` because the writer's last decided number is `first seqnum`; FORGOTTEN decided them, the answer is not known
any more; REUSED decided them for other records; TOO_OLD refuses number 1 of a writer that is not known, because one born at
`first seqnum`, which is no earlier, was forgotten (ADR 23). Positions are seqnums: the last place of the book's log that the
engine's index covers.
A row of the writer of 16 zero bytes is about no append. By it an engine says, behind its answer to HELLO and when it changes, that
`first` bookies take writes, `first seqnum` have to, and `book` others are up and read-only. While fewer take writes than have to, an SDK
refuses new appends (`admission`); earlier ones pass the row over, and wait.
HELLO's `auth` is the cluster token, or nil; its `role` is "sdk" or "engine", and absent in versions that had none. Only an engine
may ask for HEADERS and have calls FORWARDED. Who does not show the token that is asked for gets Unauthenticated, and the
connection ends.
A *gap* is a range of the answer's seqnums in which records were trimmed or lost; an engine names it only to a read that has
not seen what was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple, TypeAlias, cast

from boki_common import limits
from boki_common.errors import ProtocolError
from boki_common.ids import Position, make_position
from boki_common.runtime.ports import Buffer

OP_HELLO: Final = 1
OP_APPEND: Final = 2
OP_ANSWERS: Final = 3
OP_READ: Final = 4
OP_READ_PREV_MANY: Final = 5
OP_STATUS: Final = 6
OP_POSITION: Final = 7
OP_TRIM: Final = 8
OP_SET_AUX: Final = 9
OP_WRITER: Final = 10
OP_SEEK: Final = 11
OP_HEADERS: Final = 12
OP_READS: Final = 13
OP_READ_TAGS: Final = 14
OP_SCAN: Final = 15

PROTOCOL_VERSION: Final = 1
READS: Final = "reads"
"""HELLO feature of either side: it takes READS."""
ROLE_SDK: Final = "sdk"
ROLE_ENGINE: Final = "engine"
"""HELLO's role: who connects."""
TRIM_FORGET: Final = 1
ROW_DUPLICATE: Final = 2
"""Of committed numbers: the log had them before; what was sent now is in it under no number."""
WRITER_BYTES: Final = 16
NEWEST_FORGOTTEN: Final = 2**64 - 1
"""As `actual` of a conflict: the stream was forgotten, its newest record is at or above what was expected."""

Token: TypeAlias = Mapping[int, Position]
"""Highest metalog position seen, per log."""

_TOKEN_COUNT: Final = Struct("<H")
_TOKEN_ROW: Final = Struct("<IIQ")
_TOKEN_OF_ONE: Final = Struct("<HIIQ")
_NOWHERE: Final = Position(0, 0)
PAIR: Final = Struct("<QQ")
_QUERY: Final = Struct("<QQQQIIIBBxx")
_READ_OF_ONE: Final = Struct("<HIIQQQQQIIIBBxx")
"""A token of one log and a query."""
_PREV_MANY: Final = Struct("<QII")
_TRIM: Final = Struct("<QII")
_SEEK: Final = Struct("<QqII")
_BOOK: Final = Struct("<Q")


class Verdict(IntEnum):
    """What became of appended numbers."""

    COMMITTED = 0
    CONFLICT = 1
    GAP = 2
    NEVER = 3
    FORGOTTEN = 4
    REUSED = 5
    TOO_OLD = 6


class Direction(IntEnum):
    NEXT = 0
    PREV = 1


class Consistency(IntEnum):
    """How new a read's view must be.

    SESSION waits until the index reached the token; ANY does not wait; LINEARIZABLE waits for all that was ordered
    when the request came, by a term that was proven not to be over then, and the token.
    """

    SESSION = 0
    ANY = 1
    LINEARIZABLE = 2


_DIRECTIONS: Final = tuple(Direction)
_CONSISTENCIES: Final = tuple(Consistency)
"""By value: looking a value up in the class costs a call."""


class GapKind(IntEnum):
    """Why records of a range are not there."""

    TRIMMED = 1
    LOST = 2


class GapRow(NamedTuple):
    """Records with seqnums first … last (inclusive) may be missing from the answer.

    `tag`: of a read of several tags, the place of the one whose records they are among those that were asked for, from 1 on;
    0: records of any.
    """

    first: int
    last: int
    kind: GapKind
    tag: int = 0


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


make_query: Final = cast(Callable[[tuple[Any, ...]], Query], partial(tuple.__new__, Query))
"""`Query._make` without a frame of Python, for what runs per read."""


# -- tokens


NO_TOKEN: Final = _TOKEN_COUNT.pack(0)
"""The token of who has seen nothing, or does not care."""


def encode_token(token: Token) -> bytes:
    if len(token) == 1:  # one log: nearly always
        ((log, (term, entry)),) = token.items()
        return _TOKEN_OF_ONE.pack(1, log, term, entry)
    rows = b"".join(_TOKEN_ROW.pack(log, *token[log]) for log in sorted(token))
    return _TOKEN_COUNT.pack(len(token)) + rows


def decode_token(body: memoryview) -> tuple[dict[int, Position], memoryview]:
    """Reads a token; returns it and what follows. Raises ProtocolError."""
    try:
        count = body[0] + 256 * body[1]
    except IndexError:
        raise ProtocolError(f"expected a session token of at least 2 bytes, found {len(body)}") from None
    if not count:
        return {}, body[_TOKEN_COUNT.size :]
    if count == 1 and len(body) >= _TOKEN_OF_ONE.size:  # one log: nearly always
        _, log, term, entry = _TOKEN_OF_ONE.unpack_from(body)
        return {log: make_position((term, entry))}, body[_TOKEN_OF_ONE.size :]
    end = _TOKEN_COUNT.size + count * _TOKEN_ROW.size
    if end > len(body):
        raise ProtocolError(f"a session token of {count} logs needs {end} bytes, found {len(body)}", expected=end)
    rows = _TOKEN_ROW.iter_unpack(body[_TOKEN_COUNT.size : end])
    return {log: Position(term, entry) for log, term, entry in rows}, body[end:]


def merge_tokens(token: dict[int, Position], other: Token) -> None:
    """Raises `token` to the higher position of each log, in place."""
    for log, position in other.items():
        if position > token.get(log, _NOWHERE):
            token[log] = position


# -- reads


encode_query: Final = _QUERY.pack
"""Of the fields of a query: what follows the token in a READ."""


def encode_read(token: Token, query: Query) -> list[Buffer]:
    return [encode_token(token) + encode_query(*query)]


def decode_read(body: memoryview) -> tuple[dict[int, Position], Query]:
    """Raises ProtocolError; limits are checked, so that what a reply may hold is bounded."""
    fields: tuple[Any, ...]
    try:
        fields = _READ_OF_ONE.unpack(body)
    except StructError:  # of another length
        fields = (0,)
    if fields[0] == 1:  # one log: nearly always
        token = {fields[1]: make_position((fields[2], fields[3]))}
        fields = fields[4:]
    else:
        token, body = decode_token(body)
        expect(len(body) == _QUERY.size, "a query", _QUERY.size, len(body))
        fields = _QUERY.unpack(body)
    return token, checked_query(fields)


def checked_query(fields: tuple[Any, ...]) -> Query:
    """The query of these fields, as they came. Raises ProtocolError."""
    book, tag, start, stop, max_records, max_bytes, wait_ms, direction, consistency = fields
    if direction > 1:
        expect(False, "a direction of 0 or 1", "0 or 1", direction)
    if not 0 < max_records <= limits.READ_RECORDS:
        expect(False, "max records", limits.READ_RECORDS, max_records)
    if max_bytes > limits.READ_BYTES:
        expect(False, "max bytes", limits.READ_BYTES, max_bytes)
    if wait_ms > limits.READ_WAIT_MS:
        expect(False, "wait ms", limits.READ_WAIT_MS, wait_ms)
    if consistency > Consistency.LINEARIZABLE:
        _consistency(consistency)
    return make_query(
        (book, tag, start, stop, max_records, max_bytes, wait_ms, _DIRECTIONS[direction], _CONSISTENCIES[consistency])
    )


def _consistency(value: int) -> Consistency:
    if value >= len(_CONSISTENCIES):
        expect(False, "a consistency from 0 to 2", "0, 1 or 2", value)
    return _CONSISTENCIES[value]


def encode_prev_many(
    token: Token, book: int, queries: Sequence[tuple[int, int]], consistency: Consistency = Consistency.SESSION
) -> list[Buffer]:
    packed = b"".join(PAIR.pack(*query) for query in queries)
    return [encode_token(token) + _PREV_MANY.pack(book, len(queries), consistency) + packed]


def decode_prev_many(body: memoryview) -> tuple[dict[int, Position], int, list[tuple[int, int]], Consistency]:
    """Returns (token, book, (tag, at most) pairs, consistency). Raises ProtocolError."""
    token, body = decode_token(body)
    expect(len(body) >= _PREV_MANY.size, "queries", _PREV_MANY.size, len(body))
    book, count, consistency = _PREV_MANY.unpack_from(body)
    expect(count <= limits.READ_MANY_QUERIES, "queries in one call", limits.READ_MANY_QUERIES, count)
    return token, book, _decode_pairs(body, _PREV_MANY.size, count, "queries"), _consistency(consistency)


def _decode_pairs(body: memoryview, start: int, count: int, what: str) -> list[tuple[int, int]]:
    size = start + count * PAIR.size
    expect(size == len(body), what, size, len(body))
    return list(PAIR.iter_unpack(body[start:]))


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


# -- trim, aux data, writers, seek


def encode_trim(token: Token, book: int, pairs: Sequence[tuple[int, int]], *, forget: bool) -> list[Buffer]:
    packed = b"".join(PAIR.pack(*pair) for pair in pairs)
    return [encode_token(token) + _TRIM.pack(book, len(pairs), TRIM_FORGET if forget else 0) + packed]


def decode_trim(body: memoryview) -> tuple[dict[int, Position], int, list[tuple[int, int]], bool]:
    """Returns (token, book, (tag, before) pairs, forget). Raises ProtocolError."""
    token, body = decode_token(body)
    expect(len(body) >= _TRIM.size, "a trim", _TRIM.size, len(body))
    book, count, flags = _TRIM.unpack_from(body)
    expect(0 < count <= limits.TRIM_PAIRS, "pairs in one trim", limits.TRIM_PAIRS, count)
    pairs = _decode_pairs(body, _TRIM.size, count, "a trim")
    expect(all(before < 2**63 for _, before in pairs), "seqnums below 2**63", 2**63, "a larger one")
    return token, book, pairs, bool(flags & TRIM_FORGET)


def encode_set_aux(book: int, seqnum: int, data: bytes) -> list[Buffer]:
    return [PAIR.pack(book, seqnum), data]


def decode_set_aux(body: memoryview) -> tuple[int, int, bytes]:
    """Returns (book, seqnum, data). Raises ProtocolError."""
    size = len(body) - PAIR.size
    expect(0 <= size <= limits.AUX_BYTES, "aux data", limits.AUX_BYTES, size)
    book, seqnum = PAIR.unpack_from(body)
    return book, seqnum, bytes(body[PAIR.size :])


def encode_writer(token: Token, book: int, writer: bytes) -> list[Buffer]:
    assert len(writer) == WRITER_BYTES
    return [encode_token(token) + _BOOK.pack(book) + writer]


def decode_writer(body: memoryview) -> tuple[dict[int, Position], int, bytes]:
    """Returns (token, book, writer). Raises ProtocolError."""
    token, body = decode_token(body)
    expect(len(body) == _BOOK.size + WRITER_BYTES, "a book and a writer", _BOOK.size + WRITER_BYTES, len(body))
    return token, _BOOK.unpack_from(body)[0], bytes(body[_BOOK.size :])


def encode_seek(token: Token, book: int, time_ms: int, consistency: Consistency) -> list[Buffer]:
    return [encode_token(token) + _SEEK.pack(book, time_ms, consistency, 0)]


def decode_seek(body: memoryview) -> tuple[dict[int, Position], int, int, Consistency]:
    """Returns (token, book, time_ms, consistency). Raises ProtocolError."""
    token, body = decode_token(body)
    expect(len(body) == _SEEK.size, "a seek", _SEEK.size, len(body))
    book, time_ms, consistency, _ = _SEEK.unpack(body)
    return token, book, time_ms, _consistency(consistency)


def encode_found(token: Token, position: int, seqnum: int) -> list[Buffer]:
    """The answer to SEEK."""
    return [encode_token(token) + PAIR.pack(position, seqnum)]


def decode_found(body: memoryview) -> tuple[dict[int, Position], int, int]:
    """Returns (token, position, seqnum). Raises ProtocolError."""
    token, body = decode_token(body)
    expect(len(body) == PAIR.size, "a position and a seqnum", PAIR.size, len(body))
    position, seqnum = PAIR.unpack(body)
    return token, position, seqnum


def expect(holds: bool, what: str, expected: object, found: object) -> None:
    """Raises ProtocolError unless it holds: what was found of `what` is not what was expected."""
    if not holds:
        raise ProtocolError(
            f"{what}: expected {expected} bytes or items, found {found}", expected=expected, found=found
        )
