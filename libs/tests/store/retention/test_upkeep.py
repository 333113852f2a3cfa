"""Storage comes back: what is idle is carried out of old terms, what is deleted goes for good; whoever carries, and wherever he dies."""

from __future__ import annotations

import asyncio
import io

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.logs import configured
from bokilib import Carrier, Fenced
from bokilib.append.fence import PICKER
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.records.tags import store_checkpoint, store_object
from bokilib.retention.carrier import Round
from bokilib.retention.checkpoint_rules import GRACE_MS, RETENTION_MS, REWRITE_MS
from bokilib.testing import CRASHES, UNKNOWNS, crash_everywhere, start_anywhere
from bokistore import BokiStore, StoreSettings, Transaction
from bokistore.model.directory_rules import Subject
from bokistore.retention.upkeep import Upkeep
from libs.tests.store.conftest import Another, SetClock, book_of

BARE = StoreSettings(checkpoints=False, cached_views=0, aux_data=False)


def carrier_of(book: BookPort, who: str = "a") -> Carrier:
    return BokiStore(book, settings=BARE).carrier(who)


async def oldest_ms(book: boki.Book, clock: SetClock) -> int:
    """How old the oldest live record of the book is."""
    async for item in book.read():
        if isinstance(item, boki.Record):
            return clock.ms - item.time_ms
    return 0


async def days(book: boki.Book, clock: SetClock, count: int) -> Round:
    """So many days, with a round on each; what the last one did."""
    for _ in range(count - 1):
        clock.ms += REWRITE_MS
        await carrier_of(book).round()
    clock.ms += REWRITE_MS
    return await carrier_of(book).round()


async def test_whole_terms_can_go_though_nothing_happens(store: BokiStore, another: Another, clock: SetClock) -> None:
    """Idle objects, idle collections, in a book in which nobody writes any more: nothing live is older than two days."""
    things = store.collection("c", dict)
    for number in range(20):
        await things.create(f"k{number}", {"n": number})
        await store.object(f"x{number}").set("n", number)
    reader = await another(BARE)
    for day in range(6):
        await days(book_of(store), clock, 1)
        ids = await reader.collection("c", dict).ids(consistency="linearizable")
        assert ids == sorted(f"k{number}" for number in range(20))
        values = await reader.values([f"x{number}" for number in range(20)])
        assert values == [{"n": number} for number in range(20)]
        assert day < 2 or await oldest_ms(book_of(store), clock) <= 2 * REWRITE_MS


async def test_many_idle_objects_are_carried_in_one_record(store: BokiStore, clock: SetClock) -> None:
    for number in range(60):
        await store.object(f"x{number}").set("n", number)
    clock.ms += REWRITE_MS
    carrying = BokiStore(book_of(store), settings=BARE)
    done = await carrying.carrier("a").round()
    assert (done.carried, done.read, carrying.log.appends) == (60, 60, 2), "the claim, and one record"


async def test_what_is_young_or_was_carried_today_is_left_where_it_is(store: BokiStore, clock: SetClock) -> None:
    await store.object("x").set("n", 1)
    clock.ms += REWRITE_MS - 1
    assert (await carrier_of(book_of(store)).round()).carried == 0
    clock.ms += 1
    assert (await carrier_of(book_of(store)).round()).carried == 1
    assert (await carrier_of(book_of(store)).round()).carried == 0


async def test_a_large_idle_object_is_carried_in_parts(store: BokiStore, another: Another, clock: SetClock) -> None:
    for number in range(3):
        await store.object("x").set(f"k{number}", "v" * 400_000)
    await days(book_of(store), clock, 3)
    value = await (await another(BARE)).object("x").value(consistency="linearizable")
    assert value == {f"k{number}": "v" * 400_000 for number in range(3)}
    assert await oldest_ms(book_of(store), clock) <= REWRITE_MS


async def test_of_what_is_deleted_nothing_is_left_after_the_retention(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    """The deletion is carried from term to term until then, with the time at which it was."""
    things = store.collection("c", dict)
    await things.create("k", {})
    await store.object("x").set("n", 1)
    await store.delete("x")
    await things.delete("k")
    for _ in range(RETENTION_MS // REWRITE_MS + 1):
        await days(book_of(store), clock, 1)
        assert await (await another(BARE)).object("x").value(consistency="linearizable") is None
        assert await oldest_ms(book_of(store), clock) <= 2 * REWRITE_MS
    await days(book_of(store), clock, 2)
    live = [item async for item in book_of(store).read() if isinstance(item, boki.Record)]
    assert len(live) == 1, [
        (item.tags, [len([1 async for _ in book_of(store).read(t)]) for t in item.tags], item.data) for item in live
    ]
    for tag in (store_object("x"), store_checkpoint("x")):
        await book_of(store).append(b"", tags=["probe"], expect={tag: None})
    await store.object("x").inc("n")
    assert await (await another(BARE)).object("x").get("n", consistency="linearizable") == 1


async def test_what_operations_made_nothing_of_goes_too(store: BokiStore, clock: SetClock) -> None:
    """An operation on what was deleted, or never was, may change nothing; its record goes like a deletion."""
    await store.object("x").delete("never.there")
    await days(book_of(store), clock, RETENTION_MS // REWRITE_MS + 4)
    assert [item async for item in book_of(store).read(store_object("x"))] == []
    assert [item async for item in book_of(store).read(store_checkpoint("x"))] == []


@pytest.mark.parametrize("after", ["at once", "a day later"])
async def test_what_is_deleted_and_made_anew_in_one_transaction_is_there(
    store: BokiStore, another: Another, clock: SetClock, after: str
) -> None:
    """The deletion is a checkpoint, of nothing; what follows in the same record is not behind it, unless the two are distinguished."""
    await store.object("x").set("old", 1)
    async with store.transaction() as tx:
        tx.delete("x")
        tx["x"].set("new", 1)
    if after == "a day later":
        await days(book_of(store), clock, 3)
    assert await (await another(BARE)).object("x").value(consistency="linearizable") == {"new": 1}


async def test_an_object_and_a_bucket_of_the_same_name_are_distinguished(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    """They are carried in one record."""
    things = store.collection("c", dict)
    await things.create("k", {})
    for bucket in range(16):
        await store.object(f"c/{bucket}").set("n", bucket)
    await days(book_of(store), clock, 3)
    reader = await another(BARE)
    assert await reader.collection("c", dict).ids(consistency="linearizable") == ["k"]
    assert await reader.values([f"c/{bucket}" for bucket in range(16)]) == [{"n": bucket} for bucket in range(16)]


async def test_a_snapshot_within_the_grace_survives_a_carrier(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    await store.object("x").set("n", 1)
    await days(book_of(store), clock, 1)
    clock.ms += REWRITE_MS - GRACE_MS + 1
    await store.object("clock").set("n", 1)
    snapshot = await book_of(store).now()
    await store.object("x").set("n", 2)
    clock.ms += GRACE_MS - 1
    await carrier_of(book_of(store)).round()
    reader = await another(BARE)
    await reader.log.book.now(consistency="linearizable")
    assert await reader.object("x").get("n", at=snapshot) == 1


async def test_one_damaged_object_keeps_its_term_and_nobody_elses(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    await store.object("good").set("n", 1)
    await store.object("bad").set("n", 1)
    await book_of(store).append(b"no record of a library", tags=[store_object("bad")])
    await book_of(store).append(b"of nobody")
    done = await days(book_of(store), clock, 3)
    assert done.carried == 1 and done.left == {"unreadable": 2}
    assert await (await another(BARE)).object("good").get("n", consistency="linearizable") == 1
    assert [item async for item in book_of(store).read(store_object("good"))] == []


# -- whoever carries, wherever he dies


async def _idle(book: BookPort, clock: SetClock) -> None:
    """Two idle objects, a deleted one, a collection; then three days."""
    clock.ms = 1_000_000
    store = BokiStore(book, settings=BARE)
    await store.object("x").set("n", 1)
    await store.object("y").set("n", 2)
    await store.object("z").set("n", 3)
    await store.delete("z")
    await store.collection("c", dict).create("k", {})


async def _whole(book: boki.Book) -> None:
    store = BokiStore(book, settings=BARE)
    assert await store.values(["x", "y", "z"], consistency="linearizable") == [{"n": 1}, {"n": 2}, None]
    assert await store.collection("c", dict).ids() == ["k"]


async def _carry(book: BookPort) -> None:
    try:
        await carrier_of(book).round()
    except Fenced:
        pass


@pytest.mark.parametrize("kinds", [CRASHES, UNKNOWNS])
async def test_a_carrier_may_die_between_any_two_steps(clock: SetClock, kinds: tuple[str, ...]) -> None:
    """Another one goes on; and in the end nothing live is older than two days."""

    async def program(book: BookPort) -> None:
        for _ in range(2):
            clock.ms += REWRITE_MS
            await _carry(book)

    async def check(book: boki.Book) -> None:
        await _whole(book)
        for _ in range(3):
            clock.ms += REWRITE_MS
            await _carry(book)
        await _whole(book)
        assert await oldest_ms(book, clock) <= 2 * REWRITE_MS

    async def begun(book: boki.Book) -> None:
        await _idle(book, clock)

    explored = await crash_everywhere(program, _carry, check, kinds=kinds, clock=clock, before=begun)  # type: ignore[arg-type]
    assert explored.runs >= (30 if kinds == CRASHES else 8)


async def test_two_carriers_at_any_point_of_one_another(clock: SetClock) -> None:
    async def begun(book: boki.Book) -> None:
        await _idle(book, clock)
        clock.ms += REWRITE_MS
        await _carry(book)
        clock.ms += REWRITE_MS

    async def check(book: boki.Book) -> None:
        await _whole(book)
        clock.ms += REWRITE_MS
        await _carry(book)
        await _whole(book)
        assert await oldest_ms(book, clock) <= 2 * REWRITE_MS

    explored = await start_anywhere(_carry, _carry, check, clock=clock, before=begun)
    assert explored.runs > 15


async def test_an_object_that_is_written_deleted_or_made_anew_at_any_point_of_a_carrier(clock: SetClock) -> None:
    async def begun(book: boki.Book) -> None:
        await _idle(book, clock)
        clock.ms += RETENTION_MS - REWRITE_MS
        await _carry(book)
        clock.ms += REWRITE_MS + 1

    async def users(book: BookPort) -> None:
        store = BokiStore(book, settings=BARE)
        await store.object("x").inc("n")
        await store.delete("y")
        await store.object("z").set("anew", True)
        await store.collection("c", dict).create("l", {})

    async def check(book: boki.Book) -> None:
        for days_on in (0, 1, 1):
            clock.ms += days_on * REWRITE_MS
            if days_on:
                await _carry(book)
            store = BokiStore(book, settings=BARE)
            values = await store.values(["x", "y", "z"], consistency="linearizable")
            assert values in ([{"n": 2}, None, {"anew": True}], [{"n": 1}, {"n": 2}, None]), values
            ids = await store.collection("c", dict).ids()
            assert ids == (["k", "l"] if values[1] is None else ["k"])

    explored = await start_anywhere(_carry, users, check, clock=clock, before=begun)
    assert explored.runs > 20


async def test_directories_that_grow_are_checkpointed_by_themselves(another: Another) -> None:
    """By who only creates, and never looks at all names; and by who looks."""
    store = await another(StoreSettings(checkpoint_records=5))
    things = store.collection("c", dict)
    for number in range(200):
        await things.create(f"k{number}", {})
    await store.close()
    made = [
        item
        async for item in book_of(store).read()
        if isinstance(item, boki.Record) and "store/dirck" in str(item.tags)
    ]
    assert 16 <= len(made) <= 40
    assert len(await (await another(BARE)).collection("c", dict).ids(consistency="linearizable")) == 200


# -- whose turn it is


async def test_one_carries_at_a_time_and_another_when_he_is_silent(clock: SetClock) -> None:
    async with MemoryCluster(clock=clock) as cluster:
        books = [(await cluster.connect()).book("b") for _ in range(2)]
        carriers = [
            BokiStore(book, settings=BARE).carrier(who, every_s=0.02) for book, who in zip(books, "ab", strict=True)
        ]
        claims: list[str] = []
        log = Log(books[0])

        async def watch() -> None:
            async for item in books[0].read("lib/carry/store", follow=True):
                if isinstance(item, boki.Record):
                    claims.extend(one.who for one in PICKER.of(item.seqnum, await log.open(item)))

        watching = asyncio.create_task(watch())
        async with carriers[1]:
            async with carriers[0]:
                while len(claims) < 3:
                    await asyncio.sleep(0)
            first = len(claims)
            while len(claims) < first + 3:
                await asyncio.sleep(0)
            assert claims[-1] == "b"
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_a_transaction_over_what_is_forgotten_meanwhile_loses(store: BokiStore, clock: SetClock) -> None:
    """That nothing is known of a stream any more is no proof that nothing came: what was expected of it holds no more."""
    await store.object("x").set("n", 1)
    tx = await store.begin()
    assert await tx["x"].exists()
    await store.delete("x")
    clock.ms += RETENTION_MS
    for _ in range(2):
        await carrier_of(book_of(store)).round()
        clock.ms += REWRITE_MS
    await book_of(store).append(b"", tags=["probe"], expect={store_object("x"): None})
    tx["x"].set("n", 2)
    with pytest.raises(boki.Conflict):
        await store.commit(tx)
    await store.transact(_made_anew)
    assert await store.object("x").get("n") == 3


async def _made_anew(tx: Transaction) -> None:
    assert not await tx["x"].exists()
    tx["x"].set("n", 3)


# -- expiry


async def test_objects_whose_time_is_over_go_by_themselves(store: BokiStore, another: Another, clock: SetClock) -> None:
    things = store.collection("c", dict)
    await things.create("k", {})
    await things.create("l", {})
    for name in ("x", "y", "z"):
        await store.object(name).set("n", 1)
    for name in ("x", "y", "c/k"):
        await store.expire(name, clock.ms + 1_000)
    await store.expire("y", clock.ms + 10**9)
    assert await store.sweep() == []
    clock.ms += 1_000
    await store.carrier("a").round()
    reader = await another(BARE)
    values = await reader.values(["x", "y", "z", "c/k"], consistency="linearizable")
    assert values == [None, {"n": 1}, {"n": 1}, None]
    assert await reader.collection("c", dict).ids() == ["l"], "its name went with it"
    assert await store.sweep() == []


async def test_a_sweep_at_any_point_of_another_and_of_who_gives_more_time(clock: SetClock) -> None:
    async def begun(book: boki.Book) -> None:
        clock.ms = 1_000_000
        store = BokiStore(book, settings=BARE)
        for name in ("x", "y"):
            await store.object(name).set("n", 1)
            await store.expire(name, clock.ms)
        await store.object("clock").inc("n")

    async def sweep(book: BookPort) -> None:
        await BokiStore(book, settings=BARE).sweep()

    async def second(book: BookPort) -> None:
        store = BokiStore(book, settings=BARE)
        if await store.object("y").exists(consistency="linearizable"):
            await store.expire("y", clock.ms + 10**9)
            kept.append(True)
        await store.sweep()

    async def check(book: boki.Book) -> None:
        x, y = await BokiStore(book, settings=BARE).values(["x", "y"], consistency="linearizable")
        assert x is None and (y is not None) == bool(kept)
        kept.clear()

    kept: list[bool] = []
    assert (await start_anywhere(sweep, second, check, clock=clock, before=begun)).runs > 10


async def test_a_defect_of_one_checkpoint_is_logged_and_others_are_made(
    store: BokiStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep = Upkeep(store.checkpointer, records=1, size=1, on=True)
    tended: list[Subject] = []

    async def tend(subject: Subject) -> int:
        tended.append(subject)
        if len(tended) == 1:
            raise RuntimeError("defect")
        return 0

    monkeypatch.setattr(upkeep, "tend", tend)
    stream = io.StringIO()
    with configured(stream=stream):
        upkeep._note(Subject("a"))
        upkeep._note(Subject("b"))
        await upkeep.close()
    assert tended == [Subject("a"), Subject("b")] and "checkpoint not made: a defect" in stream.getvalue()
