"""`boki` as processes: one that serves while a test goes on, and commands that end.

async with running("dev", "--data", folder, "--listen", "127.0.0.1:0", log=tmp_path / "log") as dev:
    code, out, err = await command("append", "-", "--book", "b", "--url", dev.url)
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

BOKI: Final = (sys.executable, "-m", "boki_cli.main")
READY_S: Final = 40
COMMAND_S: Final = 60

Opened = TypeVar("Opened")


class Running(NamedTuple):
    """A process, and the line that it printed when it began to serve."""

    process: Process
    ready: dict[str, Any]

    @property
    def address(self) -> str:
        return str(self.ready["addresses"][0])

    @property
    def url(self) -> str:
        return self.address if "://" in self.address else f"boki://{self.address}"


@asynccontextmanager
async def running(
    *arguments: str | Path, log: Path, environment: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> AsyncIterator[Running]:
    """A command that serves until it is left. It ends with this process, however that ends."""
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            *(*prefix, *BOKI, *arguments, "--json", "--stop-with-stdin"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=out,
            env={**os.environ, **(environment or {})},
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(READY_S):
            line = await process.stdout.readline()
        assert line, f"it ended before it was ready:\n{log.read_text()[-2_000:]}"
        yield Running(process, json.loads(line))
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def command(
    *arguments: str | Path,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    within_s: float = COMMAND_S,
) -> tuple[int | None, str, str]:
    """Runs a command to its end; its exit code and what it wrote to both outputs. It is killed if it is not waited for."""
    process = await asyncio.create_subprocess_exec(
        *BOKI, *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={**os.environ, **(environment or {})}
    )
    try:
        async with asyncio.timeout(within_s):
            out, err = await process.communicate(stdin)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    return process.returncode, out.decode(), err.decode()


@contextmanager
def throughout(context: AbstractAsyncContextManager[Opened]) -> Iterator[Opened]:
    """Opens a context for tests, or fixtures, that are no coroutines."""
    with asyncio.Runner() as runner:
        opened = runner.run(context.__aenter__())
        try:
            yield opened
        finally:
            runner.run(context.__aexit__(None, None, None))
