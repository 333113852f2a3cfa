"""Bodies of entries: any damage is noticed, and whatever checks many at once says the same of each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.bookkeeper import v2
from boki_common.bookkeeper.digests import Digest, digest_for, master_key
from boki_common.bookkeeper.entry_body import header_of, is_sound, payloads_of_run, verify_body
from boki_common.errors import DigestMismatch

PASSWORD = b"vectors"
KEY = master_key(PASSWORD)


@given(st.integers(0, 31 + 4 + 9), st.integers(0, 7))
def test_any_flipped_bit_of_a_body_is_noticed(position: int, bit: int) -> None:
    header = v2.EntryHeader(5, 6, 5, 100)
    body = bytearray(b"".join(v2.encode_add(header, digest_for("CRC32C", b""), KEY, [b"payload-10"]))[28:])
    body[position] ^= 1 << bit
    with pytest.raises(DigestMismatch):
        verify_body(memoryview(body), 5, 6, digest_for("CRC32C", b""))


def test_body_of_another_entry_is_not_accepted_although_its_digest_holds() -> None:
    digest = digest_for("CRC32C", b"")
    body = memoryview(b"".join(v2.encode_add(v2.EntryHeader(5, 6, 5, 1), digest, KEY, [b"x"]))[28:])
    verify_body(body, 5, v2.LAST_ENTRY, digest)
    for ledger_id, entry_id in ((5, 7), (4, 6)):
        with pytest.raises(DigestMismatch, match="expected entry"):
            verify_body(body, ledger_id, entry_id, digest)


@pytest.mark.parametrize("kind", ["CRC32C", "CRC32", "HMAC", "DUMMY"])
@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_a_run_of_bodies_is_verified_as_each_of_them(kind: str, payloads: list[bytes], draw: st.DataObject) -> None:
    digest = digest_for(kind, PASSWORD)
    bodies = []
    for entry_id, payload in enumerate(payloads, 10):
        header = v2.EntryHeader(5, entry_id, entry_id - 1, 1_000)
        body = bytearray(b"".join(v2.encode_add(header, digest, KEY, [payload]))[4 + 24 :])
        fate = draw.draw(st.sampled_from(("whole", "whole", "whole", "flipped", "cut", "another")))
        if fate == "flipped":
            body[draw.draw(st.integers(0, len(body) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
        elif fate == "cut":
            del body[draw.draw(st.integers(0, len(body) - 1)) :]
        elif fate == "another":
            other = header._replace(entry_id=entry_id + 1) if draw.draw(st.booleans()) else header._replace(ledger_id=6)
            body = bytearray(b"".join(v2.encode_add(other, digest, KEY, [payload]))[4 + 24 :])
        bodies.append(memoryview(body))
    expected = []
    for entry_id, one in enumerate(bodies, 10):
        try:
            expected.append(verify_body(one, 5, entry_id, digest)[1])
        except DigestMismatch:
            break
    assert payloads_of_run(bodies, 5, 10, digest) == expected
    for entry_id, one in enumerate(bodies, 10):
        for asked in (entry_id, v2.LAST_ENTRY):
            assert is_sound(one, 5, asked, digest) is _has_no_fault(one, asked, digest)


def _has_no_fault(body: memoryview, entry_id: int, digest: Digest) -> bool:
    try:
        header, _ = verify_body(body, 5, entry_id, digest)
    except DigestMismatch:
        return False
    return header == header_of(body)
