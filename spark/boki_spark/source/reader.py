"""`spark.read.format("boki")` and `spark.readStream.format("boki")`: plan on the driver, read on executors.

A frame is a snapshot: Spark plans it at its first action and keeps the plan; another `load()` sees more. Filters are not pushed down,
because Spark gives the filters of one query to all queries that share the frame. Book, tags and positions are options instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from boki_logbook.scan.facts import COMMITTED, LIVE, Committed, ScanRange
from boki_logbook.scan.partitions import Partition, cut
from boki_logbook.scan.plan import Plan
from boki_spark.cold_terms.cold_reads import ColdPartition, choose_cold
from boki_spark.cold_terms.files import FsspecFiles
from boki_spark.errors import coded
from boki_spark.plan.blocking_cluster import BlockingCluster
from boki_spark.plan.bundles import bundled, together
from boki_spark.plan.cluster import Cluster
from boki_spark.plan.read_options import METALOG, ReadOptions
from boki_spark.plan.stream_planner import StreamPlanner, loss, lost_spans, resolve
from boki_spark.source.datasets import metalog_rows, segment_rows
from boki_spark.source.worker import read_partitions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class RecordPartition(InputPartition):
    """The partitions of a plan that one task reads."""

    def __init__(self, partitions: Sequence[Partition | ColdPartition]) -> None:
        self.partitions = partitions


class _PartitionReads:
    """The read method of batches and streams. Spark pickles its attributes for the workers."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield Arrow batches with exactly the schema that Spark expects."""
        if not isinstance(partition, RecordPartition):
            return  # Spark passes None if there are no partitions
        options = self._options
        schema = to_arrow_schema(self._schema, timezone="UTC")
        batches = read_partitions(
            partition.partitions,
            options.cluster,
            columns=self._schema.names,
            batch_bytes=options.batch_bytes,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        with coded():
            for batch in batches:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


class RecordsReader(_PartitionReads, DataSourceReader):
    """The reader of a batch of records."""

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with BlockingCluster(options.cluster) as blocking:
            return tasks_of(blocking.run(batch_partitions(blocking.cluster, options)), options.partitions)


def tasks_of(partitions: Sequence[Partition | ColdPartition], least: int) -> list[RecordPartition]:
    """Group the partitions of a batch into tasks, files first.

    Args:
        least: the smallest number of tasks.
    """
    files = [one for one in partitions if isinstance(one, ColdPartition)]
    ledgers = [one for one in partitions if isinstance(one, Partition)]
    few = [RecordPartition(one) for one in together(files, lambda one: one.share_of_task, least=least)]
    return [*few, *(RecordPartition(one) for one in bundled(ledgers, least=least - len(few)))]


async def batch_partitions(cluster: Cluster, options: ReadOptions) -> list[Partition | ColdPartition]:
    """Return the partitions of a batch: files of the terms that were offloaded, ledgers of the others.

    Raises:
        DataLoss: records of the range were given up.
        PipelineError: as `Cluster.plan` and `choose_cold`.
    """
    plan = await batch_plan(cluster, options, LIVE)
    lost = lost_spans(plan)
    if lost and options.fail_on_data_loss:
        raise loss(lost)
    chosen = await choose_cold(cluster, FsspecFiles(), plan)
    return [*chosen.partitions, *cut(chosen.rest, max_bytes=options.partition_bytes, least=options.partitions)]


class FactsReader(DataSourceReader):
    """The reader of the terms of logs, or of the entries that their metalogs ordered. The rows are few and planned on the driver."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with BlockingCluster(options.cluster) as blocking:
            if options.dataset == METALOG:
                plan = blocking.run(batch_plan(blocking.cluster, options, COMMITTED))
                return [RecordPartition(one) for one in bundled(cut(plan, max_bytes=options.partition_bytes))]
            return [_TermFactsPartition(blocking.run(blocking.cluster.committed()))]

    def read(self, partition: InputPartition | None) -> Iterator[tuple[Any, ...]]:
        if isinstance(partition, RecordPartition):
            for one in partition.partitions:
                if isinstance(one, Partition):
                    yield from metalog_rows(one)
        elif isinstance(partition, _TermFactsPartition):
            yield from segment_rows(partition.committed)


class _TermFactsPartition(InputPartition):
    def __init__(self, committed: Committed) -> None:
        self.committed = committed


async def batch_plan(cluster: Cluster, options: ReadOptions, mode: str) -> Plan:
    """Return the present plan of the range that the options name. Raises as `Cluster.plan`."""
    committed = await cluster.committed()
    start = await resolve(options.start, committed, cluster.seek)
    end = await resolve(options.end, committed, cluster.seek)
    return await cluster.plan(ScanRange(start, end, options.book, options.tags), mode)


class RecordsStream(_PartitionReads, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream. Spark keeps one for each query, and sends copies to workers, which only read."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._planning: tuple[BlockingCluster, StreamPlanner] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_planning": None}

    def _planner(self) -> tuple[BlockingCluster, StreamPlanner]:
        if self._planning is None:
            blocking = BlockingCluster(self._options.cluster)
            self._planning = blocking, StreamPlanner(blocking.cluster, self._options)
        return self._planning

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._options.start.encode()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        if self._options.rows_per_trigger is not None:
            return ReadMaxRows(self._options.rows_per_trigger)
        if self._options.bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        blocking, planner = self._planner()
        blocking.run(planner.aim())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        blocking, planner = self._planner()
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        return blocking.run(planner.latest(start, max_rows=rows, max_bytes=size))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        blocking, planner = self._planner()
        return [RecordPartition(one) for one in bundled(blocking.run(planner.partitions(start, end)))]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark does not call this for the last batch, so no work may depend on it. Users trim."""

    def stop(self) -> None:
        if self._planning is not None:
            self._planning[0].close()
            self._planning = None
