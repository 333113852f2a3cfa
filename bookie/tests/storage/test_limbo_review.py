"""A damaged bookie from its refused start to the end of its limbo: what it claims on the way, and when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from tests.turns import turns

from boki_bookie.begin.identity import Identity
from boki_bookie.entries.checkpoint import MARK_NAME
from boki_bookie.entries.validation import LedgerValidation
from boki_bookie.storage.limbo import COPY_NAME, LIMBO_NAME
from boki_bookie.storage.limbo_review import LimboReview, open_or_salvage, survey
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper import layout
from boki_common.bookkeeper.digests import master_key
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState, decode, encode
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import CorruptData, MetadataError
from boki_common.ids import BookieId
from boki_common.metadata.store import ensure_path
from boki_common.runtime.memory_disk import MemoryDisk

OK, FENCED, UNKNOWN = V2Status.OK, V2Status.FENCED, V2Status.UNKNOWN_LEDGER_STATE
ME = Identity(BookieId("00010203-0405-0607-0809-0a0b0c0d0e0f"), "instance", "place")
OPEN_HERE, CLOSED_HERE, OPEN_ELSEWHERE, CLOSED_ELSEWHERE, RECOVERED_HERE = 1, 2, 3, 4, 5


class Life:
    """One bookie's store, over its restarts."""

    def __init__(self, world: Any, disk: MemoryDisk) -> None:
        self.world = world
        self.disk = disk
        self.settings = world.tiny()

    async def begin(self) -> None:
        assert ME.raw == self.world.raw_id
        await layout.init_cluster(self.world.store, rng=self.world.rng)
        cookie = layout.Cookie(ME.bookie_id, ME.place, (ME.place,), ME.instance_id)
        await self.world.store.create(layout.cookie_path(ME.bookie_id), layout.encode_cookie(cookie))
        await self.world.format(self.disk)

    async def start(self, *, salvage: bool = False) -> Storage:
        validate = LedgerValidation(self.world.store, ME.bookie_id, self.settings)
        return await open_or_salvage(
            self.disk,
            ME,
            self.world.store,
            open_storage=partial(self.world.open, self.disk, validate=validate),
            rng=self.world.seeded(3),
            settings=self.world.tiny(salvage=salvage),
        )

    def kill(self) -> None:
        self.disk = self.disk.crash(self.world.seeded(1))

    async def ledger(
        self, ledger_id: int, *members: str, state: LedgerState = LedgerState.OPEN, last: int = -1
    ) -> None:
        bookies = tuple(BookieId(name) for name in members)
        metadata = LedgerMetadata(
            ensemble_size=len(bookies),
            write_quorum=len(bookies),
            ack_quorum=1,
            ensembles=((0, bookies),),
            state=state,
            last_entry=last,
        )
        path = layout.ledger_path(ledger_id)
        if await self.world.store.exists(path):
            version = (await self.world.store.get(path)).version
            await self.world.store.set(path, encode(metadata), version=version)
        else:
            await layout.create_ledger(self.world.store, ledger_id, encode(metadata))

    def review(self, storage: Storage) -> LimboReview:
        return LimboReview(storage, self.world.store, ME.bookie_id, interval_s=3_600.0)

    async def lose_journal(self) -> None:
        for name in await self.disk.names("journal"):
            await self.disk.remove(f"journal/{name}")


@pytest.fixture
async def life(world: Any, disk: MemoryDisk) -> Life:
    """Entries 0 to 3 of five ledgers are in the entry log, 4 and 5 in the journal alone."""
    life = Life(world, disk)
    await life.begin()
    for ledger_id in (OPEN_HERE, CLOSED_HERE, OPEN_ELSEWHERE, CLOSED_ELSEWHERE, RECOVERED_HERE):
        await life.ledger(ledger_id, ME.bookie_id, "other")
    storage = await life.start()
    for entries in (range(4), range(4, 6)):
        for ledger_id in range(1, 6):
            await world.put(storage, *(world.add(ledger_id, entry) for entry in entries))
        if entries.start == 0:
            await storage.checkpoint()
    await life.ledger(CLOSED_HERE, ME.bookie_id, "other", state=LedgerState.CLOSED, last=5)
    await life.ledger(OPEN_ELSEWHERE, "another", "other")
    await life.ledger(CLOSED_ELSEWHERE, "another", "other", state=LedgerState.CLOSED, last=5)
    await life.ledger(RECOVERED_HERE, ME.bookie_id, "other", state=LedgerState.IN_RECOVERY)
    await world.fence(storage, RECOVERED_HERE)
    life.kill()
    return life


@pytest.fixture
async def storage(life: Life) -> Storage:
    """What was salvaged of it without its journal."""
    await life.lose_journal()
    return await life.start(salvage=True)


def listed(storage: Storage) -> list[int]:
    assert storage.limbo is not None
    return storage.limbo.ledgers


async def test_after_a_mere_kill_there_is_no_limbo(world: Any, life: Life) -> None:
    """With an intact journal (fsync before ack) replay makes the bookie sure, even when salvage was asked for."""
    storage = await life.start(salvage=True)
    assert storage.limbo is None
    assert LIMBO_NAME not in life.disk.all_names()
    assert await world.put(storage, world.add(OPEN_HERE, 6)) == [OK]
    assert await world.read(storage, OPEN_HERE, 7) is V2Status.NO_ENTRY


async def test_damage_is_refused_unless_the_operator_says_so(life: Life) -> None:
    await life.lose_journal()
    before = life.disk.all_names()
    with pytest.raises(CorruptData, match=r"journal/\d+.segment.*--salvage"):
        await life.start()
    assert life.disk.all_names() == before


async def test_the_list_is_durable_before_anything_is_salvaged(world: Any, life: Life) -> None:
    await life.lose_journal()
    life.disk.fail("open", nth=1)
    damaged = life.disk.all_names()
    life.disk.fail("replace", nth=3)
    with pytest.raises(Exception, match="input/output error"):
        await life.start(salvage=True)
    assert set(life.disk.all_names()) >= {*damaged, LIMBO_NAME}
    storage = await life.start(salvage=True)
    assert await world.read(storage, OPEN_HERE, 5) is UNKNOWN


async def test_without_metadata_nothing_is_salvaged(world: Any, life: Life) -> None:
    await life.lose_journal()
    before = life.disk.all_names()
    world.store.disconnect()
    with pytest.raises(MetadataError):
        await life.start(salvage=True)
    assert life.disk.all_names() == before


async def test_a_salvaged_bookie_denies_nothing_and_takes_no_normal_add(world: Any, life: Life) -> None:
    """DataIntegrityCheckTest, as F34 has it: open ledgers are fenced and in limbo, positives are answered."""
    await life.lose_journal()
    storage = await life.start(salvage=True)
    assert storage.limbo is not None
    assert storage.limbo.ledgers == [OPEN_HERE, CLOSED_HERE, OPEN_ELSEWHERE, RECOVERED_HERE]
    for ledger_id in range(1, 6):
        assert await world.read(storage, ledger_id, 3) == bytes(world.body(ledger_id, 3))
        assert await world.read(storage, ledger_id, 4) is UNKNOWN
        assert await world.put(storage, world.add(ledger_id, 6)) == [FENCED]
    assert await world.read(storage, 99, 0) is UNKNOWN
    await life.ledger(9, ME.bookie_id)
    assert await world.put(storage, world.add(9, 0)) == [OK]
    assert await world.read(storage, 9, 1) is V2Status.NO_ENTRY


async def test_limbo_survives_restarts_and_another_salvage(world: Any, life: Life, storage: Storage) -> None:
    for damage in (False, True, False):
        await storage.close()
        life.kill()
        if damage:
            await life.disk.remove(MARK_NAME)
        storage = await life.start(salvage=damage)
        assert await world.read(storage, OPEN_HERE, 4) is UNKNOWN
        assert await world.put(storage, world.add(OPEN_HERE, 6)) == [FENCED]


async def test_a_damaged_list_is_refused_and_made_again(world: Any, life: Life) -> None:
    await life.lose_journal()
    await (await life.start(salvage=True)).close()
    for name in (LIMBO_NAME, COPY_NAME):
        life.disk.flip_bit(name, 50)
    with pytest.raises(CorruptData, match="LIMBO"):
        await life.start()
    storage = await life.start(salvage=True)
    assert await world.read(storage, OPEN_HERE, 4) is UNKNOWN


async def repair(world: Any, storage: Storage, ledger_id: int, entries: Iterable[int]) -> None:
    """What a repairer does with entries that it read from peers."""
    assert await world.put(storage, *(world.add(ledger_id, entry, recovery=True) for entry in entries)) == [OK] * len(
        list(entries)
    )


async def test_limbo_ends_when_everything_that_is_owed_is_proven_to_be_here(world: Any, life: Life) -> None:
    await life.lose_journal()
    storage = await life.start(salvage=True)
    review = life.review(storage)
    await review.look()
    assert listed(storage) == [OPEN_HERE, CLOSED_HERE, OPEN_ELSEWHERE, RECOVERED_HERE], "nothing is proven yet"

    await repair(world, storage, CLOSED_HERE, [5])
    await review.look()
    assert CLOSED_HERE in listed(storage)
    await repair(world, storage, CLOSED_HERE, [4])
    await life.ledger(OPEN_ELSEWHERE, "another", "other", state=LedgerState.CLOSED, last=5)
    await review.look()
    assert listed(storage) == [OPEN_HERE, RECOVERED_HERE]

    await world.store.delete(layout.ledger_path(OPEN_HERE), version=0)
    await life.ledger(RECOVERED_HERE, ME.bookie_id, "other", state=LedgerState.CLOSED, last=3)
    assert await world.read(storage, RECOVERED_HERE, 4) is UNKNOWN
    await review.look()
    assert not review.in_limbo
    assert LIMBO_NAME not in life.disk.all_names()
    assert await world.read(storage, RECOVERED_HERE, 4) is V2Status.NO_ENTRY
    assert await world.put(storage, world.add(RECOVERED_HERE, 4)) == [FENCED]


async def test_a_ledger_of_the_long_layout_is_not_gone(life: Life, storage: Storage) -> None:
    store, review = life.world.store, life.review(storage)
    for held in (layout.LedgerLayout.HIERARCHICAL, layout.LedgerLayout.LONG_HIERARCHICAL):
        node = await store.get(held.path(OPEN_HERE))
        await review.look()
        assert OPEN_HERE in listed(storage), held
        await store.delete(held.path(OPEN_HERE), version=node.version)
        if held is layout.LedgerLayout.HIERARCHICAL:
            path = layout.LedgerLayout.LONG_HIERARCHICAL.path(OPEN_HERE)
            await ensure_path(store, path.rpartition("/")[0])
            await store.create(path, node.value)
    await review.look()
    assert OPEN_HERE not in listed(storage)


async def test_a_ledger_closed_on_this_bookie_meanwhile_is_listed_by_the_last_look(world: Any, life: Life) -> None:
    """Recovery adds that were lost here, of a ledger whose metadata named this bookie only afterwards."""
    await life.lose_journal()
    storage = await life.start(salvage=True)
    review = life.review(storage)
    for ledger_id in (OPEN_HERE, OPEN_ELSEWHERE, RECOVERED_HERE):
        await life.ledger(ledger_id, "other", state=LedgerState.CLOSED, last=5)
    await life.ledger(CLOSED_ELSEWHERE, ME.bookie_id, "other", state=LedgerState.CLOSED, last=5)
    await repair(world, storage, CLOSED_HERE, [4, 5])
    await review.look()
    assert listed(storage) == [CLOSED_ELSEWHERE]
    await repair(world, storage, CLOSED_ELSEWHERE, [4, 5])
    await review.look()
    assert not review.in_limbo


async def test_what_is_only_on_its_way_to_the_disk_proves_nothing(world: Any, life: Life, storage: Storage) -> None:
    for ledger_id in (OPEN_HERE, OPEN_ELSEWHERE, RECOVERED_HERE):
        await world.store.delete(
            layout.ledger_path(ledger_id), version=(await world.store.get(layout.ledger_path(ledger_id))).version
        )
    life.disk.hold("sync")
    adds = [world.submit(storage, world.add(CLOSED_HERE, entry, recovery=True)) for entry in (4, 5)]
    looking = asyncio.ensure_future(life.review(storage).look())
    await turns(200)
    assert LIMBO_NAME in life.disk.all_names()
    assert await world.read(storage, CLOSED_HERE, 9) is UNKNOWN
    life.disk.release("sync")
    await looking
    assert [await add for add in adds] == [OK, OK]
    assert storage.limbo is None


async def test_unreadable_metadata_keeps_a_ledger_in_limbo(world: Any, life: Life) -> None:
    path = layout.ledger_path(CLOSED_ELSEWHERE)
    good = await world.store.get(path)
    version = await world.store.set(path, b"nonsense", version=good.version)
    await life.lose_journal()
    storage = await life.start(salvage=True)
    review = life.review(storage)
    for ledger_id in (OPEN_HERE, OPEN_ELSEWHERE, RECOVERED_HERE, CLOSED_HERE):
        await life.ledger(ledger_id, "other", state=LedgerState.CLOSED, last=5)
    await review.look()
    assert listed(storage) == [CLOSED_ELSEWHERE]
    await world.store.set(path, good.value, version=version)
    await review.look()
    assert not review.in_limbo


async def test_the_survey_finds_keys_and_reads_fresh(world: Any, life: Life) -> None:
    before = (await world.store.get(layout.cookie_path(ME.bookie_id))).version
    found = await survey(world.store, ME.bookie_id)
    assert found.keys == dict.fromkeys((OPEN_HERE, CLOSED_HERE, RECOVERED_HERE), master_key(b""))
    assert found.listed == {OPEN_HERE: True, CLOSED_HERE: True, OPEN_ELSEWHERE: False, RECOVERED_HERE: True}
    assert (await world.store.get(layout.cookie_path(ME.bookie_id))).version == before + 1
    assert decode((await world.store.get(layout.ledger_path(OPEN_HERE))).value).state is LedgerState.OPEN


async def test_the_review_runs_by_itself_and_survives_an_absent_store(world: Any, life: Life, storage: Storage) -> None:
    review = LimboReview(storage, world.store, ME.bookie_id, interval_s=0.001)
    world.store.disconnect()
    review.start()
    await turns(50)
    assert review.in_limbo
    world.store.reconnect()
    for ledger_id in (OPEN_HERE, OPEN_ELSEWHERE, RECOVERED_HERE, CLOSED_HERE):
        await life.ledger(ledger_id, "other", state=LedgerState.CLOSED, last=5)
    while review.in_limbo:
        await asyncio.sleep(0)
    await review.close()
