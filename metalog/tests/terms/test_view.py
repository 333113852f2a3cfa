"""The view: its bytes are a format, and what cannot be right is refused."""

from __future__ import annotations

import msgspec
import pytest

from boki_common.errors import CorruptData, VersionMismatch
from boki_metalog.terms.view import NewTerm, SlotRange, View, decode_view, encode_view, first_view

INSTALL = {"ledger_id": 31, "sequencer": "5e" * 16, "token": "70" * 16, "start_time_ms": 900}


def test_first_view_is_these_bytes() -> None:
    """Anybody creates it: a change of these bytes is a change of format."""
    assert encode_view(first_view()) == b'{"version":1,"next_term":1,"slots":[[0,1023,0]],"logs":{"0":null}}'
    assert decode_view(encode_view(first_view())) == first_view()


def test_installing_a_term_draws_its_number() -> None:
    view = first_view().with_term(0, **INSTALL)  # type: ignore[arg-type]
    assert (view.term_of(0), view.next_term, first_view().term_of(0)) == (1, 2, 0)
    again = decode_view(encode_view(view))
    assert again == view and again.slots_of(0) == (SlotRange(0, 1023),) and again.log_of(512) == 0
    assert again.term_of(7) == 0 and again.slots_of(7) == ()


def test_logs_are_written_in_order() -> None:
    base = first_view()
    one = View(1, 1, base.slots, {3: None, 0: None})
    other = View(1, 1, base.slots, {0: None, 3: None})
    assert encode_view(one) == encode_view(other)


def test_several_terms_and_their_slots_in_one_value() -> None:
    view = first_view().with_term(0, **INSTALL).with_logs([1, 2])  # type: ignore[arg-type]
    assert (view.logs[1], view.slots_of(1), view.next_term) == (None, (), 2)
    slots = [0] * 1000 + [1] * 24
    terms = {1: NewTerm(51, "b", 800), 0: NewTerm(50, "a", 900)}
    moved = view.with_terms(terms, token="t", slots=slots)
    assert [(moved.term_of(log), moved.slots_of(log)) for log in (0, 1, 2)] == [
        (2, (SlotRange(0, 999),)), (3, (SlotRange(1000, 1023),)), (0, ()),
    ]  # fmt: skip
    assert moved.next_term == 4 and moved.sequencers == {"a": 0, "b": 1} and moved.per_slot == tuple(slots)
    assert decode_view(encode_view(moved)) == moved
    gone = moved.with_terms({0: NewTerm(60, "a", 950)}, token="u", slots=[0] * 1024, without=[1])
    assert sorted(gone.logs) == [0, 2] and gone.term_of(0) == 4 and gone.term_of(1) == 0


def test_slots_do_not_change_without_terms() -> None:
    view = first_view().with_logs([1])
    with pytest.raises(AssertionError, match="log 1"):
        view.with_terms({0: NewTerm(50, "a", 900)}, token="t", slots=[0] * 1000 + [1] * 24)


def test_before_the_first_term_slots_are_free() -> None:
    view = first_view().with_logs([1]).spread_at_first({0: 1, 1: 1})
    assert view.slots_of(1) == (SlotRange(512, 1023),) and view.next_term == 1
    with pytest.raises(AssertionError, match="never change"):
        view.with_term(0, **INSTALL).spread_at_first({0: 1})  # type: ignore[arg-type]


def changed(**fields: object) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(encode_view(first_view())) | fields)


INSTALLED = {"term": 1, "metalog_ledger": 1, "sequencer": "", "token": "", "start_time_ms": 0}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"not json",
        changed(slots=[[0, 1022, 0]]),
        changed(slots=[[0, 511, 0], [513, 1023, 0]]),
        changed(slots=[[0, 1023, 9]]),
        changed(next_term=0),
        changed(logs={"0": INSTALLED}),
        changed(next_term=2, logs={"0": INSTALLED, "1": INSTALLED}),
        changed(next_term=3, logs={"0": INSTALLED, "1": INSTALLED | {"term": 2}}),
        changed(logs={"0": None, "-1": None}),
        changed(surprise=1),
        changed().replace(b"version", b"versi\xefn"),
    ],
)
def test_a_view_that_cannot_be_right(data: bytes) -> None:
    with pytest.raises(CorruptData, match="/boki/view"):
        decode_view(data)


def test_another_version_of_the_view() -> None:
    with pytest.raises(VersionMismatch, match="upgrade"):
        decode_view(b'{"version": 2, "other": "fields"}')
