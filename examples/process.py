"""What the processes of a trial have in common: arguments, and an end when standard input closes."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable

from boki_common.runtime.process import loop_factory


def parser(module: str) -> argparse.ArgumentParser:
    """The arguments of every process."""
    made = argparse.ArgumentParser(prog=f"python -m {module}")
    made.add_argument("url")
    made.add_argument("--name", required=True)
    return made


def serve(work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Runs until standard input closes; `work` is given the event of that."""

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), stop.set)  # nobody writes to it: it can be read once it is closed
        await work(stop)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run())
