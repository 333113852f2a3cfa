"""Snapshots in ledgers: named by one swap, loaded whole or refused, deleted when nobody needs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from boki_common import limits
from boki_common.bookkeeper import layout
from boki_common.errors import CorruptData, NotEnoughBookies, Overloaded
from boki_common.net.connection import Address
from boki_ledger.testing.ledgers import Ledgers
from boki_logbook.state import snapshot_format, snapshots
from boki_logbook.state.snapshot_format import LogPoint, Snapshot
from boki_logbook.state.snapshot_rules import NO_SNAPSHOT, SNAPSHOT_PATH, SnapshotNode, SnapshotPoint, encode_node
from boki_logbook.state.snapshots import UNUSABLE, SnapshotStore, Start, snapshot_to_start_from
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RunSpec, make_batch, plain_records
from boki_logbook.testing.plans import begin


def a_snapshot(entries: int = 3) -> Snapshot:
    state = DecisionState()
    places = begin(state, 1)
    for entry in range(entries):
        batch = make_batch(RunSpec(1, bytes(16), entry + 1, plain_records("x", tags=(entry + 1,))))
        state.apply_entry(places, batch, shard=0, entry=entry, time_ms=entry)
    point = LogPoint(0, 1, entries, False, 0, entries, entries, 1, ((0, entries, entries),))
    return Snapshot(state.snapshot_state(), (point,), ())


class Stores:
    """Snapshot stores of several engines over one cluster of ledgers."""

    def __init__(self) -> None:
        self.ledgers = Ledgers()

    async def store(self) -> SnapshotStore:
        client = await self.ledgers.other_client()
        return SnapshotStore(
            metadata=self.ledgers.stores[-1], ledgers=client, incarnation=f"{len(self.ledgers.clients)}"
        )

    async def saved(self) -> tuple[SnapshotStore, SnapshotNode]:
        """A store that has named its first snapshot."""
        one = await self.store()
        _, version = await one.newest(make=True)
        node = await one.save(a_snapshot(), version=version)
        assert node is not None
        return one, node


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    made = Stores()
    await made.ledgers.start()
    await made.ledgers.store.create("/boki")
    yield made
    await made.ledgers.close()


async def whole() -> bool:
    return True


async def reclaimed() -> bool:
    return False


async def test_what_was_saved_is_loaded(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_format, "CHUNK_BYTES", 64)
    monkeypatch.setattr(limits, "SNAPSHOT_LEDGER_CHUNKS", 5)
    one, two = await stores.store(), await stores.store()
    assert await one.newest() == (NO_SNAPSHOT, -1)
    _, version = await one.newest(make=True)
    node = await one.save(a_snapshot(), version=version)
    assert node is not None and len(node.ledgers) == 2 and node.writer == "2"
    assert await two.newest() == (node, version + 1)
    assert (node.logs, node.records, node.rows) == ((SnapshotPoint(0, 1, 3, False),), 3, 6)
    loaded = await two.load(node)
    assert loaded.logs == a_snapshot().logs
    assert (
        DecisionState.from_snapshot(loaded.state).index.streams()
        == DecisionState.from_snapshot(a_snapshot().state).index.streams()
    )


async def test_the_first_of_two_writers_wins_and_the_other_deletes_what_it_wrote(stores: Stores) -> None:
    one, two = await stores.store(), await stores.store()
    _, version = await one.newest(make=True)
    first = await one.save(a_snapshot(1), version=version)
    assert first is not None
    assert await two.save(a_snapshot(2), version=version) is None
    assert await one.newest() == (first, version + 1)
    assert await stores.ledgers.client.list() == list(first.ledgers)


async def test_a_small_one_is_written_to_the_reserves_of_full_disks(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await stores.store()
    _, version = await one.newest(make=True)
    stores.ledgers.bookies.register()
    for bookie in ("b1", "b2", "b3"):
        stores.ledgers.bookies[bookie].full = True
        await layout.register_bookie(stores.ledgers.store, bookie, Address("127.0.0.1", 1), read_only=True)
    monkeypatch.setattr(limits, "SNAPSHOT_RESERVE_BYTES", 1)
    with pytest.raises(NotEnoughBookies):
        await one.save(a_snapshot(), version=version)
    monkeypatch.setattr(limits, "SNAPSHOT_RESERVE_BYTES", limits.MIB)
    node = await one.save(a_snapshot(), version=version)
    assert node is not None
    assert (await one.load(node)).logs == a_snapshot().logs


async def test_an_upload_that_bookies_do_not_take_is_given_up_and_deleted(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "STALLED_S", 0.01)
    one = await stores.store()
    _, version = await one.newest(make=True)
    for bookie in ("b1", "b2", "b3"):
        stores.ledgers.bookies[bookie].full = True
        stores.ledgers.bookies[bookie].has_reserve = False
    with pytest.raises(Overloaded, match="none of ledger 0 acknowledged"):
        await one.save(a_snapshot(), version=version)
    assert await stores.ledgers.client.list() == []


async def test_ledgers_that_were_never_named_are_recognised(stores: Stores) -> None:
    one, two = await stores.store(), await stores.store()
    _, version = await one.newest(make=True)
    crashed: list[int] = []
    await one._write(a_snapshot(), version, crashed)
    (orphan,) = crashed
    node, version = await two.newest()
    assert not await two.unnamed(orphan, node, version), "its writer may be about to name it"
    second = await two.save(a_snapshot(), version=version)
    assert second is not None
    node, version = await two.newest()
    assert await two.unnamed(orphan, node, version)
    assert not await two.unnamed(second.ledgers[0], node, version)
    other = await stores.ledgers.client.create()
    assert not await two.unnamed(other.ledger_id, node, version), "it is no snapshot's"
    await two.delete([orphan, orphan])
    assert orphan not in await stores.ledgers.client.list()
    assert not await two.unnamed(orphan, node, version)


async def test_nothing_stays_behind_when_bookies_are_away(stores: Stores) -> None:
    one = await stores.store()
    _, version = await one.newest(make=True)
    stores.ledgers.bookies.register()
    with pytest.raises(NotEnoughBookies):
        await one.save(a_snapshot(), version=version)
    assert await one.newest() == (NO_SNAPSHOT, version)


async def start(store: SnapshotStore, *, whole: Callable[[], Awaitable[bool]], waits: list[str] | None = None) -> Start:
    """As an engine that can use whatever it can read."""
    said: list[str] = [] if waits is None else waits
    return await snapshot_to_start_from(
        store, whole=whole, usable=lambda snapshot: None, waits=said.append, retry_s=0.001
    )


async def test_without_a_snapshot_one_starts_from_the_metalogs(stores: Stores) -> None:
    one = await stores.store()
    assert await start(one, whole=reclaimed) == Start(None)
    await one.newest(make=True)
    assert await start(one, whole=reclaimed) == Start(None)


async def test_a_damaged_snapshot_is_passed_over_while_the_metalogs_are_there(stores: Stores) -> None:
    one, node = await stores.saved()
    for changed in (
        msgspec.structs.replace(node, digest="0" * 16),
        msgspec.structs.replace(node, chunks=2),
        msgspec.structs.replace(node, raw_bytes=node.raw_bytes + 1),
        msgspec.structs.replace(node, ledgers=(999,)),
        msgspec.structs.replace(node, version=2),
    ):
        store = stores.ledgers.store
        await store.set(SNAPSHOT_PATH, encode_node(changed), version=(await store.get(SNAPSHOT_PATH)).version)
        snapshot, fault = await start(one, whole=whole)
        assert snapshot is None and isinstance(fault, UNUSABLE), "said, since nobody may rely on it any more"
        waits: list[str] = []
        waiting = asyncio.ensure_future(start(one, whole=reclaimed, waits=waits))
        while not waits:
            await asyncio.sleep(0)
        assert "their metalogs are gone" in waits[0] and not waiting.done()
        await store.set(SNAPSHOT_PATH, encode_node(node), version=(await store.get(SNAPSHOT_PATH)).version)
        assert (await waiting).snapshot is not None, "another one is named, or its ledgers are back"
        assert len(waits) == 1


async def test_a_snapshot_that_no_state_can_be_made_of_is_passed_over(stores: Stores) -> None:
    one, _ = await stores.saved()

    def usable(snapshot: Snapshot) -> None:
        raise CorruptData("nothing fits")

    begun = await snapshot_to_start_from(one, whole=whole, usable=usable, waits=lambda _: None, retry_s=0.001)
    assert begun.snapshot is None and "nothing fits" in str(begun.fault)


async def test_a_snapshot_that_was_replaced_while_it_was_read_is_read_anew(stores: Stores) -> None:
    one, two = await stores.store(), await stores.store()
    _, version = await one.newest(make=True)
    old = await one.save(a_snapshot(1), version=version)
    assert old is not None
    loading = asyncio.ensure_future(start(two, whole=reclaimed))
    await one.save(a_snapshot(3), version=version + 1)
    await one.delete(old.ledgers)
    loaded = (await loading).snapshot
    assert loaded is not None and loaded.state.records in (1, 3)
    assert (await start(two, whole=reclaimed)).snapshot is not None
