"""Locks of one process: records of free locks are trimmed, long queues are checkpointed, acquiring waits while the log is unreadable."""

from __future__ import annotations

import asyncio
from typing import Any

import boki
from boki.testing import MemoryCluster
from bokiflow import Worker
from bokiflow.locks.lock_room import LockRoom, Ready
from bokiflow.runtime.commands import TakeLock
from bokiflow.testing import in_virtual_time
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from libs.tests.conftest import unexpected
from libs.tests.flow.conftest import working
from libs.tests.flow.locks.test_locks import Seats, first_event, waits


async def lock_records(worker: Worker, name: str) -> int:
    found = 0
    async for item in worker.log.book.read(tags.lock(name)):
        found += not isinstance(item, boki.Gap)
    return found


async def test_what_is_over_is_trimmed_and_the_lock_goes_on(cluster: MemoryCluster) -> None:
    seats = Seats()
    async with working(cluster, seats.app) as worker:
        numbers = [await (await worker.start(seats.sit.call("a"))).result() for _ in range(5)]
        assert await lock_records(worker, "a") == 10
        assert await worker.locks.tidy() == 1
        assert await lock_records(worker, "a") == 1, "the last one leads whoever carries to it"
        assert await worker.locks.tidy() == 0, "nothing is looked at twice"
        numbers += [await (await worker.start(seats.sit.call("a"))).result() for _ in range(2)]
        assert numbers == sorted(numbers) and await lock_records(worker, "a") == 1 + 4


async def test_two_who_trim_what_is_over_at_a_time_do_it_once(cluster: MemoryCluster) -> None:
    seats = Seats()
    async with working(cluster, seats.app) as worker:
        for name in "abc":
            await (await worker.start(seats.sit.call(name))).result()
        assert sum(await asyncio.gather(worker.locks.tidy(), worker.locks.tidy())) >= 3
        assert [await lock_records(worker, name) for name in "abc"] == [1, 1, 1]
        assert await worker.locks.tidy() == 0


async def test_a_queue_that_is_never_empty_is_kept_in_a_checkpoint(cluster: MemoryCluster) -> None:
    seats = Seats()
    async with working(cluster, seats.app) as worker:
        await worker.start(seats.hold.call("a"), id="0")
        numbers = [await first_event(worker, "0", "has")]
        for number in range(1, 40):
            await worker.start(seats.hold.call("a"), id=f"{number}")
            await waits(worker, f"{number}", "lock 'a'")
            await worker.handle(f"{number - 1}").signal("go")
            numbers.append(await first_event(worker, f"{number}", "has"))
        assert await lock_records(worker, "a") == 40 + 39
        await worker.locks.tidy()
        assert await lock_records(worker, "a") == 0, "the queue is in the checkpoint"
        last = await worker.start(seats.sit.call("a"), id="last")
        await waits(worker, "last", "lock 'a'")
        await worker.handle("39").signal("go")
        assert await last.result() > numbers[-1] and numbers == sorted(numbers)
        worker.locks.touched("a")
        await worker.locks.tidy()
        assert await lock_records(worker, "a") == 1
        assert await (await worker.start(seats.sit.call("a"), id="again")).result() > await last.result()


class Unreadable:
    """A book whose reads fail for a while."""

    def __init__(self, book: boki.Book, times: int) -> None:
        self.left = times
        self._book = book

    def __getattr__(self, name: str) -> Any:
        return getattr(self._book, name)

    async def now(self, **options: Any) -> int:
        if self.left:
            self.left -= 1
            raise boki.Unreachable("nobody answers")
        return await self._book.now(**options)


@in_virtual_time
async def test_while_a_lock_cannot_be_read_each_attempt_waits_longer_than_the_last() -> None:
    async with MemoryCluster() as cluster:
        book: Any = Unreadable((await cluster.connect()).book("shop"), 9)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        log = Log(book)
        async with LockRoom(log, unexpected) as room:
            ready = await room.look(TakeLock("k", "a", False, False, True), "x", 1)
            assert isinstance(ready, Ready)
            assert 0.1 + 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 3 * 5 <= loop.time() - began_s < 22
            number = await log.append(Contribution((tags.lock("a"),), {}, (ready.entry,)))
            book.left, began_s, notified = 5, loop.time(), asyncio.Event()
            room.wait("x", "k", "a", number, lambda refused: notified.set())
            await notified.wait()
            assert 3.1 <= loop.time() - began_s < 4 and not book.left
