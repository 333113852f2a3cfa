"""A cluster in memory that commands reach by its URL, and a way to run commands as a shell would."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from boki.testing import MemoryCluster
from boki_cli.testing import RunCommandLine, run_command_line
from boki_cli.testing_bookies import BookieCluster
from boki_common.runtime.loop_thread import LoopThread


@pytest.fixture
def run_boki() -> RunCommandLine:
    """Runs one command line in this process: `run_boki("read", "--book", "b", stdin=b"...")`."""
    return run_command_line


@pytest.fixture
def memory_url() -> Iterator[str]:
    """The URL of a cluster in memory whose loop runs in a thread: each command has a loop of its own."""
    ready = threading.Event()
    urls: list[str] = []
    loop = asyncio.new_event_loop()
    done = asyncio.Event()

    async def serve() -> None:
        async with MemoryCluster() as cluster:
            urls.append(cluster.url)
            ready.set()
            await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    yield urls[0]
    loop.call_soon_threadsafe(done.set)
    thread.join(10)
    loop.close()


@pytest.fixture
def bookies(tmp_path: Path) -> Iterator[BookieCluster]:
    """Three bookies that commands reach by `--metadata`."""
    thread = LoopThread("bookies of a test")
    cluster = BookieCluster(thread, f"sqlite://{tmp_path}/metadata.db")
    cluster.run(cluster.start())
    yield cluster
    cluster.run(cluster.close())
    thread.stop()
