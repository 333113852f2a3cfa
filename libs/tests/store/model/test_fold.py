"""Folding: from anywhere, by anybody, to the same view."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.errors import CorruptData
from bokistore import AnyOperation, Inc, Set
from bokistore.model.events import AnyEvent, Commit, Deleted, Entry, Expires, Ops, size_of
from bokistore.model.fold import View, after_event, after_record, apply_all, checkpoint_data, from_checkpoint, gone
from bokistore.model.operations import Failed
from libs.tests.store.strategies import OPERATIONS

NAMES = st.sampled_from(["x", "y"])
EVENTS = st.one_of(
    st.builds(Ops, NAMES, st.lists(OPERATIONS, min_size=1, max_size=2).map(tuple)),
    st.builds(Commit, NAMES, st.lists(OPERATIONS, max_size=2).map(tuple), st.just(1)),
    st.builds(Deleted, NAMES),
    st.builds(Expires, NAMES, st.none() | st.integers(0, 9)),
    st.builds(Entry, st.just("c"), NAMES, st.booleans()),
)


def folded(view: View, records: Sequence[Sequence[AnyEvent]]) -> View:
    for events in records:
        view = after_record(view, view.seen + 1, events)
    return view


@given(st.lists(st.lists(EVENTS, min_size=1, max_size=2), max_size=8), st.integers(0, 8))
def test_a_fold_from_a_checkpoint_is_the_fold_from_the_beginning(records: list[list[AnyEvent]], cut: int) -> None:
    cut = min(cut, len(records))
    half = folded(gone("x", 0), records[:cut])
    restored = from_checkpoint("x", half.seen, checkpoint_data(half))
    assert (restored.records, restored.size) == (0, 0)
    whole, rest = folded(gone("x", 0), records), folded(restored, records[cut:])
    assert (rest.seen, rest.exists, rest.value, rest.expires_ms) == (
        whole.seen,
        whole.exists,
        whole.value,
        whole.expires_ms,
    )
    assert rest.records == len(records) - cut


@given(st.lists(EVENTS, max_size=6))
def test_events_of_others_change_nothing(events: list[AnyEvent]) -> None:
    view = View("z", 5, True, {"a": 1})
    for event in events:
        assert after_event(view, event) is view


@given(st.lists(OPERATIONS, max_size=6))
def test_an_object_exists_from_its_first_operation_that_could_be_done(operations: list[AnyOperation]) -> None:
    view, results = apply_all(gone("x", 0), operations)
    changed = [
        not isinstance(result, Failed) and type(operation).__name__ not in ("Delete", "Pop")
        for operation, result in zip(operations, results, strict=True)
    ]
    assert view.exists == any(changed)


def test_what_is_deleted_begins_anew() -> None:
    view = folded(gone("x", 0), [[Ops("x", (Set("a", 1),)), Expires("x", 7)], [Deleted("x")]])
    assert (view.exists, view.value, view.expires_ms, view.records) == (False, {}, None, 2)
    assert folded(view, [[Ops("x", (Inc("n", 1),))]]).value == {"n": 1}
    assert after_event(view, Expires("x", 7)).expires_ms is None


def test_size_counts_what_is_about_the_object() -> None:
    mine, other = Ops("x", (Set("a", "x" * 100),)), Ops("y", (Set("a", "x" * 1_000),))
    assert after_record(gone("x", 0), 1, [mine, other]).size == size_of(mine)


def test_records_are_folded_once() -> None:
    with pytest.raises(AssertionError, match="once"):
        after_record(View("x", 5), 5, [])


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", msgspec.msgpack.encode([True]), msgspec.msgpack.encode([True, [], None])]
)
def test_a_damaged_checkpoint_is_named(data: bytes) -> None:
    with pytest.raises(CorruptData, match="'x'"):
        from_checkpoint("x", 5, data)
