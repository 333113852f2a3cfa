"""Places of records against a list of one row per record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common import ids
from boki_logbook.places import EntryPlace, Places, ShardPlace


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 3)), max_size=30))
def test_every_position_finds_its_entry(rows: list[tuple[int, int, int]]) -> None:
    places = Places()
    term = places.begin(3, 0)
    term.shards = {number: ShardPlace(3, number, 100 + number, "e") for number in range(3)}
    model: list[EntryPlace] = []
    entries = dict.fromkeys(range(3), 0)
    time_ms = 0
    for shard, count, step in rows:
        time_ms += step
        first = ids.seqnum(3, len(model))
        place = EntryPlace(100 + shard, entries[shard], first, first + count, time_ms)
        term.add_entry(shard, entries[shard], count, time_ms)
        entries[shard] += 1
        model.extend([place] * count)
    assert term.end_pos == len(model)
    assert [term.locate(pos) for pos in range(len(model))] == model
    assert term.locate(len(model)) is None
    assert all(places.locate(ids.seqnum(3, pos)) == place for pos, place in enumerate(model))
    assert all(places.time_ms(ids.seqnum(3, pos)) == place.time_ms for pos, place in enumerate(model))


def test_losers_are_kept_as_spans() -> None:
    term = Places().begin(1, 0)
    for first, stop in [(0, 2), (2, 3), (5, 6), (6, 9), (20, 21)]:
        term.add_losers(first, stop)
    assert term.losers() == [(0, 3), (5, 9), (20, 21)]


def test_a_seqnum_from_nowhere_is_a_mistake_of_ours() -> None:
    places = Places()
    places.begin(1, 0)
    with pytest.raises(AssertionError):
        places.locate(ids.seqnum(1, 0))


def test_a_term_begins_once() -> None:
    places = Places()
    places.begin(1, 0)
    with pytest.raises(AssertionError):
        places.begin(1, 0)


def test_rows_cost_28_bytes() -> None:
    term = Places().begin(1, 0)
    for entry in range(10):
        term.add_entry(0, entry, 5, 1)
    assert (term.bytes, term.entry_count) == (280, 10)


def test_seeking_a_time_goes_through_the_terms_of_the_book() -> None:
    places = Places()
    slot = ids.slot_of(7)
    for term, slots, times in (
        (1, [(0, 1023)], [10, 10, 20]),
        (2, [(0, slot - 1), (slot + 1, 1023)], [21, 500]),
        (3, [(slot, slot)], []),
        (4, [(slot, slot)], [30, 40]),
    ):
        one = places.begin(term, term, slots)
        for entry, time_ms in enumerate(times):
            one.add_entry(0, entry, 3, time_ms)
    for time_ms, expected in (
        (0, ids.seqnum(1, 0)),
        (10, ids.seqnum(1, 0)),
        (11, ids.seqnum(1, 6)),
        (20, ids.seqnum(1, 6)),
        (21, ids.seqnum(4, 0)),
        (31, ids.seqnum(4, 3)),
        (41, 0),
    ):
        assert places.seek(7, time_ms) == expected
    assert Places().seek(7, 0) == 0
