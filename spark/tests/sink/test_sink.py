"""Frames and streams that Spark writes to a book of a real cluster: each row once, despite retries."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boki

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.alone, pytest.mark.timeout(900)]

WAIT_S = 60


def to(writer: Any, dev: str, name: str) -> Any:
    return writer.format("boki").option("url", dev).option("book", name)


def rows_of(client: boki.sync.Client, name: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return (data, own tags) of every row, sorted. Control records have only tags of the sink."""
    found = []
    for record in client.book(name).read():
        names = [tag for tag in record.tags if isinstance(tag, str)]
        own = tuple(tag for tag in names if not tag.startswith("boki.sink/"))
        if own or any(tag.endswith("/rows") for tag in names):
            found.append((record.data.decode(), own))
    return sorted(found)


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr(
        "concat('row ', id) AS data", "CASE WHEN id % 2 = 0 THEN array('even', concat('n/', id)) END AS tags"
    )


def expected(count: int) -> list[tuple[str, tuple[str, ...]]]:
    return sorted((f"row {at}", ("even", f"n/{at}") if at % 2 == 0 else ()) for at in range(count))


def test_a_job_appends_every_row_with_its_tags_once(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str
) -> None:
    to(numbers(spark, 2_500).write, dev, name).mode("append").save()
    assert rows_of(client, name) == expected(2_500)
    assert [record.data for record in client.book(name).read("n/42")] == [b"row 42"]


def test_tasks_that_fail_in_the_middle_are_tried_again_and_leave_each_row_once(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str, tmp_path: Path
) -> None:
    rows = numbers(spark, 900).rdd.mapPartitionsWithIndex(_failing_once(tmp_path))
    frame = spark.createDataFrame(rows, "data string, tags array<string>")
    to(frame.write, dev, name).mode("append").save()
    assert len(list(tmp_path.iterdir())) == 2, "both tasks failed once"
    assert rows_of(client, name) == expected(900)


def _failing_once(folder: Path) -> Callable[[int, Iterator[Any]], Iterator[Any]]:
    """Yield half of the rows and fail; in the retry, yield all of them in another order."""

    def each(partition: int, rows: Iterator[Any]) -> Iterator[Any]:
        mark, found = folder / str(partition), list(rows)
        if mark.exists():
            yield from reversed(found)
            return
        yield from found[: len(found) // 2]
        mark.touch()
        raise RuntimeError("this task fails once")

    return each


def stream(spark: SparkSession, folder: Path, name: str, dev: str) -> Any:
    frame = (
        spark.readStream.schema("data string, tags array<string>")
        .option("maxFilesPerTrigger", 1)
        .json(str(folder / "in"))
    )
    return (
        to(frame.writeStream, dev, name)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )


def batch_file(folder: Path, number: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    lines = [f'{{"data":"row {at}"{_tags(at)}}}' for at in range(number * 10, number * 10 + 10)]
    (folder / "in" / f"{number}.json").write_text("\n".join(lines))


def _tags(at: int) -> str:
    return f',"tags":["even","n/{at}"]' if at % 2 == 0 else ""


def test_a_stream_appends_each_batch_once_though_spark_forgets_its_commit(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str, tmp_path: Path
) -> None:
    for number in range(2):
        batch_file(tmp_path, number)
    stream(spark, tmp_path, name, dev).start().awaitTermination(WAIT_S)
    assert rows_of(client, name) == expected(20)
    for path in (tmp_path / "checkpoint" / "commits").iterdir():
        path.unlink()
    batch_file(tmp_path, 2)
    stream(spark, tmp_path, name, dev).start().awaitTermination(WAIT_S)
    assert rows_of(client, name) == expected(30)


def test_writes_in_foreach_batch_are_distinguished_by_their_ids_and_done_once(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str, tmp_path: Path
) -> None:
    failing = [True]

    def both(frame: DataFrame, batch: int) -> None:
        for write_id in ("plain", "upper"):
            shown = frame if write_id == "plain" else frame.selectExpr("upper(data) AS data", "tags")
            to(shown.write, dev, name).option("writeId", write_id).mode("append").save()
        if failing[0]:
            failing[0] = False
            raise RuntimeError("after both writes")

    batch_file(tmp_path, 0)
    source = spark.readStream.schema("data string, tags array<string>").json(str(tmp_path / "in"))
    for _ in range(2):
        query = source.writeStream.foreachBatch(both).option("checkpointLocation", str(tmp_path / "checkpoint"))
        started = query.trigger(availableNow=True).start()
        with pytest.raises(Exception, match="after both writes") if failing[0] else contextlib.nullcontext():
            started.awaitTermination(WAIT_S)
    assert rows_of(client, name) == sorted(expected(10) + [(data.upper(), tags) for data, tags in expected(10)])


def test_two_writes_of_a_batch_with_one_id_are_an_error(
    spark: SparkSession, dev: str, client: boki.sync.Client, name: str, tmp_path: Path
) -> None:
    def both(frame: DataFrame, batch: int) -> None:
        for rows in (frame.where("tags IS NULL"), frame.where("tags IS NOT NULL").limit(3)):
            to(rows.write, dev, name).option("writeId", "out").mode("append").save()

    batch_file(tmp_path, 0)
    source = spark.readStream.schema("data string, tags array<string>").json(str(tmp_path / "in"))
    query = source.writeStream.foreachBatch(both).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match=r"(?s)BOKI_SINK_REPLAY_DIFFERS.*a writeId of its own"):
        query.trigger(availableNow=True).start().awaitTermination(WAIT_S)
    assert rows_of(client, name) == [row for row in expected(10) if not row[1]], "those of the first write"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda frame, writer: writer(frame).option("bok", "x").mode("append"), "BOKI_BAD_OPTION.*did you mean book"),
        (lambda frame, writer: writer(frame).mode("overwrite"), "BOKI_BAD_OPTION.*append"),
        (lambda frame, writer: writer(frame).option("writeId", "a").mode("append"), "BOKI_BAD_OPTION.*foreachBatch"),
        (
            lambda frame, writer: writer(frame.withColumnRenamed("data", "value")).mode("append"),
            "BOKI_BAD_SCHEMA.*data",
        ),
        (
            lambda frame, writer: writer(frame.selectExpr("CAST(null AS string) AS data")).mode("append"),
            "BOKI_SINK_BAD_ROW.*null",
        ),
    ],
    ids=["option", "overwrite", "write id", "column", "null"],
)
def test_what_cannot_be_written_is_refused_by_name(
    spark: SparkSession, dev: str, name: str, change: Any, code: str
) -> None:
    with pytest.raises(Exception, match=f"(?s){code}"):
        change(numbers(spark, 3, 1), lambda frame: to(frame.write, dev, name)).save()
