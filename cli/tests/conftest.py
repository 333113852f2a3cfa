"""A cluster in memory that commands reach by its URL, and a way to run commands as a shell would."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from boki_cli.testing.bookies import BookieCluster
from boki_cli.testing.commands import RunCommandLine, memory_cluster, run_command_line
from boki_common.runtime.loop_thread import LoopThread


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
    data = str(tmp_path_factory.mktemp("dev"))
    command = (sys.executable, "-m", "boki_cli.main", "dev", "--data", data, "--listen", "127.0.0.1:0")
    more = ("--gateway-port", "-1", "--json", "--stop-with-stdin")
    with subprocess.Popen([*command, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            yield f"boki://{msgspec.json.decode(process.stdout.readline())['addresses'][0]}"
        finally:
            process.stdin.close()


@pytest.fixture
def bookies(tmp_path: Path) -> Iterator[BookieCluster]:
    """Three bookies that commands reach by `--metadata`."""
    thread = LoopThread("bookies of a test")
    cluster = BookieCluster(thread, f"sqlite://{tmp_path}/metadata.db")
    cluster.run(cluster.start())
    yield cluster
    cluster.run(cluster.close())
    thread.stop()
