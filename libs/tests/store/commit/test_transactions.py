"""Transactions: own writes, snapshots, conflicts, several libraries in one record, and Figure 8 of the paper."""

from __future__ import annotations

import asyncio

import pytest

import boki
from bokilib.append.fence import Fence
from bokilib.errors import AppendUnknown, AtomicTooLarge, Fenced
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event
from bokilib.testing import Fault, FaultyBook
from bokistore import BokiStore, Inc, InTransaction, OperationFailed, Push, Transaction
from libs.tests.store.conftest import Another


class Pushed(Event, tag="queue.push", frozen=True):
    queue: str


async def test_own_writes_are_visible_and_nobody_elses_before_they_commit(store: BokiStore, another: Another) -> None:
    other = await another()
    await store.object("x").set("n", 1)
    async with store.transaction() as tx:
        x, y = tx["x"], tx["y"]
        assert await x.get("n") == 1 and not await y.exists()
        x.inc("n", 2)
        y.make_array("l")
        y.push("l", {"a": 1}, limit=5)
        y.set("l.0.a", 2)
        y.make_object("o")
        y.merge("o", {"k": "v"})
        y.set("gone", 1)
        y.delete("gone")
        y.push("l", 9)
        y.pop("l")
        assert await x.value() == {"n": 3}
        assert await y.value() == {"l": [{"a": 2}], "o": {"k": "v"}}
        assert await other.object("x").value(consistency="linearizable") == {"n": 1}
    assert await other.object("x").value(consistency="linearizable") == {"n": 3}
    assert await other.object("y").value() == {"l": [{"a": 2}], "o": {"k": "v"}}
    assert tx.seqnum and repr(x) == "<bokistore.TxObject 'x'>"


async def test_it_reads_its_snapshot_whatever_comes(store: BokiStore, another: Another) -> None:
    other = await another()
    await store.object("x").set("n", 1)
    async with store.transaction() as tx:
        await other.object("x").set("n", 2)
        await other.object("y").set("n", 2)
        assert await tx["x"].get("n") == 1
        assert await tx.values(["x", "y"]) == [{"n": 1}, None]


async def test_the_first_of_two_that_write_one_object_commits(store: BokiStore, another: Another) -> None:
    other = await another()
    with pytest.raises(boki.Conflict):
        async with store.transaction(isolation="snapshot") as tx:
            await tx["x"].get("n")
            await other.object("x").inc("n")
            tx["x"].inc("n", 10)
    assert await store.object("x").value() == {"n": 1}


async def test_write_skew_is_seen_at_snapshot_isolation_and_prevented_by_serializability(
    store: BokiStore, another: Another
) -> None:
    """Two doctors on call, each leaves because the other is there."""
    other = await another()
    for isolation in ("snapshot", "serializable"):
        await store.object("a").set("on_call", True)
        await other.object("b").set("on_call", True)
        one = await store.begin(isolation=isolation, consistency="linearizable")
        two = await other.begin(isolation=isolation, consistency="linearizable")
        assert await one["b"].get("on_call") and await two["a"].get("on_call")
        one["a"].set("on_call", False)
        two["b"].set("on_call", False)
        await store.commit(one)
        if isolation == "serializable":
            with pytest.raises(boki.Conflict):
                await other.commit(two)
        else:
            await other.commit(two)
        left = await other.values(["a", "b"], consistency="linearizable")
        assert left == [{"on_call": False}, {"on_call": isolation == "serializable"}]


async def test_nothing_is_appended_where_nothing_is_written(store: BokiStore) -> None:
    await store.object("x").set("n", 1)
    before = store.log.appends
    async with store.transaction() as tx:
        assert await tx["x"].get("n") == 1
    async with store.snapshot() as then:
        assert await then.get("x", "n") == 1
    assert store.log.appends == before and tx.seqnum == 0


async def test_an_error_inside_writes_nothing(store: BokiStore) -> None:
    begun = []
    with pytest.raises(KeyError):
        async with store.transaction() as running:
            begun.append(running)
            running["x"].set("n", 1)
            raise KeyError("mine")
    (tx,) = begun
    assert await store.object("x").value() is None
    with pytest.raises(InTransaction):
        tx["x"].set("n", 1)
    with pytest.raises(InTransaction):
        await tx["x"].get("n")
    with pytest.raises(InTransaction):
        await tx.ids("c")


async def test_what_cannot_be_done_raises_if_it_was_read_and_else_changes_nothing(
    store: BokiStore,
) -> None:
    await store.object("x").set("a", "text")
    async with store.transaction() as tx:
        await tx["x"].value()
        with pytest.raises(OperationFailed):
            tx["x"].inc("a")
        tx["y"].inc("n")
    async with store.transaction() as tx:
        tx["x"].inc("a")
        tx["y"].inc("n")
    assert await store.values(["x", "y"]) == [{"a": "text"}, {"n": 2}]


async def test_deleting_and_making_anew_in_one_transaction(store: BokiStore) -> None:
    await store.object("x").set("a", 1)
    async with store.transaction() as tx:
        await tx["x"].value()
        tx.delete("x")
        assert not await tx["x"].exists()
        tx["x"].set("b", 1)
        assert await tx["x"].value() == {"b": 1}
    assert await store.object("x").value() == {"b": 1}


async def test_effects_of_another_library_are_in_the_same_record(store: BokiStore) -> None:
    fence = Fence(store.log, "queue/own/q/0/g", "q", who="me")
    await fence.take(await fence.current())
    async with store.transaction() as tx:
        tx["x"].inc("n")
        tx.add(Contribution(("queue/p/q/0",), fence.expect, (Pushed("q"),)))
    record = await store.log.book.read_prev("queue/p/q/0")
    assert record is not None and record.seqnum == tx.seqnum and "store/o/x" in record.tags


async def test_a_moved_fence_ends_a_transaction_and_it_is_not_run_again(store: BokiStore, another: Another) -> None:
    other = await another()
    mine, theirs = (Fence(one.log, "queue/own/q/0/g", "q", who=who) for one, who in ((store, "me"), (other, "you")))
    await mine.take(None)
    runs = []

    async def body(tx: Transaction) -> None:
        runs.append(1)
        if len(runs) == 1:
            await theirs.take(await theirs.current())
        tx["x"].inc("n")
        tx.add(Contribution(("queue/p/q/0",), mine.expect, (Pushed("q"),)))

    with pytest.raises(Fenced):
        await store.transact(body)
    assert len(runs) == 1
    assert await store.object("x").value() is None


async def test_what_does_not_fit_one_record_is_refused_before_it_is_sent(store: BokiStore) -> None:
    before = store.log.appends
    with pytest.raises(AtomicTooLarge, match="tags"):
        async with store.transaction() as tx:
            for number in range(256):
                tx[f"x{number}"].inc("n")
    with pytest.raises(AtomicTooLarge, match="scan"):
        async with store.transaction() as tx:
            await tx.values([f"x{number}" for number in range(257)])
            tx["y"].inc("n")
    assert store.log.appends == before


async def test_an_unknown_commit_is_raised_and_not_run_again(store: BokiStore) -> None:
    runs = []

    async def body(tx: Transaction) -> None:
        runs.append(1)
        tx["x"].inc("n")

    faulty = FaultyBook(store.log.book, Fault(1, "lost"))
    with pytest.raises(AppendUnknown) as unknown:
        await BokiStore(faulty).transact(body)
    assert len(runs) == 1
    assert isinstance(await unknown.value.outcome(), boki.Committed)
    assert await store.object("x").get("n", consistency="linearizable") == 1


async def test_figure_8_one_that_lost_does_not_make_another_lose(store: BokiStore, another: Another) -> None:
    """TxnB fails by TxnA; TxnC, which overlaps only with TxnB's writes, commits: what lost is not in the log."""
    await store.object("x").set("n", 0)
    a, b, c = [await (await another()).begin(isolation="snapshot", consistency="linearizable") for _ in range(3)]
    stores = [await another() for _ in range(3)]
    a["x"].set("n", 1)
    b["x"].set("n", 2)
    b["y"].set("n", 2)
    c["y"].set("n", 3)
    await stores[0].log.book.now(consistency="linearizable")
    for one, tx in zip(stores, (a, b, c), strict=True):
        await one.log.book.now(consistency="linearizable")
        if tx is b:
            with pytest.raises(boki.Conflict):
                await one.commit(tx)
        else:
            await one.commit(tx)
    assert await store.values(["x", "y"], consistency="linearizable") == [{"n": 1}, {"n": 3}]


async def test_operations_that_are_sent_join_the_record_and_make_nobody_lose(
    store: BokiStore, another: Another
) -> None:
    """A post and its line on everybody's page are one record; the page is no object of conflict."""
    other = await another()
    async with store.transaction() as tx, other.transaction() as late:
        for one, name in ((tx, "post/1"), (late, "post/2")):
            one[name].set("text", name)
            one.send("page", Push("posts", name, 2), Inc("n", 1))
            one.send("page", Inc("posts", 1))  # cannot be done
    assert await store.object("page").value(consistency="linearizable") == {"posts": ["post/2", "post/1"], "n": 2}
    assert await store.object("page").history() != []
    async with store.transaction() as tx:
        tx.send("page", Inc("n", 1))
        assert await tx["page"].get("n") == 3, "its own are visible"
        with pytest.raises(boki.InvalidArgument):
            tx.send("page")


async def test_who_reads_what_another_of_its_group_sends_has_to_see_it(store: BokiStore) -> None:
    async def send(tx: Transaction) -> None:
        tx.send("x", Inc("n", 1))

    async def look(tx: Transaction) -> object:
        found = await tx["x"].get("n", 0)
        tx["y"].set("seen", found)
        return found

    await store.object("x").set("n", 0)
    found: tuple[object, ...] = await asyncio.gather(
        store.transact(send), store.transact(look), store.transact(send), store.transact(look)
    )
    assert list(found) == [None, 1, None, 2]
    assert await store.object("y").get("seen") == 2
