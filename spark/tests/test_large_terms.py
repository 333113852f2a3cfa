"""Large terms: read completely, from ledgers and from files, by a process whose memory does not grow with them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

import boki
from boki_common import limits
from boki_common.ids import term_of

Offload = Callable[[int, Path], str]

pytestmark = [pytest.mark.processes, pytest.mark.alone]
RECORD_BYTES = 64 * limits.KIB
MEMORY_BYTES = 300_000_000
"""Memory of a Python worker, independent of what it reads."""
WORKER = """
import sys
from pathlib import Path
import pyspark.sql.datasource
from boki_spark.plan.read_options import batch_options
from boki_spark.plan.blocking_cluster import BlockingCluster
from boki_spark.source.reader import batch_partitions
from boki_spark.source.worker import end_clients, read_partition

chosen = batch_options({"url": sys.argv[1], "book": sys.argv[2]})
with BlockingCluster(chosen.cluster) as blocking:
    partitions = blocking.run(batch_partitions(blocking.cluster, chosen))
count = total = 0
for one in partitions:
    for batch in read_partition(one, chosen.cluster):
        for data in batch.column("data"):
            count, total = count + 1, total + int.from_bytes(data.as_buffer()[:8].to_pybytes(), "big")
kinds = {type(one).__name__ for one in partitions}
end_clients()
status = Path("/proc/self/status").read_text().splitlines()
print(count, total, *kinds, next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024)
"""


def fill(client: boki.sync.Client, name: str, count: int) -> int:
    """Append records that do not compress and begin with their numbers, and return their term."""
    noise = boki.SystemRandom().token(16 << 20)
    book, step, first = client.book(name), 64, 0
    for at in range(0, count, step):
        numbers = range(at, min(at + step, count))
        places = [one * 8_191 % (len(noise) - RECORD_BYTES) for one in numbers]
        rows = [
            (one.to_bytes(8, "big") + noise[place : place + RECORD_BYTES - 8], [f"n/{one % 7}"])
            for one, place in zip(numbers, places, strict=True)
        ]
        seqnums = book.append_many(rows)
        first = first or seqnums[0]
    return term_of(first)


def read_elsewhere(url: str, name: str) -> tuple[int, int, str, int]:
    """Return the rows, the sum of their numbers, the kind of partition, and the peak memory of the process that read them."""
    command = [sys.executable, "-c", WORKER, url, name]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    count, total, kind, size = printed
    return int(count), int(total), kind, int(size)


@pytest.mark.parametrize(
    "megabytes",
    [
        pytest.param(256, marks=pytest.mark.timeout(1_200)),
        pytest.param(2_048, marks=[pytest.mark.nightly, pytest.mark.timeout(7_200)]),
    ],
)
def test_a_large_term_is_read_whole_in_little_memory(
    dev: str, client: boki.sync.Client, name: str, offload: Offload, tmp_path: Path, megabytes: int
) -> None:
    count = megabytes * limits.MIB // RECORD_BYTES
    term = fill(client, name, count)
    whole = count, count * (count - 1) // 2
    read = read_elsewhere(dev, name)
    assert read[:3] == (*whole, "Partition") and read[3] <= MEMORY_BYTES
    offload(term, tmp_path / "cold")
    read = read_elsewhere(dev, name)
    assert read[:3] == (*whole, "ColdPartition") and read[3] <= MEMORY_BYTES
    client.book(name).trim(before=2**62)
