"""Parts of records of other books: each library's part is refused by each record of another book, and taken by all of its own.

A process has two books, as programs have that give e-mails a book of their own: `home` has a queue and workflows, whose parts go to records
of `home` and of `away`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeAlias

import pytest

import boki
import bokiflow
import bokiqueue.sync
import bokistore.sync
from boki.testing import MemoryCluster
from bokiflow import App, Flow, Worker
from bokiflow.in_atomic import signalling, starting
from bokiflow.tables import MemoryTables, Tables
from bokilib import Atomic, Contribution, Log, WrongBook
from bokilib.records import tags
from bokiqueue import Consumer, Message, Queue, Receiving
from bokistore import BokiStore, Transaction
from libs.tests.flow.conftest import Inline

ID: Final = "order-1"
app = App("orders")


@app.workflow
async def ship() -> str:
    return "shipped"


class Home:
    """A book with a queue, one of whose messages is handled, and a client of workflows."""

    def __init__(self, log: Log, queue: Queue[str], messages: Consumer[str], message: Message[str]) -> None:
        self.log: Final = log
        self.queue: Final = queue
        self.messages: Final = messages
        self.message: Final = message
        self.flow: Final = Flow(app, log)


@pytest.fixture
async def home(cluster: MemoryCluster) -> AsyncIterator[Home]:
    log = Log((await cluster.connect()).book("home"))
    queue = await Queue.open(log, "emails", str, shards=1)
    await queue.push("ann")
    async with queue.consume() as messages:
        yield Home(log, queue, messages, await anext(messages))


# -- the makers of parts, and the records that take them

Maker: TypeAlias = Callable[[Home], Awaitable[Contribution]]
Record: TypeAlias = Callable[[Log, Contribution], Awaitable[None]]


async def pushed(home: Home) -> Contribution:
    return home.queue.pushed("bob")


async def acked(home: Home) -> Contribution:
    return home.message.acked()


async def signals(home: Home) -> Contribution:
    return signalling(home.flow, ID, "paid", 1)


async def starts(home: Home) -> Contribution:
    return await starting(home.flow, ship.call(), id=ID)


async def started_before(home: Home) -> Contribution:
    await home.flow.start(ship.call(), id=ID)
    return await starting(home.flow, ship.call(), id=ID)


async def atomic(log: Log, part: Contribution) -> None:
    async with Atomic(log) as tx:
        tx.add(part)


async def alone(log: Log, part: Contribution) -> None:
    await log.append(part)


async def transact(log: Log, part: Contribution) -> None:
    async def body(tx: Transaction) -> None:
        tx["order"].set("state", "paid")
        tx.add(part)

    await BokiStore(log).transact(body)


async def transaction(log: Log, part: Contribution) -> None:
    async with BokiStore(log).transaction() as tx:
        tx["order"].set("state", "paid")
        tx.add(part)


async def staged(log: Log, part: Contribution) -> None:
    """Add as a step of a workflow does."""

    async def body(tx: Transaction) -> None:
        tx["order"].set("state", "paid")
        tx.add(part)

    transaction = BokiStore(log).stage(body)
    await transaction.ran()
    await transaction.commit(lambda _: Contribution())


async def tables(log: Log, part: Contribution) -> None:
    async def body(tx: Any) -> None:
        tx.add(part)

    async with Tables(log, MemoryTables()) as opened:
        await opened.transact(body)


async def received(log: Log, part: Contribution) -> None:
    """Add to the record of a step that received a message."""
    store, jobs = BokiStore(log), await Queue.open(log, "jobs", str, shards=1)
    await jobs.push("job")
    async with jobs.consume() as messages:
        receiving = Receiving(messages, store)
        tx = await receiving.begin()
        try:
            tx.add(part)
        except BaseException:
            tx.end()
            raise
        await receiving.commit(tx)


MAKERS: Final = (pushed, acked, signals, starts, started_before)
RECORDS: Final = (atomic, alone, transact, transaction, staged, tables, received)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("record", RECORDS)
async def test_a_record_of_another_book_refuses_the_part(
    cluster: MemoryCluster, home: Home, make: Maker, record: Record
) -> None:
    away = Log((await cluster.connect()).book("away"))
    part = await make(home)
    of = "queue 'emails'" if make in (pushed, acked) else "app 'orders'"
    with pytest.raises(WrongBook, match=f"expected a part for book 'away', found one of {of} in book 'home'") as raised:
        await record(away, part)
    assert raised.value.definite and (raised.value.expected, raised.value.found) == ("book 'away'", "book 'home'")
    found = [await away.book.read_prev(tag) for tag in (*part.tags, tags.store_object("order"))]
    assert set(found) == {None}, "nothing of it is appended"


@pytest.mark.parametrize("through", ["its log", "another log", "another client", "another session", "its number"])
@pytest.mark.parametrize("make", MAKERS)
async def test_a_record_of_the_same_book_takes_the_part(
    cluster: MemoryCluster, home: Home, make: Maker, through: str
) -> None:
    client = await cluster.connect()
    book = home.log.book
    assert isinstance(book, boki.Book)
    log = {
        "its log": home.log,
        "another log": Log(book),
        "another client": Log(client.book("home")),
        "another session": Log(client.session().book("home")),
        "its number": Log(client.book(book.id)),
    }[through]
    store = BokiStore(log)
    part = await make(home)
    await log.book.now(consistency="linearizable")  # what the part expects is in the past of this session
    async with store.transaction() as tx:
        tx["order"].set("state", "paid")
        tx.add(part)
    assert await store.object("order").get("state") == "paid"
    if make is acked:
        await home.message.part_ended(True)
    await home.log.book.now(consistency="linearizable")
    assert (await home.queue.stats()).depth == (2 if make is pushed else 0 if make is acked else 1)
    known = await home.flow.known(ID)
    assert (known is not None) == (make in (starts, started_before))


async def test_a_book_of_this_name_in_another_cluster_is_another_one(cluster: MemoryCluster, home: Home) -> None:
    async with MemoryCluster() as other:
        client = await other.connect()
        away = Log(client.book("home"))
        with pytest.raises(WrongBook, match=f"for book 'home' of cluster {client.cluster}, .* of cluster "):
            await atomic(away, home.queue.pushed("bob"))


async def test_parts_of_two_books_are_one_record_of_neither(cluster: MemoryCluster, home: Home) -> None:
    away = await Queue.open((await cluster.connect()).book("away"), "emails", str)
    with pytest.raises(WrongBook):
        async with Atomic(home.log) as tx:
            tx.add(home.queue.pushed("bob"))
            tx.add(away.pushed("bob"))
    assert (await home.queue.stats()).depth == 1


@pytest.mark.parametrize("record", [record for record in RECORDS if record is not alone])
async def test_the_call_that_pushes_is_no_part_of_a_record(home: Home, record: Record) -> None:
    with pytest.raises(boki.InvalidArgument, match=r"found a coroutine of 'Queue.push', .*: use `pushed`"):
        await record(home.log, home.queue.push("bob"))  # type: ignore[arg-type]  # the mistake
    with pytest.raises(boki.InvalidArgument, match=r"found a coroutine of 'starting', .*await `starting`"):
        await record(home.log, starting(home.flow, ship.call(), id=ID))  # type: ignore[arg-type]  # the mistake
    with pytest.raises(boki.InvalidArgument, match="found PushResult"):
        await record(home.log, await home.queue.push("cleo"))  # type: ignore[arg-type]  # the mistake
    assert (await home.queue.stats()).depth == 2, "only the push that was awaited is in the log"


# -- stores, logs and transactions of another book


async def test_a_handler_is_not_declared_over_a_store_of_another_book(cluster: MemoryCluster, home: Home) -> None:
    client = await cluster.connect()
    refused = "expected a store in book 'home', that of queue 'emails', found one in book 'away'"
    with pytest.raises(WrongBook, match=refused):
        home.queue.handler(BokiStore(client.book("away")))
    with pytest.raises(WrongBook, match=refused):
        home.queue.handler(Tables(Log(client.book("away")), MemoryTables()))
    with pytest.raises(WrongBook, match=refused):
        Receiving(home.queue.consume(), BokiStore(client.book("away")))
    home.queue.handler(BokiStore(client.book("home")))  # a log of its own is no other book


async def test_a_message_whose_part_was_refused_comes_again(cluster: MemoryCluster, home: Home) -> None:
    store = BokiStore((await cluster.connect()).book("away"))
    own = BokiStore(home.log)
    with pytest.raises(WrongBook):
        async with home.message.within(0.0), store.transaction() as tx:
            tx["mails"].inc(home.message.body)
            tx.add(home.message.acked())
    assert await store.object("mails").value() is None
    message = await anext(home.messages)
    async with message, own.transaction() as tx:
        tx["mails"].inc(message.body)
        tx.add(message.acked())
    assert (message.body, await own.object("mails").value()) == ("ann", {"ann": 1})


async def test_a_collection_and_a_commit_refuse_a_transaction_of_another_book(
    cluster: MemoryCluster, home: Home
) -> None:
    client = await cluster.connect()
    store, away = BokiStore(home.log), BokiStore(client.book("away"))
    users, tx = store.collection("users", dict), await away.begin()
    with pytest.raises(WrongBook, match="in book 'home', that of collection 'users', found one in book 'away'"):
        users.within(tx)
    tx["x"].set("n", 1)
    with pytest.raises(WrongBook, match="in book 'home', that of this store, found one in book 'away'"):
        await store.commit(tx)
    await BokiStore(client.book("away")).commit(tx)
    assert (await store.object("x").value(), await away.object("x").value()) == (None, {"n": 1})
    tables, other = (Tables(log, MemoryTables()) for log in (home.log, away.log))
    async with tables, other:
        with pytest.raises(WrongBook, match="that of these tables"):
            await tables.commit(await other.begin())


async def test_a_transaction_of_a_workflow_that_adds_a_part_of_another_book_fails(
    cluster: MemoryCluster, home: Home
) -> None:
    log = Log((await cluster.connect()).book("away"))
    store, shop = BokiStore(log), App("shop")

    async def pay(tx: Transaction) -> None:
        tx["order"].set("state", "paid")
        tx.add(home.queue.pushed("bob"))

    @shop.workflow
    async def order() -> None:
        await bokiflow.transact(store, pay)

    async with Worker(shop, log, name="w", bodies=Inline()) as worker:
        with pytest.raises(WrongBook, match="queue 'emails' in book 'home'"):
            await (await worker.start(order.call(), id="x")).result()
    assert (await store.object("order").value(), (await home.queue.stats()).depth) == (None, 1)


async def test_a_part_of_a_workflow_of_a_transaction_takes_no_contribution(cluster: MemoryCluster) -> None:
    log = Log((await cluster.connect()).book("home"))
    emails, store, shop = await Queue.open(log, "emails", str, shards=1), BokiStore(log), App("shop")

    async def pay(tx: Transaction) -> None:
        tx["order"].set("state", "paid")
        tx.add(emails.pushed("bob"))

    @shop.workflow
    async def payment() -> None:
        await bokiflow.transact(store, pay)

    async def buy(tx: Transaction) -> None:
        await payment()

    @shop.workflow
    async def order() -> None:
        await bokiflow.transact(store, buy)

    async with Worker(shop, log, name="w", bodies=Inline()) as worker:
        with pytest.raises(boki.InvalidArgument, match="in the transaction that called this workflow"):
            await (await worker.start(order.call(), id="x")).result()
        assert (await store.object("order").value(), (await emails.stats()).depth) == (None, 0)
        await (await worker.start(payment.call(), id="y")).result()
    assert (await store.object("order").value(), (await emails.stats()).depth) == ({"state": "paid"}, 1)


async def test_without_an_event_loop_other_books_are_refused_too(cluster: MemoryCluster) -> None:
    def script() -> None:
        with boki.sync.connect(cluster.url) as client:
            store = bokistore.sync.BokiStore(client.book("away"))
            emails = bokiqueue.sync.Queue.open(client.book("home"), "emails", str, shards=1)
            emails.push("ann")
            with emails.consume() as messages, next(messages).within(0.0) as message:
                with pytest.raises(WrongBook), store.transaction() as tx:
                    tx["order"].set("state", "paid")
                    tx.add(emails.pushed("bob"))
                with pytest.raises(WrongBook), store.transaction() as tx:
                    tx["order"].set("state", "paid")
                    tx.add(message.acked())
            assert store.object("order").value() is None
            with pytest.raises(WrongBook, match="expected a log in book 'home', that of queue 'jobs'"):
                bokiqueue.sync.Queue.open(client.book("home"), "jobs", str, log=store.store.log)

    await asyncio.to_thread(script)
