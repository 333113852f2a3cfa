"""Places of records against a list of one row per record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common import ids
from boki_logbook.index.places import EntryPlace, LostEntries, Places, ShardPlace, TermPlaces


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


def test_rows_cost_28_bytes_and_minutes_16() -> None:
    term = Places().begin(1, 0)
    for entry in range(10):
        term.add_entry(0, entry, 5, 1)
    assert (term.bytes, term.entry_count) == (280 + 16, 10)


def counted(entries: list[tuple[int, int, list[tuple[int, int]]]]) -> TermPlaces:
    """A term with two shards and these (shard, records, losers)."""
    term = Places().begin(1, 0)
    term.shards = {number: ShardPlace(1, number, 100 + number, "e") for number in (0, 1)}
    for at, (shard, records, losers) in enumerate(entries):
        term.add_entry(shard, at, records, 60_000 * at)
        term.count_entry(shard, at, records, losers, 7)
    return term


def test_entries_are_counted_per_term_and_shard() -> None:
    term = counted([(0, 5, [(1, 3)]), (1, 4, []), (0, 1, [(0, 1)])])
    assert term.counts[:4] == (3, 10, 7, 21)
    assert term.shards[0].counts[:4] == (2, 6, 3, 14)
    assert term.live == 7


def test_digests_differ_by_order_and_losers() -> None:
    one = counted([(0, 5, [(1, 3)]), (1, 4, [])])
    digests = {
        counted(entries).counts.digest
        for entries in (
            [(0, 5, [(1, 3)]), (1, 4, [])],
            [(0, 5, [(1, 2)]), (1, 4, [])],
            [(1, 4, []), (0, 5, [(1, 3)])],
            [(0, 5, [(1, 3)])],
            [(0, 5, [(1, 3)]), (1, 5, [])],
        )
    }
    assert len(digests) == 5 and one.counts.digest in digests
    assert one.counts.digest != one.shards[0].counts.digest


def test_a_term_that_is_over_and_dead_keeps_its_minutes_only() -> None:
    term = counted([(0, 5, [(1, 3)]), (1, 4, [])])
    term.records_died(term.live - 1)
    term.end()
    assert term.locate(3) is not None, "one record lives"
    term.records_died(1)
    assert (term.bytes, term.losers(), term.locate(3), term.end_pos) == (32, [], None, 9)
    assert [term.minute(pos) for pos in (0, 4, 5, 8)] == [0, 0, 1, 1]
    assert [term.seek(time_ms) for time_ms in (0, 1, 60_000, 60_001)] == [0, 0, 5, None]
    assert term.counts[:3] == (2, 9, 7)


def test_evidence_is_found_by_the_place_of_a_record() -> None:
    places = Places()
    term = places.begin(1, 0)
    term.add_entry(0, 3, 5, 0)
    term.add_entry(0, 4, 5, 0)
    assert places.evidence(ids.seqnum(1, 2)) is None
    term.lost.append(LostEntries(0, 4, 6, b"{}"))
    assert places.evidence(ids.seqnum(1, 4)) is None
    assert places.evidence(ids.seqnum(1, 5)) == b"{}"


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
