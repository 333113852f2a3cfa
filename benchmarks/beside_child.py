"""One of the sides of `benchmarks.beside`: a cluster, and its client, of whatever commit Python's path leads to.

A line on standard input, `WORKLOAD SECONDS`, is answered with one line of JSON: a `Row`. It ends with its input.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import boki
from benchmarks.append import WORKLOADS
from benchmarks.closed_loop import closed_loop


def found(*names: str) -> Any:
    """The first of these modules that this commit has."""
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    return importlib.import_module(names[-1])


local_cluster = found("boki_cli.demo.local_cluster", "boki_cli.local_cluster")
process = found("boki_common.runtime.process", "boki_common.process")


async def serve(directory: Path) -> None:
    """Measures what its input names, until that ends."""
    loop = asyncio.get_running_loop()
    workloads = {workload.name: workload for workload in WORKLOADS}
    async with (
        local_cluster.LocalCluster(directory, bookies=3, unix_sockets=True) as cluster,
        boki.connect(cluster.url) as client,
    ):
        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            name, seconds = json.loads(line)
            row = await closed_loop(workloads[name], client, cluster.pids, seconds)
            print(json.dumps(row._asdict()), flush=True)


if __name__ == "__main__":
    process.tune_memory()
    with (
        tempfile.TemporaryDirectory(prefix="boki-bench-") as name,
        asyncio.Runner(loop_factory=process.loop_factory()) as runner,
    ):
        runner.run(serve(Path(name)))
