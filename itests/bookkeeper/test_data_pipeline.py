"""The data pipeline on Apache's bookies: planned, read, streamed, written and offloaded there, with the objects that Spark drives."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

import boki
from boki_cli.demo.local_cluster import LocalCluster
from boki_common.ids import term_of
from boki_spark.offload.job import offload_term
from boki_spark.plan.cluster import ClusterOptions
from boki_spark.plan.options import SinkOptions
from boki_spark.plan.read_options import batch_options, stream_options
from boki_spark.sink.sink import commit, write_partition
from boki_spark.source.reader import RecordPartition, RecordsReader, RecordsStream
from boki_spark.source.worker import end_clients
from itests.bookkeeper.conftest import MakeApache
from itests.bookkeeper.marks import APACHE
from itests.support.processes import command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.datasource import InputPartition

pytestmark = [*APACHE, pytest.mark.timeout(300)]
SCHEMA = StructType([StructField("seqnum", LongType(), False), StructField("data", BinaryType(), True)])
COUNT = 400


def numbers(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return sorted(int(data) for batch in batches for data in batch.column("data").to_pylist())


class Pipeline:
    """What drivers and workers do, without a Spark between them; on `metadata` alone, where no engine plans."""

    def __init__(self, url: str, metadata: str) -> None:
        self.url = url
        self.options = {"url": url, "metadata": metadata, "book": "flights"}

    def kinds(self, **more: str) -> list[str]:
        reader = RecordsReader(batch_options({**self.options, **more}), SCHEMA)
        return [type(one).__name__ for some in reader.partitions() for one in _of(some).partitions]

    def read(self, **more: str) -> list[int]:
        reader = RecordsReader(batch_options({**self.options, **more}), SCHEMA)
        return numbers(batch for one in reader.partitions() for batch in reader.read(one))

    def stream(self, rows: int) -> list[list[int]]:
        """Batches of about so many records, until all that is there was read."""
        stream = RecordsStream(stream_options({**self.options, "startingOffsets": "earliest"}), SCHEMA)
        try:
            stream.prepareForTriggerAvailableNow()
            found, start = [], stream.initialOffset()
            while (end := stream.latestOffset(start, ReadMaxRows(rows))) != start:
                partitions = stream.partitions(start, end)
                found.append(numbers(batch for one in partitions for batch in stream.read(one)))
                start = end
            return found
        finally:
            stream.stop()

    def write(self, rows: list[int]) -> None:
        """A batch of a sink, whose task is run twice."""
        options = SinkOptions(book="results", url=self.url)
        batch = pa.RecordBatch.from_pydict({"data": [b"%d" % one for one in rows], "tags": [["sum"]] * len(rows)})
        _, message = (write_partition(options, "query", 0, 0, iter([batch])) for _ in range(2))
        commit(options, [message])


def _of(partition: InputPartition) -> RecordPartition:
    assert isinstance(partition, RecordPartition)
    return partition


async def test_everything_of_the_data_pipeline_works_on_three_apache_bookies(
    make_apache: MakeApache, tmp_path: Path
) -> None:
    apache = make_apache("data-pipeline")
    await asyncio.to_thread(apache.format)
    bookies = await asyncio.to_thread(apache.start_bookies, 3)
    settings = {"BOKI_ENGINE_HOUSEKEEPING_S": "0.05"}
    async with LocalCluster(tmp_path / "boki", apache.boki_uri, bookies=0, settings=settings) as cluster:
        pipeline = Pipeline(cluster.url, apache.boki_uri)
        async with boki.connect(cluster.url) as client:
            book = client.book("flights")
            rows: list[Any] = [(b"%d" % at, [f"carrier/{at % 4}"]) for at in range(COUNT)]
            term = term_of((await book.append_many(rows[: COUNT // 2]))[0])
            code, _, said = await command("log", "roll", "0", "--metadata", apache.boki_uri)
            assert code == 0, said
            await book.append_many(rows[COUNT // 2 :])
            assert await asyncio.to_thread(pipeline.read) == list(range(COUNT))
            assert await asyncio.to_thread(pipeline.read, tags="carrier/1") == list(range(1, COUNT, 4))
            streamed = await asyncio.to_thread(pipeline.stream, 100)
            assert sorted(one for batch in streamed for one in batch) == list(range(COUNT)) and len(streamed) > 1
            folder = f"file://{tmp_path}/cold"
            where = ClusterOptions(url=cluster.url, metadata=apache.boki_uri)
            made = await asyncio.to_thread(lambda: offload_term(where, folder, term, wait_s=60))
            assert made.rows == COUNT // 2, made.why
            await asyncio.to_thread(bookies[0].kill)  # two of three are enough
            assert await asyncio.to_thread(pipeline.kinds) == ["ColdPartition", "Partition"]
            assert await asyncio.to_thread(pipeline.read) == list(range(COUNT))
            snapshot = await asyncio.to_thread(
                pipeline.read, plan="snapshot"
            )  # of the sealed term, and perhaps of more
            assert len(snapshot) >= COUNT // 2 and snapshot == list(range(len(snapshot)))
            await asyncio.to_thread(pipeline.write, list(range(50)))
            shown = [
                int(record.data)
                async for record in client.book("results").read("sum")
                if isinstance(record, boki.Record)
            ]
            assert shown == list(range(50))
        await asyncio.to_thread(end_clients)
