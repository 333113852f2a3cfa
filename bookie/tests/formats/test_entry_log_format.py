"""Bytes of the entry log: round trips, and damage that is never mistaken for anything else."""

from __future__ import annotations

import itertools
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_bookie.formats.entry_log_format import (
    ENTRY_HEADER_BYTES,
    PAGE_BYTES,
    check_file_header,
    crc32c,
    decode_entry,
    decode_run,
    encode_entries,
    encode_file_header,
    pack_location,
    sound_body,
    stored_entries,
    stretches,
    unpack_location,
)
from boki_common.errors import CorruptData
from boki_common.runtime.ports import Buffer

RAW = bytes(range(16))


def stored_entry(ledger_id: int, entry_id: int, body: bytes) -> bytes:
    buffers: list[Buffer] = []
    encode_entries(ledger_id, {entry_id: body}, [entry_id], array("Q"), buffers, 1, 4_096, 4_097)
    return b"".join(buffers)


@given(st.dictionaries(st.integers(0, 2**62), st.binary(max_size=300), max_size=9), st.integers(1, 1_000))
def test_entries_are_encoded_in_pieces_as_each_by_itself(bodies: dict[int, bytes], piece: int) -> None:
    locations, offset = array("Q"), 4_096
    buffers: list[Buffer] = []
    order = sorted(bodies)
    while len(locations) < len(order):
        before = offset
        offset = encode_entries(7, bodies, order, locations, buffers, 3, offset, offset + piece)
        last = ENTRY_HEADER_BYTES + len(bodies[order[len(locations) - 1]])
        assert before + piece - last <= offset or len(locations) == len(order)
        assert offset - last < before + piece, "it stops behind the first entry that reaches the offset"
    assert b"".join(buffers) == b"".join(stored_entry(7, entry_id, bodies[entry_id]) for entry_id in order)
    assert offset == 4_096 + sum(map(len, buffers))
    starts = list(itertools.accumulate((ENTRY_HEADER_BYTES + len(bodies[one]) for one in order), initial=4_096))
    assert locations.tolist() == [pack_location(3, start) for start in starts[:-1]]


@given(st.dictionaries(st.integers(0, 2**62), st.binary(max_size=3_000), min_size=1, max_size=5), st.data())
def test_a_body_whose_sum_is_known_is_not_read_for_it(bodies: dict[int, bytes], draw: st.DataObject) -> None:
    order = sorted(bodies)
    known = draw.draw(st.sets(st.sampled_from(order)))
    sums = {entry_id: crc32c(bodies[entry_id]) for entry_id in known}
    buffers: list[Buffer] = []
    encode_entries(7, bodies, order, array("Q"), buffers, 1, 4_096, 2**30, sums)
    assert b"".join(buffers) == b"".join(stored_entry(7, entry_id, bodies[entry_id]) for entry_id in order)
    other = {entry_id: value ^ 1 for entry_id, value in sums.items()}
    foreign: list[Buffer] = []
    encode_entries(7, bodies, order, array("Q"), foreign, 1, 4_096, 2**30, other)
    differ = [entry_id for entry_id, a, b in zip(order, buffers[::2], foreign[::2], strict=True) if a != b]
    assert differ == sorted(known)


@given(st.integers(1, 2**24 - 1), st.integers(0, 2**40 - 1))
def test_locations(number: int, offset: int) -> None:
    assert unpack_location(pack_location(number, offset)) == (number, offset)
    assert pack_location(number, offset) < 2**64


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.binary(max_size=300), st.data())
def test_stored_entries(ledger_id: int, entry_id: int, body: bytes, draw: st.DataObject) -> None:
    stored = bytearray(stored_entry(ledger_id, entry_id, body))
    assert decode_entry(memoryview(bytes(stored)), ledger_id, entry_id, name="f", offset=9) == body
    with pytest.raises(CorruptData, match="f at byte 9: expected entry"):
        decode_entry(memoryview(bytes(stored)), ledger_id, entry_id + 1, name="f", offset=9)
    cut = draw.draw(st.integers(0, len(stored) - 1))
    with pytest.raises(CorruptData):
        decode_entry(memoryview(bytes(stored[:cut])), ledger_id, entry_id, name="f", offset=9)
    stored[draw.draw(st.integers(0, len(stored) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    with pytest.raises(CorruptData):
        decode_entry(memoryview(stored), ledger_id, entry_id, name="f", offset=9)


def test_file_headers() -> None:
    page = bytearray(encode_file_header(3, RAW))
    check_file_header(page, file_number=3, bookie_id=RAW, name="f")
    with pytest.raises(CorruptData, match="expected file 4 of bookie"):
        check_file_header(page, file_number=4, bookie_id=RAW, name="f")
    with pytest.raises(CorruptData, match="copied from elsewhere"):
        check_file_header(page, file_number=3, bookie_id=bytes(16), name="f")
    with pytest.raises(CorruptData, match="found another file"):
        check_file_header(bytes(4_096), file_number=3, bookie_id=RAW, name="f")
    page[20] ^= 1
    with pytest.raises(CorruptData, match="fails its checksum"):
        check_file_header(page, file_number=3, bookie_id=RAW, name="f")


def test_sound_entries_are_found_without_an_index() -> None:
    """Two writes, each padded to its page; behind damage the search goes on at the next entry or the next write."""
    one, two = b"a" * 500, b"b" * 3_000
    write = b"".join(stored_entry(7, entry, body) for entry, body in ((1, one), (2, two), (3, one)))
    page = write.ljust(4_096, b"\0")
    data = bytearray(page + page)

    def found() -> list[int]:
        entries = stored_entries(memoryview(data), base=4_096, limit=len(data))
        return [entry.entry_id for entry in entries if entry.ledger_id == 7]

    assert found() == [1, 2, 3, 1, 2, 3]
    data[600] ^= 1
    assert found() == [1, 3, 1, 2, 3], "the entry that is damaged says where it ends"
    data[528] ^= 255
    assert found() == [1, 1, 2, 3], "and when it does not, the next write begins on a page"
    assert [entry.start for entry in stored_entries(memoryview(data), base=4_096, limit=4_097)] == [0, 4_096]


@given(st.lists(st.binary(max_size=90), min_size=1, max_size=12), st.data())
def test_a_run_ends_before_the_first_entry_that_is_not_whole(bodies: list[bytes], draw: st.DataObject) -> None:
    stored, locations = bytearray(), []
    for entry_id, body in enumerate(bodies, 5):
        locations.append(70_000 + len(stored))
        stored += stored_entry(7, entry_id, body)
        stored += bytes(draw.draw(st.sampled_from((0, 3))))
    sizes = list(map(len, bodies))

    def run(ledger_id: int = 7, first: int = 5) -> list[bytes]:
        return list(map(bytes, decode_run(memoryview(stored), 70_000, ledger_id, first, locations, sizes)))

    assert run() == bodies
    assert run(ledger_id=8) == run(first=6) == []
    damaged = draw.draw(st.integers(0, len(bodies) - 1))
    entry = locations[damaged] - 70_000
    stored[entry + draw.draw(st.integers(0, ENTRY_HEADER_BYTES + sizes[damaged] - 1))] ^= 1 << draw.draw(
        st.integers(0, 7)
    )
    assert run() == bodies[:damaged]


def test_a_run_never_reads_outside_of_its_stretch() -> None:
    stored = memoryview(stored_entry(7, 5, b"body"))
    for base, size in ((1, 4), (0, 5)):
        assert decode_run(stored, base, 7, 5, [0], [size]) == []
    assert decode_run(stored[:-1], 0, 7, 5, [0], [4]) == []


@given(st.binary(max_size=60), st.data())
def test_a_body_is_sound_where_decoding_it_finds_no_fault(body: bytes, draw: st.DataObject) -> None:
    stored = bytearray(stored_entry(7, 5, body))
    fate = draw.draw(st.sampled_from(("whole", "flipped", "short", "long")))
    if fate == "flipped":
        stored[draw.draw(st.integers(0, len(stored) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    elif fate == "short":
        del stored[draw.draw(st.integers(ENTRY_HEADER_BYTES, len(stored))) :]
    elif fate == "long":
        stored += b"x"
    for ledger_id, entry_id in ((7, 5), (7, 6), (8, 5)):
        try:
            expected: bytes | None = bytes(decode_entry(memoryview(stored), ledger_id, entry_id, name="x", offset=0))
        except CorruptData:
            expected = None
        found = sound_body(memoryview(stored), ledger_id, entry_id)
        if fate == "long":
            assert found is None, "what is read is as long as the index says"
        else:
            assert (None if found is None else bytes(found)) == expected


@given(st.lists(st.tuples(st.sampled_from((0, 0, 0, 100, 5_000, 2**40)), st.integers(0, 3_000)), max_size=40))
def test_stretches_are_neighbours_and_miss_nothing(gaps_and_sizes: list[tuple[int, int]]) -> None:
    locations, sizes, end = [], [], 2**40
    for gap, size in gaps_and_sizes:
        end += gap
        locations.append(end)
        sizes.append(size)
        end += ENTRY_HEADER_BYTES + size
    found = list(stretches(locations, sizes, most=10_000))
    assert [index for start, stop in found for index in range(start, stop)] == list(range(len(locations)))
    for start, stop in found:
        length = locations[stop - 1] + ENTRY_HEADER_BYTES + sizes[stop - 1] - locations[start]
        wanted = sum(sizes[start:stop]) + ENTRY_HEADER_BYTES * (stop - start)
        assert stop - start == 1 or length <= min(10_000, wanted + PAGE_BYTES)


def test_entries_behind_each_other_are_one_stretch() -> None:
    size = 1_000 + ENTRY_HEADER_BYTES
    assert list(stretches([4_096 + size * at for at in range(100)], [1_000] * 100, most=2**20)) == [(0, 100)]
    assert list(stretches([4_096 + size * at for at in reversed(range(3))], [1_000] * 3, most=2**20)) == [
        (0, 1),
        (1, 2),
        (2, 3),
    ]
    assert list(stretches([], [], most=1)) == []
