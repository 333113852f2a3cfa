"""The engine's protocol: both directions of every body, and refusal of every wrong length and count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common import limits
from boki_common.engine import engine_protocol as protocol
from boki_common.engine.answers import (
    ANSWERS_BYTES,
    AnswerRow,
    Answers,
    decode_answers,
    decode_committed,
    encode_answers,
)
from boki_common.engine.engine_protocol import Consistency, Direction, Query
from boki_common.errors import ProtocolError
from boki_common.ids import Position
from boki_common.records.batch_builder import BatchBuilder
from boki_common.records.record_batch import RecordBatch
from boki_common.records.tag_names import NO_NAMES
from boki_common.runtime.ports import Buffer

u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
tokens = st.dictionaries(u32, st.builds(Position, u32, u64), max_size=4)
pairs = st.lists(st.tuples(u64, u64), max_size=4)
rows = st.lists(
    st.builds(
        AnswerRow,
        u64,
        st.binary(min_size=16, max_size=16),
        u64,
        u64,
        u64,
        u32,
        st.integers(0, 5),
        pairs.map(tuple),
        st.integers(0, 1),
    ),
    max_size=5,
)
queries = st.builds(
    Query, u64, u64, u64, u64, st.integers(1, 4096), st.integers(0, 2**20), st.integers(0, 60_000),
    st.sampled_from(Direction), st.sampled_from(Consistency),
)  # fmt: skip


def flat(buffers: Sequence[Buffer]) -> memoryview:
    return memoryview(b"".join(buffers))


@given(tokens, rows)
def test_answers(token: dict[int, Position], answers: list[AnswerRow]) -> None:
    assert decode_answers(flat(encode_answers(token, answers))) == (token, answers)


@given(st.lists(st.tuples(u64, st.binary(min_size=16, max_size=16), u64, u64, u32), min_size=33, max_size=40), u64)
def test_many_answers_of_what_was_committed_are_read_by_columns(
    rows: list[tuple[int, bytes, int, int, int]], position: int
) -> None:
    token = {3: Position(1, 2), 4: Position(5, 6)}
    answers = [AnswerRow(book, writer, first, at, position, count, 0) for book, writer, first, at, count in rows]
    many = decode_committed(flat(encode_answers(token, answers)))
    assert many is not None and (many.token, many.position) == (token, position)
    assert list(many.rows) == [
        (book.to_bytes(8, "little") + writer, first, count, at) for book, writer, first, at, count in rows
    ]
    for other in (
        answers[0]._replace(verdict=protocol.Verdict.GAP),
        answers[0]._replace(verdict=protocol.Verdict.CONFLICT, actual=((4, 5),)),
        answers[0]._replace(flags=protocol.ROW_DUPLICATE),
        answers[0]._replace(position=position ^ 1),
    ):
        assert decode_committed(flat(encode_answers(token, [*answers, other]))) is None


@given(st.lists(st.tuples(st.sampled_from([0, 1, 256]), st.integers(1, 400)), max_size=3))
def test_any_number_of_answers_leaves_in_messages_of_a_size(some: list[tuple[int, int]]) -> None:
    token = {3: Position(1, 2), 4: Position(5, 6)}
    rows = [
        AnswerRow(1, bytes(16), first, 0, 9, 1, protocol.Verdict.CONFLICT, ((4, 5),) * actual)
        for first, (actual, count) in enumerate(some, 1)
        for _ in range(count)
    ]
    bodies = encode_answers(token, rows)
    assert all(len(body) < ANSWERS_BYTES + 8_192 < limits.FRAME_BYTES for body in bodies)
    assert len(bodies) <= 1 + sum(map(len, bodies)) // (ANSWERS_BYTES - 8_192)
    decoded = [decode_answers(memoryview(body)) for body in bodies]
    assert [row for _, of_body in decoded for row in of_body] == rows
    assert all(seen == token for seen, _ in decoded)


def test_few_answers_and_lame_ones_are_left_to_be_read_one_by_one() -> None:
    rows = [AnswerRow(book, bytes(16), 1, 9, 9, 1, 0) for book in range(100)]
    whole = flat(encode_answers({}, rows))
    assert decode_committed(flat(encode_answers({}, rows[:32]))) is None
    assert decode_committed(whole) is not None
    assert decode_committed(whole[:-1]) is None
    assert decode_committed(whole[:-64]) is None


def test_answers_that_show_the_same_position_share_it() -> None:
    """A client may have 100,000 books: each keeps the position that it saw, and an object of its own is cold memory."""
    rows = [AnswerRow(book, bytes(16), 1, 5, 2**40 + book // 2, 1, 0) for book in range(4)]
    _, found = decode_answers(flat(encode_answers({0: Position(1, 2)}, rows)))
    assert found == rows
    assert found[0].position is found[1].position is not found[2].position
    assert found[2].position is found[3].position


@given(tokens, rows, st.integers(0, 5))
def test_answers_are_the_same_bytes_however_they_are_added(
    token: dict[int, Position], answers: list[AnswerRow], at: int
) -> None:
    """One answer to one log is packed at once: it has the bytes that it has among others."""
    together = bytes(flat(encode_answers(token, answers)))
    apart = Answers([*answers[:at]])
    apart.add(answers[at:])
    assert apart.count == len(answers)
    assert flat(apart.encode(token)) == together
    for row in answers:
        if not row.actual:
            rows_of_two = bytes(flat(encode_answers(token, [row, row])))[-64:]
            alone = bytes(flat(encode_answers(token, [row])))
            assert alone == protocol.encode_token(token) + b"\1\0\0\0\0\0\0\0" + rows_of_two


@given(
    st.lists(
        st.tuples(u64, st.binary(min_size=16, max_size=16), st.integers(1, 2**40), st.integers(1, 9)), max_size=40
    ),
    st.integers(1, 2**62),
    u64,
)
def test_rows_made_of_run_columns_are_those_made_one_by_one(
    runs: list[tuple[int, bytes, int, int]], first_seqnum: int, position: int
) -> None:
    builder = BatchBuilder()
    expected, seqnum = [AnswerRow(1, bytes(16), 1, 0, 5, 1, 1, ((4, 5),))], first_seqnum
    for book, writer, first, count in runs:
        builder.start_run(book, writer, first, first)
        for _ in range(count):
            builder.add(b"", 0, NO_NAMES, b"")
        expected.append(AnswerRow(book, writer, first, seqnum, position, count, 0))
        seqnum += count
    answers = Answers()
    answers.add(expected[:1])
    answers.add_committed(RecordBatch.parse(memoryview(b"".join(builder.finish()))).run_columns, first_seqnum, position)
    assert answers.count == len(expected)
    assert flat(answers.encode({})) == flat(encode_answers({}, expected))


@given(tokens, queries)
def test_queries(token: dict[int, Position], query: Query) -> None:
    assert protocol.decode_read(flat(protocol.encode_read(token, query))) == (token, query)


@given(tokens, u64, pairs, st.sampled_from(Consistency))
def test_prev_many(
    token: dict[int, Position], book: int, wanted: list[tuple[int, int]], consistency: Consistency
) -> None:
    body = flat(protocol.encode_prev_many(token, book, wanted, consistency))
    assert protocol.decode_prev_many(body) == (token, book, wanted, consistency)


@given(tokens, u64, st.lists(st.tuples(u64, st.integers(0, 2**63 - 1)), min_size=1, max_size=4), st.booleans())
def test_trims(token: dict[int, Position], book: int, wanted: list[tuple[int, int]], forget: bool) -> None:
    body = flat(protocol.encode_trim(token, book, wanted, forget=forget))
    assert protocol.decode_trim(body) == (token, book, wanted, forget)


@given(tokens, u64, u64, st.binary(max_size=9), st.integers(-(2**63), 2**63 - 1), st.sampled_from(Consistency))
def test_aux_data_writers_and_seeks(
    token: dict[int, Position], book: int, seqnum: int, data: bytes, time_ms: int, consistency: Consistency
) -> None:
    assert protocol.decode_set_aux(flat(protocol.encode_set_aux(book, seqnum, data))) == (book, seqnum, data)
    writer = seqnum.to_bytes(16, "little")
    assert protocol.decode_writer(flat(protocol.encode_writer(token, book, writer))) == (token, book, writer)
    seek = flat(protocol.encode_seek(token, book, time_ms, consistency))
    assert protocol.decode_seek(seek) == (token, book, time_ms, consistency)
    assert protocol.decode_found(flat(protocol.encode_found(token, book, seqnum))) == (token, book, seqnum)


def test_no_trim_is_empty_and_none_is_of_the_impossible() -> None:
    for pairs in ([], [(1, 2**63)]):
        with pytest.raises(ProtocolError):
            protocol.decode_trim(flat(protocol.encode_trim({}, 1, pairs, forget=False)))


SAMPLES: dict[str, tuple[memoryview, Callable[[memoryview], object]]] = {
    "answers": (
        flat(encode_answers({0: Position(1, 2)}, [AnswerRow(1, bytes(16), 1, 9, 9, 1, 1, ((4, 5),))])),
        decode_answers,
    ),
    "query": (
        flat(protocol.encode_read({}, Query(1, 2, 3, 4, 5, 6, 7, Direction.NEXT, Consistency.ANY))),
        protocol.decode_read,
    ),
    "prev many": (flat(protocol.encode_prev_many({}, 1, [(2, 3)])), protocol.decode_prev_many),
    "position": (flat(protocol.encode_position({3: Position(1, 1)}, 4)), protocol.decode_position),
    "trim": (flat(protocol.encode_trim({0: Position(1, 2)}, 1, [(2, 3)], forget=True)), protocol.decode_trim),
    "writer": (flat(protocol.encode_writer({}, 1, bytes(16))), protocol.decode_writer),
    "seek": (flat(protocol.encode_seek({}, 1, 2, Consistency.ANY)), protocol.decode_seek),
    "found": (flat(protocol.encode_found({}, 1, 2)), protocol.decode_found),
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
