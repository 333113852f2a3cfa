"""A Redis of its own on a Unix socket, and its Python client: the peer of a cached read."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

START_TIMEOUT_S: Final = 10.0


@asynccontextmanager
async def redis_client(directory: Path) -> AsyncIterator[Any]:
    """A connected client; None where Redis or its Python client is not installed."""
    server = shutil.which("redis-server")
    if server is None or importlib.util.find_spec("redis") is None:
        yield None
        return
    redis = importlib.import_module("redis.asyncio")
    directory.mkdir()
    socket = directory / "redis.sock"
    command = [
        server,
        "--port",
        "0",
        "--unixsocket",
        str(socket),
        "--dir",
        str(directory),
        "--save",
        "",
        "--daemonize",
        "no",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        deadline = monotonic() + START_TIMEOUT_S
        while not socket.exists():
            if process.poll() is not None or monotonic() > deadline:
                raise RuntimeError(f"redis-server did not start: {process.poll()}")
            sleep(0.02)
        client = redis.Redis(unix_socket_path=str(socket))
        yield client
        await client.aclose()
    finally:
        process.terminate()
        process.wait()
