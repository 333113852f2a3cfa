"""READ_TAGS: a read of the records that have any of several tags. Pure; SDK and engine share it. Little endian.

    asked           token | query | cursor u64 | count u32 | reserved u32 | (tag u64 | from u64 | flags u32 | reserved u32)*
    answered        what answers a READ; the tag of a gap is the place of its tag among those asked for, from 1 on, 0 = of any

The query reads upwards, and its tag is 0. Of each tag only records at or above its own `from` count, and only gaps from
there on are reported: a follower has seen some of its tags further than others. Flag 1: the tag is read from the beginning, and no
record of it was returned yet, so what the book has forgotten never was.

A *cursor* has at most one waiting request on its connection. A new request of the same number ends the waiting one with an empty
answer, which is not read. 0 means no cursor.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from boki_common import limits
from boki_common.engine.engine_protocol import Direction, Query, checked_query, decode_token, encode_query, expect
from boki_common.ids import ALL_RECORDS, Position
from boki_common.runtime.ports import Buffer

_QUERY: Final = Struct("<QQQQIIIBBxx")
_TAGS: Final = Struct("<QII")
_ROW: Final = Struct("<QQII")
FROM_BEGINNING: Final = 1


class TagRow(NamedTuple):
    """One of the tags, and where what is wanted of it begins."""

    tag: int
    start: int
    flags: int = 0


class TagRead(NamedTuple):
    """A read of several tags; `query.start` is the lowest place of all."""

    query: Query
    cursor: int
    rows: tuple[TagRow, ...]


def encode_tag_read(token: bytes, query: Query, cursor: int, rows: Sequence[TagRow]) -> list[Buffer]:
    """`token`: as it travels."""
    packed = b"".join(_ROW.pack(*row, 0) for row in rows)
    return [b"".join((token, encode_query(*query), _TAGS.pack(cursor, len(rows), 0), packed))]


def decode_tag_read(body: memoryview) -> tuple[dict[int, Position], TagRead]:
    """Raises ProtocolError; limits are checked, so that what a reply may hold is bounded."""
    token, body = decode_token(body)
    start = _QUERY.size + _TAGS.size
    expect(len(body) >= start, "a read of tags", start, len(body))
    query = checked_query(_QUERY.unpack_from(body))
    expect(query.direction is Direction.NEXT and query.tag == ALL_RECORDS, "a read of tags upwards", 0, query.direction)
    cursor, count, _ = _TAGS.unpack_from(body, _QUERY.size)
    expect(count <= limits.READ_TAGS, "tags of one read", limits.READ_TAGS, count)
    size = start + count * _ROW.size
    expect(len(body) == size, "tags of a read", size, len(body))
    rows = tuple(TagRow(tag, begin, flags) for tag, begin, flags, _ in _ROW.iter_unpack(body[start:]))
    expect(len({row.tag for row in rows}) == count, "different tags", count, "one of them twice")
    expect(all(row.tag for row in rows), "tags from 1 on", 1, 0)
    return token, TagRead(query, cursor, rows)
