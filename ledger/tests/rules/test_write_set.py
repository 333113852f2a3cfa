"""Placement is one function of the entry id, right at every size of id."""

from __future__ import annotations

import pytest

from boki_ledger.rules.write_set import write_set, write_sets


def test_consecutive_slots_from_the_entry_on() -> None:
    assert write_set(0, 5, 3) == (0, 1, 2)
    assert write_set(4, 5, 3) == (4, 0, 1)
    assert write_set(13, 5, 3) == (3, 4, 0)


@pytest.mark.parametrize("entry_id", [2**31 - 1, 2**31, 2**32, 3_000_000_000, 2**62])
def test_large_entry_ids_have_the_write_set_of_their_residue(entry_id: int) -> None:
    assert write_set(entry_id, 3, 2) == write_set(entry_id % 3, 3, 2)


@pytest.mark.parametrize("ensemble_size", range(1, 8))
def test_every_slot_holds_its_share(ensemble_size: int) -> None:
    for write_quorum in range(1, ensemble_size + 1):
        table = write_sets(ensemble_size, write_quorum)
        assert len(table) == ensemble_size
        for slot in range(ensemble_size):
            assert sum(slot in slots for slots in table) == write_quorum
        assert all(len(set(slots)) == write_quorum for slots in table)
