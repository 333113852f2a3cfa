"""Digests against the check values of their algorithms; those of recorded entries are in `test_v2`."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.bookkeeper.digests import (
    CRC32C,
    MASTER_KEY_BYTES,
    crc32c,
    crc32c_matches,
    digest_for,
    master_key,
    matcher_for,
    sum_of_matching,
)
from boki_common.errors import InvalidArgument
from boki_common.runtime.ports import Buffer

KINDS = ("CRC32C", "CRC32", "HMAC", "DUMMY")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("CRC32C", "e3069283"),
        ("CRC32", "00000000cbf43926"),
        ("HMAC", hmac.digest(hashlib.sha1(b"macsecret").digest(), b"123456789", "sha1").hex()),
        ("DUMMY", ""),
    ],
)
def test_check_values(kind: str, expected: str) -> None:
    digest = digest_for(kind, b"secret")
    assert digest.name == kind
    assert digest.compute(b"1234", [b"567", b"89"]).hex() == expected
    assert digest.size == len(expected) // 2


@given(st.sampled_from(KINDS), st.binary(max_size=40), st.lists(st.binary(max_size=20), max_size=5))
def test_how_the_payload_is_cut_does_not_matter(kind: str, head: bytes, payload: list[bytes]) -> None:
    digest = digest_for(kind, b"")
    parts: list[Buffer] = [bytearray(b"".join(payload[:2])), memoryview(b"".join(payload[2:]))]
    assert digest.compute(head, payload) == digest.compute(head, parts)


def test_only_a_keyed_digest_depends_on_the_password() -> None:
    differing = [
        kind for kind in KINDS if digest_for(kind, b"a").compute(b"x", []) != digest_for(kind, b"b").compute(b"x", [])
    ]
    assert differing == ["HMAC"]


def test_the_master_key_is_no_digest_key() -> None:
    assert master_key(b"secret") == hashlib.sha1(b"ledgersecret").digest()
    assert len(master_key(b"")) == MASTER_KEY_BYTES


@pytest.mark.parametrize("kind", ["crc32c", "MD5", ""])
def test_an_unknown_digest_is_named(kind: str) -> None:
    with pytest.raises(InvalidArgument, match="expected a digest CRC32C, CRC32, HMAC or DUMMY"):
        digest_for(kind, b"")


@given(
    st.sampled_from(KINDS),
    st.binary(min_size=32, max_size=32),
    st.binary(max_size=60),
    st.binary(max_size=8),
    st.data(),
)
def test_a_matcher_takes_what_was_computed_and_nothing_else(
    kind: str, head: bytes, payload: bytes, password: bytes, data: st.DataObject
) -> None:
    matches = matcher_for(kind, password)
    body = head + digest_for(kind, password).compute(head, [payload]) + payload
    assert matches((memoryview(body),))
    if kind != "DUMMY":
        bit = data.draw(st.integers(0, 8 * len(body) - 1))
        damaged = bytearray(body)
        damaged[bit // 8] ^= 1 << bit % 8
        assert not matches((memoryview(damaged),))
        assert not matches((memoryview(body)[: data.draw(st.integers(0, 32 + digest_for(kind, b"").size - 1))],))


@given(st.sampled_from(KINDS), st.lists(st.binary(max_size=60), max_size=5), st.booleans(), st.booleans(), st.data())
def test_bodies_match_when_each_does(
    kind: str, payloads: list[bytes], damage: bool, flip: bool, data: st.DataObject
) -> None:
    matches, digest = matcher_for(kind, b"password"), digest_for(kind, b"password")
    bodies = [bytearray(bytes(32) + digest.compute(bytes(32), [payload]) + payload) for payload in payloads]
    if bodies and damage:
        damaged = bodies[data.draw(st.integers(0, len(bodies) - 1))]
        if flip:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1
        else:
            del damaged[data.draw(st.integers(0, len(damaged) - 1)) :]
    views = [memoryview(body) for body in bodies]
    assert matches(views) == all(matches((view,)) for view in views)


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=5_000))
def test_the_digest_of_a_body_that_matches_gives_the_sum_of_the_whole(head: bytes, payload: bytes) -> None:
    body = memoryview(head + CRC32C.compute(head, [payload]) + payload)
    assert crc32c_matches([body])
    assert sum_of_matching(body) == crc32c(body)
