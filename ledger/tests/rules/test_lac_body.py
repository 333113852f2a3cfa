"""LACs written by themselves: the bytes are Apache's, and a damaged one is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.bookkeeper.digests import CRC32C, digest_for
from boki_common.errors import DigestMismatch
from boki_ledger.rules.lac_body import decode_lac, encode_lac


def test_the_body_is_the_one_that_apaches_client_sends() -> None:
    """Ledger 2030, LAC 0: `v3-write-lac.txt`."""
    assert encode_lac(2030, 0, CRC32C).hex() == "00000000000007ee00000000000000002f9be46e"


@given(
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**63 - 1),
    st.sampled_from(["CRC32C", "CRC32", "HMAC", "DUMMY"]),
    st.data(),
)
def test_a_body_is_read_back_and_any_flipped_byte_is_found(
    ledger_id: int, lac: int, kind: str, data: st.DataObject
) -> None:
    digest = digest_for(kind, b"secret")
    body = encode_lac(ledger_id, lac, digest)
    assert decode_lac(memoryview(body), ledger_id, digest) == lac
    if digest.size:
        damaged = bytearray(body)
        damaged[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        with pytest.raises(DigestMismatch):
            decode_lac(damaged, ledger_id, digest)


@pytest.mark.parametrize(
    "body", [b"", encode_lac(7, 3, CRC32C)[:-1], encode_lac(7, 3, CRC32C) + b"x", encode_lac(8, 3, CRC32C)]
)
def test_a_body_of_another_length_or_ledger_is_refused(body: bytes) -> None:
    with pytest.raises(DigestMismatch):
        decode_lac(body, 7, CRC32C)
