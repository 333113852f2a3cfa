"""Bodies: what is read of them, and what is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki import Record
from boki_common.errors import InvalidArgument
from boki_gateway.calls import bodies
from boki_gateway.calls.bodies import AppendRequest, BatchRecord, BatchRequest, PrevManyRequest, PrevQuery
from boki_gateway.errors import BodyTooLarge


@given(st.binary(), st.lists(st.text(min_size=1) | st.integers(0, 2**64 - 1)), st.sampled_from(bodies.ENCODINGS))
def test_an_answered_record_can_be_appended_again(
    data: bytes, tags: list[str | int], encoding: bodies.Encoding
) -> None:
    body = msgspec.json.encode(bodies.record_body(Record(7, tuple(tags), data, None, "b", 1), encoding))
    fields = {name: value for name, value in msgspec.json.decode(body).items() if name in ("data", "text", "tags")}
    again = bodies.decode_body(msgspec.json.encode(fields), AppendRequest)
    assert (bodies.data_of(again), bodies.tags_of(again)) == (data, tags)


def test_seqnums_are_text() -> None:
    body = bodies.record_body(Record(2**62 + 1, (), b"", None, 2**63, 1), "base64")
    assert (body.seqnum, body.book) == (str(2**62 + 1), f"~{2**63}")


def test_expectations() -> None:
    request = AppendRequest(text="x", expect={"a": None, "~0": "5", "~~b": 6})
    assert bodies.expectations_of(request) == {"a": None, 0: 5, "~b": 6}
    assert bodies.expectations_of(AppendRequest(text="x")) is None


def test_queries() -> None:
    request = PrevManyRequest([PrevQuery("a", "5"), PrevQuery(), PrevQuery(7, 8)])
    assert bodies.queries_of(request) == [("a", 5), (None, None), (7, 8)]
    with pytest.raises(InvalidArgument, match=r"queries\[1\]\.at_most: expected decimal digits"):
        bodies.queries_of(PrevManyRequest([PrevQuery(), PrevQuery("a", "x")]))


def test_batches_are_bounded() -> None:
    many = [BatchRecord(text="")] * (bodies.BATCH_RECORDS + 1)
    assert len(bodies.batch_of(BatchRequest(many[1:]))) == bodies.BATCH_RECORDS
    with pytest.raises(BodyTooLarge, match="expected at most 4096 records, found 4097"):
        bodies.batch_of(BatchRequest(many))
    with pytest.raises(BodyTooLarge, match="expected at most 4096 lines"):
        bodies.decode_lines(b'{"text": ""}\n' * len(many))
    with pytest.raises(BodyTooLarge, match="expected at most 4096 lines"):
        bodies.decode_lines(b"\n" * (2 * bodies.BATCH_RECORDS + 1))
    assert len(bodies.decode_lines(b'{"text": ""}\r\n\n' * bodies.BATCH_RECORDS).records) == bodies.BATCH_RECORDS


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="text: expected Unicode text"):
        bodies.data_of(AppendRequest(text="\ud800"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "found none"),
        (b"{", "found: Input data was truncated"),
        (b"\xff", "found: "),
        (b"[]", "Expected `object`"),
        (b'{"expect": ' + b'{"a": ' * 100_000, "Expected `str | int | null`"),
        (b'{"unknown": ' + b"[" * 100_000, "unknown field `unknown`"),
    ],
)
def test_what_is_no_json_is_named(data: bytes, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        bodies.decode_body(data, AppendRequest)
