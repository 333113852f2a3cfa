"""Identifiers: packing, ranges, reserved values."""

from __future__ import annotations

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from boki_common import ids, limits
from boki_common.errors import InvalidArgument, InvalidTag


@given(st.integers(1, limits.TERM_MAX), st.integers(0, 2**35 - 1))
def test_seqnum_packs_term_above_position_and_stays_positive_in_63_bits(term: int, pos: int) -> None:
    number = ids.seqnum(term, pos)
    assert (ids.term_of(number), ids.pos_of(number)) == (term, pos)
    assert 0 < number <= ids.SEQNUM_MAX


def test_first_seqnum_of_all_is_above_no_seqnum() -> None:
    assert ids.seqnum(1, 0) > 0


@pytest.mark.parametrize("tag", [0, 2**64 - 1, 2**64, -1, "", "x" * 256, True, 1.5, None, b"bytes"])
def test_tag_that_no_record_may_carry_is_refused(tag: object) -> None:
    with pytest.raises(InvalidTag):
        ids.tag_id(tag)  # type: ignore[arg-type]


def test_reserved_hashes_of_names_are_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = {b"zero": 0, b"max": 2**64 - 1}
    monkeypatch.setattr(xxhash, "xxh3_64_intdigest", hashed.__getitem__)
    assert ids.tag_id("zero") == 1
    assert ids.tag_id("max") == 2


@pytest.mark.parametrize("book", [-1, 2**64, "", "x" * 1025, True, None])
def test_book_that_cannot_be_is_refused(book: object) -> None:
    with pytest.raises(InvalidArgument):
        ids.book_id(book)  # type: ignore[arg-type]


def test_hashes_are_those_of_xxh3_for_ever() -> None:
    # These values are in every stored record and in users' data: they may never change.
    assert ids.book_id("orders") == xxhash.xxh3_64_intdigest(b"orders")
    assert ids.tag_id("user/1") == xxhash.xxh3_64_intdigest(b"user/1")
    assert ids.slot_of(42) == xxhash.xxh3_64_intdigest((42).to_bytes(8, "little")) % 1024


def test_positions_compare_term_first() -> None:
    assert ids.Position(2, 0) > ids.Position(1, 900)
