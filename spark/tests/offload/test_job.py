"""Offloading without an event loop, and reads of the files instead of ledgers, like a driver and its tasks."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

from boki_common import limits
from boki_common.runtime.loop_thread import LoopThread
from boki_spark.cold_terms.cold_reads import ColdPartition, choose_cold, cold_files
from boki_spark.cold_terms.files import FsspecFiles
from boki_spark.errors import ColdMissing, PlanStale
from boki_spark.offload.job import offload_term, offloadable, sweep
from boki_spark.plan import cluster as cluster_module
from boki_spark.plan.cluster import SNAPSHOT, Cluster, ClusterOptions
from boki_spark.source import worker
from boki_spark.source.worker import end_clients, read_partition
from boki_spark.testing.small_cluster import SmallCluster, whole_plan

OPTIONS = ClusterOptions(url="boki://in-this-process")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LoopThread, SmallCluster]]:
    """Run a cluster in a loop of its own, which every `Cluster.open` returns."""
    thread = LoopThread("small cluster")
    made = SmallCluster()
    thread.run(made.__aenter__())

    async def opened(options: ClusterOptions) -> Cluster:
        return Cluster(made.ledgers.stores[-1], made.ledgers.clients[-1], None, SNAPSHOT)

    async def kept(self: Cluster) -> None: ...

    monkeypatch.setattr(cluster_module.Cluster, "open", staticmethod(opened))
    monkeypatch.setattr(cluster_module.Cluster, "close", kept)
    monkeypatch.setattr("boki_spark.offload.job.LoopThread", lambda _: _SharedLoop(thread))
    monkeypatch.setattr("boki_spark.source.worker.LoopThread", lambda _: _SharedLoop(thread))
    yield thread, made
    end_clients()
    thread.run(made.__aexit__(None, None, None))
    thread.stop()


class _SharedLoop(LoopThread):
    """A stand-in for a loop thread that runs everything in the cluster's loop."""

    def __init__(self, thread: LoopThread) -> None:
        self.run = thread.run  # type: ignore[method-assign]  # of the one thread
        self.do = thread.do  # type: ignore[method-assign]  # as above

    @property
    def elsewhere(self) -> bool:
        return False

    def stop(self) -> None: ...


async def filled(cluster: SmallCluster) -> None:
    for at in range(0, 40, 4):
        await cluster.append(*(("orders", b"%d" % (at + number), ["a"]) for number in range(4)))
    await cluster.roll()
    await cluster.snapshot_covers(1)


def test_a_term_is_offloaded_and_its_files_are_read_in_its_place(
    small: tuple[LoopThread, SmallCluster], tmp_path: Path
) -> None:
    thread, cluster = small
    thread.run(filled(cluster))
    folder = f"file://{tmp_path}/cold"
    assert offloadable(OPTIONS) == [1]
    assert (
        offload_term(OPTIONS, folder, 1).rows == 40 and offloadable(OPTIONS) == [] and sweep(OPTIONS, folder) == (0, 0)
    )
    plan = thread.run(whole_plan(cluster.pipeline()))
    choice = thread.run(choose_cold(cluster.pipeline(), FsspecFiles(), plan))
    assert not choice.rest.terms and isinstance(choice.partitions[0], ColdPartition)
    assert all(len(pickle.dumps(one)) <= 256 * limits.KIB for one in choice.partitions)
    rows = [row for one in choice.partitions for batch in read_partition(one, OPTIONS) for row in batch.to_pylist()]
    assert sorted(row["data"] for row in rows) == sorted(b"%d" % at for at in range(40))
    files, rest = thread.run(cold_files(cluster.pipeline(), FsspecFiles(), plan))
    assert sum(one.rows for one in files) == 40 and not rest.terms
    small_batches = list(read_partition(choice.partitions[0], OPTIONS, columns=("data",), batch_bytes=50))
    assert len(small_batches) > 1 and small_batches[0].schema.names == ["data"]


def test_a_folder_by_another_name_has_the_same_files(small: tuple[LoopThread, SmallCluster], tmp_path: Path) -> None:
    """The term record names its manifest with the spelling of the folder at that time."""
    thread, cluster = small
    thread.run(filled(cluster))
    offload_term(OPTIONS, f"file://{tmp_path}/cold", 1)
    (tmp_path / "link").symlink_to(tmp_path / "cold")
    for folder in ("link", "./cold", "cold/"):
        assert sweep(OPTIONS, f"file://{tmp_path}/{folder}") == sweep(
            OPTIONS, f"file://{tmp_path}/{folder}", alone=True
        )
    assert offload_term(OPTIONS, f"file://{tmp_path}/link", 1).why == "it is copied"


def test_a_file_that_is_gone_is_missing_or_makes_the_plan_stale(
    small: tuple[LoopThread, SmallCluster], tmp_path: Path
) -> None:
    thread, cluster = small
    thread.run(filled(cluster))
    offload_term(OPTIONS, f"file://{tmp_path}/cold", 1)
    plan = thread.run(whole_plan(cluster.pipeline()))
    (one, *_) = thread.run(choose_cold(cluster.pipeline(), FsspecFiles(), plan)).partitions
    for path in tmp_path.rglob("*.parquet"):
        path.unlink()
    with pytest.raises(ColdMissing, match=r"^\[BOKI_COLD_MISSING\]"):
        list(read_partition(one, OPTIONS))
    thread.run(cluster.trim("orders", 2**62))

    async def reclaimed() -> None:
        while not (await cluster.record(1)).reclaimed:
            await cluster.append(("other", b"x", []))

    thread.run(reclaimed())
    with pytest.raises(PlanStale, match=r"^\[BOKI_PLAN_STALE\]"):
        list(read_partition(one, OPTIONS))
    assert worker.IDLE_S > 0
