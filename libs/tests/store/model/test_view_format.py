"""Views in aux data: what does not check is nothing."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from bokistore.model import fold
from bokistore.model.fold import View, aux_data, from_aux_data
from libs.tests.store.strategies import OBJECTS

VIEWS = st.builds(
    View,
    st.sampled_from("xyz"),
    st.just(7),
    st.booleans(),
    OBJECTS,
    st.none() | st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 9),
)


@given(st.lists(VIEWS, min_size=1, max_size=4))
def test_views_of_several_objects_are_side_by_side(views: list[View]) -> None:
    aux = None
    for view in views:
        aux = aux_data(view, aux)
    for name in "xyz":
        expected = next((view for view in reversed(views) if view.name == name), None)
        assert from_aux_data(name, 7, aux) == expected


@given(VIEWS, st.integers(0, 200), st.integers(1, 255))
def test_damaged_aux_data_is_nothing(view: View, at: int, flip: int) -> None:
    aux = aux_data(view, None)
    assert aux is not None
    damaged = bytearray(aux)
    damaged[at % len(aux)] ^= flip
    assert from_aux_data(view.name, 7, bytes(damaged)) is None
    assert from_aux_data(view.name, 7, aux[: at % len(aux)]) is None


@given(VIEWS)
def test_aux_data_of_another_record_is_nothing(view: View) -> None:
    assert from_aux_data(view.name, 8, aux_data(view, None)) is None
    assert from_aux_data("other", 7, aux_data(view, None)) is None
    assert from_aux_data("x", 7, None) is None


def test_another_version_is_nothing() -> None:
    body = msgspec.msgpack.encode([2, []])
    assert from_aux_data("x", 7, fold._crc(7, body) + body) is None


def test_what_is_too_large_leaves_the_others_out_and_then_itself() -> None:
    large = View("x", 7, True, {"a": "x" * 700_000})
    both = aux_data(View("y", 7, True, {"a": "y" * 700_000}), aux_data(large, None))
    assert from_aux_data("x", 7, both) is None and from_aux_data("y", 7, both) is not None
    assert aux_data(View("z", 7, True, {"a": "z" * 2**20}), both) is None
