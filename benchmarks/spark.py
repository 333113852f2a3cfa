"""Books read by Spark beside Spark's own Parquet scan of the same rows, in one run and one session.

    python -m benchmarks.spark [--quick] [--records N] [--bytes B …] [--rounds R] [--json FILE]        (`make bench-spark`)

`boki dev` with one bookie, local[2], everything into Spark's `noop` sink. Rounds of what is compared are interleaved; figures are medians.

    ledgers B     all records of a book, B bytes each, out of its ledgers, beside Spark's Parquet
    offload B     the term offloaded, beside a bare client that reads the same rows, writes them with pyarrow, flushes and reads them back
    cold B        the same records out of the files: by `format("boki")`, and natively by `boki_spark.cold`
    tag B         one tag out of 1,000, out of the files, beside all of them: bytes and time
    memory        of a process that reads one large term, as a Python worker of Spark does: from ledgers, from files
    stream        from the return of an append to the foreachBatch that has it, the stream being idle
    appends       the median append of a client, alone and while scans go on

The exit code is 0 whatever falls short.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

import boki
import boki_spark
from benchmarks.report import Ratio
from boki_common.ids import term_of
from boki_spark.offload.job import offload_term, offloadable
from boki_spark.plan.blocking_cluster import BlockingCluster
from boki_spark.plan.cluster import ClusterOptions
from boki_spark.plan.read_options import batch_options
from boki_spark.read.arrow import ARROW_SCHEMA
from boki_spark.session import local_session
from boki_spark.source.reader import batch_partitions
from boki_spark.source.worker import ReadCounts, end_clients, read_partition
from examples.pipeline import BOKI, cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TAGS: Final = 1_000
CHUNK_BYTES: Final = 4 << 20
NOISE_BYTES: Final = 16 << 20
"""Repeats further apart than compression looks."""
WAIT_S: Final = 120.0
LEDGER_GOAL: Final = {1_000: 0.35}
COLD_GOAL: Final = {1_000: 0.6, 100: 0.4}
NATIVE_GOAL: Final = 0.9
OFFLOAD_GOAL: Final = 0.8
STREAM_GOAL_S: Final = 0.5
STREAM_ROUNDS: Final = 15
STREAM_WARM_UP: Final = 4
"""Rounds of a stream that do not count: Java compiles what it runs."""
TAG_GOAL: Final = 4.0
TAG_BYTES_GOAL: Final = 20.0
MEMORY_GOAL_MB: Final = 300.0
APPEND_GOAL: Final = 1.5


def fill(client: boki.sync.Client, name: str, records: int, size: int) -> int:
    """Records that do not compress, each with one of `TAGS` tags; returns the term of the first one."""
    noise = boki.SystemRandom().token(NOISE_BYTES)
    chunk = max(CHUNK_BYTES // size, 1)
    book = client.book(name)
    first = 0
    for at in range(0, records, chunk):
        begins = ((one, one * size % (NOISE_BYTES - size)) for one in range(at, min(at + chunk, records)))
        rows = [(noise[begin : begin + size], [1 + one % TAGS]) for one, begin in begins]
        seqnums = book.append_many(rows)
        first = first or seqnums[0]
    return term_of(first)


def scan(frame: DataFrame) -> float:
    """Seconds for all rows and columns of a frame."""
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def medians(rounds: int, *runs: Callable[[], float]) -> list[float]:
    """Of each run, in interleaved rounds; the first round warms up."""
    found = [[run() for run in runs] for _ in range(rounds + 1)][1:]
    return [statistics.median(column) for column in zip(*found, strict=True)]


def read_here(url: str, name: str, counts: ReadCounts, **options: str) -> list[pa.RecordBatch]:
    """The rows of a book, read in this process as a worker of Spark reads them."""
    chosen = batch_options({"url": url, "book": name, **options})
    with BlockingCluster(chosen.cluster) as blocking:
        partitions = blocking.run(batch_partitions(blocking.cluster, chosen))
    return [batch for one in partitions for batch in read_partition(one, chosen.cluster, counts=counts)]


def bare(url: str, name: str, folder: Path) -> float:
    """Seconds of a client that reads a book from ledgers, writes it as Parquet slices, which it flushes, and reads these back."""
    began = time.perf_counter()
    chosen = batch_options({"url": url, "book": name})
    with BlockingCluster(chosen.cluster) as blocking:
        partitions = blocking.run(batch_partitions(blocking.cluster, chosen))
    rows = 0
    paths = [folder / f"bare-{name}-{number}.parquet" for number in range(len(partitions))]
    for one, path in zip(partitions, paths, strict=True):
        batches = list(read_partition(one, chosen.cluster))
        with path.open("wb") as file:
            pq.write_table(pa.Table.from_batches(batches, schema=ARROW_SCHEMA), file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
    for path in paths:
        rows += pq.read_table(path).num_rows
    assert rows
    return time.perf_counter() - began


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

    def roll(self) -> None:
        """Ends the term."""
        subprocess.run([*BOKI, "log", "roll", "0", "--url", self.url], check=True, stdout=subprocess.DEVNULL)

    def offload(self, term: int) -> float:
        """Seconds to offload a term, once an index snapshot has it."""
        where = ClusterOptions(url=self.url)
        until = time.monotonic() + WAIT_S
        while term not in offloadable(where):
            assert time.monotonic() < until, "engines write an index snapshot when a term ends"
        began = time.perf_counter()
        made = offload_term(where, f"file://{self.folder}/cold", term)
        assert made.manifest, made.why
        return time.perf_counter() - began

    def records(self, size: int, records: int) -> list[Ratio]:
        """Ledgers, offloading and files beside Parquet, and one tag beside all."""
        name = f"of-{size}"
        with boki.sync.connect(self.url) as client:
            term = fill(client, name, records, size)
        path = str(self.folder / f"{name}.parquet")
        self.frame(name).write.parquet(path)
        parquet_frame = self.spark.read.parquet(path)
        assert parquet_frame.count() == records
        ledgers, parquet = medians(self.rounds, lambda: scan(self.frame(name)), lambda: scan(parquet_frame))
        self.roll()
        bare_s = bare(self.url, name, self.folder)
        offload_s = self.offload(term)
        assert boki_spark.cold(self.spark, url=self.url, book=name, whole=True).count() == records
        cold, native, again, tag = medians(
            self.rounds,
            lambda: scan(self.frame(name)),
            lambda: scan(boki_spark.cold(self.spark, url=self.url, book=name)),
            lambda: scan(parquet_frame),
            lambda: scan(self.frame(name, tags="[7]")),
        )
        counts, all_counts = ReadCounts(), ReadCounts()
        assert sum(one.num_rows for one in read_here(self.url, name, counts, tags="[7]")) == -(-(records - 6) // TAGS)
        read_here(self.url, name, all_counts)
        Console().print(
            f"{size} B: ledgers {records / ledgers:,.0f}/s, files {records / cold:,.0f}/s, natively {records / native:,.0f}/s, Parquet "
            f"{records / parquet:,.0f}/s; offload {records / offload_s:,.0f}/s, bare {records / bare_s:,.0f}/s; one tag {tag:.3f} s, "
            f"{counts.bytes:,} of {all_counts.bytes:,} B"
        )
        return [
            Ratio(f"spark_ledgers_of_parquet_{size}", parquet / ledgers, ">=", LEDGER_GOAL.get(size, 0.0)),
            Ratio(f"spark_cold_of_parquet_{size}", again / cold, ">=", COLD_GOAL.get(size, 0.0)),
            Ratio(f"spark_native_of_parquet_{size}", again / native, ">=", NATIVE_GOAL),
            Ratio(f"spark_offload_of_bare_{size}", bare_s / offload_s, ">=", OFFLOAD_GOAL),
            Ratio(f"spark_tag_times_scan_{size}", cold / tag, ">=", TAG_GOAL),
            Ratio(f"spark_tag_fewer_bytes_{size}", all_counts.bytes / counts.bytes, ">=", TAG_BYTES_GOAL),
        ]

    def memory(self, size: int, megabytes: int) -> list[Ratio]:
        """The largest size of a process that reads one term, whatever it has."""
        name = "large"
        with boki.sync.connect(self.url) as client:
            term = fill(client, name, megabytes * 1_000_000 // size, size)
        self.roll()
        ledgers = self._worker(name)
        self.offload(term)
        files = self._worker(name)
        Console().print(f"a worker that reads {megabytes} MB: {ledgers:.0f} MB from ledgers, {files:.0f} MB from files")
        return [
            Ratio("spark_worker_ledgers_mb", ledgers, "<=", MEMORY_GOAL_MB),
            Ratio("spark_worker_files_mb", files, "<=", MEMORY_GOAL_MB),
        ]

    def _worker(self, name: str) -> float:
        command = [sys.executable, "-m", "benchmarks.spark", "--worker", self.url, name]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])

    def stream(self) -> list[Ratio]:
        """From an append to the foreachBatch that has it."""
        seen = threading.Semaphore(0)

        def each(frame: Any, number: int) -> None:
            for _ in range(frame.count()):
                seen.release()

        with boki.sync.connect(self.url) as client:
            book = client.book("stream")
            reader = self.spark.readStream.format("boki").option("url", self.url).option("book", "stream")
            writer = reader.option("startingOffsets", "latest").load().writeStream.foreachBatch(each)
            query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()
            while not query.lastProgress:
                query.processAllAvailable()
            waits = []
            for _ in range(STREAM_ROUNDS):
                query.processAllAvailable()
                book.append(b"x")
                began = time.perf_counter()
                assert seen.acquire(timeout=60)
                waits.append(time.perf_counter() - began)
            query.stop()
        return [Ratio("spark_stream_s", statistics.median(waits[STREAM_WARM_UP:]), "<=", STREAM_GOAL_S)]

    def appends(self, name: str, count: int) -> list[Ratio]:
        """The median append, alone and beside scans of a book's ledgers."""
        over = threading.Event()

        def scans() -> None:
            while not over.is_set():
                scan(self.frame(name))

        with boki.sync.connect(self.url) as client:
            book = client.book("beside")
            alone = _median_append(book, count)
            thread = threading.Thread(target=scans)
            thread.start()
            try:
                beside = _median_append(book, count)
            finally:
                over.set()
                thread.join()
        Console().print(f"appends: {1000 * alone:.2f} ms alone, {1000 * beside:.2f} ms beside scans")
        return [Ratio("spark_appends_beside_scan", beside / alone, "<=", APPEND_GOAL)]


def _median_append(book: boki.sync.Book, count: int) -> float:
    waits = []
    for _ in range(count):
        began = time.perf_counter()
        book.append(b"x" * 1_000)
        waits.append(time.perf_counter() - began)
    return statistics.median(waits)


def worker(url: str, name: str) -> int:
    """Reads a book as a worker of Spark does, and prints the largest size that this process had, in MB."""
    import pyspark.sql.datasource  # noqa: F401 - a worker has it, too

    chosen = batch_options({"url": url, "book": name})
    with BlockingCluster(chosen.cluster) as blocking:
        partitions = blocking.run(batch_partitions(blocking.cluster, chosen))
    for one in partitions:
        for _ in read_partition(one, chosen.cluster):
            pass
    end_clients()
    # Not of getrusage: what the parent had when it started this is in that, too.
    status = Path("/proc/self/status").read_text().splitlines()
    print(next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1_024 / 1_000_000)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.spark", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few records, one round")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, nargs="+", default=[1_000, 100])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large", type=int, default=256, help="megabytes of the large term")
    parser.add_argument("--json", type=Path, help="a file for the ratios")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        return worker(*options.worker)
    if options.quick:
        options.records, options.rounds = 60_000, 1
    ratios: list[Ratio] = []
    with tempfile.TemporaryDirectory(prefix="boki-spark-") as name, cluster(Path(name)) as url:
        spark = local_session(Path(name) / "spark", short=False)
        bench = Bench(spark, url, Path(name), options.rounds)
        for size in options.bytes:
            ratios += bench.records(size, options.records)
        ratios += bench.memory(1_000, options.large)
        ratios += bench.stream()
        with boki.sync.connect(url) as client:
            fill(client, "scanned", options.records // 10, 1_000)
        ratios += bench.appends("scanned", 200)
        spark.stop()
    end_clients()
    for ratio in ratios:
        print(ratio.line())
    if options.json:
        options.json.write_text(json.dumps([one._asdict() for one in ratios], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
