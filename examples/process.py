"""The common part of processes that a trial starts: arguments, and an end when standard input closes.

    arguments = parser("examples.orders.worker")
    serve(lambda stop: work(stop))                  # `work` returns soon after the event `stop` is set

`examples.supervisor` is the other side. Standard input closes also when the trial itself dies, so no process outlives it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from boki_common.runtime.process import loop_factory

LINGER_S: Final = 30.0
"""Time that a process has to end once its standard input is closed: the cluster may be gone too."""


def parser(module: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments of all processes: the cluster's address and the process's name."""
    made = argparse.ArgumentParser(prog=f"python -m {module}")
    made.add_argument("url", help="address of the cluster")
    made.add_argument("--name", required=True, help="name of the process")
    return made


def serve(work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `work` with an event that is set when standard input closes; cancel it if it still runs LINGER_S later."""

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        stdin = sys.stdin.fileno()

        task = asyncio.current_task()
        assert task is not None

        def closed() -> None:
            loop.remove_reader(stdin)  # a closed pipe stays readable and would keep the loop busy
            stop.set()
            loop.call_later(LINGER_S, task.cancel)

        loop.add_reader(stdin, closed)  # it gets no data, so it becomes readable when it closes
        await work(stop)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run())
