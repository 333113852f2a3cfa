"""A cluster in one process for tests of planning, reading and offloading. Engines write index snapshots at once, bookies use memory.

async with SmallCluster() as cluster:
    seqnums = await cluster.append(("orders", b"one", ["user/1"]), …)
    await cluster.roll()
    await cluster.snapshot_covers(1)
    pipeline = cluster.pipeline()           # a `Cluster` over its store and ledgers
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final

import boki
from boki_common.cluster_token import NO_TOKEN
from boki_common.ids import book_id, tag_id
from boki_logbook.engine import Engine
from boki_logbook.scan.client import PlanningEngines
from boki_logbook.scan.facts import LIVE, ScanRange
from boki_logbook.scan.partitions import Partition, cut
from boki_logbook.scan.plan import Plan
from boki_logbook.settings import EngineSettings
from boki_logbook.state.snapshot_rules import SNAPSHOT_PATH, SnapshotNode, decode_node
from boki_logbook.testing.engines import EngineCluster
from boki_metalog.control.log_changes import LogChanges
from boki_metalog.entries.metalog_entry import Lost
from boki_metalog.follow.sequencer_member import order_at
from boki_metalog.sequencer.sequencer import Sequencer
from boki_metalog.terms.metadata_tree import read_record
from boki_metalog.terms.term_record import TermRecord
from boki_spark.plan.cluster import AUTO, SNAPSHOT, Cluster
from boki_spark.read.entries import PartitionReader, ReadCounts

SETTINGS: Final = EngineSettings(
    retry_first_s=0.005, retry_limit_s=0.01, housekeeping_s=0.01, reclaim_grace_s=0.0, leftover_scan_s=0.05
)
Appended = tuple[str, bytes, Sequence[str | int]]
"""Book, data, tags."""
ReadRow = tuple[int, int, bytes]
"""Seqnum, book, data."""


class SmallCluster(EngineCluster):
    """A running cluster.

    Attributes:
        engine: the first engine.
    """

    engine: Engine
    changes: LogChanges

    async def __aenter__(self) -> SmallCluster:
        await self.ledgers.start()
        await self.start_sequencer()
        self.changes = LogChanges(self.ledgers.stores[-1], self.ledgers.clients[-1], self.rng)
        self.engine = await self.start_engine(SETTINGS)
        self._stack = AsyncExitStack()
        self._sdk = await self._stack.enter_async_context(boki.connect(f"boki://{self.engine.addresses[0]}"))
        self._pipelines: list[Cluster] = []
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        for one in self._pipelines:
            if one.engines is not None:
                await one.engines.close()
        await self.close()

    async def append(self, *records: Appended) -> list[int]:
        """Append records one after another and return their seqnums."""
        tickets = [self._sdk.book(book).submit(data, tags=list(tags)) for book, data, tags in records]
        return [await ticket for ticket in tickets]

    async def trim(self, book: str, before: int, tag: str | int | None = None) -> None:
        """Trim a book or one of its tags."""
        if tag is None:
            await self._sdk.book(book).trim(before=before)
        else:
            await self._sdk.book(book).trim(before=before, tag=tag)

    async def roll(self) -> None:
        """Begin the next term and wait until the engine is in it."""
        core = self.engine.core
        term = core.frontier.positions[0].term
        await self.changes.roll(0)
        await self.until(lambda: core.logs[0].appender.shard is not None)
        await self.until(lambda: core.frontier.positions[0].term > term)

    async def lose(self, lost: Lost) -> None:
        """Declare entries lost, as an administrator does."""
        (sequencer,) = [one for one in self.running if isinstance(one, Sequencer) and one.term]
        await order_at(sequencer.address, sequencer.term, lost, token=NO_TOKEN)

    async def snapshot(self, holds: Callable[[SnapshotNode], bool]) -> SnapshotNode:
        """Wait for an index snapshot that satisfies a condition, and return it."""
        async with asyncio.timeout(10):
            while True:
                if await self.ledgers.store.exists(SNAPSHOT_PATH):
                    node = decode_node((await self.ledgers.store.get(SNAPSHOT_PATH)).value)
                    if holds(node):
                        return node
                await asyncio.sleep(0)

    async def snapshot_covers(self, term: int) -> SnapshotNode:
        """Wait for an index snapshot that covers a term, and return it."""
        return await self.snapshot(lambda node: node.covers(term, 0))

    async def record(self, term: int) -> TermRecord:
        return await read_record(self.ledgers.store, term)

    def pipeline(self, plan: str = AUTO) -> Cluster:
        """Return the data pipeline's view of this cluster."""
        engines = None if plan == SNAPSHOT else PlanningEngines([self.engine.addresses[0]], timeout_s=5)
        made = Cluster(self.ledgers.stores[-1], self.ledgers.clients[-1], engines, plan)
        self._pipelines.append(made)
        return made


async def whole_plan(
    cluster: Cluster, mode: str = LIVE, *, book: str | None = None, tags: Sequence[str | int] = ()
) -> Plan:
    """Return the plan of everything that is committed."""
    committed = await cluster.committed()
    number = None if book is None else book_id(book)
    return await cluster.plan(ScanRange({}, committed.end, number, tuple(map(tag_id, tags))), mode)


async def read_rows(
    cluster: Cluster,
    partitions: Sequence[Partition] | Plan,
    *,
    counts: ReadCounts | None = None,
    fail_on_data_loss: bool = True,
) -> list[ReadRow]:
    """Return the rows of partitions in their order."""
    if isinstance(partitions, Plan):
        partitions = cut(partitions)
    found: list[ReadRow] = []
    for partition in partitions:
        reader = PartitionReader(
            cluster.ledgers,
            partition,
            counts=counts or ReadCounts(),
            fail_on_data_loss=fail_on_data_loss,
            retry_for_s=0.05,
        )
        async for rows in reader.read():
            found += zip(rows.seqnums.tolist(), rows.books().tolist(), map(bytes, rows.data()), strict=True)
    return found
