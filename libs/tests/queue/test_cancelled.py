"""Members whose tasks are cancelled at any turn of the loop: others get their messages, and nothing of them runs on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest

from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokiqueue import Handler, Message, Queue, QueueEmpty
from bokistore import BokiStore, Transaction
from libs.tests.queue.test_leaving import CutOff

LEASE_S = 3.0
HOUR_S = 3_600.0
TURNS = 400


async def turns(count: int) -> None:
    """So many turns of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


class Shop:
    """A process with a queue of two shards and a store on one log, and another process beside it."""

    def __init__(self, store: BokiStore, queue: Queue[object], others: Queue[object]) -> None:
        self.store = store
        self.queue = queue
        self.others = others

    async def all_taken(self) -> None:
        """Check that the other process gets every message, one that is pushed now too, and that the first one has no tasks left."""
        await self.others.push("last")
        async with self.others.consume(who="other", member_lease_s=LEASE_S) as messages, asyncio.timeout(300):
            await messages.has(2)
            while (await self.others.stats()).depth:
                async with await anext(messages):
                    pass
        await let_pass(2 * LEASE_S)
        running = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("boki")]
        assert not [name for name in running if name.startswith(("bokiqueue", "bokilib members", "bokilib follower"))]


@asynccontextmanager
async def shop() -> AsyncIterator[Shop]:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        store = BokiStore((await cluster.connect()).book("b"))
        queue = await Queue.open(store.log, "jobs", object, shards=2)
        others = await Queue.open((await cluster.connect()).book("b"), "jobs", object)
        await queue.push("a", key="k")
        yield Shop(store, queue, others)


async def consumes(at: Shop) -> None:
    async with at.queue.consume(member_lease_s=LEASE_S) as messages, await anext(messages):
        pass


async def drains(at: Shop) -> None:
    async with at.queue.consume(member_lease_s=LEASE_S) as messages:
        await (await anext(messages)).ack()
        await messages.drain(1)


async def transacts(at: Shop) -> None:
    consumer = at.queue.consume(member_lease_s=LEASE_S)
    async with consumer as messages, await anext(messages) as message, at.store.transaction() as tx:
        tx["sold"].inc("n")
        tx.add(message.acked())


async def handles(at: Shop) -> None:
    handled = asyncio.Event()

    @at.queue.handler(at.store, member_lease_s=LEASE_S)
    async def ship(order: Message[object], tx: Transaction) -> None:
        try:
            tx["sold"].inc("n")
        finally:
            await asyncio.sleep(0)
            handled.set()

    async with ship:
        await handled.wait()


@pytest.mark.parametrize(("program", "again"), [(consumes, 2), (transacts, 0), (drains, 0), (handles, 0), (handles, 3)])
@in_virtual_time
async def test_whatever_is_cancelled_at_any_turn_others_get_all(
    program: Callable[[Shop], Awaitable[None]], again: int
) -> None:
    """On entering, while it handles, and on leaving, at each second turn. `again`: cancelled once more, so many turns later."""
    ended, at = False, 0
    while not ended and at < TURNS:
        async with shop() as found:
            task = asyncio.ensure_future(program(found))
            await turns(at)
            ended = task.done()
            task.cancel()
            if again:
                await turns(again)
                task.cancel()
            await asyncio.wait([task])
            await found.all_taken()
        at += 2
    assert ended and at > 20


@in_virtual_time
async def test_a_pop_that_is_cancelled_at_any_turn_loses_no_message() -> None:
    ended, at = False, 0
    while not ended and at < TURNS:
        async with MemoryCluster(clock=LoopClock()) as cluster:
            queue = await Queue.open((await cluster.connect()).book("b"), "jobs", object, shards=1, mode="pop")
            bodies = ["a", "b"]
            await queue.push_many(bodies)
            task = asyncio.ensure_future(queue.pop())
            await turns(at)
            ended = task.done()
            task.cancel()
            (got,) = await asyncio.gather(task, return_exceptions=True)
            left = [got] if isinstance(got, str) else []
            await let_pass(1)
            while True:
                try:
                    left.append(str(await queue.pop()))
                except QueueEmpty:
                    break
            assert left == bodies, f"it was cancelled at turn {at}"
        at += 1
    assert ended and at > 5


@in_virtual_time
async def test_a_handler_that_ends_slowly_and_is_cancelled_again_leaves_its_group() -> None:
    async with shop() as found:
        begun = asyncio.Event()

        @found.queue.handler(found.store, member_lease_s=LEASE_S)
        async def ship(order: Message[object], tx: Transaction) -> None:
            begun.set()
            try:
                await let_pass(600)
            finally:
                await let_pass(2)

        running = asyncio.create_task(ship.run())
        await begun.wait()
        running.cancel()
        await let_pass(1)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        await found.all_taken()


@asynccontextmanager
async def _failing(handler: Handler[object, Transaction]) -> AsyncIterator[None]:
    """Run a handler whose member ends with an error while it handles."""
    with pytest.raises(ValueError, match="the test ended it"):
        async with handler:
            yield


@pytest.mark.parametrize("how", ["drain", "failure", "silent log"])
@in_virtual_time
async def test_handlers_of_a_member_taken_for_dead_are_stopped_whatever_it_does(how: str) -> None:
    """During a drain, after an error that ended the member, and while it waits for the log to take a shard."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        book = CutOff((await cluster.connect()).book("b"))
        store = BokiStore(book)
        queue = await Queue.open(store.log, "jobs", object, shards=2)
        others = await Queue.open((await cluster.connect()).book("b"), "jobs", object)
        running: list[str] = []

        def slow(at: Queue[object], by: BokiStore, who: str) -> Handler[object, Transaction]:
            @at.handler(by, who=who, member_lease_s=LEASE_S, lease_s=600, at_once=1)
            async def ship(order: Message[object], tx: Transaction) -> None:
                running.append(who)
                assert len(running) == 1, "one handler at a time has the message"
                try:
                    await let_pass(60)
                finally:
                    running.remove(who)

            return ship

        first = slow(queue, store, "a")
        second = slow(others, BokiStore(others.log), "b")
        draining: asyncio.Task[bool] | None = None
        async with _failing(first) if how == "failure" else first:
            await queue.push("x", key="k")
            await let_pass(1)
            assert running == ["a"] and first.consumer is not None
            async with second:
                if how == "silent log":
                    await let_pass(5)
                    book.silent = True
                    first.consumer._rounds.wake()
                elif how == "failure":
                    first.consumer._members.fail(ValueError("the test ended it"))
                else:
                    draining = asyncio.create_task(first.drain(30))
                    await let_pass(0.5)
                    book.refuses = True
                await let_pass(20)
                assert running == ["b"], "it was redelivered"
                book.silent = book.refuses = False
                if draining is not None:
                    await asyncio.wait([draining])


async def drains_and_stays(at: Shop, began: asyncio.Event) -> None:
    async with at.queue.consume(member_lease_s=HOUR_S) as messages:
        held = await anext(messages)
        drain = asyncio.create_task(messages.drain(5))
        began.set()
        try:
            await drain
        except asyncio.CancelledError:
            await let_pass(HOUR_S)
        assert not held.decided


async def handles_and_drains(at: Shop, began: asyncio.Event) -> None:
    handling = asyncio.Event()

    @at.queue.handler(at.store, member_lease_s=HOUR_S)
    async def ship(order: Message[object], tx: Transaction) -> None:
        handling.set()
        await let_pass(HOUR_S)

    async with ship:
        await handling.wait()
        drain = asyncio.create_task(ship.drain(5))
        began.set()
        try:
            await drain
        except asyncio.CancelledError:
            await let_pass(HOUR_S)


async def leaves(at: Shop, began: asyncio.Event) -> None:
    async with at.queue.consume(member_lease_s=HOUR_S) as messages:
        await messages.has(2)
        began.set()


@pytest.mark.parametrize("program", [drains_and_stays, handles_and_drains, leaves])
@in_virtual_time
async def test_a_stop_that_is_cancelled_at_any_turn_releases_the_shards(
    program: Callable[[Shop, asyncio.Event], Coroutine[None, None, None]],
) -> None:
    """The task that drains, or leaves, is cancelled so many turns later. Others had to wait for its lease, or for the end of its block."""
    ended, at = False, 0
    while not ended and at < TURNS:
        async with shop() as found:
            loop, began = asyncio.get_running_loop(), asyncio.Event()
            running = asyncio.create_task(program(found, began))
            await began.wait()
            await turns(at)
            ended = running.done()
            running.cancel()
            began_s = loop.time()
            async with found.others.consume(who="other", member_lease_s=HOUR_S) as messages, asyncio.timeout(60):
                await messages.has(2)
            assert loop.time() - began_s < 30, f"it was cancelled at turn {at}"
            running.cancel()
            await asyncio.wait([running])
        at += 1
    assert at > 20 or program is not leaves
