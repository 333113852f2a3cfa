"""Fragments are append-or-replace-last; replacements are distinct and never a member."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.ids import BookieId
from boki_ledger.metadata.ensemble_change import change_ensemble, choose_replacements, fragment_of

A, B, C, D, E = (BookieId(name) for name in "ABCDE")


def test_a_change_after_acknowledged_entries_appends_a_fragment() -> None:
    assert change_ensemble([(0, (A, B, C))], first_entry=5, replacements={1: D}) == ((0, (A, B, C)), (5, (A, D, C)))


def test_a_change_before_any_acknowledged_entry_replaces_the_last_fragment() -> None:
    fragments = [(0, (A, B, C)), (5, (A, D, C))]
    assert change_ensemble(fragments, first_entry=5, replacements={0: E}) == ((0, (A, B, C)), (5, (E, D, C)))
    assert change_ensemble([(0, (A, B, C))], first_entry=0, replacements={0: D}) == ((0, (D, B, C)),)


def test_a_change_inside_an_earlier_fragment_is_a_programmers_error() -> None:
    with pytest.raises(AssertionError):
        change_ensemble([(0, (A, B)), (5, (A, C))], first_entry=4, replacements={0: D})


def test_a_bookie_never_takes_two_slots() -> None:
    assert choose_replacements((A, B, C), [0, 2], [D, D, E]) == {0: D, 2: E}
    assert choose_replacements((A, B, C), [0, 2], [C, B, D]) == {0: D}
    with pytest.raises(AssertionError):
        change_ensemble([(0, (A, B, C))], first_entry=0, replacements={0: C})


def test_without_spares_there_is_no_replacement() -> None:
    assert choose_replacements((A, B, C), [0], [A, B, C]) == {}


@given(st.lists(st.sets(st.integers(0, 2), min_size=1), max_size=6), st.data())
def test_fragments_stay_ordered_and_hold_distinct_bookies(changes: list[set[int]], data: st.DataObject) -> None:
    fragments: tuple[tuple[int, tuple[BookieId, ...]], ...] = ((0, (A, B, C)),)
    pool = [BookieId(f"b{number}") for number in range(12)]
    for slots in changes:
        first = data.draw(st.integers(fragments[-1][0], fragments[-1][0] + 3))
        spares = data.draw(st.permutations(pool))
        fragments = change_ensemble(
            fragments, first_entry=first, replacements=choose_replacements(fragments[-1][1], sorted(slots), spares)
        )
    firsts = [first for first, _ in fragments]
    assert firsts[0] == 0 and firsts == sorted(set(firsts))
    assert all(len(set(bookies)) == 3 for _, bookies in fragments)
    for entry_id in range(firsts[-1] + 2):
        first, _ = fragment_of(fragments, entry_id)
        assert first == max(one for one in firsts if one <= entry_id)
