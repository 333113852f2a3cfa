"""Partitions of a `boki dev` that one process plans and another reads, like a driver and its executors."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

import boki
from boki_common import limits
from boki_common.ids import book_id, tag_id
from boki_logbook.scan.facts import LIVE, ScanRange
from boki_logbook.scan.partitions import Partition, cut
from boki_spark.errors import ClusterAway
from boki_spark.plan.blocking_cluster import BlockingCluster
from boki_spark.plan.read_options import ClusterOptions
from boki_spark.read.arrow import ARROW_SCHEMA
from boki_spark.source import worker
from boki_spark.source.worker import end_clients, read_partition

pytestmark = pytest.mark.processes

ROWS = 500


@pytest.fixture
def options(dev: str) -> ClusterOptions:
    return ClusterOptions(url=dev)


@pytest.fixture
def seqnums(client: boki.sync.Client, name: str) -> list[int]:
    return list(client.book(name).append_many([(b"%d" % at, [f"tag/{at % 5}", 7]) for at in range(ROWS)]))


def planned(options: ClusterOptions, name: str, *tags: str, max_bytes: int = 2_000) -> list[Partition]:
    asked = ScanRange({}, {}, book_id(name), tuple(map(tag_id, tags)))
    with BlockingCluster(options) as blocking:
        cluster = blocking.cluster
        end = blocking.run(cluster.committed()).end
        return cut(blocking.run(cluster.plan(asked._replace(end=end), LIVE)), max_bytes=max_bytes)


def test_partitions_read_elsewhere_are_what_was_appended(
    options: ClusterOptions, name: str, seqnums: list[int]
) -> None:
    found = []
    for partition in planned(options, name):
        assert len(pickle.dumps(partition)) <= 256 * limits.KIB
        for batch in read_partition(pickle.loads(pickle.dumps(partition)), options):
            assert batch.schema.equals(ARROW_SCHEMA)
            found += batch.to_pylist()
    assert [row["seqnum"] for row in found] == seqnums
    assert [row["data"] for row in found] == [b"%d" % at for at in range(ROWS)]
    assert {row["book"] % 2**64 for row in found} == {book_id(name)}
    assert found[3]["tag_names"] == ["tag/3", None] and found[3]["tags"][1] == 7
    assert found[3]["time"].year >= 2024
    end_clients()


def test_tags_and_columns_choose_what_is_read(options: ClusterOptions, name: str, seqnums: list[int]) -> None:
    found = []
    for partition in planned(options, name, "tag/1", "tag/4"):
        for batch in read_partition(partition, options, columns=("pos", "data"), batch_bytes=100):
            assert batch.schema.names == ["pos", "data"]
            found += batch.column("data").to_pylist()
    assert found == [b"%d" % at for at in range(ROWS) if at % 5 in (1, 4)]
    end_clients()


def test_a_reader_that_is_left_early_gives_its_client_back(
    options: ClusterOptions, name: str, seqnums: list[int]
) -> None:
    (partition, *_) = planned(options, name, max_bytes=10**9)
    for _ in range(3):
        batches = read_partition(partition, options, batch_bytes=100)
        next(batches)
        batches.close()  # type: ignore[attr-defined]  # a generator, which Spark leaves so behind a LIMIT
    shared = worker._shared
    assert shared is not None
    assert shared.thread.do(lambda: (len(shared._clusters), dict(shared._users), len(shared._ends))) == (1, {}, 1)
    end_clients()


def test_an_idle_client_ends_and_another_one_begins(
    options: ClusterOptions, name: str, seqnums: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "IDLE_S", 0.0)
    partitions = planned(options, name)
    assert sum(batch.num_rows for one in partitions for batch in read_partition(one, options)) == ROWS
    end_clients()
    end_clients()


def test_another_process_reads_what_it_gets(options: ClusterOptions, name: str, seqnums: list[int]) -> None:
    script = (
        "import pickle, sys\n"
        "from boki_spark.source.worker import end_clients, read_partition\n"
        "partitions, options = pickle.load(sys.stdin.buffer)\n"
        "print(sum(batch.num_rows for one in partitions for batch in read_partition(one, options)))\n"
        "end_clients()\n"
    )
    task = pickle.dumps((planned(options, name), options))
    done = subprocess.run([sys.executable, "-c", script], input=task, capture_output=True, check=True, timeout=50)
    assert int(done.stdout) == ROWS


def test_a_cluster_that_is_away_is_an_error_and_nothing_is_left(
    options: ClusterOptions, name: str, seqnums: list[int]
) -> None:
    (partition, *_) = planned(options, name)
    away = ClusterOptions(url="boki://127.0.0.1:1", timeout_s=0.2)
    with pytest.raises(ClusterAway, match=r"^\[BOKI_UNREACHABLE\]"):
        next(read_partition(partition, away))
    end_clients()
