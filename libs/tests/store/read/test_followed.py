"""Objects that are followed: a read from memory returns what a read of the log may return, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import pytest

import boki
from boki.testing import MemoryCluster
from bokilib.errors import AppendUnknown, ForeignRecord
from bokilib.ports import BookPort
from bokilib.records.tags import store_object
from bokilib.testing import UNKNOWNS, crash_everywhere, start_anywhere
from bokistore import BokiStore, StoreSettings, Transaction
from bokistore.read.followed import FollowedViews
from libs.tests.store.conftest import Another, SetClock, book_of

FOLLOWING = StoreSettings(checkpoints=False, followed_objects=100, followed_within_s=60)


class SlowBook:
    """A book whose cursors receive nothing for a while, as if answers were on their way for long."""

    def __init__(self, book: boki.Book) -> None:
        self._book = book
        self.stalled, self.resumed = asyncio.Event(), asyncio.Event()
        self.resumed.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._book, name)

    def read(self, tag: str | None = None, *, tags: Any = None, **how: Any) -> Any:
        return self._book.read(tag, **how) if tags is None else _SlowCursor(self._book.read(tags=tags, **how), self)

    @contextmanager
    def cursors_stalled(self) -> Iterator[None]:
        self.resumed.clear()
        self.stalled.set()
        yield
        self.stalled.clear()
        self.resumed.set()


class _SlowCursor:
    def __init__(self, cursor: boki.Cursor, book: SlowBook) -> None:
        self._cursor = cursor
        self._book = book

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __aiter__(self) -> _SlowCursor:
        return self

    async def __anext__(self) -> Any:
        while True:
            await self._book.resumed.wait()
            stalled = asyncio.ensure_future(self._book.stalled.wait())
            item = asyncio.ensure_future(anext(self._cursor))
            try:
                await asyncio.wait({stalled, item}, return_when=asyncio.FIRST_COMPLETED)
                if item.done():
                    return item.result()
            finally:
                stalled.cancel()
                item.cancel()
            await asyncio.wait({item})


class Pair(NamedTuple):
    """A process that follows, and whose cursors may stall, its client, and another one with its own."""

    mine: BokiStore
    client: boki.Client
    book: SlowBook
    other: BokiStore
    theirs: boki.Client


@pytest.fixture
async def pair(cluster: MemoryCluster) -> AsyncIterator[Pair]:
    client, theirs = await cluster.connect(), await cluster.connect()
    book = SlowBook(client.book("shop"))
    mine = BokiStore(cast(BookPort, book), settings=FOLLOWING)
    yield Pair(mine, client, book, BokiStore(theirs.book("shop"), settings=StoreSettings(checkpoints=False)), theirs)
    await mine.close()


@pytest.fixture
async def reader(another: Another) -> AsyncIterator[BokiStore]:
    """A process that follows what it reads often."""
    store = await another(FOLLOWING)
    yield store
    await store.close()


def followed(store: BokiStore) -> FollowedViews:
    found = store.views._following()
    assert found is not None
    return found


async def served(store: BokiStore, name: str) -> bool:
    """Whether a read of it is answered from memory."""
    before = followed(store).served
    await store.object(name).value()
    return followed(store).served > before


async def read_often(store: BokiStore, *names: str) -> None:
    """Reads these until they are answered from memory."""
    async with asyncio.timeout(10):
        for name in names:
            while not await served(store, name):
                await asyncio.sleep(0)


async def until_n(store: BokiStore, name: str, wanted: int) -> None:
    async with asyncio.timeout(10):
        while await store.object(name).get("n") != wanted:
            await asyncio.sleep(0)


async def test_what_is_read_often_is_read_from_memory_and_changes_of_others_come(
    store: BokiStore, reader: BokiStore
) -> None:
    await store.object("x").set("n", 1)
    await read_often(reader, "x", "nothing")
    news = reader.views.cached._news.queries
    for _ in range(50):
        assert (await reader.object("x").get("n"), await reader.object("nothing").exists()) == (1, False)
    assert reader.views.cached._news.queries == news
    await store.object("x").set("n", 2)
    await store.object("nothing").set("n", 3)
    await until_n(reader, "x", 2)
    await until_n(reader, "nothing", 3)


async def test_by_default_every_read_asks(store: BokiStore) -> None:
    for _ in range(5):
        await store.object("x").value()
    assert store.views._followed is None


async def test_own_changes_are_seen_at_once_whatever_made_them(reader: BokiStore) -> None:
    async def add(tx: Transaction) -> None:
        tx["x"].inc("n")

    await reader.object("x").set("n", 0)
    for number in range(1, 40, 4):
        await read_often(reader, "x")
        await reader.object("x").inc("n")
        assert await reader.object("x").get("n") == number
        await reader.transact(add)
        assert await reader.object("x").get("n") == number + 1
        async with reader.transaction() as tx:
            await add(tx)
        assert await reader.object("x").get("n") == number + 2
        await asyncio.gather(reader.object("x").inc("n"), reader.object("y").inc("n"))
        assert await reader.object("x").get("n") == number + 3


async def test_a_change_that_the_session_does_not_know_of_may_be_missing(pair: Pair) -> None:
    """So the tests below would find a read that is too old."""
    await pair.other.object("x").set("n", 0)
    await read_often(pair.mine, "x")
    with pair.book.cursors_stalled():
        await pair.other.object("x").set("n", 1)
        assert await pair.mine.object("x").get("n") == 0
    await until_n(pair.mine, "x", 1)


async def test_what_a_merged_token_covers_is_seen(pair: Pair) -> None:
    """A token raises what the session has seen, and not the place of the book that it knows."""
    await pair.other.object("x").set("n", 0)
    await read_often(pair.mine, "x")
    with pair.book.cursors_stalled():
        await pair.other.object("x").set("n", 1)
        pair.client.merge(pair.theirs.session_token())
        assert await pair.mine.object("x").get("n") == 1


async def test_what_the_session_saw_in_another_book_is_seen(pair: Pair) -> None:
    """What is read in one book may have been written by who had changed an object of another."""
    await pair.other.object("x").set("n", 0)
    await read_often(pair.mine, "x")
    with pair.book.cursors_stalled():
        await pair.other.object("x").set("n", 1)
        sent = await pair.theirs.book("mail").append(b"look")
        assert await pair.client.book("mail").read_next(at_least=sent, wait=10) is not None
        assert await pair.mine.object("x").get("n") == 1


async def test_a_linearizable_read_and_one_of_the_past_ask(store: BokiStore, reader: BokiStore) -> None:
    await store.object("x").set("n", 1)
    await read_often(reader, "x")
    then = await reader.log.book.now()
    await store.object("x").set("n", 2)
    before = followed(reader).served
    assert await reader.object("x").get("n", consistency="linearizable") == 2
    assert await reader.object("x").get("n", at=then) == 1
    assert followed(reader).served == before


async def test_it_reads_the_log_again_when_no_request_was_sent_for_so_long(pair: Pair) -> None:
    settings = StoreSettings(checkpoints=False, followed_objects=10, followed_within_s=0.2)
    mine = BokiStore(cast(BookPort, pair.book), settings=settings)
    await pair.other.object("x").set("n", 0)
    await read_often(mine, "x")
    with pair.book.cursors_stalled():
        await pair.other.object("x").set("n", 1)
        await until_n(mine, "x", 1)
    await mine.close()


async def test_several_objects_are_read_as_of_one_place(store: BokiStore, reader: BokiStore) -> None:
    names = ["a", "b", "c"]
    for name in names:
        await store.object(name).set("n", 100)
    await read_often(reader, *names)
    rng = random.Random(7)

    async def move(tx: Transaction) -> None:
        source, target = rng.sample(names, 2)
        tx[source].inc("n", -1)
        tx[target].inc("n", 1)

    async def moves() -> None:
        for _ in range(60):
            await store.transact(move)

    moving = asyncio.ensure_future(moves())
    before = followed(reader).served
    while not moving.done():
        values: list[Any] = await reader.values(names)
        assert sum(value["n"] for value in values) == 300
        async with reader.snapshot(of=names) as then:
            assert sum([int(str(await then.get(name, "n"))) for name in names]) == 300
    await moving
    assert followed(reader).served > before


async def test_objects_of_different_cursors_are_read_as_of_one_place(
    store: BokiStore, reader: BokiStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bokilib.follow.follower.CURSOR_TAGS", 1)
    for name in ("a", "b"):
        await store.object(name).set("n", 0)
    await read_often(reader, "a", "b")
    assert followed(reader)._follower.cursors == 2

    async def both(tx: Transaction) -> None:
        for name in ("a", "b"):
            tx[name].inc("n")

    async def writes() -> None:
        for _ in range(100):
            await store.transact(both)

    writing = asyncio.ensure_future(writes())
    before = followed(reader).served
    while not writing.done():
        a, b = await reader.values(["a", "b"])
        assert a == b, "both change in one record"
    await writing
    assert followed(reader).served > before


async def test_who_is_overtaken_by_a_checkpoint_reads_the_log_and_follows_anew(
    cluster: MemoryCluster, pair: Pair
) -> None:
    for name in ("x", "y"):
        await pair.other.object(name).set("n", 1)
    for number in range(2, 6):
        await read_often(pair.mine, "x", "y")
        with pair.book.cursors_stalled():
            await pair.other.object("x").set("n", number)
            await pair.other.tend("x")
            cluster.trim("shop", [(store_object("x"), await pair.other.log.book.now() + 1)])
            await pair.other.object("y").set("n", number)
        await until_n(pair.mine, "y", number)
        await until_n(pair.mine, "x", number)


async def test_an_object_that_is_deleted_and_made_anew_is_what_it_is(store: BokiStore, reader: BokiStore) -> None:
    for number in range(5):
        await store.object("x").set("n", number)
        await until_n(reader, "x", number)
        await read_often(reader, "x")
        await store.delete("x")
        async with asyncio.timeout(10):
            while await reader.object("x").exists():
                await asyncio.sleep(0)
        await read_often(reader, "x")


async def test_a_record_that_nobody_can_read_is_raised_to_the_reader(store: BokiStore, reader: BokiStore) -> None:
    await store.object("x").set("n", 1)
    await read_often(reader, "x")
    await book_of(store).append(b"what is this", tags=[store_object("x")])
    with pytest.raises(ForeignRecord):
        async with asyncio.timeout(10):
            while True:
                await reader.object("x").get("n")
                await asyncio.sleep(0)
    assert "x" not in followed(reader)


async def test_a_reader_in_a_loop_lets_others_go_on(store: BokiStore, reader: BokiStore) -> None:
    await store.object("x").set("n", 1)
    await read_often(reader, "x")
    writing = asyncio.ensure_future(store.object("x").set("n", 2))
    for _ in range(10_000):
        if await reader.object("x").get("n") == 2:
            break
    assert writing.done()


async def test_after_it_is_closed_it_asks(store: BokiStore, reader: BokiStore) -> None:
    await store.object("x").set("n", 1)
    await read_often(reader, "x")
    await reader.close()
    await store.object("x").set("n", 2)
    assert await reader.object("x").get("n") == 2


async def test_a_closed_client_ends_it_without_a_word(cluster: MemoryCluster, store: BokiStore) -> None:
    client = await cluster.connect()
    reader = BokiStore(client.book("shop"), settings=FOLLOWING)
    await store.object("x").set("n", 1)
    await read_often(reader, "x")
    await client.close()
    with pytest.raises(boki.ClosedError):
        async with asyncio.timeout(10):
            while True:
                await reader.object("x").get("n")
    await reader.close()


# -- under faults


@pytest.mark.parametrize("seed", range(12))
async def test_a_counter_never_falls_and_is_never_below_what_the_session_did(seed: int, clock: SetClock) -> None:
    """Three sessions count up, hand each other tokens, are cut off, checkpoint and trim."""
    rng = random.Random(seed)
    async with MemoryCluster(clock=clock) as cluster:
        clients = [await cluster.connect() for _ in range(3)]
        settings = StoreSettings(
            followed_objects=rng.choice([1, 100]),
            followed_within_s=rng.choice([0.0001, 60]),
            checkpoint_records=rng.choice([2, 1_000]),
        )
        stores = [BokiStore(one.book("b"), settings=settings) for one in clients]
        done = dict.fromkeys("xy", 0)
        least = [dict.fromkeys("xy", 0) for _ in stores]

        async def session(mine: int) -> None:
            for _ in range(60):
                name, what = rng.choice("xy"), rng.randrange(12)
                if what < 2:
                    done[name] += 1
                    counted = await stores[mine].object(name).inc("n")
                    least[mine][name] = max(least[mine][name], int(counted))
                elif what == 2:
                    other = rng.randrange(len(stores))
                    seen = dict(least[other])
                    clients[mine].merge(clients[other].session_token())
                    least[mine] = {key: max(least[mine][key], seen[key]) for key in seen}
                elif what == 3:
                    cluster.disconnect()
                elif what == 4:
                    await stores[mine].tend(name)
                else:
                    known = least[mine][name]
                    found = await stores[mine].object(name).get("n", 0)
                    assert isinstance(found, int) and known <= found <= done[name], (seed, name)
                    least[mine][name] = max(least[mine][name], found)

        await asyncio.gather(*(session(mine) for mine in range(len(stores))))
        for store in stores:
            await store.close()


async def _program(book: Any) -> None:
    store = BokiStore(book, settings=FOLLOWING)
    try:
        done = 0
        for _ in range(3):
            for _ in range(3):
                await store.object("x").get("n", 0)
            try:
                await store.object("x").inc("n")
                done += 1
            except AppendUnknown as unknown:
                done += isinstance(await unknown.outcome(), boki.Committed)
            assert int(str(await store.object("x").get("n", 0))) >= done
    finally:
        await store.close()


async def _check(book: Any) -> None:
    assert int(str(await BokiStore(book).object("x").get("n", 0))) <= 9


async def test_it_may_die_or_lose_an_answer_at_any_operation() -> None:
    await crash_everywhere(_program, _program, _check)
    await crash_everywhere(_program, check=_check, kinds=UNKNOWNS)
    await start_anywhere(_program, _program, _check)
