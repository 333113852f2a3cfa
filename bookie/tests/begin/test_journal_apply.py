"""The journal, applied at start."""

from __future__ import annotations

from typing import Any

import pytest

from boki_bookie.begin.journal_apply import apply
from boki_bookie.entries.ledger_index import Ledger, LedgerIndex
from boki_bookie.formats.journal_format import (
    LedgerRecord,
    RecordKind,
    encode_hold,
    encode_ledger,
    encode_ledger_id,
    encode_tombstone,
)
from boki_common.errors import CorruptData
from boki_common.limits import KIB
from boki_common.runtime.memory_disk import MemoryDisk


async def test_damage_in_the_journal_refuses_the_start(world: Any, disk: MemoryDisk) -> None:
    storage = await world.open(disk)
    for entry in range(3):
        await world.put(storage, world.add(1, entry, b"%d" % entry * 50))
    crashed = disk.crash(world.seeded(1))
    name = next(name for name in crashed.all_names() if b"1" * 50 in crashed.contents(name))
    crashed.flip_bit(name, crashed.contents(name).index(b"1" * 50))
    with pytest.raises(CorruptData, match=name):
        await world.open(crashed)


async def test_a_journal_longer_than_the_cache_is_replayed(world: Any, disk: MemoryDisk) -> None:
    storage = await world.open(disk)
    for entry in range(40):
        await world.put(storage, world.add(1, entry, bytes([entry]) * 1_000))
    later = await world.open(disk.crash(world.seeded(1)), world.tiny(write_cache_bytes=4 * KIB))
    for entry in range(40):
        assert await world.read(later, 1, entry) == bytes(world.body(1, entry, bytes([entry]) * 1_000))


def test_a_record_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(CorruptData, match="kind 77"):
        apply(LedgerIndex(), 77, memoryview(b""))


def test_a_record_of_a_ledger_that_was_never_made_is_refused() -> None:
    with pytest.raises(CorruptData, match="ledger 5"):
        apply(LedgerIndex(), RecordKind.FENCE, memoryview(encode_ledger_id(5)))


def test_applying_a_record_twice_changes_nothing(world: Any) -> None:
    index = LedgerIndex()
    record = memoryview(encode_ledger(LedgerRecord(1, True, world.key)))
    entry = world.body(1, 0)
    for _ in range(2):
        apply(index, RecordKind.LEDGER, record)
        apply(index, RecordKind.ENTRY, entry)
        apply(index, RecordKind.FENCE, memoryview(encode_ledger_id(1)))
    ledger = index.ledgers[1]
    assert (ledger.validated, ledger.fenced, ledger.last_entry, len(ledger.fresh)) == (True, True, 0, 1)
    assert index.cut() == [ledger]


def test_a_replaced_entry_counts_instead_of_the_stored_one(world: Any) -> None:
    index = LedgerIndex()
    ledger = index.ledgers[1] = Ledger(1, world.key)
    index.restore_places(ledger, [0, 1], [10, 20], [39, 39])
    for _ in range(2):
        apply(index, RecordKind.REPLACED, world.body(1, 1))
        assert (ledger.place(1), ledger.cached(1)) == (None, world.body(1, 1))
    assert index.cut() == [ledger]


def test_a_tombstone_ends_a_ledger_and_what_is_replayed_of_it_is_nothing(world: Any) -> None:
    index = LedgerIndex()
    ledger = memoryview(encode_ledger(LedgerRecord(1, True, world.key)))
    for _ in range(2):  # from its beginning, and again onto an index that knows how it ended
        apply(index, RecordKind.LEDGER, ledger)
        apply(index, RecordKind.ENTRY, world.body(1, 0))
        apply(index, RecordKind.TOMBSTONE, memoryview(encode_tombstone(1, 20_000)))
        assert 1 not in index.ledgers
        assert 1 in index.tombstones
        assert index.fresh_bytes == 0
    for kind, body in (
        (RecordKind.ENTRY, world.body(1, 1)),
        (RecordKind.FENCE, memoryview(encode_ledger_id(1))),
        (RecordKind.EMPTIED, memoryview(encode_ledger_id(1))),
        (RecordKind.LAC, world.body(1, 1)),
        (RecordKind.HOLD, memoryview(encode_hold(1, 3))),
    ):
        apply(index, kind, body)
        assert not index.ledgers


def test_the_highest_hold_counts_and_outlives_that_the_ledger_is_emptied(world: Any) -> None:
    index = LedgerIndex()
    apply(index, RecordKind.LEDGER, memoryview(encode_ledger(LedgerRecord(1, True, world.key))))
    for version in (3, 2, 5, 4):
        apply(index, RecordKind.HOLD, memoryview(encode_hold(1, version)))
    apply(index, RecordKind.EMPTIED, memoryview(encode_ledger_id(1)))
    assert index.ledgers[1].hold == 5


def test_an_emptied_ledger_is_fenced(world: Any) -> None:
    index = LedgerIndex()
    apply(index, RecordKind.LEDGER, memoryview(encode_ledger(LedgerRecord(1, True, world.key))))
    index.restore_places(index.ledgers[1], [3], [9], [1])
    apply(index, RecordKind.EMPTIED, memoryview(encode_ledger_id(1)))
    assert index.ledgers[1].fenced
    assert not index.ledgers[1].holds(3)
