"""What tests of all libraries share."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from boki.testing import MemoryCluster
from itests.support.chromium import NO_CHROMIUM, Browser, browsing, chromium


class SetClock:
    """A wall clock that a test moves."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def elapsed_s(self) -> float:
        return self.ms / 1_000


def unexpected(error: Exception) -> None:
    """Called for an error that no test provokes."""
    raise AssertionError("expected every stream to be followed") from error


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def cluster(clock: SetClock) -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster(clock=clock) as opened:
        yield opened


@pytest.fixture
def dev_url(tmp_path: Path) -> Iterator[str]:
    """Of a `boki dev` of its own."""
    command = [sys.executable, "-m", "boki_cli.main", "dev", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--json", "--stop-with-stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        found = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
        assert found is not None
        yield f"boki://{found[0]}"
        process.stdin.close()
        process.wait(timeout=30)


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield one window of a browser, which the tests of a module share."""
    with chromium(tmp_path_factory.mktemp("chromium")) as url:
        if url is None:
            pytest.skip(NO_CHROMIUM)
        yield url


@pytest.fixture
async def browser(window: str) -> AsyncIterator[Browser]:
    async with browsing(window) as one:
        yield one
