"""READ_TAGS: both directions, and refusal of what cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.engine import engine_protocol as protocol
from boki_common.engine.engine_protocol import Consistency, Direction, GapKind, GapRow, Query
from boki_common.engine.read_reply import decode_read_reply, encode_read_reply, encode_records
from boki_common.engine.tag_reads import TagRead, TagRow, decode_tag_read, encode_tag_read
from boki_common.errors import ProtocolError
from boki_common.ids import Position

u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
tokens = st.dictionaries(u32, st.builds(Position, u32, u64), max_size=4)
queries = st.builds(
    Query, u64, st.just(0), u64, u64, st.integers(1, 4096), st.integers(0, 2**20), st.integers(0, 60_000),
    st.just(Direction.NEXT), st.sampled_from(Consistency),
)  # fmt: skip
QUERY = Query(1, 0, 3, 4, 5, 6, 7, Direction.NEXT, Consistency.SESSION)


def encoded(query: Query, *rows: TagRow, cursor: int = 0) -> bytes:
    return b"".join(map(bytes, encode_tag_read(protocol.encode_token({}), query, cursor, rows)))


@given(tokens, queries, u64, st.dictionaries(st.integers(1, 2**64 - 1), st.tuples(u64, u32), max_size=5))
def test_reads_of_tags(token: dict[int, Position], query: Query, cursor: int, rows: dict[int, tuple[int, int]]) -> None:
    asked = tuple(TagRow(tag, *row) for tag, row in rows.items())
    (body,) = encode_tag_read(protocol.encode_token(token), query, cursor, asked)
    assert decode_tag_read(memoryview(body)) == (token, TagRead(query, cursor, asked))


@pytest.mark.parametrize(
    "body",
    [
        encoded(QUERY._replace(direction=Direction.PREV), TagRow(1, 0)),
        encoded(QUERY._replace(tag=7), TagRow(1, 0)),
        encoded(QUERY, TagRow(0, 0)),
        encoded(QUERY, TagRow(1, 0), TagRow(1, 5)),
        encoded(QUERY, *(TagRow(tag, 0) for tag in range(1, 257))),
        encoded(QUERY._replace(max_records=0), TagRow(1, 0)),
    ],
    ids=["downwards", "a tag in the query", "tag 0", "twice", "too many", "no records"],
)
def test_what_cannot_be_asked(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_tag_read(memoryview(body))


def test_every_other_length_is_refused() -> None:
    body = encoded(QUERY, TagRow(1, 0), TagRow(2, 5))
    for size in range(len(body)):
        with pytest.raises(ProtocolError):
            decode_tag_read(memoryview(body)[:size])
    with pytest.raises(ProtocolError):
        decode_tag_read(memoryview(body + b"\0"))


def test_gaps_name_tags_and_answers_without_records_say_that_such_reads_are_taken() -> None:
    gaps = (GapRow(1, 4, GapKind.TRIMMED, 2), GapRow(3, 3, GapKind.LOST), GapRow(5, 9, GapKind.TRIMMED, 255))
    parts = encode_read_reply({}, 9, more=False, records=encode_records([], [], [], [], []), gaps=gaps, takes_tags=True)
    reply = decode_read_reply(memoryview(b"".join(map(bytes, parts))))
    assert reply.gaps == gaps and reply.takes_tags
    beyond = encode_read_reply(
        {}, 9, more=False, records=encode_records([], [], [], [], []), gaps=[GapRow(1, 2, GapKind.LOST, 256)]
    )
    with pytest.raises(ProtocolError):
        decode_read_reply(memoryview(b"".join(map(bytes, beyond))))
