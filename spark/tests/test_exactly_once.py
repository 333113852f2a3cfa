"""A stream from one book to another is interrupted twenty times and loses its last commits: the copy has every record once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boki

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BREAKS = 20
ROWS = 60
"""Records that are appended before each interruption."""
WAIT_S = 60


def copying(spark: SparkSession, dev: str, name: str, folder: Path) -> Any:
    reader = spark.readStream.format("boki").schema("data binary, tag_names array<string>").option("url", dev)
    source = reader.option("book", name).option("startingOffsets", "earliest").option("maxRecordsPerTrigger", 40).load()
    sink = source.writeStream.format("boki").option("url", dev).option("book", f"{name}-copy")
    return sink.option("checkpointLocation", str(folder))


def copied(client: boki.sync.Client, name: str) -> list[int]:
    return sorted(
        int(record.data) for record in client.book(f"{name}-copy").read("row") if isinstance(record, boki.Record)
    )


@pytest.mark.spark
@pytest.mark.alone
@pytest.mark.timeout(400)
def test_a_stream_broken_off_twenty_times_copies_every_record_once(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str, tmp_path: Path
) -> None:
    rng = random.Random(20)
    source, copy = client.book(name), client.book(f"{name}-copy")
    for number in range(BREAKS):
        first = number * ROWS
        source.append_many([(b"%d" % at, ["row"]) for at in range(first, first + ROWS)])
        before = copy.check_tail("row")
        query = copying(spark, dev, name, tmp_path).start()
        stop_after = rng.randrange(1, ROWS)
        for seen, _ in enumerate(copy.read("row", start=before.seqnum + 1 if before else 1, follow=True), 1):
            if seen == stop_after:
                break
        query.stop()
        commits = sorted((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        if commits and rng.random() < 0.5:
            commits[-1].unlink()
            (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    last = copying(spark, dev, name, tmp_path).trigger(availableNow=True).start()
    assert last.awaitTermination(WAIT_S)
    assert copied(client, name) == list(range(BREAKS * ROWS))
