"""The engine's protocol: both directions of every body, and refusal of every wrong length and count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common import engine_protocol as protocol
from boki_common.engine_protocol import AnswerRow, Consistency, Direction, Query
from boki_common.errors import ProtocolError
from boki_common.ids import Position
from boki_common.runtime.ports import Buffer

u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
tokens = st.dictionaries(u32, st.builds(Position, u32, u64), max_size=4)
pairs = st.lists(st.tuples(u64, u64), max_size=4)
rows = st.lists(
    st.builds(
        AnswerRow, u64, st.binary(min_size=16, max_size=16), u64, u64, u64, u32, st.integers(0, 4), pairs.map(tuple)
    ),
    max_size=5,
)
queries = st.builds(
    Query, u64, u64, u64, u64, st.integers(1, 4096), st.integers(0, 2**20), st.integers(0, 60_000),
    st.sampled_from(Direction), st.sampled_from(Consistency),
)  # fmt: skip


def flat(buffers: list[Buffer]) -> memoryview:
    return memoryview(b"".join(buffers))


@given(tokens, rows)
def test_answers(token: dict[int, Position], answers: list[AnswerRow]) -> None:
    assert protocol.decode_answers(flat(protocol.encode_answers(token, answers))) == (token, answers)


@given(tokens, queries)
def test_queries(token: dict[int, Position], query: Query) -> None:
    assert protocol.decode_read(flat(protocol.encode_read(token, query))) == (token, query)


@given(tokens, u64, pairs)
def test_prev_many(token: dict[int, Position], book: int, wanted: list[tuple[int, int]]) -> None:
    body = flat(protocol.encode_prev_many(token, book, wanted))
    assert protocol.decode_prev_many(body) == (token, book, wanted)


@given(tokens, u64, st.booleans(), st.lists(st.tuples(u64, st.lists(u64, max_size=3), st.binary(max_size=20))))
def test_read_replies(
    token: dict[int, Position], position: int, more: bool, records: list[tuple[int, list[int], bytes]]
) -> None:
    encoded = protocol.encode_records(
        [seqnum for seqnum, _, _ in records],
        [index - 5 for index in range(len(records))],
        [b"".join(tag.to_bytes(8, "little") for tag in tags) for _, tags, _ in records],
        [len(tags) for _, tags, _ in records],
        [payload for _, _, payload in records],
    )
    reply = protocol.decode_read_reply(flat(protocol.encode_read_reply(token, position, more=more, records=encoded)))
    columns = reply.records
    assert (reply.token, reply.position, reply.more) == (token, position, more)
    assert columns.seqnums.tolist() == [seqnum for seqnum, _, _ in records]
    assert columns.times_ms.tolist() == [index - 5 for index in range(len(records))]
    assert columns.tags.tolist() == [tag for _, tags, _ in records for tag in tags]
    assert columns.tag_counts.tolist() == [len(tags) for _, tags, _ in records]
    assert bytes(columns.payloads) == b"".join(payload for _, _, payload in records)


SAMPLES: dict[str, tuple[memoryview, Callable[[memoryview], object]]] = {
    "answers": (
        flat(protocol.encode_answers({0: Position(1, 2)}, [AnswerRow(1, bytes(16), 1, 9, 9, 1, 1, ((4, 5),))])),
        protocol.decode_answers,
    ),
    "query": (
        flat(protocol.encode_read({}, Query(1, 2, 3, 4, 5, 6, 7, Direction.NEXT, Consistency.ANY))),
        protocol.decode_read,
    ),
    "prev many": (flat(protocol.encode_prev_many({}, 1, [(2, 3)])), protocol.decode_prev_many),
    "position": (flat(protocol.encode_position({3: Position(1, 1)}, 4)), protocol.decode_position),
    "read reply": (
        flat(
            protocol.encode_read_reply(
                {}, 1, more=False, records=protocol.encode_records([1], [2], [bytes(8)], [1], [b"abc"])
            )
        ),
        protocol.decode_read_reply,
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_every_truncation_and_every_extra_byte_is_refused(name: str) -> None:
    body, decode = SAMPLES[name]
    decode(body)
    for size in range(len(body)):
        with pytest.raises(ProtocolError):
            decode(body[:size])
    with pytest.raises(ProtocolError):
        decode(memoryview(bytes(body) + b"\0"))


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_records", 0), ("max_records", 4097), ("max_bytes", 2**20 + 1), ("wait_ms", 60_001)],
)
def test_query_over_a_limit_is_refused(field: str, value: Any) -> None:
    query = Query(1, 2, 3, 4, 5, 6, 7, Direction.NEXT, Consistency.ANY)._replace(**{field: value})
    with pytest.raises(ProtocolError):
        protocol.decode_read(flat(protocol.encode_read({}, query)))


def test_merging_tokens_keeps_the_higher_position_of_each_log() -> None:
    token = {0: Position(5, 900), 1: Position(2, 3)}
    protocol.merge_tokens(token, {0: Position(4, 950), 1: Position(2, 4), 2: Position(7, 10)})
    assert token == {0: Position(5, 900), 1: Position(2, 4), 2: Position(7, 10)}
