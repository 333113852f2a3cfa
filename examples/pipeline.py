"""A data pipeline: flights go to books, books are offloaded to files, Spark sums both up, and the sums go to a book, Parquet and charts.

    python -m examples.pipeline [FILE.csv]               (`make pipeline`, `make pipeline INPUT=path`)

1. Start a `boki dev` with its data in the folder (`build/pipeline`, or `--folder`).
2. Append the flights of each airport to a book, numbered, so that each is there once however often the program is killed.
3. Seal the terms with the flights and offload them to Parquet files in `cold`. The program is killed with kill -9 while it offloads,
   and restarted.
4. Stream the books into Spark. The sums of each batch, by hour and carrier and by day, go to the book `results`, exactly once through the
   sink, and to Parquet, a folder per batch that a repeated batch overwrites. The program is killed in its second batch, and restarted.
5. Count late departures by month and carrier from the offloaded files, which Spark reads natively.
6. Compare the sums in book and Parquet with those of plain Python, and draw them.

It prints the kills, the offloaded records, the paths of three charts, and finally `… equal to oracle`. A run that is interrupted
with Ctrl-C resumes in the same folder. Exit code 1 if the program fails or any sum differs.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import boki
import boki_spark
from boki_common.ids import term_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORIGINS: Final = ("EWR", "JFK", "LGA")
RESULTS: Final = "results"
BOKI: Final = (sys.executable, "-m", "boki_cli.main")
COLUMNS: Final = ("month", "day", "hour", "carrier", "origin", "dep_delay")
CHUNK: Final = 5_000
"""Flights per append."""
LATE_MINUTES: Final = 15
"""Delay above which a departure counts as late."""
SNAPSHOT_WAIT_S: Final = 120.0
SCHEMA: Final = "month int, day int, hour int, carrier string, dep_delay double"


class FlightSums(NamedTuple):
    """Sums of the flights.

    Attributes:
        delays: (hour, carrier) → number of flights with a known delay, and the sum of their delays in minutes.
        days: (month, day) → number of flights.
    """

    delays: dict[tuple[int, str], tuple[int, int]]
    days: dict[tuple[int, int], int]


LateCounts = dict[tuple[int, str], tuple[int, int]]
"""(month, carrier) → number of flights with a known delay, and how many of them were late."""


# -- input and oracle


def load(path: Path | None, rows: int) -> list[dict[str, str]]:
    """Return the first flights from New York in a CSV file, or in the public data set of `make run` without one.

    Raises:
        SystemExit: the file lacks a column.
    """
    if path is None:
        from boki_cli.demo.dataset import flights

        text = flights(Path(".cache")).decode()
    else:
        text = path.read_text()
    reader = csv.DictReader(io.StringIO(text))
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise SystemExit(f"expected the columns {', '.join(COLUMNS)} in {path}, found no {', '.join(missing)}")
    return [row for _, row in zip(range(rows), reader, strict=False) if row["origin"] in ORIGINS]


def oracle(flights: Sequence[dict[str, str]]) -> FlightSums:
    """Compute the sums in plain Python."""
    delays: dict[tuple[int, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    days: Counter[tuple[int, int]] = Counter()
    for row in flights:
        days[int(row["month"]), int(row["day"])] += 1
        delay = delay_of(row)
        if delay is not None:
            count, total = delays[int(row["hour"]), row["carrier"]]
            delays[int(row["hour"]), row["carrier"]] = count + 1, total + delay
    return FlightSums(dict(delays), dict(days))


def late_oracle(flights: Sequence[dict[str, str]]) -> LateCounts:
    """Count late departures in plain Python."""
    late: LateCounts = defaultdict(lambda: (0, 0))
    for row in flights:
        delay = delay_of(row)
        if delay is not None:
            count, behind = late[int(row["month"]), row["carrier"]]
            late[int(row["month"]), row["carrier"]] = count + 1, behind + (delay > LATE_MINUTES)
    return dict(late)


def delay_of(row: dict[str, str]) -> int | None:
    """Return the delay of a flight in minutes, or None if it never left."""
    text = row["dep_delay"]
    return int(float(text)) if text not in ("", "NA") else None


# -- flights to books


def ingest(client: boki.sync.Client, flights: Sequence[dict[str, str]]) -> None:
    """Append the flights of each airport under numbers, starting after those that are in the book."""
    for origin in ORIGINS:
        own = [row for row in flights if row["origin"] == origin]
        writer = client.book(f"flights/{origin}").writer("ingest")
        for at in range(writer.last, len(own), CHUNK):
            writer.append_many([record_of(row) for row in own[at : at + CHUNK]], first=at + 1)


def record_of(row: dict[str, str]) -> tuple[bytes, list[str]]:
    """Return the record of a flight: data and tags."""
    numbers = {name: int(row[name]) for name in ("month", "day", "hour")}
    data = {**numbers, "carrier": row["carrier"], "dep_delay": delay_of(row)}
    return json.dumps(data).encode(), [f"carrier/{row['carrier']}", f"day/{row['month']}-{row['day']}"]


# -- books to files


def offload(client: boki.sync.Client, url: str, folder: Path, *, die: bool) -> None:
    """Seal the terms that have the flights, and offload them.

    Args:
        client: client of the cluster.
        url: its address.
        folder: folder of the pipeline.
        die: kill this process at the first progress of the offload.
    """
    from boki_spark.offload.job import offload_term, sweep
    from boki_spark.plan.blocking_cluster import BlockingCluster
    from boki_spark.plan.read_options import ClusterOptions

    where = ClusterOptions(url=url)
    tails = [client.book(f"flights/{origin}").check_tail() for origin in ORIGINS]
    last = max((term_of(one.seqnum) for one in tails if one is not None), default=0)
    with BlockingCluster(where) as blocking:
        ended = {one.term: one.ended for one in blocking.run(blocking.cluster.committed()).terms}
    if last and not ended.get(last, False):
        subprocess.run([*BOKI, "log", "roll", "0", "--url", url], check=True, stdout=subprocess.DEVNULL)

    def report(done: int, total: int) -> None:
        if die:
            os.kill(os.getpid(), signal.SIGKILL)

    for term in range(1, last + 1):
        made = offload_term(where, f"file://{folder / 'cold'}", term, wait_s=SNAPSHOT_WAIT_S, progress=report)
        if made.rows:
            print(f"term {term}: {made.rows} records offloaded", flush=True)
    sweep(where, f"file://{folder / 'cold'}")


# -- Spark


def count_late(spark: SparkSession, url: str, folder: Path) -> None:
    """Count late departures with Spark, from the offloaded files alone, and write the counts to Parquet."""
    from pyspark.sql import functions as F

    frames = [boki_spark.cold(spark, url=url, book=f"flights/{origin}", whole=True) for origin in ORIGINS]
    flights = reduce(lambda one, other: one.union(other), frames)
    rows = flights.select(F.from_json(F.col("data").cast("string"), SCHEMA).alias("f")).select("f.*")
    known = rows.where("dep_delay IS NOT NULL").groupBy("month", "carrier")
    late = known.agg(F.count("*").alias("count"), F.count_if(F.col("dep_delay") > LATE_MINUTES).alias("late"))
    late.coalesce(1).write.mode("overwrite").parquet(str(folder / "parquet" / "late"))


def summarise(spark: SparkSession, url: str, folder: Path, *, batch_rows: int, die_in: int | None) -> None:
    """Stream the books to their end, and write the sums of each batch to the book `results` and to Parquet.

    Args:
        spark: session.
        url: address of the cluster.
        folder: folder of the pipeline.
        batch_rows: approximate number of flights, of all books together, in a batch.
        die_in: number of the batch in which to kill this process, after the first of the batch's four writes.
    """
    from pyspark.sql import functions as F

    def write(frame: DataFrame, batch: int) -> None:
        frame = frame.select(F.from_json(F.col("data").cast("string"), SCHEMA).alias("f")).select("f.*").persist()
        delays = frame.where("dep_delay IS NOT NULL").groupBy("hour", "carrier")
        sums = {
            "delays": delays.agg(F.count("*").alias("count"), F.sum("dep_delay").cast("bigint").alias("total")),
            "days": frame.groupBy("month", "day").agg(F.count("*").alias("count")),
        }
        for name, one in sums.items():
            record = one.select(
                F.to_json(F.struct(F.lit(name).alias("of"), *one.columns)).alias("data"),
                F.array(F.lit(name)).alias("tags"),
            )
            book = record.write.format("boki").option("url", url).option("book", RESULTS)
            book.option("writeId", name).mode("append").save()
            if batch == die_in:
                os.kill(os.getpid(), signal.SIGKILL)
            one.coalesce(1).write.mode("overwrite").parquet(str(folder / "parquet" / name / f"batch={batch}"))
        frame.unpersist()

    frames = [
        spark.readStream.format("boki")
        .schema("data binary")
        .option("url", url)
        .option("book", f"flights/{origin}")
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerTrigger", batch_rows)
        .load()
        for origin in ORIGINS
    ]
    query = reduce(lambda one, other: one.union(other), frames).writeStream.foreachBatch(write)
    query.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()


# -- results


def sums_of_book(client: boki.sync.Client) -> FlightSums:
    """Return the sums in the book `results`."""
    rows: list[dict[str, Any]] = []
    for name in ("delays", "days"):
        for record in client.book(RESULTS).read(name):
            assert isinstance(record, boki.Record)
            rows.append(json.loads(record.data))
    return add_up(rows)


def sums_of_parquet(folder: Path) -> FlightSums:
    """Return the sums in the Parquet files."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = []
    for name in ("delays", "days"):
        for path in sorted((folder / "parquet" / name).glob("batch=*/*.parquet")):
            rows += [{"of": name, **row} for row in pq.ParquetFile(path).read().to_pylist()]
    return add_up(rows)


def late_of_parquet(folder: Path) -> LateCounts:
    """Return the late departures that `count_late` wrote."""
    import pyarrow.parquet as pq

    files = sorted((folder / "parquet" / "late").glob("*.parquet"))
    rows = [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]
    return {(row["month"], row["carrier"]): (row["count"], row["late"]) for row in rows}


def add_up(rows: Sequence[dict[str, Any]]) -> FlightSums:
    """Add up the sums of all batches."""
    delays: dict[tuple[int, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    days: Counter[tuple[int, int]] = Counter()
    for row in rows:
        if row["of"] == "days":
            days[row["month"], row["day"]] += row["count"]
        else:
            count, total = delays[row["hour"], row["carrier"]]
            delays[row["hour"], row["carrier"]] = count + row["count"], total + row["total"]
    return FlightSums(dict(delays), dict(days))


def draw(sums: FlightSums, late: LateCounts, folder: Path) -> list[Path]:
    """Draw mean delays by hour and carrier, late departures by month and carrier, and flights per day; return the files."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    means = {key: total / count for key, (count, total) in sums.delays.items()}
    _draw_grid(means, "scheduled hour of departure", "Mean departure delay", "minutes", folder / "delays.png")
    shares = {key: 100 * behind / count for key, (count, behind) in late.items()}
    title = f"Departures more than {LATE_MINUTES} minutes late"
    _draw_grid(shares, "month", title, "percent", folder / "late.png")
    days = sorted(sums.days)
    figure, axes = plt.subplots(figsize=(9, 3.5), layout="constrained")
    axes.plot(range(len(days)), [sums.days[day] for day in days], linewidth=1)
    firsts = [at for at, day in enumerate(days) if day[1] == 1]
    axes.set_xticks(firsts, [f"{days[at][0]:02}" for at in firsts])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("month")
    axes.set_title("Departures per day")
    figure.savefig(folder / "rate.png", dpi=120)
    plt.close(figure)
    return [folder / "delays.png", folder / "late.png", folder / "rate.png"]


def _draw_grid(values: dict[tuple[int, str], float], across: str, title: str, unit: str, path: Path) -> None:
    """Draw values by number and carrier as a grid of colours."""
    from matplotlib import pyplot as plt

    numbers = sorted({number for number, _ in values})
    carriers = sorted({carrier for _, carrier in values})
    grid = [[values.get((number, carrier), float("nan")) for number in numbers] for carrier in carriers]
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    image = axes.imshow(grid, aspect="auto", cmap="magma_r")
    axes.set_xticks(range(len(numbers)), [str(number) for number in numbers])
    axes.set_yticks(range(len(carriers)), carriers)
    axes.set_xlabel(across)
    axes.set_ylabel("carrier")
    axes.set_title(title)
    figure.colorbar(image, label=unit)
    figure.savefig(path, dpi=120)
    plt.close(figure)


# -- processes

KILLS: Final = {"while it offloads": ["--die-offloading"], "in its second batch": ["--die-in", "1"]}
"""When the worker is killed, and the option that makes it kill itself."""


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Run a `boki dev` with its data in a folder, and yield its address."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [*BOKI, "dev", "--data", str(folder / "data"), "--listen", "127.0.0.1:0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BOKI_")}
    with (
        (folder / "dev.log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            found = (re.search(r"boki://[\w.]+:[1-9]\d*", line) for line in process.stdout)
            address = next((one[0] for one in found if one), None)
            if address is None:
                raise SystemExit(f"boki dev did not start: see {folder / 'dev.log'}")
            yield address
        finally:
            process.terminate()


def worker(options: argparse.Namespace) -> None:
    """Ingest, offload and run Spark: the part of the pipeline that may be killed at any time."""
    from boki_spark.session import local_session

    with boki.sync.connect(options.url) as client:
        ingest(client, load(options.input, options.rows))
        offload(client, options.url, options.folder, die=options.die_offloading)
    spark = local_session(options.folder / "spark")
    try:
        summarise(spark, options.url, options.folder, batch_rows=options.batch_rows, die_in=options.die_in)
        count_late(spark, options.url, options.folder)
    finally:
        spark.stop()


def run_worker(options: argparse.Namespace, url: str, *extra: str) -> int:
    """Run `worker` as a process, and return its exit code."""
    command = [sys.executable, "-m", "examples.pipeline", "--worker", "--url", url, "--folder", str(options.folder)]
    command += ["--rows", str(options.rows), "--batch-rows", str(options.batch_rows), *extra]
    if options.input is not None:
        command.append(str(options.input))
    return subprocess.run(command, check=False, env=dict(os.environ, SPARK_LOCAL_IP="127.0.0.1")).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pipeline, or its worker, and return the exit code."""
    parser = argparse.ArgumentParser(prog="examples.pipeline", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "input", nargs="?", type=Path, help="CSV file with the columns of the flights; by default the public data set"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("build/pipeline"),
        help="folder for data, logs and results (default: %(default)s)",
    )
    parser.add_argument("--rows", type=int, default=10**9, help="maximum of flights")
    parser.add_argument(
        "--batch-rows",
        type=int,
        default=60_000,
        help="approximate number of flights, of all books together, in one batch of Spark (default: %(default)s)",
    )
    parser.add_argument("--die-in", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--die-offloading", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.folder = options.folder.resolve()
    if options.worker:
        worker(options)
        return 0
    flights = load(options.input, options.rows)
    expected, late = oracle(flights), late_oracle(flights)
    with cluster(options.folder) as url:
        if not (options.folder / "checkpoint").exists():
            for what, how in KILLS.items():
                print(f"flights → books → files → Spark, killed {what}")
                print(f"ended with {run_worker(options, url, *how)}; restarting")
        code = run_worker(options, url)
        if code:
            print(f"the worker of the pipeline ended with {code}", file=sys.stderr)
            return 1
        with boki.sync.connect(url) as client:
            found = {"book": sums_of_book(client), "Parquet": sums_of_parquet(options.folder)}
    for name, sums in found.items():
        if sums != expected:
            print(f"expected the sums of plain Python in the {name}, found others", file=sys.stderr)
            return 1
    if late_of_parquet(options.folder) != late:
        print("expected the late departures of plain Python in the offloaded files, found others", file=sys.stderr)
        return 1
    for path in draw(expected, late, options.folder / "pictures"):
        print(path)
    print(f"{sum(expected.days.values())} flights, {len(expected.delays)} sums by hour and carrier: equal to oracle")
    return 0


if __name__ == "__main__":
    sys.exit(main())
