"""Books read by Spark beside Spark's own Parquet scan of the same rows, in one run and one session.

    python -m benchmarks.spark [--quick] [--records N] [--bytes B …] [--rounds R]           (`make bench-spark`)

`boki dev` with one bookie, local[2], everything into Spark's `noop` sink. Rounds of what is compared are interleaved; figures are medians.

    records B     all records of a book, B bytes each, out of its ledgers
    tag           one tag out of 1,000 beside a scan of all
    stream        from the return of an append to the foreachBatch that has it, the stream being idle

What has no goal's yardstick here (files of offloaded terms) is left out. The exit code is 0 whatever falls short.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

import boki
from benchmarks.report import Ratio
from boki_spark.session import local_session
from examples.pipeline import cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TAGS: Final = 1_000
CHUNK_BYTES: Final = 4 << 20
LEDGER_GOAL: Final = {1_000: 0.35}
STREAM_GOAL_S: Final = 0.5
TAG_GOAL: Final = 4.0


def fill(client: boki.sync.Client, name: str, records: int, size: int) -> None:
    """Records that do not compress, each with one of `TAGS` tags."""
    noise = boki.SystemRandom().token(size + records)
    chunk = max(CHUNK_BYTES // size, 1)
    book = client.book(name)
    for at in range(0, records, chunk):
        book.append_many([(noise[one : one + size], [1 + one % TAGS]) for one in range(at, min(at + chunk, records))])


def scan(frame: DataFrame) -> float:
    """Seconds for all rows and columns of a frame."""
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def medians(rounds: int, *runs: Callable[[], float]) -> list[float]:
    """Of each run, in interleaved rounds; the first round warms up."""
    found = [[run() for run in runs] for _ in range(rounds + 1)][1:]
    return [statistics.median(column) for column in zip(*found, strict=True)]


class Bench:
    """One session, one cluster."""

    def __init__(self, spark: SparkSession, url: str, folder: Path, rounds: int) -> None:
        self.spark = spark
        self.url = url
        self.folder = folder
        self.rounds = rounds

    def frame(self, name: str, **options: object) -> DataFrame:
        reader = self.spark.read.format("boki").option("url", self.url).option("book", name).option("minPartitions", 2)
        for key, value in options.items():
            reader = reader.option(key, value)
        found: DataFrame = reader.load()
        return found

    def records(self, size: int, records: int) -> list[Ratio]:
        """Ledgers beside Parquet, and one tag beside all."""
        name = f"of-{size}"
        with boki.sync.connect(self.url) as client:
            fill(client, name, records, size)
        path = str(self.folder / f"{name}.parquet")
        self.frame(name).write.parquet(path)
        assert self.spark.read.parquet(path).count() == records
        ledgers, parquet, tag = medians(
            self.rounds,
            lambda: scan(self.frame(name)),
            lambda: scan(self.spark.read.parquet(path)),
            lambda: scan(self.frame(name, tags="[7]")),
        )
        Console().print(
            f"{size} B: ledgers {records / ledgers:,.0f}/s, Parquet {records / parquet:,.0f}/s, one tag {tag:.3f} s"
        )
        return [
            Ratio(f"spark_ledgers_of_parquet_{size}", parquet / ledgers, ">=", LEDGER_GOAL.get(size, 0.0)),
            Ratio(f"spark_tag_times_scan_{size}", ledgers / tag, ">=", TAG_GOAL),
        ]

    def stream(self) -> list[Ratio]:
        """From an append to the foreachBatch that has it."""
        seen = threading.Semaphore(0)

        def each(frame: Any, number: int) -> None:
            for _ in range(frame.count()):
                seen.release()

        with boki.sync.connect(self.url) as client:
            book = client.book("stream")
            reader = self.spark.readStream.format("boki").option("url", self.url).option("book", "stream")
            writer = reader.option("startingOffsets", "earliest").load().writeStream.foreachBatch(each)
            query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()
            waits = []
            for _ in range(self.rounds + 3):
                book.append(b"x")
                began = time.perf_counter()
                assert seen.acquire(timeout=60)
                waits.append(time.perf_counter() - began)
            query.stop()
        return [Ratio("spark_stream_s", statistics.median(waits[3:]), "<=", STREAM_GOAL_S)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.spark", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few records, one round")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, nargs="+", default=[1_000, 100])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    if options.quick:
        options.records, options.rounds = 20_000, 1
    ratios: list[Ratio] = []
    with tempfile.TemporaryDirectory(prefix="boki-spark-") as name, cluster(Path(name)) as url:
        spark = local_session(Path(name) / "spark", short=False)
        bench = Bench(spark, url, Path(name), options.rounds)
        for size in options.bytes:
            ratios += bench.records(size, options.records)
        ratios += bench.stream()
        spark.stop()
    for ratio in ratios:
        print(ratio.line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
