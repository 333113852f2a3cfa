"""Bytes of the entry log: round trips, and damage that is never mistaken for anything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_bookie.entry_log_format import (
    check_file_header,
    decode_entry,
    encode_entry_header,
    encode_file_header,
    pack_location,
    unpack_location,
)
from boki_common.errors import CorruptData

RAW = bytes(range(16))


@given(st.integers(1, 2**24 - 1), st.integers(0, 2**40 - 1))
def test_locations(number: int, offset: int) -> None:
    assert unpack_location(pack_location(number, offset)) == (number, offset)
    assert pack_location(number, offset) < 2**64


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.binary(max_size=300), st.data())
def test_stored_entries(ledger_id: int, entry_id: int, body: bytes, draw: st.DataObject) -> None:
    stored = bytearray(encode_entry_header(ledger_id, entry_id, body) + body)
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
