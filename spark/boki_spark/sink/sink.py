"""`df.write.format("boki")` and `df.writeStream.format("boki")`: append the rows of a frame to a book, each exactly once.

A task writes one partition of one batch through a connection of its own. `sink_rules` makes it exactly once. This module takes the
identity of query, batch and partition from Spark:

- A stream: the id of the query, which its checkpoint keeps, and the number of the batch.
- A job: a random id that is drawn when it begins. Its tasks may be retried; a job that is started again appends again.
- A job in foreachBatch with a `writeId`: query and batch of the stream, and the `writeId`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

import boki
from boki_spark.errors import BadOption, coded
from boki_spark.plan.options import SinkOptions
from boki_spark.sink.sink_rows import check_columns, rows_of
from boki_spark.sink.sink_rules import SinkRow
from boki_spark.sink.sink_writer import BatchCommit, EndedPartition, PartitionWriter

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
"""Properties of a task that Spark sets for the queries of streams."""
SLICE_ROWS: Final = 1_000
"""Rows that are Python objects at the same time."""


class EndedPartitionMessage(WriterCommitMessage):
    """The outcome of one partition, as a task sends it to the driver."""

    def __init__(self, ended: EndedPartition) -> None:
        self.ended = ended


class StreamSink(DataSourceStreamArrowWriter):
    """The writer of a stream."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        if options.write_id:
            raise BadOption("the option writeId is for writes in foreachBatch: a stream has the id of its query")
        check_columns(columns_of(schema))
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        context = _context()
        query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
        assert query is not None and batch is not None, "Spark names query and batch of a stream"
        return write_partition(self._options, query, int(batch), context.partitionId(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: the next attempt skips rows that are already there."""


class JobSink(DataSourceArrowWriter):
    """The writer of a job."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(columns_of(schema))
        self._options = options
        self._drawn: Final = boki.SystemRandom().token(16).hex()

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        context, write_id = _context(), self._options.write_id
        query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
        if not write_id:
            query, batch = self._drawn, "0"
        elif query is None or batch is None:
            raise BadOption("the option writeId is for writes in foreachBatch, found none around this one")
        else:
            query = f"{query}/{write_id}"
        return write_partition(self._options, query, int(batch), context.partitionId(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: a job that failed leaves rows and no COMMIT."""


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "a task writes"
    return context


def columns_of(schema: StructType) -> list[tuple[str, str]]:
    """Return (name, type) of each column."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def _connect(options: SinkOptions) -> boki.sync.Client:
    return boki.sync.connect(options.url or None, timeout=options.timeout_s, token_file=options.token_file or None)


def write_partition(
    options: SinkOptions, query: str, batch: int, partition: int, batches: Iterator[RecordBatch]
) -> WriterCommitMessage:
    """Append one partition.

    Raises:
        PipelineError: as `PartitionWriter`, with a code.
    """
    with coded(), _connect(options) as client:
        book = client.book(options.book)
        writer = book.using(lambda found: _made(found, query, batch, partition))
        book.run(writer.begin())
        for rows in batches:
            for at in range(0, rows.num_rows, SLICE_ROWS):
                book.using(partial(_add, writer, rows_of(_columns(rows.slice(at, SLICE_ROWS)))))
        return EndedPartitionMessage(book.run(writer.finish()))


async def _made(book: boki.Book, query: str, batch: int, partition: int) -> PartitionWriter:
    return PartitionWriter(book, query, batch, partition)


async def _add(writer: PartitionWriter, rows: Sequence[SinkRow], _: boki.Book) -> None:
    await writer.add(rows)


def _columns(rows: RecordBatch) -> dict[str, list[Any]]:
    return {name: rows.column(name).to_pylist() for name in rows.schema.names}


def commit(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Commit the batch of these partitions.

    Raises:
        PipelineError: as `BatchCommit`, with a code.
    """
    ended = [message.ended for message in messages if isinstance(message, EndedPartitionMessage)]
    if not ended:
        return  # a frame without partitions
    with coded(), _connect(options) as client:
        client.book(options.book).using(lambda book: BatchCommit(book, ended).commit())
