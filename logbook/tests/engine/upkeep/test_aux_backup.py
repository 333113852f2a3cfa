"""Aux data over restarts: read at the start, written when it changed, deleted when it is of no use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from boki_common.engine.read_reply import decode_read_reply
from boki_common.errors import BokiError, NotEnoughBookies
from boki_common.metadata.membership import member_path
from boki_common.metadata.store import ensure_path
from boki_ledger.testing.ledgers import Ledgers
from boki_logbook.read.cache import BatchCache
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.cluster import RunSpec, committed, plain_records, query
from boki_logbook.testing.engines import EngineCluster
from boki_logbook.upkeep import aux_rules
from boki_logbook.upkeep.aux_backup import AuxBackup
from boki_logbook.upkeep.aux_rules import AUX_PATH, AuxNode

ROLE = "engine"
SETTINGS = EngineSettings(aux_backup_s=0.001, aux_backup_bytes=10_000)


class Engine:
    """A cache, and its backup."""

    def __init__(self, cluster: Cluster, name: str, settings: EngineSettings, cache_bytes: int) -> None:
        self.cluster = cluster
        self.name = name
        self.cache = BatchCache(cache_bytes)
        self.backup = AuxBackup(
            cache=self.cache,
            incarnation=name,
            metadata=cluster.ledgers.stores[-1],
            ledgers=cluster.ledgers.clients[-1],
            settings=settings,
            role=ROLE,
        )

    def has(self) -> dict[int, bytes]:
        return {seqnum: self.cache.aux(seqnum) or b"" for seqnum in self.cache.aux_seqnums()}

    async def dies(self) -> None:
        await self.cluster.ledgers.store.delete(member_path(ROLE, self.name), version=0)


class Cluster:
    def __init__(self) -> None:
        self.ledgers = Ledgers()

    async def engine(
        self, name: str, *, settings: EngineSettings = SETTINGS, cache_bytes: int = 1_000_000, load: bool = True
    ) -> Engine:
        await self.ledgers.other_client()
        await self.ledgers.store.create(member_path(ROLE, name), b"{}")
        made = Engine(self, name, settings, cache_bytes)
        if load:
            await made.backup.load()
        return made

    async def node(self) -> AuxNode:
        return aux_rules.decode_node((await self.ledgers.store.get(AUX_PATH)).value)

    async def backups(self) -> dict[str, int]:
        node = await self.node()
        assert sorted(row.ledger_id for row in node.ledgers) == await self.ledgers.client.list()
        return {row.incarnation: row.ledger_id for row in node.of_state("written")}


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    await made.ledgers.start()
    await ensure_path(made.ledgers.store, member_path(ROLE, "x").removesuffix("/x"))
    yield made
    await made.ledgers.close()


async def test_what_was_backed_up_is_there_after_a_restart(cluster: Cluster) -> None:
    one = await cluster.engine("1")
    one.cache.put_aux(7, b"seven")
    one.cache.put_aux(8, bytes(3_000))
    await one.backup.round()
    one.cache.put_aux(9, b"set after the round")
    await one.dies()
    two = await cluster.engine("2")
    assert two.has() == {7: b"seven", 8: bytes(3_000)}
    assert list(two.has()) == list(one.has())[1:], "in the order of their use"
    await two.backup.round()
    assert list(await cluster.backups()) == ["2"], "it has what the one before had, which is deleted"
    await two.dies()
    assert (await cluster.engine("3")).has() == two.has()


async def test_without_a_change_nothing_is_written(cluster: Cluster) -> None:
    one = await cluster.engine("1")
    await one.backup.round()
    assert await cluster.backups() == {}
    one.cache.put_aux(7, b"seven")
    await one.backup.round()
    first = await cluster.backups()
    one.cache.put_aux(7, b"seven")
    await one.backup.round()
    assert await cluster.backups() == first
    one.cache.put_aux(7, b"other")
    await one.backup.round()
    second = await cluster.backups()
    assert list(second) == ["1"]
    assert second != first


async def test_a_backup_has_what_was_used_last_up_to_its_size(cluster: Cluster) -> None:
    one = await cluster.engine("1")
    for seqnum in range(1, 21):
        one.cache.put_aux(seqnum, bytes(1_000))
    one.cache.aux_rows([3])
    await one.backup.round()
    two = await cluster.engine("2")
    assert list(two.has()) == [3, 20, 19, 18, 17, 16, 15, 14, 13, 12]
    small = await cluster.engine("3", cache_bytes=10_000)
    assert list(small.has()) == [3, 20, 19, 18, 17], "half of its cache at most"


async def test_the_newest_of_several_backups_counts_and_what_was_set_meanwhile_before_all(cluster: Cluster) -> None:
    one, two = await cluster.engine("1"), await cluster.engine("2")
    one.cache.put_aux(1, b"one")
    one.cache.put_aux(2, b"one")
    await one.backup.round()
    two.cache.put_aux(2, b"two")
    two.cache.put_aux(3, b"two")
    await two.backup.round()
    three = await cluster.engine("3", load=False)
    three.cache.put_aux(3, b"three")
    await three.backup.load()
    assert three.has() == {1: b"one", 2: b"two", 3: b"three"}
    await three.backup.round()
    assert list(await cluster.backups()) == ["1", "2", "3"], "who is alive keeps its own"


async def test_what_is_damaged_is_passed_over(cluster: Cluster) -> None:
    one, two = await cluster.engine("1"), await cluster.engine("2")
    one.cache.put_aux(1, b"one")
    await one.backup.round()
    two.cache.put_aux(2, b"two")
    await two.backup.round()
    await cluster.ledgers.client.delete((await cluster.backups())["2"])
    assert (await cluster.engine("3")).has() == {1: b"one"}


async def test_what_a_dead_engine_had_begun_is_deleted(cluster: Cluster) -> None:
    one, two = await cluster.engine("1"), await cluster.engine("2")
    one.cache.put_aux(1, b"one")
    store = cluster.ledgers.stores[-2]
    assert one.backup._metadata is store
    round_of_one = asyncio.ensure_future(one.backup.round())
    while not await cluster.ledgers.store.exists(AUX_PATH) or not (await cluster.node()).ledgers:
        await asyncio.sleep(0)
    store.gate.clear()  # it never gets to name what it wrote
    await asyncio.wait([round_of_one], timeout=0.05)
    round_of_one.cancel()
    await asyncio.wait([round_of_one])
    await one.dies()
    await two.backup.round()
    assert await cluster.backups() == {}


async def test_an_engine_that_was_taken_for_gone_writes_its_backup_again(cluster: Cluster) -> None:
    one = await cluster.engine("1")
    one.cache.put_aux(1, b"one")
    await one.backup.round()
    two = await cluster.engine("2")
    await one.dies()
    await two.backup.round()
    assert list(await cluster.backups()) == ["2"]
    await one.backup.round()
    assert list(await cluster.backups()) == ["2", "1"]


async def test_a_round_that_fails_leaves_nothing_and_the_next_one_makes_up_for_it(cluster: Cluster) -> None:
    one = await cluster.engine("1")
    one.cache.put_aux(1, b"one")
    cluster.ledgers.bookies.register()
    with pytest.raises(NotEnoughBookies):
        await one.backup.round()
    assert await cluster.backups() == {}
    cluster.ledgers.bookies.register("b1", "b2", "b3")
    running = asyncio.ensure_future(one.backup.run())
    try:
        async with asyncio.timeout(10):
            while not (await cluster.node()).of_state("written"):
                await asyncio.sleep(0)
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_two_engines_at_once_lose_nothing(cluster: Cluster) -> None:
    engines = [await cluster.engine(str(number)) for number in range(4)]
    for number, engine in enumerate(engines):
        engine.cache.put_aux(number + 1, b"x")
    for _ in range(len(engines)):
        for found in await asyncio.gather(*(engine.backup.round() for engine in engines), return_exceptions=True):
            assert found is None or isinstance(found, BokiError)
    assert sorted(await cluster.backups()) == ["0", "1", "2", "3"]


async def test_an_engine_that_is_started_again_has_the_aux_data_of_the_one_before(engines: EngineCluster) -> None:
    quick = EngineSettings(aux_backup_s=0.01, retry_first_s=0.005, retry_limit_s=0.01)
    engine = await engines.start_engine(quick)
    (seqnum,) = await committed(engine.core, RunSpec(1, bytes(16), 1, plain_records("x")))
    assert engine.core.reader.set_aux(1, seqnum, b"view")
    store = engines.ledgers.store
    while not await store.exists(AUX_PATH) or b"written" not in (await store.get(AUX_PATH)).value:
        await asyncio.sleep(0)
    await engine.close()
    engine = await engines.start_engine(quick)
    await engines.until(lambda: engine.core.cache.aux_count)
    assert decode_read_reply(memoryview(b"".join(await engine.core.reader.answer({}, query())))).aux == {0: b"view"}
    off = await engines.start_engine(EngineSettings(retry_first_s=0.005, retry_limit_s=0.01))
    assert off.core.cache.aux_count == 0, "without the setting nothing is read"
