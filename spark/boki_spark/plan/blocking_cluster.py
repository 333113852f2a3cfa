"""A cluster for threads that may block, such as those of a Spark driver.

    with BlockingCluster(ClusterOptions(url="boki://127.0.0.1:7040")) as blocking:
        plan = blocking.run(blocking.cluster.plan(asked, LIVE))

It has an event loop in a thread of its own. It does not survive a fork and is not pickled: open one where it is used.
"""

from __future__ import annotations

from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, TypeVar

from boki_common.runtime.loop_thread import LoopThread
from boki_spark.errors import coded
from boki_spark.plan.cluster import Cluster
from boki_spark.plan.read_options import ClusterOptions

T = TypeVar("T")


class BlockingCluster:
    """A connected `Cluster` and the thread of its event loop.

    Attributes:
        cluster: use it only in coroutines that `run` is given.
    """

    def __init__(self, options: ClusterOptions) -> None:
        """Connect to a cluster.

        Raises:
            PipelineError: as `Cluster.open`, with a code.
        """
        self._thread = LoopThread("boki_spark.blocking_cluster")
        try:
            self.cluster: Final = self.run(Cluster.open(options))
        except BaseException:
            self._thread.stop()
            raise
        self._thread.closes(self.cluster.close)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return its result.

        Raises:
            PipelineError: the error of the coroutine, with a code.
        """
        with coded():
            return self._thread.run(work)

    def close(self) -> None:
        """Close the cluster and end the thread. Idempotent."""
        self._thread.stop()

    def __enter__(self) -> BlockingCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
