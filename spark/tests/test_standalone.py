"""The standalone cluster of docs/spark.md in processes: an executor and the driver are killed while a stream is copied."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

import pyspark

import boki
from boki_spark.session import JavaMissing, java_home

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.spark,
    pytest.mark.alone,
    pytest.mark.processes,
    pytest.mark.timeout(1_200),
]
COUNT, STEP = 600, 25
EXECUTOR = "CoarseGrainedExecutorBackend"
DRIVER = """
import sys
from pathlib import Path
from boki_spark.session import local_session

master, url, name, folder, trigger = sys.argv[1:]
options = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", "spark.executor.cores": "1"}
spark = local_session(Path(folder) / "driver", master=master, options=options)
if trigger != "availableNow":
    frame = spark.read.format("boki").option("url", url).option("book", name).option("minPartitions", 4).load()
    print("sum", frame.selectExpr("sum(int(string(data))) AS n").collect()[0]["n"], flush=True)
stream = spark.readStream.format("boki").option("url", url).option("book", name)
stream = stream.option("startingOffsets", "earliest").option("maxRecordsPerTrigger", 50).option("minPartitions", 2)
writer = stream.load().select("data").writeStream.format("boki").option("url", url).option("book", name + "-copy")
writer = writer.option("checkpointLocation", folder + "/checkpoint")
how = {"availableNow": True} if trigger == "availableNow" else {"processingTime": "0 seconds"}
writer.trigger(**how).start().awaitTermination()
spark.stop()
print("done", flush=True)
"""


def environment(scratch: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BOKI_", "SPARK_"))}
    try:
        home = str(java_home(scratch))
    except JavaMissing as error:
        pytest.skip(str(error))
    return {
        **kept, "JAVA_HOME": home, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }  # fmt: skip


@contextlib.contextmanager
def process(arguments: list[str], log: Path, scratch: Path, **kept: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process that is killed when the test ends."""
    with (
        log.open("w") as output,
        subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=output, text=True, env={**environment(scratch), **kept}
        ) as made,
    ):
        try:
            yield made
        finally:
            with contextlib.suppress(ProcessLookupError):
                made.kill()


class Standalone:
    """The processes of the standalone cluster."""

    def __init__(self, url: str, workers: list[subprocess.Popen[str]]) -> None:
        self.url = url
        self.workers = workers

    def executors(self) -> list[int]:
        """Return the process ids of the executors that workers started."""
        found: list[int] = []
        for worker in self.workers:
            for path in Path(f"/proc/{worker.pid}/task").glob("*/children"):
                with contextlib.suppress(FileNotFoundError):
                    found += [int(one) for one in path.read_text().split() if EXECUTOR in command_of(int(one))]
        return found


def command_of(number: int) -> str:
    """Return the command line of a process, or an empty text if it ended."""
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{number}/cmdline").read_text(errors="replace")
    return ""


def logged(log: Path, pattern: str) -> str:
    """Wait for a text in the log of a process, and return it."""
    while True:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[0]


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    """Run a master and two workers of one core each."""
    spark_class = str(Path(pyspark.__path__[0]) / "bin" / "spark-class")
    master_log = tmp_path / "master.log"
    master = [spark_class, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(process([*master, "--webui-port", "0"], master_log, tmp_path))
        url = logged(master_log, r"spark://127\.0\.0\.1:\d+")
        workers = []
        for number in range(2):
            worker = [spark_class, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0"]
            worker += ["--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / f"work-{number}"), url]
            log = tmp_path / f"worker-{number}.log"
            workers.append(stack.enter_context(process(worker, log, tmp_path)))
            logged(log, "Successfully registered with master")
        yield Standalone(url, workers)


def test_a_stream_on_a_standalone_cluster_outlives_an_executor_and_its_driver(
    standalone: Standalone, dev: str, client: boki.sync.Client, name: str, tmp_path: Path
) -> None:
    book, copy = client.book(name), client.book(f"{name}-copy")
    for at in range(0, COUNT, STEP):
        book.append_many([(b"%d" % one, ()) for one in range(at, at + STEP)])
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)

    def copied() -> list[int]:
        rows = (record for record in copy.read() if isinstance(record, boki.Record))
        return sorted(int(record.data) for record in rows if record.data.isdigit())

    def command(trigger: str) -> list[str]:
        return [sys.executable, str(driver), standalone.url, dev, name, str(tmp_path), trigger]

    with process(command("always"), tmp_path / "driver.log", tmp_path) as first:
        assert first.stdout is not None
        assert first.stdout.readline().split() == ["sum", str(sum(range(COUNT)))], (tmp_path / "driver.log").read_text()
        while len(copied()) < 100:
            assert first.poll() is None
        executors = standalone.executors()
        assert len(executors) == 2, [command_of(one) for one in executors]
        os.kill(executors[0], signal.SIGKILL)
        before = len(copied())
        while len(copied()) < min(before + 150, COUNT - 100):
            assert first.poll() is None
        first.kill()
        first.wait()
    assert len(copied()) < COUNT, "it was killed before the end"
    with process(command("availableNow"), tmp_path / "again.log", tmp_path) as second:
        assert second.stdout is not None
        assert second.stdout.read().split() == ["done"], (tmp_path / "again.log").read_text()
    assert copied() == list(range(COUNT))
