"""The tables of fencing, cell by cell, and what counts as a repeat."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_bookie.storage.fence_rules import (
    AddVerdict,
    FenceVerdict,
    decide_add,
    decide_fence,
    is_possible,
    is_repeat,
)

KEY = bytes(20)
OTHER = bytes(19) + b"x"


@pytest.mark.parametrize(
    ("held", "fenced", "validated", "recovery", "read_only"),
    list(itertools.product([None, KEY, OTHER], *[[False, True]] * 4)),
)
def test_adds(held: bytes | None, fenced: bool, validated: bool, recovery: bool, read_only: bool) -> None:
    verdict = decide_add(held, KEY, fenced=fenced, validated=validated, recovery=recovery, read_only=read_only)
    if held == OTHER:
        assert verdict is AddVerdict.UNAUTHORIZED
    elif recovery:
        assert verdict is AddVerdict.STORE
    elif fenced:
        assert verdict is AddVerdict.FENCED
    elif read_only:
        assert verdict is AddVerdict.READ_ONLY
    else:
        assert verdict is (AddVerdict.STORE if validated else AddVerdict.VALIDATE)


@pytest.mark.parametrize("fenced", [False, True])
def test_fences(fenced: bool) -> None:
    assert decide_fence(None, KEY, fenced=False) is FenceVerdict.CREATE_FENCED
    assert decide_fence(OTHER, KEY, fenced=fenced) is FenceVerdict.UNAUTHORIZED
    assert decide_fence(KEY, KEY, fenced=fenced) is (FenceVerdict.ALREADY_FENCED if fenced else FenceVerdict.FENCE)


@pytest.mark.parametrize("digest", ["CRC32C", "CRC32", "HMAC"])
@pytest.mark.parametrize("payload", [b"a payload that is longer than a digest", b"short", b""])
def test_the_same_payload_under_another_lac_is_a_repeat(world: Any, digest: str, payload: bytes) -> None:
    held = world.body(1, 5, payload, digest=digest)
    assert is_repeat(held, world.body(1, 5, payload, digest=digest))
    assert is_repeat(held, world.body(1, 5, payload, lac=2, digest=digest))


@pytest.mark.parametrize("digest", ["CRC32C", "CRC32", "HMAC"])
@pytest.mark.parametrize("lac", [None, 2])
def test_anything_else_is_a_contradiction(world: Any, digest: str, lac: int | None) -> None:
    held = world.body(1, 5, b"a payload of the ledger's writer", digest=digest)
    for other in (
        world.body(1, 5, b"a payload of another one here!!!", lac=lac, digest=digest),
        world.body(1, 5, b"a longer payload of another writer", lac=lac, digest=digest),
        world.body(1, 6, b"a payload of the ledger's writer", lac=lac, digest=digest),
        world.body(2, 5, b"a payload of the ledger's writer", lac=lac, digest=digest),
    ):
        assert not is_repeat(held, other)


def test_short_payloads_differ_too(world: Any) -> None:
    """The digest is found by trying, so that nothing of the payload hides behind it."""
    assert not is_repeat(world.body(1, 5, b"a"), world.body(1, 5, b"b", lac=1))


@given(st.integers(-5, 5), st.integers(-5, 5), st.integers(-5, 5), st.integers(-5, 5), st.booleans())
def test_headers_that_can_be(ledger_id: int, entry_id: int, lac: int, length: int, recovery: bool) -> None:
    """A recovery add may name an end of the ledger beyond the entry: Apache's autorecovery does."""
    expected = ledger_id >= 0 and entry_id >= 0 and lac >= -1 and (recovery or lac < entry_id) and length >= 0
    assert is_possible(ledger_id, entry_id, lac, length, recovery=recovery) == expected
