"""Pushed headers are read as they were written, checked, bounded, and given out once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.errors import ProtocolError
from boki_common.records.record_batch import RecordBatch
from boki_logbook.peers.pushed_headers import AckedEntry, PushedHeaders, decode_headers, encode_headers
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch


def batch_of(first: int, *payloads: bytes) -> RecordBatch:
    records = tuple(RecordSpec(data=data, tags=(first,)) for data in payloads)
    return make_batch(RunSpec(1, bytes(16), first, records))


def pushed(*numbers: int) -> bytes:
    entries = [AckedEntry(number, 10 * number, batch_of(1 + number, b"x" * number)) for number in numbers]
    return b"".join(encode_headers(7, 3, 2, entries))


@given(st.lists(st.integers(0, 100), max_size=5))
def test_what_is_pushed_is_the_header_without_the_data(numbers: list[int]) -> None:
    found = list(decode_headers(memoryview(pushed(*numbers))))
    assert [(ledger_id, entry) for ledger_id, entry, _ in found] == [(7, number) for number in numbers]
    for number, (_, _, header) in zip(numbers, found, strict=True):
        assert (header.term, header.shard, header.first_local_id) == (3, 2, 10 * number)
        whole = batch_of(1 + number, b"x" * number)
        assert (header.runs, header.tags.tolist(), header.payload_lengths.tolist()) == (
            whole.runs,
            whole.tags.tolist(),
            whole.payload_lengths.tolist(),
        )
        assert whole.has_data
        assert not header.has_data


@given(st.integers(1, 10_000))
def test_a_push_that_was_cut_is_refused(cut: int) -> None:
    body = pushed(1, 2)
    sizes = [0, len(pushed(1)), len(body)]
    left = max(0, len(body) - cut)
    if left in sizes:
        assert len(list(decode_headers(memoryview(body[:left])))) == sizes.index(left)
    else:
        with pytest.raises(ProtocolError, match=r"expected (an item|a header) of \d+ bytes"):
            list(decode_headers(memoryview(body[:left])))


def test_what_holds_no_header_is_refused() -> None:
    body = bytearray(pushed(1))
    body[-8:] = b"\xff" * 8
    with pytest.raises(ProtocolError):
        list(decode_headers(memoryview(bytes(body))))


@pytest.mark.parametrize("bits", [0x01, 0x80, 0xFF])
def test_a_push_with_any_byte_changed_is_refused_or_holds_headers(bits: int) -> None:
    """What it holds then may be of another ledger or entry, and is never asked for, or does not fit its cut (`entry_fit`)."""
    body, refused, taken = pushed(1, 3), 0, 0
    for at in range(len(body)):
        changed = body[:at] + bytes([body[at] ^ bits]) + body[at + 1 :]
        headers = PushedHeaders()
        try:
            for ledger_id, entry, header in decode_headers(memoryview(changed)):
                headers.add(ledger_id, entry, header)
                assert not header.has_data
                assert sum(run.count for run in header.runs) == header.record_count
            taken += 1
        except ProtocolError:
            refused += 1
    assert refused > 50 and taken > 50


def test_each_is_given_out_once() -> None:
    headers = PushedHeaders()
    headers.add(7, 0, batch_of(1, b"x"))
    assert headers.take(7, 0) is not None
    assert headers.take(7, 0) is None
    assert (len(headers), headers.used_bytes) == (0, 0)


def test_one_that_comes_after_it_was_asked_for_is_not_kept() -> None:
    headers = PushedHeaders()
    assert headers.take(7, 3) is None
    headers.add(7, 3, batch_of(1, b"x"))
    assert len(headers) == 0
    headers.add(7, 4, batch_of(1, b"x"))
    assert headers.take(7, 4) is not None


def test_beyond_the_limit_the_oldest_go() -> None:
    headers = PushedHeaders(10_000)
    for entry in range(100):
        headers.add(7, entry, batch_of(1 + entry, b"x"))
        assert headers.used_bytes <= 10_000
    kept = len(headers)
    assert 1 < kept < 100
    assert headers.take(7, 99 - kept) is None
    assert headers.take(7, 99) is not None


def test_nothing_is_kept_of_a_ledger_that_is_over() -> None:
    headers = PushedHeaders()
    headers.add(7, 0, batch_of(1, b"x"))
    headers.add(8, 0, batch_of(2, b"x"))
    headers.over(7)
    assert len(headers) == 1
    assert headers.take(8, 0) is not None
    assert headers.used_bytes == 0
