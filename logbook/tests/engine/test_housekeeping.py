"""Engines that write snapshots, begin with them, and reclaim terms: real engines, sequencer and ledgers, bookies in memory."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from boki_common.cluster_token import NO_TOKEN
from boki_common.engine.engine_protocol import GapKind
from boki_common.errors import CorruptData
from boki_common.ids import Position
from boki_logbook.engine import Engine
from boki_logbook.housekeeping import Housekeeping
from boki_logbook.settings import EngineSettings
from boki_logbook.state.snapshot_rules import SNAPSHOT_PATH, SnapshotNode, SnapshotPoint, decode_node, encode_node
from boki_logbook.testing.cluster import RunSpec, committed, data_of, plain_records, query, read, same_state
from boki_logbook.testing.engines import ANYWHERE, EngineCluster
from boki_metalog.control.log_changes import LogChanges
from boki_metalog.entries.metalog_entry import Lost, Trim
from boki_metalog.follow.sequencer_member import order_at
from boki_metalog.sequencer.sequencer import Sequencer
from boki_metalog.terms.index_slots import ENGINE_ROLE
from boki_metalog.terms.metadata_tree import read_record
from boki_metalog.terms.term_record import DELETED, IN_LEDGERS, RECLAIMED

ALICE = bytes(15) + b"a"
SETTINGS = EngineSettings(
    retry_first_s=0.005, retry_limit_s=0.01, housekeeping_s=0.01, reclaim_grace_s=0.0, leftover_scan_s=0.05
)
FOR_EVER = 2**62


class Cluster(EngineCluster):
    """A sequencer, engines, and who rolls terms."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.changes: LogChanges

    async def start(self) -> None:
        await self.ledgers.start()
        await self.start_sequencer()
        self.changes = LogChanges(self.ledgers.stores[-1], self.ledgers.clients[-1], self.rng)

    async def engine(self, settings: EngineSettings = SETTINGS) -> Engine:
        return await self.start_engine(settings)

    async def append(self, engine: Engine, *data: str, tags: tuple[int, ...] = ()) -> None:
        """Each an entry of its own."""
        for one in data:
            self.number += 1
            await committed(engine.core, RunSpec(1, ALICE, self.number, plain_records(one, tags=tags)))

    async def roll(self, engine: Engine) -> None:
        """The next term, and the engine is in it."""
        term = engine.core.frontier.positions[0].term
        await self.changes.roll(0)
        await self.until(lambda: engine.core.logs[0].appender.shard is not None)
        await self.until(lambda: engine.core.frontier.positions[0].term > term)

    async def lose(self, lost: Lost) -> tuple[int, Position]:
        """An administrator declares entries lost."""
        (sequencer,) = [one for one in self.running if isinstance(one, Sequencer) and one.term]
        return 0, await order_at(sequencer.address, sequencer.term, lost, token=NO_TOKEN)

    async def trim(self, engine: Engine, *, tag: int = 0) -> None:
        """All that there is, of a tag or of the book."""
        log, position = await engine.core.order(1, Trim(1, ((tag, FOR_EVER),), False))
        await self.until(lambda: engine.core.frontier.reached({log: position}))

    async def node(self) -> SnapshotNode:
        return decode_node((await self.ledgers.store.get(SNAPSHOT_PATH)).value)

    async def until_snapshot(self, holds: Callable[[SnapshotNode], bool]) -> SnapshotNode:
        async with asyncio.timeout(10):
            while True:
                if await self.ledgers.store.exists(SNAPSHOT_PATH):
                    node = await self.node()
                    if holds(node):
                        return node
                await asyncio.sleep(0)

    async def until_location(self, term: int, kind: str) -> None:
        async with asyncio.timeout(10):
            while (await read_record(self.ledgers.store, term)).location.kind != kind:
                await asyncio.sleep(0)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def one(cluster: Cluster) -> Engine:
    return await cluster.engine()


async def test_an_engine_begins_with_the_snapshot_and_reads_nothing_before_it(cluster: Cluster, one: Engine) -> None:
    await cluster.append(one, *"abc")
    await cluster.roll(one)
    await cluster.append(one, "d")
    node = await cluster.until_snapshot(lambda node: node.covers(1, 0))
    assert node.writer == one.incarnation
    await cluster.ledgers.client.delete((await read_record(cluster.ledgers.store, 1)).metalog_ledger)
    two = await cluster.engine()
    await cluster.until(lambda: same_state(one.core, two.core))
    assert data_of(await read(two.core, query())) == [b"a", b"b", b"c", b"d"]
    assert not two.failed.done()


async def test_a_snapshot_in_mid_term_goes_on_with_the_next_entry(cluster: Cluster) -> None:
    one = await cluster.engine(EngineSettings(housekeeping_s=0.01, snapshot_records=1, retry_first_s=0.005))
    await cluster.append(one, *"abcdef")
    node = await cluster.until_snapshot(lambda node: node.records >= 3)
    assert not node.covers(1, 0)
    await cluster.append(one, "g")
    two = await cluster.engine()
    await cluster.until(lambda: same_state(one.core, two.core))
    await cluster.append(two, "h")
    await cluster.until(lambda: same_state(one.core, two.core))
    await cluster.roll(two)
    await cluster.until(lambda: same_state(one.core, two.core))
    assert b"".join(data_of(await read(two.core, query()))) == b"abcdefgh"


async def test_the_first_engine_of_the_list_writes_snapshots(cluster: Cluster) -> None:
    one, two = await cluster.engine(), await cluster.engine()
    await cluster.append(two, "a")
    await cluster.roll(two)
    assert (await cluster.until_snapshot(lambda node: node.covers(1, 0))).writer == one.incarnation
    await one.close()
    await cluster.append(two, "b")
    await cluster.roll(two)
    assert (await cluster.until_snapshot(lambda node: node.covers(2, 0))).writer == two.incarnation


async def test_a_term_without_live_records_is_deleted_from_the_bookies(cluster: Cluster, one: Engine) -> None:
    await cluster.append(one, "a")
    await cluster.roll(one)
    await cluster.append(one, "b")
    record = await read_record(cluster.ledgers.store, 1)
    data = one.core.state.places.terms[1].shards[0].ledger_id
    await cluster.until_snapshot(lambda node: node.covers(1, 0))
    assert {record.metalog_ledger, data} <= set(await cluster.ledgers.client.list())
    await cluster.trim(one)
    await cluster.until_location(1, DELETED)
    assert not {record.metalog_ledger, data} & set(await cluster.ledgers.client.list())
    two = await cluster.engine()
    await cluster.until(lambda: same_state(one.core, two.core))
    assert two.core.state.index.mark(1, 0) == one.core.state.index.mark(1, 0) > 0
    await cluster.append(two, "c")
    assert data_of(await read(two.core, query(start=two.core.state.index.mark(1, 0)))) == [b"c"]


async def test_a_term_with_a_live_record_stays(cluster: Cluster, one: Engine) -> None:
    await cluster.append(one, "a")
    await cluster.roll(one)
    await cluster.append(one, "b", tags=(5,))
    await cluster.trim(one, tag=5)
    await cluster.roll(one)
    await cluster.until_location(2, DELETED)
    assert (await read_record(cluster.ledgers.store, 1)).location.kind == IN_LEDGERS


async def test_ledgers_stay_for_a_grace_and_are_found_again_by_the_next_engine(cluster: Cluster) -> None:
    slow = EngineSettings(housekeeping_s=0.01, reclaim_grace_s=1_000.0, retry_first_s=0.005)
    one = await cluster.engine(slow)
    await cluster.append(one, "a")
    await cluster.roll(one)
    await cluster.trim(one)
    await cluster.until_location(1, RECLAIMED)
    data = one.core.state.places.terms[1].shards[0].ledger_id
    assert data in await cluster.ledgers.client.list()
    await one.close()
    await cluster.engine()
    await cluster.until_location(1, DELETED)
    assert data not in await cluster.ledgers.client.list()


async def test_old_snapshots_and_those_that_were_never_named_are_deleted(cluster: Cluster, one: Engine) -> None:
    orphan = await cluster.ledgers.client.create(
        custom={"boki.role": b"snapshot", "boki.incarnation": b"x", "boki.snapshot-version": b"0"}
    )
    await cluster.append(one, "a")
    await cluster.roll(one)
    first = await cluster.until_snapshot(lambda node: node.covers(1, 0))
    await cluster.append(one, "b")
    await cluster.roll(one)
    second = await cluster.until_snapshot(lambda node: node.covers(2, 0))
    gone = {orphan.ledger_id, *first.ledgers}
    async with asyncio.timeout(10):
        while gone & set(await cluster.ledgers.client.list()):
            await asyncio.sleep(0)
    assert set((await cluster.node()).ledgers) <= set(await cluster.ledgers.client.list())
    assert first.ledgers != second.ledgers


async def test_an_engine_that_fell_behind_what_was_reclaimed_begins_anew(cluster: Cluster) -> None:
    one, two = await cluster.engine(), await cluster.engine()
    before = two.incarnation
    await cluster.append(one, "a")
    await cluster.until(lambda: same_state(one.core, two.core))
    two.core.logs[0].indexer.pause()  # it stands still, whatever it hears
    await cluster.append(one, "b")
    await cluster.roll(one)
    await cluster.trim(one)
    await cluster.until_location(1, DELETED)
    await cluster.until(lambda: two.incarnation != before)
    await two.ready()
    await cluster.until(lambda: same_state(one.core, two.core))
    assert not two.failed.done()
    await cluster.append(two, "c")
    assert data_of(await read(two.core, query(start=two.core.state.index.mark(1, 0)))) == [b"c"]


async def test_an_engine_that_had_what_was_given_up_begins_anew_without_it(cluster: Cluster, one: Engine) -> None:
    await cluster.append(one, *"abc")
    await cluster.roll(one)
    await cluster.until_snapshot(lambda node: node.covers(1, 0))
    before = one.incarnation
    shard = min(one.core.state.places.terms[1].shards)
    log, position = await cluster.lose(Lost(1, shard, 2, 3, b"{}"))
    await cluster.until(lambda: one.incarnation != before and one.core.frontier.reached({log: position}))
    await one.ready()
    assert data_of(await read(one.core, query())) == [b"a", b"b"], "the snapshot has it, and was not begun with"
    again = await cluster.engine()
    await cluster.until(lambda: same_state(one.core, again.core))
    node = await cluster.until_snapshot(lambda node: node.writer != before)
    assert node.covers(1, 0), "superseded at once, whatever its size"


async def test_an_engine_without_entries_that_are_indexed_elsewhere_waits_for_a_snapshot(
    cluster: Cluster, one: Engine
) -> None:
    await cluster.append(one, *"abc")
    (shard,) = one.core.state.places.terms[1].shards.values()
    await cluster.ledgers.client.delete(shard.ledger_id)
    client = await cluster.ledgers.other_client()
    store = cluster.ledgers.stores[-1]
    two = await Engine.start(metadata=store, ledgers=client, addresses=[ANYWHERE], rng=cluster.rng, settings=SETTINGS)
    cluster.running.append(two)
    await cluster.lose(Lost(1, shard.number, 0, 3, b"{}", True))
    first = two.core
    await cluster.until(lambda: list(first.needing_snapshot()) == [0])
    await cluster.changes.roll(0)
    await two.ready()
    assert two.core is not first
    await cluster.until(lambda: same_state(one.core, two.core))
    reply = await read(two.core, query())
    assert [gap.kind for gap in reply.gaps] == [GapKind.LOST] * 3
    assert len(two.core.state.index.streams()[1, 0]) == 3


async def _waits_for_ever(_: object) -> None:
    await asyncio.Event().wait()


async def test_an_engine_whose_log_stops_begins_anew_from_a_snapshot_that_lies_behind_it(cluster: Cluster) -> None:
    """Others could apply what it cannot, so what it did to the log is known."""
    one, two = await cluster.engine(), await cluster.engine()
    await cluster.append(one, "a")
    await cluster.until(lambda: same_state(one.core, two.core))
    first = two.core
    part = first.logs[0]
    part.entries_ordered = lambda *_: None  # type: ignore[method-assign]  # it hears nothing from here on
    part.term_ended = _waits_for_ever  # type: ignore[method-assign, assignment]  # nor an end before what is in between
    part.stopped(first.positions[0], CorruptData("an entry that it cannot read"))
    await cluster.append(one, "b")
    assert two.core is first and two.faults()
    await cluster.changes.roll(0)
    await cluster.until(lambda: two.core is not first)
    await two.ready()
    await cluster.until(lambda: same_state(one.core, two.core))
    assert two.faults() == [] and not two.failed.done()


async def damage(cluster: Cluster) -> SnapshotNode:
    """The snapshot that is named is none that anybody can use."""
    store = cluster.ledgers.store
    found = await store.get(SNAPSHOT_PATH)
    damaged = msgspec.structs.replace(decode_node(found.value), digest="0" * 16)
    await store.set(SNAPSHOT_PATH, encode_node(damaged), version=found.version)
    return damaged


async def test_an_engine_that_cannot_use_the_snapshot_rebuilds_and_replaces_it(cluster: Cluster, one: Engine) -> None:
    await cluster.append(one, "a")
    await cluster.roll(one)
    await cluster.until_snapshot(lambda node: node.covers(1, 0))
    await one.close()
    await damage(cluster)
    two = await cluster.engine()
    assert data_of(await read(two.core, query())) == [b"a"] and not two.faults()
    node = await cluster.until_snapshot(lambda node: node.digest != "0" * 16)
    assert node.covers(1, 0) and node.writer == two.incarnation, "nobody relies on the damaged one"


async def test_an_engine_without_usable_snapshot_or_logs_stays_up_and_says_so(cluster: Cluster, one: Engine) -> None:
    await cluster.append(one, "a")
    await cluster.trim(one)
    await cluster.roll(one)
    await cluster.until_location(1, "deleted")
    await damage(cluster)
    two = await cluster.make_engine(SETTINGS)
    await cluster.until(two.faults)
    (fault,) = two.faults()
    assert "the index snapshot cannot be used" in fault and "keep an engine running" in fault
    await cluster.append(one, "b")
    await cluster.roll(one)
    await two.ready()
    await cluster.until(lambda: same_state(one.core, two.core))
    assert not two.failed.done() and two.faults() == []


async def test_an_engine_that_is_behind_the_snapshot_in_a_log_does_not_replace_it(cluster: Cluster) -> None:
    one = await cluster.engine(dataclasses.replace(SETTINGS, housekeeping_s=1_000.0))
    store, client = cluster.ledgers.store, cluster.ledgers.clients[-1]
    keeping = Housekeeping(core=one.core, metadata=store, ledgers=client, settings=SETTINGS, role=ENGINE_ROLE)

    async def write() -> SnapshotNode:
        keeping._node, version = await keeping._store.newest(make=True)
        await keeping._snapshot(version)
        return await cluster.node()

    await cluster.append(one, "a")
    first = await write()
    await cluster.append(one, "b")
    second = await write()
    assert first.logs < second.logs
    further = msgspec.structs.replace(second, logs=(*second.logs, SnapshotPoint(7, 3, 3, True)))
    await store.set(SNAPSHOT_PATH, encode_node(further), version=(await store.get(SNAPSHOT_PATH)).version)
    await cluster.append(one, "c")
    assert await write() == further
