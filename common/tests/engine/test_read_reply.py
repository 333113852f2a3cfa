"""Answers to reads: both directions, and refusal of every wrong length and count."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from boki_common.engine import read_reply
from boki_common.engine.engine_protocol import GapKind, GapRow
from boki_common.errors import ProtocolError
from boki_common.ids import Position
from boki_common.runtime.ports import Buffer

u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
tokens = st.dictionaries(u32, st.builds(Position, u32, u64), max_size=4)


def flat(buffers: list[Buffer]) -> memoryview:
    return memoryview(b"".join(buffers))


def reply_of(
    token: dict[int, Position], position: int, *records: tuple[int, list[int], bytes], more: bool = False, **rest: Any
) -> memoryview:
    """An answer with these records: number, tags and data; their times are -5, -4, ..."""
    encoded = read_reply.encode_records(
        [seqnum for seqnum, _, _ in records],
        list(range(-5, len(records) - 5)),
        [b"".join(tag.to_bytes(8, "little") for tag in tags) for _, tags, _ in records],
        [len(tags) for _, tags, _ in records],
        [payload for _, _, payload in records],
    )
    return flat(read_reply.encode_read_reply(token, position, more=more, records=encoded, **rest))


ONE = (1, [0], b"abc")


gap_rows = st.lists(
    st.tuples(u64, u64, st.sampled_from(GapKind)).map(lambda row: GapRow(min(row[:2]), max(row[:2]), row[2])),
    max_size=3,
)


@given(gap_rows, st.dictionaries(st.integers(0, 4), st.binary(max_size=5)))
def test_gaps_and_aux_data_in_read_replies(gaps: list[GapRow], aux: dict[int, bytes]) -> None:
    reply = read_reply.decode_read_reply(reply_of({}, 7, *[(1, [], b"xy")] * 5, more=True, gaps=gaps, aux=aux))
    assert (reply.position, reply.more, list(reply.gaps)) == (7, True, gaps)
    assert {row: bytes(data) for row, data in reply.aux.items()} == aux
    assert bytes(reply.records.payloads) == b"xy" * 5


def test_aux_data_of_no_row_is_refused() -> None:
    with pytest.raises(ProtocolError):
        read_reply.decode_read_reply(reply_of({}, 7, ONE, more=True, aux={1: b"x"}))


@given(tokens, u64, st.booleans(), st.lists(st.tuples(u64, st.lists(u64, max_size=3), st.binary(max_size=20))))
def test_read_replies(
    token: dict[int, Position], position: int, more: bool, records: list[tuple[int, list[int], bytes]]
) -> None:
    reply = read_reply.decode_read_reply(reply_of(token, position, *records, more=more))
    columns = reply.records
    assert (reply.token, reply.position, reply.more) == (token, position, more)
    assert columns.seqnums.tolist() == [seqnum for seqnum, _, _ in records]
    assert columns.times_ms.tolist() == [index - 5 for index in range(len(records))]
    assert columns.tags.tolist() == [tag for _, tags, _ in records for tag in tags]
    assert columns.tag_counts.tolist() == [len(tags) for _, tags, _ in records]
    assert bytes(columns.payloads) == b"".join(payload for _, _, payload in records)


SAMPLES: dict[str, memoryview] = {
    "read reply": reply_of({}, 1, ONE),
    "read reply with all": reply_of({}, 1, ONE, gaps=[GapRow(1, 2, GapKind.LOST)], aux={0: b"aux"}),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_every_truncation_and_every_extra_byte_is_refused(name: str) -> None:
    body = SAMPLES[name]
    read_reply.decode_read_reply(body)
    for size in range(len(body)):
        with pytest.raises(ProtocolError):
            read_reply.decode_read_reply(body[:size])
    with pytest.raises(ProtocolError):
        read_reply.decode_read_reply(memoryview(bytes(body) + b"\0"))


def as_point(reply: read_reply.ReadReply) -> read_reply.Point | None:
    """What `decode_point` makes of an answer, by its columns."""
    columns = reply.records
    if len(reply.token) != 1 or columns.seqnums.tolist() in ([], [0]) or len(columns.seqnums) > 1:
        return None
    ((seqnum,), (time_ms,), tags) = columns.seqnums.tolist(), columns.times_ms.tolist(), columns.tags.tolist()
    if len(tags) > read_reply.POINT_TAGS:
        return None
    ((log, reached),) = reply.token.items()
    return read_reply.Point(log, reached, reply.position, seqnum, time_ms, tags, memoryview(bytes(columns.payloads)))


tag_lists = st.lists(u64, max_size=3) | st.lists(u64, min_size=7, max_size=10)


@given(tokens, u64, st.booleans(), st.lists(st.tuples(u64, tag_lists, st.binary(max_size=20)), max_size=2))
@example({0: Position(1, 2)}, 3, True, [(9, [5] * read_reply.POINT_TAGS, b"x")])
@example({0: Position(1, 2)}, 3, True, [(9, [5] * (read_reply.POINT_TAGS + 1), b"x")])
def test_a_point_is_what_the_columns_say(
    token: dict[int, Position], position: int, more: bool, records: list[tuple[int, list[int], bytes]]
) -> None:
    body = reply_of(token, position, *records, more=more)
    point = read_reply.decode_point(body)
    assert point == as_point(read_reply.decode_read_reply(body))
    if point is not None:
        ((log, reached),) = token.items()
        tags = b"".join(tag.to_bytes(8, "little") for tag in point.tags)
        again = read_reply.encode_point(
            log, reached, position, seqnum=point.seqnum, time_ms=-5, tags=tags, payload=point.payload
        )
        assert read_reply.decode_read_reply(flat(again)).more
        assert read_reply.decode_point(flat(again)) == point


def test_a_damaged_point_is_none_and_so_is_one_with_gaps_or_aux_data() -> None:
    token = {0: Position(1, 2)}
    body = reply_of(token, 1, ONE)
    assert read_reply.decode_point(body) is not None
    for size in range(len(body)):
        assert read_reply.decode_point(body[:size]) is None
    assert read_reply.decode_point(memoryview(bytes(body) + b"\0")) is None
    gap = GapRow(1, 2, GapKind.LOST)
    assert read_reply.decode_point(reply_of(token, 1, ONE, more=True, gaps=[gap])) is None
    assert read_reply.decode_point(reply_of(token, 1, ONE, more=True, aux={0: b"x"})) is None


def test_nothing_is_an_answer_without_records_and_gaps() -> None:
    token = {3: Position(2, 9)}
    for takes in (False, True):
        body = reply_of(token, 77, takes_tags=takes)
        assert read_reply.decode_nothing(body) == (3, Position(2, 9), 77)
        for size in range(len(body)):
            assert read_reply.decode_nothing(body[:size]) is None
    gap = GapRow(1, 2, GapKind.TRIMMED)
    for other in (
        reply_of(token, 77, more=True),
        reply_of(token, 77, gaps=[gap]),
        reply_of({}, 77),
        reply_of({3: Position(2, 9), 4: Position(1, 1)}, 77),
        reply_of(token, 77, (5, [], b"")),
    ):
        assert read_reply.decode_nothing(other) is None
