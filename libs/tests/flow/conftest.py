"""Workflows on a cluster in memory. Another worker is another process: another session, another incarnation, nothing in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

import boki
from boki.testing import MemoryCluster
from bokiflow import App, Call, Handle, Worker
from bokiflow.testing import LoopClock
from bokilib.append.log import Log
from bokilib.records import tags
from libs.tests.flow.shop import Shop

R = TypeVar("R")

TURNS_LIMIT = 100_000
HERE = Path(__file__).parent
HANGS_S = 900
"""A test that takes so long hangs. Those that explore every crash take seconds of a machine of their own, and longer on a busy one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of workflows may take long on a busy machine."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(HANGS_S))


class Stepping(LoopClock):
    """The clock of a log's sequencer, that somebody sets. Set back, the log's time stands still until it has caught up."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class Inline:
    """Bodies that block run where they are."""

    async def run(self, body: Callable[[], Any], *, name: str = "", begun: Callable[[], None] | None = None) -> Any:
        if begun is not None:
            begun()
        return body()


def ids_of(partition: int, *, elsewhere: bool = False) -> Iterator[str]:
    """Yield ids of workflows of one partition, or of all others."""
    return (id for id in map(str, count()) if (tags.partition_of(id) == partition) is not elsewhere)


async def until(condition: Callable[[], bool]) -> None:
    """Lets others run until something holds."""
    for _ in range(TURNS_LIMIT):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


def on_outer_loop(call: Callable[[], Any]) -> Callable[[], Coroutine[Any, Any, Any]]:
    """Calls where workflows are run: in a callback of the loop, not in a task."""

    async def run() -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def now() -> None:
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - what `pytest.raises` raises too, else the test would hang
                future.set_exception(error)

        asyncio.get_running_loop().call_soon(now)
        return await future

    return run


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster() as opened:
        yield opened


@pytest.fixture
async def book(cluster: MemoryCluster) -> boki.Book:
    return (await cluster.connect()).book("shop")


@pytest.fixture
async def log(book: boki.Book) -> Log:
    return Log(book)


async def started(worker: Worker, call: Call[R], id: str = "x") -> Handle[R]:
    """Starts a workflow, again while it is unknown whether it was: of one id it runs once."""
    while True:
        try:
            return await worker.start(call, id=id)
        except boki.OutcomeUnknown:
            pass


@asynccontextmanager
async def working(cluster: MemoryCluster, app: App, name: str = "w", **options: Any) -> AsyncIterator[Worker]:
    """A worker of its own session."""
    client = await cluster.connect()
    async with Worker(app, client.book("shop"), name=name, bodies=Inline(), **options) as worker:
        yield worker


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def worker(cluster: MemoryCluster, shop: Shop) -> AsyncIterator[Worker]:
    """A worker of the shop."""
    async with working(cluster, shop.app) as opened:
        yield opened
