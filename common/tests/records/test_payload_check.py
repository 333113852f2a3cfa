"""Payloads that nobody could open are found before they are stored."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from boki_common.errors import CorruptData, ProtocolError
from boki_common.records.batch_builder import BatchBuilder
from boki_common.records.payload_check import check_payloads, unreadable_payloads
from boki_common.records.record_batch import RecordBatch, join
from boki_common.records.tag_names import NO_NAMES, pack_names, split_payload

GOOD = [
    (0, NO_NAMES + b"data"),
    (3, NO_NAMES),
    (1, pack_names([(0, b"user/1")]) + b"data"),
    (3, pack_names([(2, b"c"), (0, b"")])),
    (2, pack_names([(1, "größe".encode())]) + b"\xff\x00"),
    (255, pack_names([(at, b"n" * 200) for at in range(255)]) + b"x"),
]
BAD = [
    (0, pack_names([(0, b"a")])),
    (1, pack_names([(1, b"six")]) + b"data"),
    (1, pack_names([(0, b"a"), (200, b"b")])),
    (1, pack_names([(0, b"a"), (3, b"b")])),
    (1, b"\x05\x00\x00\x01a"),
    (1, b"\xff\xff"),
    (1, b"\x01\x00\x00"),
    (1, b"\x02\x00\x00\x05long"),
    (1, pack_names([(0, b"\xff\xfe")])),
    (1, b"\x03\x00\x00\x00\x00"),
]


def batch_of(records: Sequence[tuple[int, bytes]]) -> RecordBatch:
    """A batch as an SDK may send it: each record with so many tags, and this payload."""
    builder = BatchBuilder()
    builder.start_run(1, bytes(15) + b"w", 1, 1)
    for tags, payload in records:
        builder.add((5).to_bytes(8, "little") * tags, tags, b"", payload)
    return RecordBatch.parse(memoryview(b"".join(builder.finish())))


def can_be_opened(tags: int, payload: bytes) -> bool:
    """What a reader does."""
    try:
        names, _ = split_payload(memoryview(payload))
    except CorruptData:
        return False
    return all(index < tags for index, _ in names)


@pytest.mark.parametrize("good", [GOOD[:4], GOOD[:5]], ids=["ascii", "utf-8"])
@pytest.mark.parametrize("around", [0, 3, 150])
@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_one_record_that_cannot_be_opened_is_found_among_many(
    bad: tuple[int, bytes], around: int, good: list[tuple[int, bytes]]
) -> None:
    assert not can_be_opened(*bad)
    for _ in range(2):
        records = [good[at % len(good)] for at in range(around)]
        place = around // 2
        batch = batch_of([*records[:place], bad, *records[place:]])
        with pytest.raises(ProtocolError, match=rf"record {place}\b"):
            check_payloads(batch)
        assert [record for record, _ in unreadable_payloads(batch)] == [place]


@pytest.mark.parametrize("count", [1, 6, 300])
def test_what_can_be_opened_is_taken(count: int) -> None:
    batch = batch_of([GOOD[at % len(GOOD)] for at in range(count)])
    for _ in range(2):
        check_payloads(batch)
    assert unreadable_payloads(batch) == []


def test_a_batch_without_records_has_nothing_to_open() -> None:
    check_payloads(RecordBatch.parse(memoryview(b"".join(BatchBuilder().finish()))))


PAYLOADS = st.binary(min_size=2, max_size=12) | st.builds(
    lambda names, data: pack_names(names) + data,
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from([b"", b"a", b"user/1", "é".encode(), b"\xc3"])), max_size=3),
    st.binary(max_size=4),
)


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 4), PAYLOADS), min_size=1, max_size=8), st.sampled_from([1, 30]))
def test_it_finds_what_a_reader_could_not_open(records: list[tuple[int, bytes]], times: int) -> None:
    batch = batch_of(records * times)
    expected = [at for at, one in enumerate(records * times) if not can_be_opened(*one)]
    if expected:
        with pytest.raises(ProtocolError):
            check_payloads(batch)
    else:
        check_payloads(batch)
    assert [record for record, _ in unreadable_payloads(batch)] == expected


def test_of_data_that_does_not_decompress_no_record_can_be_opened() -> None:
    whole = batch_of(GOOD[:3])
    stored = b"".join(join([whole], term=1, shard=0, first_local_id=0, compress=lambda data: b"no frame of zstd"))
    found = unreadable_payloads(RecordBatch.parse(memoryview(stored)))
    assert [record for record, _ in found] == [0, 1, 2] and "does not decompress" in found[0][1]
    stored = b"".join(join([whole], term=1, shard=0, first_local_id=0, compress=zstandard.ZstdCompressor().compress))
    assert unreadable_payloads(RecordBatch.parse(memoryview(stored))) == []
