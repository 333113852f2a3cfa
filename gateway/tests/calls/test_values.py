"""Values of a body: as many as a decoder finds, in steps, and refused before they are decoded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_gateway.calls import values
from boki_gateway.calls.book_routes import BOOK_ROUTES
from boki_gateway.calls.values import STEP_BYTES, check_values
from boki_gateway.errors import BodyTooLarge

JSON = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('a",\\[]{}:é\n')),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.sampled_from('a",\\')), inner),
    max_leaves=30,
)


def separators(value: Any) -> int:
    """Commas between the values of a JSON value."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return max(len(inner) - 1, 0) + sum(map(separators, inner))


def is_taken(data: bytes, limit: int) -> bool:
    try:
        for _ in check_values(data, limit):
            pass
    except BodyTooLarge:
        return False
    return True


@given(JSON, st.integers(2, 40))
def test_the_values_are_those_that_a_decoder_finds(value: Any, step: int) -> None:
    data = msgspec.json.encode(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "STEP_BYTES", step)
        count = separators(value) + 1
        assert is_taken(data, count) and is_taken(data + b"  ", count)
        assert is_taken(data, count - 1) == (len(data) <= count - 1), "a body of fewer bytes needs no look"


@given(st.binary(), st.integers(0, 20), st.integers(2, 5))
def test_any_bytes_come_to_an_end(data: bytes, limit: int, step: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "STEP_BYTES", step)
        is_taken(data, limit)


def test_steps_are_small_and_a_refusal_comes_early() -> None:
    assert len(list(check_values(b'"' + b"," * (4 * STEP_BYTES) + b'"', 1))) == 5
    flood = check_values(b"[" + b"0," * (4 * STEP_BYTES), 3 * STEP_BYTES // 2)
    assert [next(flood, 1) for _ in range(3)] == [None] * 3
    with pytest.raises(BodyTooLarge, match="expected a body of at most 98304 JSON values, found more"):
        next(flood)


def test_the_limits_of_all_routes_lie_above_what_their_lists_may_hold() -> None:
    for route in BOOK_ROUTES:
        if route.body is not None:
            lists = msgspec.json.schema(route.body)["$defs"][route.body.__name__]["properties"].values()
            held = sum(one.get("maxItems", one.get("maxProperties", 1)) for one in lists)
            assert 2 * held <= route.body_values, route.path
