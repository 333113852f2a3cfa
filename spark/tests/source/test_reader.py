"""Batches and streams that Spark reads from a real cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

import boki
import boki_spark
from boki_common.ids import seqnum as make_seqnum
from boki_common.ids import term_of
from boki_spark.plan.blocking_cluster import BlockingCluster
from boki_spark.plan.read_options import batch_options
from boki_spark.source.reader import batch_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

Offload = Callable[[int, Path], str]

pytestmark = [pytest.mark.spark, pytest.mark.alone, pytest.mark.timeout(900)]

WAIT_S = 60


def frame(spark: SparkSession, dev: str, name: str, **options: object) -> DataFrame:
    reader = spark.read.format("boki").option("url", dev).option("book", name)
    for key, value in options.items():
        reader = reader.option(key, str(value))
    found: DataFrame = reader.load()
    return found


def fill(client: boki.sync.Client, name: str, count: int, first: int = 0) -> list[int]:
    """Append records 0, 1, … with the tag `even` or a number, and return their seqnums."""
    return client.book(name).append_many(
        [(b"%d" % at, ["even", f"n/{at}"] if at % 2 == 0 else [7]) for at in range(first, first + count)]
    )


def data(found: DataFrame) -> list[int]:
    return sorted(int(bytes(row["data"])) for row in found.collect())


def test_a_book_is_read_whole_with_all_columns(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str
) -> None:
    seqnums = fill(client, name, 300)
    client.book(f"{name}-other").append(b"not of this book")
    rows = {row["seqnum"]: row for row in frame(spark, dev, name).collect()}
    assert sorted(rows) == seqnums
    expected = {record.seqnum: record for record in client.book(name).read() if isinstance(record, boki.Record)}
    for seqnum, row in rows.items():
        record = expected[seqnum]
        assert bytes(row["data"]) == record.data and row["book"] == boki_spark.book(name)
        assert row["tags"] == [boki_spark.tag(tag) for tag in record.tags]
        assert row["tag_names"] == [tag if isinstance(tag, str) else None for tag in record.tags]
        assert round(row["time"].timestamp() * 1000) == record.time_ms
        assert make_seqnum(row["term"], row["pos"]) == seqnum


def test_tags_places_and_columns_are_chosen_by_options(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str
) -> None:
    seqnums = fill(client, name, 100)
    assert data(frame(spark, dev, name, tags="even")) == list(range(0, 100, 2))
    assert data(frame(spark, dev, name, tags='["n/4", 7]')) == sorted([4, *range(1, 100, 2)])
    part = frame(spark, dev, name, startingSeqnum=seqnums[10], endingSeqnum=seqnums[20], minPartitions=3)
    assert data(part) == list(range(10, 20))
    chosen = spark.read.format("boki").schema("data binary, seqnum bigint").option("url", dev).option("book", name)
    assert chosen.load().columns == ["data", "seqnum"] and data(chosen.load()) == list(range(100))


def test_two_filters_on_one_frame_give_their_own_rows(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str
) -> None:
    """Filters must not be pushed down: in all Spark releases that have them, the filters of one query narrow the rows of others."""
    seqnums = fill(client, name, 10)
    found = frame(spark, dev, name)
    first, second = (found.where(f"seqnum = {seqnums[at]}") for at in (3, 5))
    assert data(first) == [3] and found.count() == 10 and data(second) == [5]
    assert data(first.union(second)) == [3, 5] and found.union(first).count() == 11
    assert found.where(f"seqnum = {seqnums[3]} or seqnum = {seqnums[7]}").count() == 2


def test_an_empty_book_and_a_range_without_rows_have_none(spark: SparkSession, dev: str, name: str) -> None:
    assert frame(spark, dev, name).collect() == []
    assert frame(spark, dev, name, endingSeqnum=0).count() == 0


def test_a_frame_is_a_snapshot_and_load_sees_more(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str
) -> None:
    fill(client, name, 3)
    found = frame(spark, dev, name)
    assert found.count() == 3
    fill(client, name, 2, 3)
    assert found.count() == 3 and frame(spark, dev, name).count() == 5


def test_trimmed_records_are_not_read(spark: SparkSession, dev: str, client: boki.sync.Client, name: str) -> None:
    seqnums = fill(client, name, 10)
    client.book(name).trim(before=seqnums[4])
    assert data(frame(spark, dev, name)) == list(range(4, 10))


@pytest.mark.parametrize(
    ("options", "schema", "code"),
    [
        ({"startingOffset": "earliest"}, None, "BOKI_BAD_OPTION.*did you mean startingOffsets"),
        ({}, "data string", "BOKI_BAD_SCHEMA"),
        ({"url": "boki://127.0.0.1:9", "timeout": "0.5", "plan": "engine"}, None, "BOKI_UNREACHABLE"),
    ],
    ids=["option", "schema", "away"],
)
def test_what_cannot_be_read_is_refused_by_name(
    spark: SparkSession, dev: str, name: str, options: dict[str, str], schema: str | None, code: str
) -> None:
    reader = spark.read.format("boki").option("url", dev).option("book", name)
    for key, value in options.items():
        reader = reader.option(key, value)
    with pytest.raises(Exception, match=f"(?s){code}"):
        (reader if schema is None else reader.schema(schema)).load().count()


def ordered_positions(spark: SparkSession, dev: str) -> dict[int, int]:
    """Return the positions of each term's rows in `dataset=metalog`."""
    entries = spark.read.format("boki").option("url", dev).option("dataset", "metalog").load()
    found: dict[int, int] = {}
    for row in entries.collect():
        found[row["term"]] = found.get(row["term"], 0) + row["stop_pos"] - row["first_pos"]
    return found


def term_rows(spark: SparkSession, dev: str) -> list[Row]:
    found: list[Row] = spark.read.format("boki").option("url", dev).option("dataset", "segments").load().collect()
    return found


def test_terms_and_what_was_ordered_are_frames_too(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str
) -> None:
    term = term_of(fill(client, name, 10)[0])
    ordered = ordered_positions(spark, dev)
    rows = term_rows(spark, dev)
    assert [row["term"] for row in rows] == sorted(row["term"] for row in rows) and not rows[-1]["ended"]
    kept = {row["term"]: row["end_pos"] for row in rows if row["end_pos"] and not row["gone"]}
    assert term in kept and {one: ordered.get(one) for one in kept} == kept


def test_a_term_that_ended_and_was_trimmed_whole_is_gone_and_its_entries_with_it(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str, offload: Offload, tmp_path: Path
) -> None:
    offload(term_of(fill(client, f"{name}-before", 1)[0]), tmp_path / "cold")
    term = term_of(fill(client, name, 10)[0])
    offload(term, tmp_path / "cold")
    assert ordered_positions(spark, dev)[term] == 10
    client.book(name).trim(before=2**62)
    (row,) = [row for row in term_rows(spark, dev) if row["term"] == term]
    assert row["gone"] and row["end_pos"] == 10
    assert term not in ordered_positions(spark, dev)


def test_a_term_that_was_offloaded_is_read_from_its_files(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str, offload: Offload, tmp_path: Path
) -> None:
    seqnums = fill(client, name, 100)
    offload(term_of(seqnums[0]), tmp_path / "cold")
    fill(client, name, 10, 100)
    client.book(name).trim(before=seqnums[4])
    options = batch_options({"url": dev, "book": name})
    with BlockingCluster(options.cluster) as blocking:
        partitions = blocking.run(batch_partitions(blocking.cluster, options))
    assert [type(one).__name__ for one in partitions] == ["ColdPartition", "Partition"]
    assert data(frame(spark, dev, name)) == list(range(4, 110))
    assert data(frame(spark, dev, name, tags="even")) == list(range(4, 110, 2))


# -- streams


def stream(spark: SparkSession, dev: str, name: str, folder: Path, **options: object) -> Any:
    reader = spark.readStream.format("boki").option("url", dev).option("book", name)
    for key, value in options.items():
        reader = reader.option(key, str(value))
    writer = reader.load().writeStream.format("parquet").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "checkpoint"))


def run(writer: Any) -> list[int]:
    """Run a query until everything present is read, and return the number of rows of each batch."""
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_S)
    return [progress["numInputRows"] for progress in query.recentProgress]


def out(spark: SparkSession, folder: Path) -> list[int]:
    return data(spark.read.parquet(str(folder / "out")))


def test_a_stream_reads_what_is_there_and_goes_on_from_its_checkpoint(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str, tmp_path: Path
) -> None:
    fill(client, name, 50)
    writer = stream(spark, dev, name, tmp_path, startingOffsets="earliest")
    run(writer)
    assert out(spark, tmp_path) == list(range(50))
    fill(client, name, 20, 50)
    run(stream(spark, dev, name, tmp_path, startingOffsets="earliest"))
    assert out(spark, tmp_path) == list(range(70))


def test_a_stream_from_latest_is_not_moved_by_a_crash_before_its_first_commit(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str, tmp_path: Path
) -> None:
    fill(client, name, 5)
    run(stream(spark, dev, name, tmp_path))
    for path in (tmp_path / "checkpoint" / "commits").iterdir():
        path.unlink()
    fill(client, name, 7, 5)
    run(stream(spark, dev, name, tmp_path))
    assert out(spark, tmp_path) == list(range(5, 12))


def test_limited_batches_show_each_record_once_and_in_order(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str, tmp_path: Path
) -> None:
    for at in range(0, 60, 10):
        fill(client, name, 10, at)
    where = client.book(name).read_next()
    assert where is not None
    options = {"startingSeqnum": where.seqnum, "maxRecordsPerTrigger": 20}
    batches = run(stream(spark, dev, name, tmp_path, **options))
    assert out(spark, tmp_path) == list(range(60))
    assert sum(batches) == 60 and len([count for count in batches if count]) >= 3


def test_a_batch_that_is_run_again_has_the_same_rows_in_the_same_partitions(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str, tmp_path: Path
) -> None:
    fill(client, name, 30)
    run(stream(spark, dev, name, tmp_path, startingOffsets="earliest"))
    newest = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    end = json.loads(newest.read_text().splitlines()[-1])
    assert end["v"] == 1 and end["rows"] >= 30 and list(end) == sorted(end)
    for path in (tmp_path / "checkpoint" / "commits").iterdir():
        path.unlink()
    fill(client, name, 10, 30)
    run(stream(spark, dev, name, tmp_path, startingOffsets="earliest"))
    assert out(spark, tmp_path) == list(range(40))
