"""A blocking cluster of a `boki dev`."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

import boki
from boki_common.ids import book_id
from boki_logbook.scan.facts import LIVE, ScanRange, reached
from boki_spark.errors import ClusterAway, PipelineError
from boki_spark.plan.blocking_cluster import BlockingCluster
from boki_spark.plan.read_options import ClusterOptions

pytestmark = pytest.mark.processes


def test_what_was_appended_is_committed_and_planned(dev: str, client: boki.sync.Client, name: str) -> None:
    book = client.book(name)
    seqnum = book.append(b"x")
    with BlockingCluster(ClusterOptions(url=dev)) as blocking:
        cluster = blocking.cluster
        committed = blocking.run(cluster.committed())
        while committed.end[0] < (seqnum >> 35, (seqnum & (2**35 - 1)) + 1):
            committed = blocking.run(cluster.committed())
        plan = blocking.run(cluster.plan(ScanRange({}, committed.end, book_id(name)), LIVE))
        assert plan.rows == 1 and reached(committed, plan.asked.end)
        assert blocking.run(cluster.seek(0))[0][1] == 0


def test_a_closed_cluster_raises(dev: str) -> None:
    blocking = BlockingCluster(ClusterOptions(url=dev))
    blocking.close()
    blocking.close()
    with pytest.raises(PipelineError, match="ClosedError"):
        blocking.run(blocking.cluster.committed())


def test_an_address_that_does_not_answer_raises_with_a_code() -> None:
    with pytest.raises(ClusterAway, match=r"^\[BOKI_UNREACHABLE\]"):
        BlockingCluster(ClusterOptions(url="boki://127.0.0.1:1", timeout_s=0.2))
