"""Offloading for programs without an event loop and for Spark jobs, one term a task.

    terms = offloadable(options)
    spark.sparkContext.parallelize(terms, len(terms)).map(lambda term: offload_term(options, folder, term)).collect()

These functions do what `boki offload` does. Any number of them may run at the same time, even for the same term: one of them wins.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from boki_common.runtime.loop_thread import LoopThread
from boki_common.runtime.process import SystemRandom
from boki_spark.cold_terms.files import FsspecFiles
from boki_spark.offload.folder import SweepResult
from boki_spark.offload.offloader import Offloaded, Offloader, Progress
from boki_spark.offload.survey import NOT_COVERED, Survey
from boki_spark.plan.cluster import SNAPSHOT, Cluster, ClusterOptions

T = TypeVar("T")

PAUSE_S: Final = 0.1
"""Seconds between two reads of the index snapshot."""


def offloadable(options: ClusterOptions) -> list[int]:
    """Return the sealed terms that can be offloaded now, ascending. Raises as `Cluster.open` and `Offloader.survey`."""

    async def due(work: Offloader) -> list[int]:
        return (await work.survey()).due

    return _with(options, "memory://", due)


def offload_term(
    options: ClusterOptions,
    folder: str,
    term: int,
    *,
    wait_s: float = 0.0,
    progress: Progress = lambda done, total: None,
) -> Offloaded:
    """Offload a term into a folder.

    Args:
        folder: a URL that fsspec knows.
        wait_s: seconds to wait for an index snapshot that covers the term. Engines write one when a term ends.
        progress: called while rows are written and read back, with the rows done and the rows in total.

    Raises:
        BokiError: as `Cluster.open` and `Offloader.offload`.
    """
    return _with(options, folder, lambda work: once_covered(work, term, wait_s, progress))


async def once_covered(work: Offloader, term: int, wait_s: float, progress: Progress) -> Offloaded:
    """Offload a term once an index snapshot covers it, or return its outcome after the wait. Raises as `Offloader.offload`."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    while True:
        made = await work.offload(term, progress)
        if made.why != NOT_COVERED or loop.time() >= until:
            return made
        await asyncio.sleep(PAUSE_S)


async def survey_covered(work: Offloader, wait_s: float, *, prove_copied: bool) -> Survey:
    """Find the terms to offload once an index snapshot covers all sealed ones, or after the wait. Raises as `Offloader.survey`."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    found = await work.survey(prove_copied=prove_copied)
    damaged = set(found.due) if prove_copied else set[int]()
    while found.waits and loop.time() < until:
        await asyncio.sleep(PAUSE_S)
        found = await work.survey()
    return found._replace(due=sorted(damaged.union(found.due)))


def sweep(options: ClusterOptions, folder: str, *, alone: bool = False) -> SweepResult:
    """Delete files that no record can ever name.

    Args:
        alone: no other cluster uses the folder, so files of earlier versions of Boki, which name no cluster, are deleted too.

    Raises:
        BokiError: as `Cluster.open` and `Offloader.sweep`.
    """
    return _with(options, folder, lambda work: work.sweep(alone=alone))


def _with(options: ClusterOptions, folder: str, use: Callable[[Offloader], Awaitable[T]]) -> T:
    async def main() -> T:
        cluster = await Cluster.open(dataclasses.replace(options, plan=SNAPSHOT))
        try:
            return await use(
                Offloader(cluster, FsspecFiles(), folder, rng=SystemRandom(), retry_for_s=options.timeout_s)
            )
        finally:
            await cluster.close()

    thread = LoopThread("boki_spark.offload")
    try:
        return thread.run(main())
    finally:
        thread.stop()
