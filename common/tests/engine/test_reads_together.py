"""READS and their answers: both directions, and refusal of every wrong length and count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.engine import engine_protocol as protocol
from boki_common.engine.engine_protocol import Consistency, Direction, Query
from boki_common.engine.reads_together import (
    READS_ROWS,
    asked_row,
    decode_read_answers,
    decode_reads,
    encode_read_answers,
    of_row,
)
from boki_common.errors import ProtocolError
from boki_common.ids import Position

u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
tokens = st.dictionaries(u32, st.builds(Position, u32, u64), max_size=4)
queries = st.builds(
    Query, u64, u64, u64, u64, st.integers(1, 4096), st.integers(0, 2**20), st.integers(0, 60_000),
    st.sampled_from(Direction), st.just(Consistency.LINEARIZABLE),
)  # fmt: skip
QUERY = Query(1, 2, 3, 4, 5, 6, 7, Direction.NEXT, Consistency.LINEARIZABLE)


def row_of(query: Query, number: int = 1) -> bytes:
    return asked_row(protocol.encode_query(*query), number)


@given(tokens, st.lists(st.tuples(u32, queries), min_size=1, max_size=4))
def test_reads(token: dict[int, Position], asked: list[tuple[int, Query]]) -> None:
    rows = [row_of(query, number) for number, query in asked]
    assert decode_reads(memoryview(b"".join([protocol.encode_token(token), *rows]))) == (token, asked)


def test_a_row_can_be_taken_apart() -> None:
    assert of_row(row_of(QUERY, 2**32 - 1)) == (2**32 - 1, protocol.encode_query(*QUERY))


def test_reads_are_neither_none_nor_too_many() -> None:
    most = protocol.NO_TOKEN + row_of(QUERY) * READS_ROWS
    assert len(decode_reads(memoryview(most))[1]) == READS_ROWS
    for body in (protocol.NO_TOKEN, most + row_of(QUERY)):
        with pytest.raises(ProtocolError):
            decode_reads(memoryview(body))


@pytest.mark.parametrize(
    ("field", "value"), [("consistency", Consistency.SESSION), ("max_records", 0), ("wait_ms", 60_001)]
)
def test_reads_are_linearizable_and_within_limits(field: str, value: Any) -> None:
    with pytest.raises(ProtocolError):
        decode_reads(memoryview(protocol.NO_TOKEN + row_of(QUERY) + row_of(QUERY._replace(**{field: value}))))


@given(st.lists(st.tuples(u32, st.lists(st.binary(max_size=9), max_size=3)), max_size=4), st.booleans())
def test_answers(answers: list[tuple[int, list[bytes]]], more: bool) -> None:
    decoded, follow = decode_read_answers(memoryview(encode_read_answers(answers, more=more)))
    assert [(number, bytes(body)) for number, body in decoded] == [
        (number, b"".join(parts)) for number, parts in answers
    ]
    assert follow is more


SAMPLES: dict[str, tuple[bytes, Callable[[memoryview], object]]] = {
    "asked": (protocol.encode_token({0: Position(1, 2)}) + row_of(QUERY), decode_reads),
    "answered": (encode_read_answers([(1, [b"a", b"b"]), (2, [])], more=True), decode_read_answers),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_every_truncation_and_every_extra_byte_is_refused(name: str) -> None:
    body, decode = SAMPLES[name]
    decode(memoryview(body))
    for wrong in (*(body[:size] for size in range(len(body))), body + bytes(1)):
        with pytest.raises(ProtocolError):
            decode(memoryview(wrong))
