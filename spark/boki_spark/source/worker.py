"""Reads partitions in processes without an event loop: the Python workers of executors.

    for batch in read_partition(partition, options): ...

One client serves all partitions of a cluster that a process reads, one after another or at the same time. It is closed `IDLE_S` after its
last use, so that an idle worker holds no connections. Importing this module creates nothing, because workers are forked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

import pyarrow as pa

from boki_common import limits
from boki_common.runtime.loop_thread import LoopThread
from boki_logbook.scan.partitions import Partition
from boki_spark.cold_terms.cold_reads import ColdPartition, batches_of, cold_tables, is_named
from boki_spark.cold_terms.files import FsspecFiles
from boki_spark.errors import ColdMissing, PlanStale
from boki_spark.plan.cluster import Cluster, ClusterOptions
from boki_spark.read.arrow import COLUMNS, ArrowBatchBuilder, EntryRows
from boki_spark.read.entries import PartitionReader
from boki_spark.read.entries import ReadCounts as ReadCounts

IDLE_S: Final = 30.0
"""Seconds after the last use of a client until it is closed."""


class _WorkerClients:
    """The clients of one process, in one loop. All methods run in that loop; `thread` may be used anywhere."""

    def __init__(self) -> None:
        self.thread = LoopThread("boki_spark.worker")
        self._clusters: dict[ClusterOptions, asyncio.Task[Cluster]] = {}
        self._users: dict[ClusterOptions, int] = {}
        self._ends: dict[ClusterOptions, asyncio.TimerHandle] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def take(self, options: ClusterOptions) -> Cluster:
        """Return the client of a cluster, to be used until `give_back`. Raises as `Cluster.open`."""
        ends = self._ends.pop(options, None)
        if ends is not None:
            ends.cancel()
        self._users[options] = self._users.get(options, 0) + 1
        opening = self._clusters.get(options)
        if opening is None:
            opening = self._clusters[options] = asyncio.ensure_future(Cluster.open(options))
        try:
            return await asyncio.shield(opening)
        except BaseException:
            if opening.done() and self._clusters.get(options) is opening:
                del self._clusters[options]
            self.give_back(options)
            raise

    def give_back(self, options: ClusterOptions) -> None:
        self._users[options] -= 1
        if not self._users[options]:
            del self._users[options]
            self._ends[options] = asyncio.get_running_loop().call_later(IDLE_S, self._end, options)

    def _end(self, options: ClusterOptions) -> None:
        self._ends.pop(options, None)
        opening = self._clusters.pop(options, None)
        if opening is not None:
            task = asyncio.ensure_future(_close(opening))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for options in list(self._clusters):
            ends = self._ends.pop(options, None)
            if ends is not None:
                ends.cancel()
            self._end(options)
        if self._closing:
            await asyncio.wait(list(self._closing))


async def _close(opening: asyncio.Task[Cluster]) -> None:
    try:
        cluster = await opening
    except Exception:  # noqa: BLE001 - the caller that opened it got the error
        return
    await cluster.close()


_shared: _WorkerClients | None = None


def _clients() -> _WorkerClients:
    """Return the clients of this process. A forked child has its own."""
    global _shared
    if _shared is None or _shared.thread.elsewhere:
        _shared = _WorkerClients()
    return _shared


def end_clients() -> None:
    """Close the clients of this process. Idempotent."""
    global _shared
    shared, _shared = _shared, None
    if shared is not None and not shared.thread.elsewhere:
        shared.thread.run(shared.close())
        shared.thread.stop()


def read_partition(
    partition: Partition | ColdPartition,
    options: ClusterOptions,
    *,
    columns: Sequence[str] = COLUMNS,
    batch_bytes: int = limits.MIB,
    fail_on_data_loss: bool = True,
    counts: ReadCounts | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition as batches, in the order of its log or of its file.

    Args:
        columns: some of `COLUMNS`, in this order.
        batch_bytes: approximate size of a batch.
        fail_on_data_loss: raise an error for records that cannot be read; otherwise count them in `counts` and leave them out.

    Raises:
        DataLoss, PlanStale: records cannot be read.
        ColdMissing, ColdDamaged: a file is missing or damaged.
        ClusterAway: the cluster does not answer.
        BokiError: as `Cluster.open`.
    """
    counts = counts or ReadCounts()
    if isinstance(partition, ColdPartition):
        yield from _read_cold(partition, options, columns, batch_bytes, counts)
        return
    clients = _clients()
    cluster = clients.thread.run(clients.take(options))
    reader = PartitionReader(
        cluster.ledgers,
        partition,
        counts=counts,
        fail_on_data_loss=fail_on_data_loss,
        retry_for_s=options.timeout_s,
    )
    rows = reader.read()
    try:
        batches = ArrowBatchBuilder(columns, batch_bytes=batch_bytes)
        while some := clients.thread.run(_some(rows)):
            for one in some:
                yield from batches.add(one)
        yield from batches.rest()
    finally:
        clients.thread.run(_end_of(rows))
        clients.thread.do(lambda: clients.give_back(options))


def read_partitions(
    partitions: Sequence[Partition | ColdPartition],
    options: ClusterOptions,
    *,
    columns: Sequence[str] = COLUMNS,
    batch_bytes: int = limits.MIB,
    fail_on_data_loss: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of several partitions, one after another, as `read_partition`."""
    for one in partitions:
        yield from read_partition(
            one, options, columns=columns, batch_bytes=batch_bytes, fail_on_data_loss=fail_on_data_loss
        )


def _read_cold(
    partition: ColdPartition, options: ClusterOptions, columns: Sequence[str], batch_bytes: int, counts: ReadCounts
) -> Iterator[pa.RecordBatch]:
    clients = _clients()
    tables = cold_tables(FsspecFiles(), partition, columns=columns, counts=counts)
    try:
        while (table := clients.thread.run(_next(tables))) is not None:
            yield from batches_of(table, batch_bytes)
    except ColdMissing as error:
        cluster = clients.thread.run(clients.take(options))
        try:
            named = clients.thread.run(is_named(cluster, partition))
        finally:
            clients.thread.do(lambda: clients.give_back(options))
        if named:
            raise
        raise PlanStale(
            f"{partition.path} was deleted with its term after the plan was made; make a new plan"
        ) from error
    finally:
        clients.thread.run(_end_of(tables))


async def _next(tables: AsyncIterator[pa.Table]) -> pa.Table | None:
    return await anext(tables, None)


async def _some(rows: AsyncIterator[EntryRows]) -> list[EntryRows]:
    """Return the next rows, of several entries: a switch between threads costs more than a small entry."""
    taken: list[EntryRows] = []
    size = 0
    async for one in rows:
        taken.append(one)
        size += one.batch.kept_bytes
        if size >= limits.MIB:
            break
    return taken


async def _end_of(rows: AsyncIterator[object]) -> None:
    close = getattr(rows, "aclose", None)
    if close is not None:
        await close()
