"""Journal bytes: what was written is read, a torn end is dropped, damage before the end is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_bookie.formats import journal_format
from boki_bookie.formats.journal_format import (
    PAGE_BYTES,
    LedgerRecord,
    RecordKind,
    SegmentEnd,
    SegmentHeader,
    SegmentScan,
    crc32c,
    decode_ledger,
    decode_ledger_id,
    decode_segment_header,
    encode_group,
    encode_ledger,
    encode_ledger_id,
    encode_segment_header,
    encode_single,
)
from boki_common.errors import CorruptData, VersionMismatch

HEADER = SegmentHeader(7, 64 * 1024, bytes(16), 0xABCD)
Records = list[tuple[int, bytes]]
GROUPS = st.lists(
    st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.binary(max_size=3_000)), min_size=1, max_size=5), max_size=4
)


def group_bytes(record_bytes: int) -> int:
    """On disk, with its padding."""
    return -(-(journal_format.GROUP_HEADER_BYTES + record_bytes) // PAGE_BYTES) * PAGE_BYTES


def segment(groups: list[Records], *, first: int = 5, header: SegmentHeader = HEADER) -> bytearray:
    data = bytearray(header.segment_bytes)
    data[:PAGE_BYTES] = encode_segment_header(header)
    at = PAGE_BYTES
    for number, records in enumerate(groups, first):
        buffers, size = encode_group(header, number, [kind for kind, _ in records], [body for _, body in records])
        encoded = b"".join(buffers)
        assert len(encoded) == size == group_bytes(sum(16 + len(body) for _, body in records))
        data[at : at + size] = encoded
        at += size
    return data


def scan(data: bytearray, header: SegmentHeader = HEADER) -> tuple[list[tuple[int, Records]], SegmentEnd]:
    reader = SegmentScan(memoryview(data), header, name="journal/7")
    found = [
        (group.number, [(kind, bytes(body)) for kind, body in zip(group.kinds, group.bodies, strict=True)])
        for group in reader.groups()
    ]
    assert reader.end is not None
    return found, reader.end


@given(GROUPS)
def test_groups_come_back(groups: list[Records]) -> None:
    data = segment(groups)
    found, end = scan(data)
    assert found == list(enumerate(groups, 5))
    assert not end.torn
    assert end.next_number == (5 + len(groups) if groups else None)


@given(st.sampled_from([1, 2, 3]), st.integers(0, 3 * PAGE_BYTES), st.integers(0, 2**62))
def test_a_single_record_has_the_bytes_of_a_group_of_one(kind: int, length: int, number: int) -> None:
    body = bytes(index % 251 for index in range(length))
    single, single_bytes = encode_single(HEADER, number, kind, body)
    group, group_size = encode_group(HEADER, number, [kind], [body])
    assert b"".join(single) == b"".join(group)
    assert single_bytes == group_size


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=3_000)), min_size=1, max_size=4), st.data())
def test_a_body_whose_sum_is_known_is_not_read_for_it(records: list[tuple[int, bytes]], draw: st.DataObject) -> None:
    kinds, bodies = [kind for kind, _ in records], [body for _, body in records]
    known = draw.draw(st.sets(st.sampled_from(range(len(bodies)))))
    sums = {place: crc32c(bodies[place]) for place in known}
    plain, size = encode_group(HEADER, 9, kinds, bodies)
    found, found_size = encode_group(HEADER, 9, kinds, bodies, sums)
    assert (b"".join(found), found_size) == (b"".join(plain), size)
    foreign, _ = encode_group(HEADER, 9, kinds, bodies, {place: value ^ 1 for place, value in sums.items()})
    assert (b"".join(foreign) == b"".join(plain)) is not bool(known)
    if known == {0} and len(bodies) == 1:
        assert b"".join(encode_single(HEADER, 9, kinds[0], bodies[0], sums)[0]) == b"".join(plain)


@given(st.lists(st.binary(min_size=1, max_size=2_000), min_size=1, max_size=4), st.data())
def test_a_torn_last_group_is_dropped_whatever_sectors_survived(bodies: list[bytes], draw: st.DataObject) -> None:
    whole = segment([[(1, b"first")], [(1, body) for body in bodies]])
    before = segment([[(1, b"first")]])
    start = 2 * PAGE_BYTES
    end = start + group_bytes(sum(16 + len(body) for body in bodies))
    sectors = range(start, end, 512)
    lost = draw.draw(st.sets(st.sampled_from(list(sectors)), min_size=1))
    torn = bytearray(whole)
    for sector in lost:
        torn[sector : sector + 512] = before[sector : sector + 512]
    found, segment_end = scan(torn)
    assert found[0] == (5, [(1, b"first")])
    assert len(found) == 1 or torn == whole
    if torn != whole:
        assert segment_end.next_number == 6
        assert segment_end.offset == start


@pytest.mark.parametrize("offset", [PAGE_BYTES, PAGE_BYTES + 9, PAGE_BYTES + 33, PAGE_BYTES + 50])
def test_damage_before_a_good_group_is_corruption(offset: int) -> None:
    data = segment([[(1, b"x" * 100)], [(1, b"y")], [(1, b"z")]])
    data[offset] ^= 1
    with pytest.raises(CorruptData, match=r"journal/7 at byte 4096: .* yet group \d follows") as caught:
        scan(data)
    assert (caught.value.path, caught.value.offset) == ("journal/7", PAGE_BYTES)


def test_damage_of_the_last_group_is_the_torn_end() -> None:
    data = segment([[(1, b"x")], [(1, b"y")]])
    data[2 * PAGE_BYTES + 48] ^= 1
    found, end = scan(data)
    assert [number for number, _ in found] == [5]
    assert end.torn
    assert "group 6" in end.fault


@pytest.mark.parametrize(("size", "count"), [(1, 3), (1_000, 3), (8_000, 3), (9_000, 3), (9_000, 600)])
def test_small_bodies_are_one_buffer_and_large_ones_are_not_copied(size: int, count: int) -> None:
    bodies = [bytes([number % 251]) * size for number in range(count)]
    header = HEADER._replace(segment_bytes=8 * 2**20)
    data = bytearray(encode_segment_header(header).ljust(header.segment_bytes, b"\0"))
    buffers, length = encode_group(header, 5, [1] * count, bodies)
    data[PAGE_BYTES : PAGE_BYTES + length] = b"".join(buffers)
    assert [len(records) for _, records in scan(data, header)[0]] == [count]
    if size <= 8_000:
        assert len(buffers) == 1
    else:
        assert all(any(buffer is body for buffer in buffers) for body in bodies)


def test_a_missing_group_is_corruption() -> None:
    data = segment([[(1, b"x")]])
    buffers, size = encode_group(HEADER, 7, [1], [b"z"])
    data[2 * PAGE_BYTES : 2 * PAGE_BYTES + size] = b"".join(buffers)
    with pytest.raises(CorruptData, match="expected group 6, found group 7"):
        scan(data)


@given(GROUPS, GROUPS)
def test_bytes_of_an_earlier_use_are_not_seen(new: list[Records], old: list[Records]) -> None:
    stale = HEADER._replace(generation=3, salt=77)
    data = segment(old, first=1, header=stale)
    fresh = segment(new)
    used = PAGE_BYTES + sum(group_bytes(sum(16 + len(body) for _, body in group)) for group in new)
    data[:used] = fresh[:used]
    found, end = scan(data)
    assert found == list(enumerate(new, 5))
    assert not end.torn


def test_a_body_that_looks_like_a_later_group_fools_nobody() -> None:
    """A client may send any bytes; it does not know the salt."""
    forged = b"".join(encode_group(HEADER._replace(salt=0), 9, [1], [b"forged"])[0])
    padding = bytes(PAGE_BYTES - 32 - 16)
    data = segment([[(1, b"x")], [(1, padding + forged)]])
    data[2 * PAGE_BYTES + 40] ^= 1
    found, end = scan(data)
    assert [number for number, _ in found] == [5]
    assert end.torn


def test_a_group_that_claims_more_than_its_segment_is_corruption() -> None:
    data = segment([])
    buffers, _ = encode_group(HEADER, 5, [1], [b"z" * 70_000])
    encoded = b"".join(buffers)
    data[PAGE_BYTES:] = encoded[: len(data) - PAGE_BYTES]
    with pytest.raises(CorruptData, match="more than its segment has"):
        scan(data)


def test_segment_headers() -> None:
    page = bytearray(encode_segment_header(HEADER))
    assert decode_segment_header(page, name="s") == HEADER
    with pytest.raises(CorruptData, match="another file at byte 0"):
        decode_segment_header(bytes(PAGE_BYTES), name="s")
    with pytest.raises(CorruptData, match="a file of 3 bytes"):
        decode_segment_header(b"abc", name="s")
    damaged = bytearray(page)
    damaged[13] ^= 1
    with pytest.raises(CorruptData, match="fails its checksum"):
        decode_segment_header(damaged, name="s")


def test_another_version_is_named() -> None:
    import crc32c

    page = bytearray(encode_segment_header(HEADER))
    page[8] = 2
    page[4:8] = crc32c.crc32c(page[8:64]).to_bytes(4, "little")
    with pytest.raises(VersionMismatch, match="expected journal version 1, found 2"):
        decode_segment_header(page, name="s")


@given(st.integers(0, 2**62), st.booleans(), st.binary(min_size=20, max_size=20))
def test_small_bodies(ledger_id: int, validated: bool, key: bytes) -> None:
    record = LedgerRecord(ledger_id, validated, key)
    assert decode_ledger(memoryview(encode_ledger(record))) == record
    assert decode_ledger_id(memoryview(encode_ledger_id(ledger_id))) == ledger_id
    assert RecordKind.FENCE.value == 3


@pytest.mark.parametrize(
    "decode",
    [
        journal_format.decode_ledger,
        journal_format.decode_ledger_id,
        journal_format.decode_tombstone,
        journal_format.entry_ids,
    ],
)
def test_a_record_of_another_size_than_its_kind_has_is_damage(decode: Any) -> None:
    with pytest.raises(CorruptData, match="of the journal has 7 bytes"):
        decode(memoryview(bytes(7)))
