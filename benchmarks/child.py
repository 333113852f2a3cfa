"""A process that does one thing beside Boki, so that what the machine can do is measured in the same run.

The parent starts `python -m MODULE ARGUMENTS` with `running` and has it for as long as the block lasts; the child calls `serve`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running(module: str, *arguments: str) -> Iterator[int]:
    """Yields its process id once it serves. Raises RuntimeError: it ended instead."""
    child = subprocess.Popen([sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        if not child.stdout.readline():
            raise RuntimeError(f"{module} {' '.join(arguments)} ended with {child.wait()}")
        yield child.pid
    finally:
        child.kill()
        child.communicate()


async def serve(make_protocol: Callable[[], asyncio.BaseProtocol], socket: Path) -> None:
    """Listens on a Unix socket, says so to the parent, and ends with it."""
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(make_protocol, str(socket))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()
