"""Which terms come directly before a term, against walking every slot."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_common import limits
from boki_metalog.terms.term_order import ALL_SLOTS, slot_mask, terms_before
from boki_metalog.terms.view import SlotRange

RANGES = st.lists(st.tuples(st.integers(0, 1023), st.integers(0, 1023)).map(sorted), max_size=3)


def slots_of(ranges: list[list[int]]) -> set[int]:
    return {slot for first, last in ranges for slot in range(first, last + 1)}


def test_slots_as_bits() -> None:
    assert slot_mask([]) == 0
    assert slot_mask([SlotRange(0, 0), SlotRange(3, 4)]) == 0b11001
    assert slot_mask([SlotRange(0, limits.SLOTS - 1)]) == ALL_SLOTS


@given(RANGES, st.lists(st.tuples(st.integers(0, 2), RANGES), max_size=8))
def test_the_newest_earlier_holder_of_each_slot(
    mine: list[list[int]], earlier: list[tuple[int, list[list[int]]]]
) -> None:
    newest: dict[int, int] = {}
    for term, (_, ranges) in enumerate(earlier, 1):
        newest.update(dict.fromkeys(slots_of(ranges), term))
    expected = {newest[slot] for slot in slots_of(mine) if slot in newest and earlier[newest[slot] - 1][0] != 0}
    rows = [(term, log, slot_mask(SlotRange(*one) for one in ranges)) for term, (log, ranges) in enumerate(earlier, 1)]
    assert terms_before(slot_mask(SlotRange(*one) for one in mine), reversed(rows), 0) == tuple(sorted(expected))


def test_no_more_is_read_than_needed() -> None:
    def rows() -> object:
        yield 9, 1, ALL_SLOTS
        raise AssertionError("everything was covered")

    assert terms_before(ALL_SLOTS, rows(), 0) == (9,)  # type: ignore[arg-type]  # a generator
