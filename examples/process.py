"""What the processes of a trial have in common: arguments, and an end when standard input closes."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from boki_common.runtime.process import loop_factory

LINGER_S: Final = 30.0
"""How long a process may take to end once its standard input is closed: the cluster may be gone too."""


def parser(module: str) -> argparse.ArgumentParser:
    """The arguments of every process."""
    made = argparse.ArgumentParser(prog=f"python -m {module}")
    made.add_argument("url")
    made.add_argument("--name", required=True)
    return made


def serve(work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run until standard input closes; `work` is given the event of that, and is cancelled if it goes on for long after it."""

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        stdin = sys.stdin.fileno()

        task = asyncio.current_task()
        assert task is not None

        def closed() -> None:
            loop.remove_reader(stdin)  # a closed pipe stays readable: the loop would do nothing else
            stop.set()
            loop.call_later(LINGER_S, task.cancel)

        loop.add_reader(stdin, closed)  # nothing is written to it: it can be read once it is closed
        await work(stop)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run())
