"""The compare-and-swap loop: races, lost answers, writes that land late, hundreds of changers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from boki_common.bookkeeper import layout, ledger_metadata
from boki_common.bookkeeper.layout import LedgerLayout
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.errors import MetadataUnavailable, NodeExists, NoSuchLedger
from boki_common.ids import BookieId
from boki_common.metadata.memory import Fault, MemoryStore
from boki_common.testing.machine import CountingRandom
from boki_ledger.metadata.metadata_update import LedgerUpdates
from boki_ledger.testing.ledgers import QUICK, until

SLOTS = 100


def metadata(size: int = 3) -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=size,
        write_quorum=size,
        ack_quorum=2,
        ensembles=((0, tuple(BookieId(f"old{slot}") for slot in range(size))),),
    )


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    made = MemoryStore()
    await made.start()
    yield made
    await made.close()


@pytest.fixture
def updates(store: MemoryStore) -> LedgerUpdates:
    return LedgerUpdates(store, CountingRandom(), QUICK)


async def test_create_then_change_then_read(updates: LedgerUpdates) -> None:
    seen = await updates.create(7, metadata())
    changed = await updates.change(7, lambda current: replace(current, state=LedgerState.IN_RECOVERY), known=seen)
    assert (changed.metadata.state, changed.version) == (LedgerState.IN_RECOVERY, 1)
    assert await updates.read(7) == changed
    assert await updates.change(7, lambda current: None) == changed, "nothing to change: nothing is written"


async def test_a_taken_id_is_refused(updates: LedgerUpdates) -> None:
    await updates.create(7, metadata())
    with pytest.raises(NodeExists):
        await updates.create(7, metadata())


async def test_a_lost_race_is_decided_anew_on_what_is_there(store: MemoryStore, updates: LedgerUpdates) -> None:
    stale = await updates.create(1, metadata())
    await updates.change(1, lambda current: replace(current, state=LedgerState.IN_RECOVERY))
    states: list[LedgerState] = []

    def transform(current: LedgerMetadata) -> LedgerMetadata | None:
        states.append(current.state)
        return replace(current, custom=(("x", b"y"),)) if current.state is LedgerState.OPEN else None

    seen = await updates.change(1, transform, known=stale)
    assert states == [LedgerState.OPEN, LedgerState.IN_RECOVERY]
    assert seen.metadata.custom == ()


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST, Fault.DELAYED])
async def test_a_change_with_a_lost_answer_is_applied_once(
    store: MemoryStore, updates: LedgerUpdates, fault: Fault
) -> None:
    await updates.create(1, metadata())
    store.fail_next_write(fault)
    seen = await updates.change(1, lambda current: replace(current, state=LedgerState.IN_RECOVERY))
    assert seen.version == 1
    store.tree.deliver_delayed()
    assert await updates.read(1) == seen


async def test_an_unsent_change_fails_at_once_or_after_the_time_given_for_retries(
    store: MemoryStore, updates: LedgerUpdates
) -> None:
    seen = await updates.create(1, metadata())
    store.fail_next_write(Fault.UNAVAILABLE)
    with pytest.raises(MetadataUnavailable):
        await updates.change(1, lambda current: replace(current, custom=(("a", b""),)), known=seen)
    store.fail_next_write(Fault.UNAVAILABLE, count=3)
    changed = await updates.change(
        1, lambda current: replace(current, custom=(("a", b""),)), known=seen, retry_for_s=10.0
    )
    assert changed.version == 1


async def test_an_unknown_change_is_insisted_on_while_the_store_is_away(
    store: MemoryStore, updates: LedgerUpdates
) -> None:
    seen = await updates.create(1, metadata())
    store.fail_next_write(Fault.ANSWER_LOST)
    change = asyncio.ensure_future(
        updates.change(1, lambda current: replace(current, state=LedgerState.IN_RECOVERY), known=seen)
    )
    while (await updates.read(1)).version == 0:
        await asyncio.sleep(0)
    asked: list[str] = []

    def counted(operation: str, path: str) -> Fault:
        asked.append(operation)
        return Fault.NONE

    store.faults = counted
    store.disconnect()
    await until(lambda: len(asked) >= 3)
    assert not change.done()
    store.reconnect()
    assert (await change).version == 1


async def test_a_missing_ledger_is_named(updates: LedgerUpdates) -> None:
    with pytest.raises(NoSuchLedger, match="no ledger 9"):
        await updates.read(9)
    with pytest.raises(NoSuchLedger):
        await updates.change(9, lambda current: current)
    with pytest.raises(NoSuchLedger):
        await updates.delete(9)


async def test_deleting_survives_a_race(store: MemoryStore, updates: LedgerUpdates) -> None:
    await updates.create(1, metadata())
    deleting = asyncio.ensure_future(updates.delete(1))
    await updates.change(1, lambda current: replace(current, custom=(("x", b""),)))
    await deleting
    assert await layout.list_ledgers(store) == []


async def test_a_hundred_concurrent_replacements_all_land_on_an_unreliable_store(store: MemoryStore) -> None:
    rng = CountingRandom()
    made = LedgerUpdates(store, rng, QUICK)
    await made.create(1, metadata(SLOTS))
    plan = [Fault.NONE, Fault.ANSWER_LOST, Fault.NONE, Fault.REQUEST_LOST, Fault.NONE, Fault.NONE, Fault.DELAYED]
    calls = 0

    def faults(operation: str, path: str) -> Fault:
        nonlocal calls
        calls += 1
        return plan[calls % len(plan)] if operation == "set" else Fault.NONE

    store.faults = faults

    async def replace_slot(slot: int) -> None:
        def transform(current: LedgerMetadata) -> LedgerMetadata | None:
            bookies = list(current.ensembles[-1][1])
            bookies[slot] = BookieId(f"new{slot}")
            return replace(current, ensembles=((0, tuple(bookies)),))

        await made.change(1, transform)
        if slot % 10 == 0:
            store.tree.deliver_delayed()

    await asyncio.gather(*(replace_slot(slot) for slot in range(SLOTS)))
    store.tree.deliver_delayed()
    found = ledger_metadata.decode((await store.get(layout.ledger_path(1))).value)
    assert found.ensembles[-1][1] == tuple(f"new{slot}" for slot in range(SLOTS))


async def test_ledgers_of_a_cluster_with_the_long_layout_are_found_where_apache_puts_them(store: MemoryStore) -> None:
    await layout.init_cluster(store, rng=CountingRandom(), layout=LedgerLayout.LONG_HIERARCHICAL)
    updates = LedgerUpdates(store, CountingRandom(), QUICK)
    await updates.create(7, metadata())
    assert await store.exists("/ledgers/000/0000/0000/0000/L0007")
    await updates.change(7, lambda seen: replace(seen, state=LedgerState.IN_RECOVERY))
    assert (await LedgerUpdates(store, CountingRandom(), QUICK).read(7)).metadata.state is LedgerState.IN_RECOVERY
    await updates.delete(7)
    assert await layout.list_ledgers(store) == []
