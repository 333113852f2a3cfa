"""A cluster in memory that commands reach by its URL, and a way to run commands as a shell would."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from boki_cli.testing.bookies import BookieCluster
from boki_cli.testing.commands import RunCommandLine, memory_cluster, run_command_line
from boki_common.bookkeeper import layout
from boki_common.metadata.memory import MemoryStore
from boki_common.runtime.loop_thread import LoopThread
from boki_metalog.terms.metadata_tree import ensure_view
from itests.support.processes import running, throughout


@pytest.fixture
def run_boki() -> RunCommandLine:
    """Runs one command line in this process: `run_boki("read", "--book", "b", stdin=b"...")`."""
    return run_command_line


@pytest.fixture
def memory_url() -> Iterator[str]:
    """The URL of a cluster in memory."""
    with memory_cluster() as url:
        yield url


@pytest.fixture(scope="module")
def dev_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a `boki dev` in a process of its own, for commands that run in others; its gateway is off."""
    folder = tmp_path_factory.mktemp("dev")
    dev = ("dev", "--data", folder, "--listen", "127.0.0.1:0", "--gateway-port", "-1")
    with throughout(running(*dev, log=folder / "log")) as process:
        yield process.url


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    """A metadata store with a cluster in it that has a view, and nobody else."""
    store = MemoryStore()
    await store.start()
    await layout.init_cluster(store)
    await ensure_view(store)
    yield store
    await store.close()


@pytest.fixture
def bookies(tmp_path: Path) -> Iterator[BookieCluster]:
    """Three bookies that commands reach by `--metadata`."""
    thread = LoopThread("bookies of a test")
    cluster = BookieCluster(thread, f"sqlite://{tmp_path}/metadata.db")
    cluster.run(cluster.start())
    yield cluster
    cluster.run(cluster.close())
    thread.stop()
