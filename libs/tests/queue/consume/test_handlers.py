"""Handlers: effects happen once, errors release the message, and a member that others may take for dead stops its handlers."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from boki.testing import MemoryCluster
from boki_common.errors import InvalidArgument, UsageError, WrongCluster
from boki_common.logs import configured
from boki_common.testing.virtual_time import VirtualTimeLoop, let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib import Atomic, Log
from bokilib.errors import AppendUnknown
from bokilib.ports import Expect, Tag, TicketPort
from bokilib.records.tags import store_object
from bokilib.testing import Fault, FaultyBook
from bokiqueue import Handler, Message, NoSuchQueue, Queue
from bokiqueue.consume.handlers import Lease
from bokistore import BokiStore, Push, StoreSettings, Transaction
from libs.tests.queue.conftest import Another, book_of, queues_of


async def shop(another: Another) -> tuple[BokiStore, Queue[object]]:
    store = BokiStore(book_of(await another()))
    return store, await Queue.open(store.log, "orders", object, shards=2, max_deliveries=2, dead_letter="orders.dead")


async def test_each_message_changes_the_store_once_and_pushes_once(another: Another) -> None:
    store, orders = await shop(another)
    emails = await Queue.open(store.log, "emails", object, shards=1)
    done = asyncio.Event()

    @orders.handler(store, member_lease_s=600)
    async def ship(order: Message[object], tx: Transaction) -> None:
        sold = await tx["stock"].get("sold", 0)
        assert isinstance(sold, int)
        tx["stock"].set("sold", sold + 1)
        tx.add(emails.pushed(order.body))

    await orders.push_many(list(range(20)))
    async with ship:
        watcher = asyncio.create_task(_until(store, 20, done))
        async with asyncio.timeout(10):
            await done.wait()
        await watcher
    got = []
    async with emails.consume() as messages:
        for _ in range(20):
            async with await anext(messages) as message:
                got.append(message.body)
        assert messages._next() is None
    assert set(got) == set(range(20))
    assert await store.object("stock").get("sold") == 20


async def test_a_rerun_after_another_handlers_commit_is_of_the_same_attempt(another: Another) -> None:
    """The second message comes while the first one's function has read the object, and commits before it ends."""
    store, orders = await shop(another)
    runs: list[tuple[object, int]] = []
    second_done = asyncio.Event()

    @orders.handler(store, at_once=2, member_lease_s=600)
    async def ship(order: Message[object], tx: Transaction) -> None:
        runs.append((order.body, order.attempt))
        await tx["stock"].get("sold", 0)
        if order.body == 1:
            await second_done.wait()
        tx["stock"].inc("sold")

    await orders.push(1)
    async with ship:
        async with asyncio.timeout(10):
            while not runs:
                await asyncio.sleep(0)
            await orders.push(2)
            while await store.object("stock").get("sold", 0) == 0:
                await asyncio.sleep(0)
            second_done.set()
            while (await orders.stats()).depth:
                await asyncio.sleep(0)
    assert sorted(cast(list[tuple[int, int]], runs)) == [(1, 1), (1, 1), (2, 1)]
    assert await store.object("stock").get("sold") == 2


async def _ack(message: Message[object]) -> None:
    await message.ack()


async def _nack(message: Message[object]) -> None:
    await message.nack()


async def _give_up(message: Message[object]) -> None:
    await message.give_up("no")


async def _enter(message: Message[object]) -> None:
    async with message:
        pass


@pytest.mark.parametrize("decide", [_ack, _nack, _give_up, _enter])
async def test_a_function_that_decides_about_its_message_itself_fails_before_that(
    another: Another, decide: Callable[[Message[object]], Awaitable[None]]
) -> None:
    """The writes of its transaction would be dropped."""
    store, orders = await shop(another)
    await orders.push(1)
    refused: list[str] = []
    ended = asyncio.Event()

    @orders.handler(store, backoff_s=0)
    async def ship(order: Message[object], tx: Transaction) -> None:
        tx["stock"].inc("sold")
        if order.attempt == 1:
            try:
                await decide(order)
            except UsageError as error:
                refused.append(str(error))
                raise
        ended.set()

    async with ship:
        async with asyncio.timeout(10):
            await ended.wait()
        while (await orders.stats()).depth:
            await asyncio.sleep(0)
    assert len(refused) == 1 and "ship" in refused[0] and "nothing was sent" in refused[0]
    assert await store.object("stock").get("sold") == 1
    dead = await Queue.open(orders.log, "orders.dead", object)
    assert (await dead.stats()).depth == 0


async def _until(store: BokiStore, sold: int, done: asyncio.Event) -> None:
    async for _ in store.object("stock").watch():
        if await store.object("stock").get("sold", 0) == sold:
            done.set()
            return


async def test_an_error_gives_the_message_back_until_it_is_a_dead_letter(another: Another) -> None:
    store, orders = await shop(another)
    runs: list[int] = []

    @orders.handler(store, backoff_s=0.001, at_once=1)
    async def ship(order: Message[object], tx: Transaction) -> None:
        runs.append(order.attempt)
        tx["stock"].inc("sold")
        raise ValueError("no")

    await orders.push("bad")
    dead = await Queue.open(store.log, "orders.dead", object)
    running = asyncio.create_task(ship.run())
    async with dead.consume() as letters:
        assert (await anext(letters)).body == "bad"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (runs, await store.object("stock").value()) == ([1, 2], None)


class Plain:
    """Runs transactions that are one record, in the task of the handler."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def transact(self, body: Callable[[Atomic], Awaitable[None]]) -> None:
        async with Atomic(self._log) as tx:
            await body(tx)


async def test_a_member_whose_heartbeats_end_stops_its_handlers(another: Another) -> None:
    store, orders = await shop(another)
    begun, stopped = asyncio.Event(), asyncio.Event()

    @orders.handler(Plain(store.log), member_lease_s=0.2)
    async def ship(order: Message[object], tx: Atomic) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    await orders.push("slow")
    async with ship:
        await begun.wait()
        assert ship.consumer is not None
        for task in ship.consumer._members._tasks:
            task.cancel()
        async with asyncio.timeout(5):
            await stopped.wait()


async def test_no_handlers_are_refused(another: Another) -> None:
    store, orders = await shop(another)
    with pytest.raises(InvalidArgument, match="one handler"):
        orders.handler(store, at_once=0)(None)  # type: ignore[arg-type]  # never called


class Interrupted(Plain):
    """Commits, and whoever waits is cancelled, or gives up."""

    def __init__(self, log: Log, ended: type[BaseException]) -> None:
        super().__init__(log)
        self._ended = ended

    async def transact(self, body: Callable[[Atomic], Awaitable[None]]) -> None:
        await super().transact(body)
        raise self._ended


@pytest.mark.parametrize("ended", [asyncio.CancelledError, TimeoutError])
async def test_a_wait_that_was_ended_proves_nothing_about_its_record(
    another: Another, ended: type[BaseException]
) -> None:
    store, orders = await shop(another)
    emails = await Queue.open(store.log, "emails", object, shards=1)

    @orders.handler(Interrupted(store.log, ended))
    async def ship(order: Message[object], tx: Atomic) -> None:
        tx.add(emails.pushed(order.body))

    await orders.push("first", key="k")
    await orders.push("second", key="k")
    async with orders.consume() as messages:
        with contextlib.suppress(asyncio.CancelledError):
            await ship.handle(await anext(messages))
        assert (await anext(messages)).body == "second"
    assert [one.body for one in await emails.peek()] == ["first"]


@in_virtual_time
async def test_a_handler_that_hangs_ends_with_its_lease_and_holds_up_no_other() -> None:
    """Its message comes again, as a failed attempt; the others were handled once."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        store, orders = await shop(queues_of(cluster))
        runs: list[tuple[object, int]] = []

        @orders.handler(store, lease_s=60, backoff_s=1)
        async def ship(order: Message[object], tx: Transaction) -> None:
            runs.append((order.body, order.attempt))
            if order.body == 1:
                await asyncio.Event().wait()
            tx["done"].inc(str(order.body))

        dead = await Queue.open(store.log, "orders.dead", object)
        async with ship, dead.consume() as letters:
            await orders.push_many(list(range(6)))
            async with asyncio.timeout(600):
                async with await anext(letters) as letter:
                    assert letter.body == 1 and letter.source is not None and letter.source.attempts == 2
        assert sorted((one for one in runs if one[0] != 1), key=str) == [(n, 1) for n in (0, 2, 3, 4, 5)]
        assert await store.object("done").value() == {str(n): 1 for n in (0, 2, 3, 4, 5)}


@in_virtual_time
async def test_a_handler_that_asks_for_more_time_has_it() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        store, orders = await shop(queues_of(cluster))
        done = asyncio.Event()

        @orders.handler(store, lease_s=20)
        async def ship(order: Message[object], tx: Transaction) -> None:
            order.extend(50)
            await let_pass(40)
            done.set()

        await orders.push("slow")
        async with ship, asyncio.timeout(100):
            await done.wait()


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError("nobody asked"),
        StopIteration(),
        BaseExceptionGroup("two", [SystemExit(1)]),
        ValueError("\ud83d" * 10),
        ValueError("x" * 1_000_000),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_handler_raises_is_an_attempt_that_failed(another: Another, error: BaseException) -> None:
    store, orders = await shop(another)
    stream = io.StringIO()

    @orders.handler(store, backoff_s=0.001)
    async def ship(order: Message[object], tx: Transaction) -> None:
        if order.body == "bad":
            raise error
        tx["done"].inc("n")

    dead = await Queue.open(store.log, "orders.dead", object)
    with configured(stream=stream):
        async with ship, dead.consume() as letters:
            await orders.push("fine")
            await orders.push("bad", key="ann")
            await orders.push("fine")
            async with asyncio.timeout(10), await anext(letters) as letter:
                assert letter.body == "bad"
                await orders.push("fine")
                while await store.object("done").get("n", 0) != 3:
                    await asyncio.sleep(0)
    first, last = [line for line in stream.getvalue().splitlines() if "message not handled" in line]
    assert "ship" in first and "Traceback" in first and len(first) < 20_000
    assert "in ship" in first and "bokiqueue/handlers.py" not in first, "the stack begins with the user's function"
    id = f"shard={letter.source.shard} message={letter.source.seqnum}-{letter.source.number}" if letter.source else ""
    assert all(f"queue=orders group=default {id} key=ann" in line for line in (first, last))
    assert "it is redelivered" in first
    assert "it is redelivered" not in last and "it is given up" in last
    source = letter.source
    assert source is not None and (source.attempts, source.reason) == (2, "too many attempts failed")
    assert type(error).__name__ in source.error and len(source.error) < 2_100
    assert "in ship" in source.stack and len(source.stack) < 8_100


async def test_a_record_of_unknown_outcome_that_the_body_appended_itself_is_no_ack(another: Another) -> None:
    store, orders = await shop(another)
    rival = BokiStore(book_of(await another()))
    runs: list[int] = []

    @orders.handler(store)
    async def ship(order: Message[object], tx: Transaction) -> None:
        runs.append(order.attempt)
        sold = await tx["stock"].get("sold", 0)
        assert isinstance(sold, int)
        if len(runs) == 1:
            await rival.object("stock").set("sold", 7)  # so this run loses
        if len(runs) == 2:
            raise AppendUnknown("no verdict of a line in a book of notes", book_of(orders).submit(b"shipped"))
        tx["stock"].set("sold", sold + 1)

    await orders.push("first")
    async with orders.consume() as messages, asyncio.timeout(5):
        await ship.handle(await anext(messages))
        await ship.handle(await anext(messages))
    assert runs == [1, 1, 1]
    assert await store.object("stock").get("sold") == 8


async def test_a_handler_that_loses_a_record_of_its_own_for_nobody_is_a_dead_letter(another: Another) -> None:
    store, orders = await shop(another)
    book = book_of(orders)
    await book.append(b"taken", tags=["slot"])
    runs: list[int] = []

    @orders.handler(store, backoff_s=0.001)
    async def ship(order: Message[object], tx: Transaction) -> None:
        runs.append(order.attempt)
        await book.append(b"mine", tags=["slot"], expect={"slot": None})

    dead = await Queue.open(store.log, "orders.dead", object)
    await orders.push("never")
    async with ship, dead.consume() as letters, asyncio.timeout(10):
        source = (await anext(letters)).source
    assert runs == [1, 1, 1, 2]
    assert source is not None and "HandlerConflict" in source.error and "Conflict" in source.stack


class HandMoved:
    """A clock that is moved by hand, and timers that fire when it is looked at."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._timers: list[tuple[float, Callable[[], None], asyncio.Event]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when: float, callback: Callable[[], None], /) -> HandTimer:
        cancelled = asyncio.Event()
        self._timers.append((when, callback, cancelled))
        return HandTimer(cancelled)

    def move(self, now_s: float) -> None:
        self.now_s = now_s
        due = [timer for timer in self._timers if timer[0] <= now_s]
        self._timers = [timer for timer in self._timers if timer[0] > now_s]
        for _, callback, cancelled in due:
            if not cancelled.is_set():
                callback()


class HandTimer:
    def __init__(self, cancelled: asyncio.Event) -> None:
        self._cancelled = cancelled

    def cancel(self) -> None:
        self._cancelled.set()


@pytest.mark.parametrize(
    ("moves", "expired_at"),
    [
        ([110, 129, 130], [130]),
        ([130.5], [130.5]),
        ([190, 200, 219, 220], [220]),
        ([190, 400], [400]),
    ],
    ids=["in time", "hardly late", "stood still", "blocks again"],
)
def test_a_handler_whose_process_stood_still_has_its_lease_once_more(
    moves: list[float], expired_at: list[float]
) -> None:
    clock = HandMoved()
    expired: list[float] = []
    Lease(clock, 30.0, lambda: expired.append(clock.now_s))
    for now_s in moves:
        clock.move(now_s)
    assert expired == expired_at


def test_a_lease_that_was_extended_or_has_ended_does_not_expire() -> None:
    clock = HandMoved()
    expired: list[float] = []
    lease = Lease(clock, 30.0, lambda: expired.append(clock.now_s))
    clock.move(120.0)
    lease.extend(60.0)
    clock.move(179.0)
    lease.end()
    clock.move(500.0)
    assert expired == []


@pytest.mark.parametrize("swallows", [False, True])
async def test_cancelling_a_message_ends_its_handler_alone_unless_all_are_stopped(
    another: Another, swallows: bool
) -> None:
    consumer, message, handled = (await another()).consume(), cast(Any, None), list[str]()

    async def handle() -> None:
        with contextlib.suppress(*([asyncio.CancelledError] if swallows else [])):
            await asyncio.Event().wait()

    async def work() -> None:
        for name in ("first", "second", "third"):
            await consumer.guarded(handle(), message)
            handled.append(name)

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    (first,) = consumer._handling
    first.cancel()  # as the member does that others may take for dead
    await asyncio.wait([first])
    while handled != ["first"] or not consumer._handling:
        await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait([working])
    assert working.cancelled() and handled == ["first"] and not consumer._handling


@pytest.mark.parametrize("how", ["drain", "cancel"])
@in_virtual_time
async def test_a_handler_that_swallows_its_cancellation_does_not_keep_its_process(how: str) -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        loop, stream = asyncio.get_running_loop(), io.StringIO()
        store = BokiStore((await cluster.connect()).book("shop"))
        orders = await Queue.open(store.log, "orders", object, shards=1)
        begun, released = asyncio.Event(), asyncio.Event()

        @orders.handler(store, lease_s=600)
        async def ship(order: Message[object], tx: Transaction) -> None:
            tx["stock"].inc("sold")
            begun.set()
            while not released.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await released.wait()

        pushed = int(await orders.push("slow"))
        running = asyncio.create_task(ship.run())
        await begun.wait()
        began_s = loop.time()
        with configured(stream=stream):
            if how == "drain":
                assert not await ship.drain(1)
            else:
                running.cancel()
            async with asyncio.timeout(100):
                await asyncio.wait([running])
        assert loop.time() - began_s < 20
        assert "handler left behind" in stream.getvalue() and "await released.wait()" in stream.getvalue()
        assert f"queue=orders group=default shard=0 message={pushed}-0 " in stream.getvalue()
        async with orders.consume() as messages:
            assert (await anext(messages)).attempt == 1
            released.set()
            await let_pass(5)
        assert await store.object("stock").value() is None, "its record expects a claim that is released"


@in_virtual_time
async def test_a_handler_whose_client_has_ended_raises_its_error() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        store = BokiStore((await cluster.connect()).book("shop"))
        orders = await Queue.open(store.log, "orders", object, shards=1)

        @orders.handler(store)
        async def ship(order: Message[object], tx: Transaction) -> None:
            raise AssertionError

        running = asyncio.create_task(ship.run())
        await let_pass(7)
        cluster._serving().model.cluster = "a restored copy"
        cluster.disconnect()
        with pytest.raises(WrongCluster, match="open a new client"):
            await running


@in_virtual_time
async def test_a_handler_that_never_ends_does_not_keep_its_process() -> None:
    """The loop of this test ends as that of `asyncio.run` does: if it awaited the handler, it would have nothing left to do."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        store = BokiStore((await cluster.connect()).book("shop"))
        orders = await Queue.open(store.log, "orders", object, shards=1)
        begun = asyncio.Event()

        @orders.handler(store)
        async def ship(order: Message[object], tx: Transaction) -> None:
            begun.set()
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()

        async with ship:
            await orders.push("slow")
            await begun.wait()


@in_virtual_time
async def test_a_handler_that_blocks_the_event_loop_has_its_message_named_in_one_warning() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        loop, stream = asyncio.get_running_loop(), io.StringIO()
        assert isinstance(loop, VirtualTimeLoop)
        store = BokiStore((await cluster.connect()).book("shop"))
        orders = await Queue.open(store.log, "orders", int, shards=1)

        @orders.handler(store, who="h")
        async def ship(order: Message[int], tx: Transaction) -> None:
            loop.jump(order.body)  # as `time.sleep` in it
            tx["stock"].inc("sold")

        async with ship:
            await let_pass(7)
            with configured(stream=stream):
                for seconds in (3, 25):
                    assert stream.getvalue() == ""
                    pushed = int(await orders.push(seconds, key="ann"))
                    await let_pass(60)
    lines = [line for line in stream.getvalue().splitlines() if "event loop stood still" in line]
    assert len(lines) == 1 and "queue=orders who=h " in lines[0] and "count=1 " in lines[0] and "to_thread" in lines[0]
    assert f"{pushed}-0 shard 0 key ann" in lines[0]


async def deleted(orders: Queue[object], body: Awaitable[None], ship: Handler[object, Transaction]) -> None:
    async with ship:
        await orders.delete()
        await body


async def swallow() -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()


async def fail() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        raise KeyError("of the body")


@pytest.mark.parametrize("body", [asyncio.Event().wait, swallow], ids=["waits", "swallows"])
async def test_a_handler_that_ends_cancels_its_body_and_raises_its_error(
    another: Another, body: Callable[[], Awaitable[None]]
) -> None:
    store, orders = await shop(another)
    ship = orders.handler(store)(_nothing)
    async with asyncio.timeout(10):
        with pytest.raises(NoSuchQueue):
            await deleted(orders, body(), ship)
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0
        await asyncio.sleep(0)  # no cancellation is left behind
    assert ship.consumer is None


async def test_an_error_of_the_body_has_a_note_of_the_one_that_ended_its_handler(another: Another) -> None:
    store, orders = await shop(another)
    async with asyncio.timeout(10):
        with pytest.raises(KeyError, match="of the body") as raised:
            await deleted(orders, fail(), orders.handler(store)(_nothing))
    assert "NoSuchQueue" in raised.value.__notes__[0]


async def test_a_task_that_others_cancel_as_well_ends_cancelled(another: Another) -> None:
    store, orders = await shop(another)
    ship = orders.handler(store)(_nothing)

    async def program() -> None:
        async with ship:
            await orders.delete()
            try:
                await asyncio.Event().wait()
            finally:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)

    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(program())
    assert ship.consumer is None


async def _nothing(order: Message[object], tx: Transaction) -> None:
    pass


class LosesAnswers(FaultyBook):
    """A book that loses the answers of records that join a stream."""

    stream = ""

    def submit(self, data: bytes, *, tags: Sequence[Tag] = (), expect: Expect | None = None) -> TicketPort:
        if self.stream in tags:
            self._fault = Fault(len(self.operations), "lost")
        return super().submit(data, tags=tags, expect=expect)


@in_virtual_time
async def test_an_error_beside_a_record_of_unknown_outcome_acks_nothing() -> None:
    """Its first run committed with the others, until it ran again on the state that they leave, and raised."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        book = LosesAnswers((await cluster.connect()).book("b"))
        store = BokiStore(Log(book), settings=StoreSettings(checkpoints=False))
        orders = await Queue.open(store.log, "orders", object, shards=1)
        ran: list[tuple[object, int]] = []

        @orders.handler(store, at_once=3, member_lease_s=600)
        async def pay(order: Message[object], tx: Transaction) -> None:
            left = await tx["ann"].get("balance", 0)
            assert isinstance(left, int)
            ran.append((order.body, left))
            if left < 10:
                raise ValueError("too little is left")
            tx["ann"].inc("balance", -10)
            tx.send("paid", Push("by", order.body))

        await store.object("ann").set("balance", 25)
        book.stream = store_object("ann")
        await orders.push_many(["bob", "cleo", "dan"])
        async with pay:
            while (await orders.stats()).depth > 1:
                await let_pass(0.01)
            assert ran[:3] == [("bob", 25), ("cleo", 25), ("dan", 25)] and ("dan", 5) in ran
            book.stream = ""
            await store.object("ann").set("balance", 100)
            async with asyncio.timeout(60):
                while (await orders.stats()).depth:
                    await let_pass(1)
        assert await store.object("paid").value() == {"by": ["bob", "cleo", "dan"]}
