"""READS: linearizable reads that leave together, and answers to them. Pure; SDK and engine share it. Little endian.

    asked           token | (query | request id u32)*         linearizable; ids as of other requests of the connection
    answered        count u32 | flags u32 (1 = more follow at once) | (request id u32 | bytes u32)* | what answers each as a READ,
                    one after another

The reads of one turn of an SDK share a barrier, so they may as well share a message: its head and checksum, the token, and what
else a message costs. An engine answers those by themselves that wait for something, are large, or are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from boki_common.engine.engine_protocol import Consistency, Query, checked_query, decode_token, expect, make_query
from boki_common.ids import Position
from boki_common.runtime.ports import Buffer

READS_ROWS: Final = 1_024
"""Reads of one message, at most."""
_MORE: Final = 1

_ASKED: Final = Struct("<QQQQIIIBBxxI")
"""Book, tag, start, stop, how it is asked, request id."""
_ID: Final = Struct("<I")
_ANSWER: Final = Struct("<II")


def asked_row(query: bytes, request_id: int) -> bytes:
    """A row of READS, of an encoded query."""
    return query + _ID.pack(request_id)


def of_row(row: bytes) -> tuple[int, bytes]:
    """Request id and encoded query of a row: one that has no company goes as a READ, and costs what any other does."""
    return _ID.unpack_from(row, len(row) - _ID.size)[0], row[: -_ID.size]


def decode_reads(body: memoryview) -> tuple[dict[int, Position], list[tuple[int, Query]]]:
    """Reads what an SDK asks by READS: the token of all, and a request id and query of each. Raises ProtocolError."""
    token, body = decode_token(body)
    count, rest = divmod(len(body), _ASKED.size)
    expect(not rest and 0 < count <= READS_ROWS, "reads of one message", READS_ROWS, len(body) / _ASKED.size)
    reads = []
    how: tuple[Any, ...] = ()
    checked: tuple[Any, ...] = ()
    for row in _ASKED.iter_unpack(body):
        if row[4:-1] != how:  # mostly all ask for one record
            query = checked_query(row[:-1])
            how, checked = row[4:-1], query[4:]
            expect(query.consistency is Consistency.LINEARIZABLE, "linearizable reads", 2, query.consistency)
        reads.append((row[-1], make_query(row[:4] + checked)))
    return token, reads


def encode_read_answers(answers: Sequence[tuple[int, Sequence[Buffer]]], *, more: bool) -> bytes:
    """Answers to some of what READS asked; `more`: others follow at once."""
    rows: list[Buffer] = [_ANSWER.pack(len(answers), _MORE if more else 0)]
    parts: list[Buffer] = []
    for request_id, answer in answers:
        rows.append(_ANSWER.pack(request_id, sum(map(len, answer))))
        parts += answer
    return b"".join(rows + parts)


def decode_read_answers(body: memoryview) -> tuple[list[tuple[int, memoryview]], bool]:
    """Returns request ids and answers, and whether more follow at once. Raises ProtocolError."""
    expect(len(body) >= _ANSWER.size, "answers to reads", _ANSWER.size, len(body))
    count, flags = _ANSWER.unpack_from(body)
    start = _ANSWER.size * (count + 1)
    expect(start <= len(body), "answers to reads", start, len(body))
    answers = []
    for request_id, size in _ANSWER.iter_unpack(body[_ANSWER.size : start]):
        answers.append((request_id, body[start : start + size]))
        start += size
    expect(start == len(body), "answers to reads", start, len(body))
    return answers, bool(flags & _MORE)
