"""One of the sides of `benchmarks.beside`: a cluster, and its client, of whatever commit Python's path leads to.

A line on standard input, `WORKLOAD SECONDS`, is answered with one line of JSON: a `Row`. It ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import boki
from benchmarks.append import WORKLOADS
from benchmarks.closed_loop import closed_loop
from boki_cli.demo.local_cluster import LocalCluster
from boki_common.runtime.process import loop_factory, tune_memory


async def serve(directory: Path) -> None:
    """Measures what it is told to, until its input ends."""
    loop = asyncio.get_running_loop()
    workloads = {workload.name: workload for workload in WORKLOADS}
    async with LocalCluster(directory, bookies=3, unix_sockets=True) as cluster, boki.connect(cluster.url) as client:
        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            name, seconds = json.loads(line)
            row = await closed_loop(workloads[name], client, cluster.pids, seconds)
            print(json.dumps(row._asdict()), flush=True)


if __name__ == "__main__":
    tune_memory()
    with (
        tempfile.TemporaryDirectory(prefix="boki-bench-") as name,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        runner.run(serve(Path(name)))
