"""The index against a plain dict: whatever is put, cut, stored in whatever order is found."""

from __future__ import annotations

import itertools
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_bookie.entries.ledger_index import CACHED_OVERHEAD_BYTES, Extent, Ledger, LedgerIndex
from boki_bookie.entries.tombstones import Run

STEPS = st.lists(st.one_of(st.tuples(st.integers(1, 3), st.integers(0, 30)), st.just("cut"), st.just("store")))


def check_runs(ledger: Ledger) -> None:
    """A run is what asking for one entry after another gives; entry n has n bytes."""
    for first, count, room in itertools.product((0, 1, 7, 29), (1, 5, 100), (0, 40, 1_000_000)):
        expected: list[int] = []
        left = room
        while len(expected) < count and ledger.holds(first + len(expected)):
            left -= first + len(expected) + 4
            if left < 0 and expected:
                break
            expected.append(first + len(expected))
        found: list[int] = []
        for part in ledger.find_run(first, count, room, overhead=4):
            if isinstance(part, Extent):
                places = [ledger.place(part.first + at) for at in range(len(part.locations))]
                assert [(place.location, place.body_bytes) for place in places if place is not None] == list(
                    zip(part.locations, part.body_bytes, strict=True)
                )
                found += range(part.first, part.first + len(places))
            else:
                found += map(len, part)
        assert found == expected, (first, count, room)


@given(STEPS)
def test_index_is_a_map_from_entries_to_where_they_are(steps: list[tuple[int, int] | str]) -> None:
    index = LedgerIndex()
    model: dict[tuple[int, int], str] = {}
    cut: list[int] | None = None
    location = 0
    for step in steps:
        if step == "cut" and cut is None:
            cut = [ledger.ledger_id for ledger in index.cut()]
            assert cut == sorted(cut)
            model = {key: "flushing" if where == "fresh" else where for key, where in model.items()}
        elif step == "store" and cut is not None:
            for ledger_id in cut:
                ledger = index.ledgers[ledger_id]
                order = sorted(ledger.flushing)
                for stage in (order[: len(order) // 2], order[len(order) // 2 :]):
                    locations = list(range(location, location + len(stage)))
                    location += len(locations)
                    columns = index.store(ledger, stage, locations)
                    assert list(columns[0]) == stage
                    ledger.check_invariants()
            assert not index.flushing_bytes
            cut = None
            model = {key: "stored" if where == "flushing" else where for key, where in model.items()}
        elif isinstance(step, tuple):
            ledger_id, entry_id = step
            ledger = index.ledgers.get(ledger_id) or index.create(ledger_id, bytes(20))
            assert ledger.holds(entry_id) == (step in model)
            if step not in model:
                index.put(ledger, entry_id, memoryview(b"x" * entry_id))
                model[step] = "fresh"
        for ledger in index.ledgers.values():
            ledger.check_invariants()
    for (ledger_id, entry_id), where in model.items():
        ledger = index.ledgers[ledger_id]
        assert (entry_id in ledger.fresh, entry_id in ledger.flushing, ledger.place(entry_id) is not None) == (
            where == "fresh",
            where == "flushing",
            where == "stored",
        )
    for ledger in index.ledgers.values():
        check_runs(ledger)
    assert index.stored_entries == sum(where == "stored" for where in model.values())
    fresh = sum(entry_id + CACHED_OVERHEAD_BYTES for (_, entry_id), where in model.items() if where == "fresh")
    assert index.fresh_bytes == fresh


def test_a_ledger_without_entries_is_cut_too() -> None:
    index = LedgerIndex()
    ledger = index.create(9, bytes(20))
    assert index.cut() == [ledger]
    assert index.cut() == []
    index.touch(ledger)
    index.touch(ledger)
    assert index.cut() == [ledger]


def test_one_cut_at_a_time() -> None:
    index = LedgerIndex()
    index.put(index.create(1, bytes(20)), 0, memoryview(b"x"))
    index.cut()
    with pytest.raises(AssertionError, match="one checkpoint"):
        index.cut()


def test_a_deleted_ledger_takes_everything_with_it() -> None:
    index = LedgerIndex()
    gone, kept = index.create(4, bytes(20)), index.create(5, bytes(20))
    index.restore_places(gone, [0, 1], [10, 20], [1, 1])
    index.put(gone, 2, memoryview(b"x"))
    index.move(gone, array("q", [0]), array("Q", [10]), array("Q", [99]))
    index.delete(Run(4, 4, 7))
    assert list(index.ledgers) == [5]
    assert (index.stored_entries, index.fresh_bytes) == (0, 0)
    assert 4 in index.tombstones
    assert index.take_changes() == ([Run(4, 4, 7)], [])
    assert index.cut() == [kept]


def test_only_what_lies_where_it_was_copied_from_moves() -> None:
    index = LedgerIndex()
    ledger = index.create(1, bytes(20))
    index.restore_places(ledger, [0, 2, 4, 6], [10, 20, 30, 40], [1, 2, 3, 4])
    moved = index.move(ledger, array("q", [0, 2, 3, 6]), array("Q", [10, 77, 30, 40]), array("Q", [110, 120, 130, 140]))
    assert moved == 2
    assert ledger.places.columns()[1].tolist() == [110, 20, 30, 140]
    _, moves = index.take_changes()
    assert [[list(column) for column in columns] for _, columns in moves] == [[[0, 6], [110, 140], [1, 4]]]
    assert index.move(Ledger(1, bytes(20)), array("q", [0]), array("Q", [110]), array("Q", [1])) == 0


def test_moves_of_an_emptied_ledger_are_forgotten() -> None:
    index = LedgerIndex()
    ledger = index.create(1, bytes(20))
    index.restore_places(ledger, [0], [10], [1])
    index.move(ledger, array("q", [0]), array("Q", [10]), array("Q", [20]))
    removals, moved = index.take_changes()
    index.empty(ledger)
    index.give_back_changes(removals, moved)
    assert index.take_changes() == ([ledger], [])
    assert (ledger.fenced, ledger.last_entry, index.stored_entries) == (True, -1, 0)
    ledger.check_invariants()


def test_a_replaced_entry_is_in_memory_alone_until_the_next_checkpoint_stores_it() -> None:
    index = LedgerIndex()
    ledger = index.create(1, b"key")
    for entry_id in range(3):
        index.put(ledger, entry_id, memoryview(bytes(8)))
    index.cut()
    before = index.cached_bytes
    index.store(ledger, [0, 1, 2], [10, 20, 30])
    assert (index.cached_bytes, index.freed_bytes) == (0, before)
    index.replace(ledger, 1, memoryview(bytes(8)))
    assert (ledger.place(1), index.stored_entries, ledger.entry_count) == (None, 2, 3)
    ledger.check_invariants()
    index.cut()
    index.store(ledger, [1], [40])
    assert not index.flushing_bytes
    assert ledger.places.columns()[1].tolist() == [10, 40, 30]
    assert index.stored_entries == 3
    ledger.check_invariants()


def test_a_run_is_put_as_its_entries_would_be() -> None:
    bodies = [memoryview(b"a" * size) for size in (1, 20, 300)]
    one, other = LedgerIndex(), LedgerIndex()
    for entry_id, body in zip((3, 4, 9), bodies, strict=True):
        one.put(one.ledgers.get(1) or one.create(1, b"key"), entry_id, body)
    other.put_run(other.create(1, b"key"), [3, 4, 9], bodies, 321 + 3 * CACHED_OVERHEAD_BYTES)
    assert one.ledgers[1].fresh == other.ledgers[1].fresh
    assert (one.fresh_bytes, one.ledgers[1].last_entry) == (other.fresh_bytes, other.ledgers[1].last_entry)
    assert one.cached_bytes == other.cached_bytes == one.fresh_bytes
    other.ledgers[1].check_invariants()
