"""Queues on a cluster in memory. Each queue object stands for a process: it has its own session and incarnation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from bokilib import Carrier
from bokilib.ports import BookPort
from bokilib.testing import Died, FaultyBook
from bokiqueue import Consumer, Queue, carried
from libs.tests.conftest import SetClock as SetClock

DAY_MS = 24 * 3_600_000
SHORT_S = 1e-9  # a lease that runs out at the next look, however slow the machine is


def book_of(queue: Queue[Any]) -> boki.Book:
    """All of a queue's book, and not only what libraries need of it."""
    assert isinstance(queue.log.book, boki.Book)
    return queue.log.book


Another = Callable[..., Awaitable[Queue[object]]]


def queues_of(cluster: MemoryCluster) -> Another:
    """Return what opens a queue as another process does."""

    async def make(name: str = "jobs", **settings: Any) -> Queue[object]:
        return await Queue.open((await cluster.connect()).book("shop"), name, object, **settings)

    return make


@pytest.fixture
def another(cluster: MemoryCluster) -> Another:
    """Another process's queue."""
    return queues_of(cluster)


@pytest.fixture
async def queue(another: Another) -> Queue[object]:
    return await another(shards=2, dead_letter="jobs.dead")


async def take(messages: AsyncIterator[Any], count: int) -> list[Any]:
    """So many messages."""
    return [await anext(messages) for _ in range(count)]


async def all_appended(consumer: Consumer[Any]) -> None:
    """Until what its owners have to append is in the log: its handlers take their time."""
    for owner in list(consumer._owners.values()):
        while owner._driver.busy:
            await owner._driver.ended()


async def round_of(queue: Queue[Any]) -> None:
    """One of whoever carries for the book."""
    await Carrier(queue.log, [carried(queue.log)], who="host-7").round()


async def alive(book: BookPort, program: Awaitable[None]) -> None:
    """Runs a program until it ends or its process is dead: then nothing of it goes on."""
    task = asyncio.ensure_future(program)
    while not task.done():
        await asyncio.wait([task], timeout=0.002)
        if isinstance(book, FaultyBook) and book.dead:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise Died
    await task
