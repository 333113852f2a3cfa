"""A process that runs machines or actors for `benchmarks.rsm`, and answers its parent's questions, one line each.

    here     "taken"                on its standard input
    there    [0.0012, 0.0011]       JSON, on its standard output

The first line that it says is `ready`. It ends with its input, or by kill -9. Both sides are here.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import psutil

READY_S: Final = 60.0
END_S: Final = 60.0
LINE_BYTES: Final = 64 * 2**20
"""The longest answer: latencies of all messages of a round."""


class Child:
    """The parent's side.

    Attributes:
        pid: of the process.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid: Final = process.pid
        self._process: Final = process

    async def ask(self, question: str) -> Any:
        """Return the answer to a question."""
        assert self._process.stdin is not None
        self._process.stdin.write(question.encode() + b"\n")
        return json.loads(await self._line())

    async def begun(self) -> None:
        """Wait until the process is ready.

        Raises:
            RuntimeError: it ended instead.
        """
        assert await asyncio.wait_for(self._line(), READY_S) == b"ready\n"

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"process {self.pid} ended with {await self._process.wait()}")
        return line

    @property
    def resident_bytes(self) -> int:
        """The memory of the process that is its own: without pages of files that others have too."""
        found = psutil.Process(self.pid).memory_info()
        return int(found.rss - found.shared)

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.kill()

    async def close(self) -> None:
        """End its input, and wait until it has left."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), END_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def running(module: str, *arguments: str) -> AsyncIterator[Child]:
    """A process of a module for as long as the block lasts."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        limit=LINE_BYTES,
    )
    child = Child(process)
    try:
        await child.begun()
        yield child
    finally:
        await child.close()


async def serve(answers: Mapping[str, Callable[..., object]]) -> None:
    """Answer questions until the input ends. The child's side. Words behind a question are its arguments."""
    loop = asyncio.get_running_loop()
    print("ready", flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        question, *arguments = line.split()
        print(json.dumps(answers[question](*arguments)), flush=True)
