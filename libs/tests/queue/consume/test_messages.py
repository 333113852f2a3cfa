"""ACKs in records of other libraries: the whole record happens, or nothing of it."""

from __future__ import annotations

import asyncio

import pytest

from boki_common.errors import Conflict
from bokilib import Atomic, Fence, Log
from bokiqueue import Queue, StaleReceipt
from bokiqueue.consume.messages import LEASE_MOST_S
from bokistore import BokiStore, Transaction
from libs.tests.queue.conftest import Another, all_appended, book_of


async def shop(another: Another) -> tuple[BokiStore, Queue[object], Queue[object]]:
    """A store and two queues of one process."""
    book = book_of(await another("orders", shards=1))
    store = BokiStore(book)
    orders = await Queue.open(store.log, "orders", object)
    emails = await Queue.open(store.log, "emails", object, shards=1)
    return store, orders, emails


async def test_consume_change_and_push_are_one_record(another: Another) -> None:
    store, orders, emails = await shop(another)
    await orders.push("apple")
    async with orders.consume(member_lease_s=600) as messages:
        async with await anext(messages) as order:
            await all_appended(messages)
            before = store.log.appends

            async def sell(tx: Transaction) -> None:
                tx["stock"].inc("apple", -1)
                tx.add(order.acked())
                tx.add(emails.pushed("sold"))

            await store.transact(sell)
            assert store.log.appends == before + 1
        with pytest.raises(StaleReceipt, match="decided already"):
            await order.ack()
    assert await store.object("stock").get("apple") == -1
    async with emails.consume() as sent:
        assert (await anext(sent)).body == "sold"


async def test_a_record_that_did_not_happen_gives_the_message_back(another: Another) -> None:
    store, orders, _ = await shop(another)
    await orders.push("apple")
    async with orders.consume() as messages:
        with pytest.raises(Conflict):
            async with await anext(messages) as order, store.transaction() as tx:
                await tx["stock"].get("apple")
                await store.object("stock").set("apple", 5)
                tx["stock"].inc("apple", -1)
                tx.add(order.acked())
        again = await anext(messages)
        assert (again.body, again.attempt) == ("apple", 1)
        assert await store.object("stock").get("apple") == 5


async def test_a_message_whose_handler_loses_a_record_of_its_own_waits_before_redelivery(another: Another) -> None:
    _, orders, _ = await shop(another)
    book = book_of(orders)
    first = await book.append(b"", tags=["t"])
    await book.append(b"", tags=["t"])
    await orders.push("apple")
    async with orders.consume() as messages:
        with pytest.raises(Conflict):
            async with await anext(messages):
                await book.append(b"", tags=["t"], expect={"t": first})
        await all_appended(messages)
        assert messages._next() is None
        (owner,) = [one for one in messages._owners.values() if one.progress.due]
        assert list(owner.progress.attempts.values()) == [0]


async def test_while_its_record_is_on_its_way_no_lease_runs_out(another: Another) -> None:
    store, orders, emails = await shop(another)
    await orders.push("apple")
    async with orders.consume() as messages, await anext(messages) as order, Atomic(store.log) as tx:
        part = order.acked()
        assert part == order.acked(), "in a second attempt it is the same"
        (owner,) = messages._owners.values()
        owner.expire(asyncio.get_running_loop().time() + LEASE_MOST_S)
        assert messages._next() is None
        tx.add(part)
        tx.add(emails.pushed("sold"))


async def test_who_lost_the_shard_does_none_of_it(another: Another) -> None:
    store, orders, emails = await shop(another)
    await orders.push("apple")
    async with orders.consume() as messages:
        with pytest.raises(Conflict):
            async with await anext(messages) as order:
                (owner,) = messages._owners.values()
                thief = Log(book_of(await another("orders")))
                fence = Fence(thief, owner.fence.tag, owner.fence.name, who="thief")
                await fence.take(await fence.current())
                async with Atomic(store.log) as tx:
                    tx.add(order.acked())
                    tx.add(emails.pushed("sold"))
    async with emails.consume() as sent:
        assert sent._next() is None


async def test_an_ack_that_was_promised_and_never_appended_is_none(another: Another) -> None:
    _, orders, _ = await shop(another)
    await orders.push("apple")
    async with orders.consume() as messages:
        async with await anext(messages) as order:
            order.acked()
        again = await anext(messages)
        assert (again.body, again.attempt) == ("apple", 1)


async def test_an_error_after_the_record_does_not_undo_it(another: Another) -> None:
    store, orders, emails = await shop(another)
    await orders.push("first", key="k")
    await orders.push("second", key="k")
    async with orders.consume() as messages:
        with pytest.raises(ValueError, match="late"):
            async with await anext(messages) as order:
                async with Atomic(store.log) as tx:
                    tx.add(order.acked())
                    tx.add(emails.pushed("sold"))
                raise ValueError("late")
        assert (await anext(messages)).body == "second"
    assert (await emails.stats()).depth == 1
