"""The workflows that are measured, and a worker of them that is a process of its own.

python -m benchmarks.flow_programs URL BOOK NAME LEASE_S            (its end is that of its standard input, or kill -9)
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import boki
import bokiflow
from boki_common.runtime.process import loop_factory
from bokiflow import App, Worker

app: Final = App("bench")
DAY_S: Final = 86_400


@app.step
async def step(number: int) -> int:
    """Does nothing."""
    return number + 1


@app.workflow
async def steps(count: int) -> int:
    """So many steps, one after the other."""
    total = 0
    for _ in range(count):
        total = await step(total)
    return total


@app.workflow
async def asleep(seconds: float) -> None:
    """Sleeps."""
    await asyncio.sleep(seconds)


@app.workflow
async def waits() -> None:
    """Waits for somebody."""
    await bokiflow.recv("go")


async def work(url: str, book: str, name: str, lease_s: float) -> None:
    """A worker, until its input ends."""
    async with boki.connect(url) as client, Worker(app, client.book(book), name=name, lease_s=lease_s):
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(work(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])))
