"""Plans for programs without an event loop: what a Spark driver asks.

    with open_source(ClusterOptions(url="boki://127.0.0.1:7040")) as source:
        committed = source.committed()
        plan = source.plan(Range({}, committed.end), mode="live")

One loop in a thread of its own. It does not survive a fork, nor is it pickled: open one where it is used.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from boki_common.runtime.loop_thread import LoopThread
from boki_logbook.scan.facts import LIVE, Committed, ScanRange
from boki_logbook.scan.plan import Plan
from boki_spark.cold_terms.files import OpenFiles
from boki_spark.plan.cluster import Cluster
from boki_spark.plan.cluster import ClusterOptions as ClusterOptions

if TYPE_CHECKING:
    from boki_spark.cold_terms.cold_reads import ColdChoice, ColdFile


class Source:
    """A `Cluster`, whose docstrings are the reference. Made by `open_source`; `with` closes it."""

    def __init__(self, thread: LoopThread, cluster: Cluster) -> None:
        self._thread = thread
        self._cluster = cluster

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def committed(self) -> Committed:
        return self._thread.run(self._cluster.committed())

    def seek(self, time_ms: int) -> dict[int, tuple[int, int]]:
        return self._thread.run(self._cluster.seek(time_ms))

    def plan(self, asked: ScanRange, mode: str = LIVE) -> Plan:
        return self._thread.run(self._cluster.plan(asked, mode))

    def choose_cold(self, plan: Plan) -> ColdChoice:
        """What of a plan is read from files. Raises as `cold_reads.choose_cold`."""
        from boki_spark.cold_terms.cold_reads import choose_cold

        return self._thread.run(choose_cold(self._cluster, OpenFiles(), plan))

    def cold_files(self, plan: Plan) -> tuple[list[ColdFile], Plan]:
        """The files that have rows of a plan, and the plan of what no file has. Raises as `cold_reads.choose_cold`."""
        from boki_spark.cold_terms.cold_reads import cold_files

        return self._thread.run(cold_files(self._cluster, OpenFiles(), plan))

    def close(self) -> None:
        """Idempotent."""
        self._thread.stop()


def open_source(options: ClusterOptions) -> Source:
    """Connects. Raises as `Cluster.open`."""
    thread = LoopThread("boki_spark.source")
    try:
        cluster = thread.run(Cluster.open(options))
    except BaseException:
        thread.stop()
        raise
    thread.closes(cluster.close)
    return Source(thread, cluster)
