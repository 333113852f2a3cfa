"""Offloading for programs without an event loop, and for jobs of Spark: one term a task.

    terms = offloadable(options)
    spark.sparkContext.parallelize(terms, len(terms)).map(lambda term: offload_term(options, folder, term)).collect()

What `boki offload` does; any number of them may run at the same time, of the same terms too: one of them wins.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import TypeVar

from boki_common.runtime.loop_thread import LoopThread
from boki_common.runtime.process import SystemRandom
from boki_spark.cluster import SNAPSHOT, Cluster, ClusterOptions
from boki_spark.files import OpenFiles
from boki_spark.offload import Offloaded, Offloader

T = TypeVar("T")


def offloadable(options: ClusterOptions) -> list[int]:
    """Sealed terms that can be offloaded now, ascending. Raises as `Cluster.open` and `Offloader.offloadable`."""
    return _with(options, "memory://", lambda work: work.offloadable())


def offload_term(options: ClusterOptions, folder: str, term: int) -> Offloaded:
    """Offloads a term into a folder, a URL of fsspec. Raises as `Cluster.open` and `Offloader.offload`."""
    return _with(options, folder, lambda work: work.offload(term))


def sweep(options: ClusterOptions, folder: str) -> int:
    """Deletes files that nothing can ever name; returns how many. Raises as `Cluster.open` and `Offloader.sweep`."""
    return _with(options, folder, lambda work: work.sweep())


def _with(options: ClusterOptions, folder: str, use: Callable[[Offloader], Awaitable[T]]) -> T:
    async def main() -> T:
        cluster = await Cluster.open(dataclasses.replace(options, plan=SNAPSHOT))
        try:
            return await use(Offloader(cluster, OpenFiles(), folder, rng=SystemRandom(), patience_s=options.timeout_s))
        finally:
            await cluster.close()

    thread = LoopThread("boki_spark.offload")
    try:
        return thread.run(main())
    finally:
        thread.stop()
