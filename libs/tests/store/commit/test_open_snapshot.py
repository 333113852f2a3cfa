"""Transactions begin with what their process knows, and are right whatever that is worth."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki.testing import MemoryCluster
from bokilib.testing import FaultyBook
from bokistore import BokiStore, StoreSettings, Transaction
from bokistore.commit.open_snapshot import OpenSnapshot
from bokistore.model.fold import View, gone
from bokistore.read.view_cache import KnownView
from libs.tests.store.conftest import Another

BARE = StoreSettings(checkpoints=False)


async def bump(tx: Transaction, name: str) -> int:
    before = await tx[name].get("n", 0)
    assert isinstance(before, int)
    tx[name].set("n", before + 1)
    return before


async def look(tx: Transaction, *names: str) -> list[Any]:
    return [await tx[name].get("n", 0) for name in names]


@pytest.fixture
async def counted(cluster: MemoryCluster) -> tuple[BokiStore, FaultyBook]:
    book = FaultyBook((await cluster.connect()).book("shop"))
    return BokiStore(book, settings=BARE), book


@pytest.mark.parametrize(("value", "goes_on"), [({"n": 1}, True), ({"n": 1.0}, False), ({"n": 2}, False)])
def test_views_of_one_state_that_saw_different_places_hold_together(value: dict[str, Any], goes_on: bool) -> None:
    """A view kept by a checkpoint has seen the checkpoint's place, a followed one the last record of the object."""
    where = OpenSnapshot("serializable", 9, trusting=True)
    kept, followed = View("x", 8, True, {"n": 1}), View("x", 6, True, value)
    assert where.take_known(["x"], {"x": KnownView(kept, upto=9)})
    assert where.take_read(9, [followed, gone("y", 9)]) is goes_on
    assert where.stale is not goes_on


async def test_what_changes_known_objects_is_one_append_and_nothing_else(
    counted: tuple[BokiStore, FaultyBook],
) -> None:
    store, book = counted
    await store.transact(bump, "x")
    await store.object("y").set("n", 5)

    async def both(tx: Transaction) -> None:
        await bump(tx, "x")
        await bump(tx, "y")

    await store.transact(both)
    asked = len(book.operations)
    await store.transact(both)
    assert len(book.operations) == asked + 1
    assert await store.values(["x", "y"]) == [{"n": 3}, {"n": 7}]


async def test_who_knew_what_was_old_runs_again_and_that_is_no_retry(store: BokiStore, another: Another) -> None:
    other = await another()
    await store.transact(bump, "x")
    await other.object("x").inc("n", 10)
    before = store.log.appends
    assert await store.transactional(retries=0)(bump)("x") == 11
    assert store.log.appends == before + 2


async def test_what_others_change_is_read_from_the_log_until_they_stop(store: BokiStore, another: Another) -> None:
    other = await another()
    await store.transact(bump, "x")
    await other.transact(bump, "x")
    costs = []
    for turn in range(6):
        before = store.log.appends
        await store.transact(bump, "x")
        costs.append(store.log.appends - before)
        if turn < 3:
            await other.transact(bump, "x")
    assert costs == [2, 1, 1, 1, 1, 1]
    assert await store.object("x").get("n") == 11


async def test_who_only_reads_reads_the_log(store: BokiStore, another: Another) -> None:
    other = await another()
    await store.transact(bump, "x")
    await other.transact(bump, "x")
    assert await store.transact(look, "x") == [2], "though this session had not seen it"
    await other.transact(bump, "x")
    await store.log.book.now(consistency="linearizable")
    assert await store.transact(look, "x") == [3]


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
async def test_an_error_that_came_of_what_was_old_is_not_raised(
    store: BokiStore, another: Another, isolation: Any
) -> None:
    other = await another()
    await store.transact(bump, "x")
    await other.transact(bump, "x")
    await store.log.book.now(consistency="linearizable")
    runs = []

    async def strict(tx: Transaction) -> int:
        found = await tx["x"].get("n")
        runs.append(found)
        if found != 2:
            raise ValueError(found)
        return 2

    assert await store.transactional(isolation=isolation)(strict)() == 2


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
async def test_what_changes_together_is_seen_together(store: BokiStore, another: Another, isolation: Any) -> None:
    """One of the two was looked at since, the other was not: what is known of them never was there together."""
    other = await another()

    async def both(tx: Transaction) -> None:
        for name in ("x", "y"):
            await bump(tx, name)

    seen = []

    async def compare(tx: Transaction) -> None:
        seen.append(await look(tx, "x", "y"))
        tx["z"].set("n", 1)

    await store.transact(both)
    for _ in range(2):
        await other.transact(both)
        await store.object("y").get("n", consistency="linearizable")
        await store.transactional(isolation=isolation)(compare)()
    assert [one[0] for one in seen] == [one[1] for one in seen]


async def test_what_was_read_first_and_changes_before_the_next_reading_is_found_out(
    store: BokiStore, another: Another
) -> None:
    """The second object is not known, and is asked for together with the first, which has changed: it reads on as of before."""
    other = await another()
    await store.transact(bump, "x")
    await other.object("y").set("n", 1)
    seen: list[Any] = []

    async def body(tx: Transaction) -> None:
        found = await look(tx, "x")
        if not seen:
            await other.object("x").inc("n")
            await other.object("y").inc("n")
        await store.log.book.now(consistency="linearizable")
        seen.append(found + await look(tx, "y"))
        tx["z"].set("seen", seen[-1])

    await store.transact(body)
    assert seen[-1] == [2, 2] and all(one in ([1, 0], [1, 1], [2, 2]) for one in seen)
    assert await store.object("z").get("seen") == [2, 2]


async def test_two_readings_at_once_are_of_one_snapshot(store: BokiStore, another: Another) -> None:
    other = await another()
    await other.object("x").set("n", 1)
    await other.object("y").set("n", 1)

    async def body(tx: Transaction) -> list[Any]:
        one, two = await asyncio.gather(tx["x"].get("n"), tx["y"].get("n"))
        assert tx.where.place and tx.where.fixed
        return [one, two]

    assert await store.transactional(consistency="linearizable")(body)() == [1, 1]


async def test_what_a_member_did_not_expect_is_not_known_after_its_record(store: BokiStore, another: Another) -> None:
    """At snapshot isolation a member read what another one, in the same record, knew better."""
    other = await another()
    await store.object("x").set("n", 1)
    changed = asyncio.Event()

    async def changes(tx: Transaction) -> None:
        await changed.wait()
        await look(tx, "x")
        tx["x"].inc("n")

    async def reads(tx: Transaction) -> None:
        await look(tx, "x")
        tx["z"].set("n", 1)
        await other.object("x").inc("n", 100)
        changed.set()

    await asyncio.gather(
        store.transactional(consistency="linearizable")(changes)(),
        store.transactional(isolation="snapshot")(reads)(),
    )
    assert await store.object("x").get("n") == 102


def test_a_place_moves_on_only_where_all_that_was_read_still_holds() -> None:
    x, y = KnownView(View("x", 1), 5), KnownView(View("y", 3), 4)
    where = OpenSnapshot("serializable", 9, trusting=True)
    assert where.take_known(["x"], {"x": x}) and where.place == 5
    assert not where.take_known(["y"], {"x": x, "y": y}), "its place is above what is known of y"
    assert where.take_known(["y"], {"x": x, "y": y._replace(upto=7)}) and where.place == 5
    assert not where.proven(), "the log was not read"
    assert where.take_read(12, [View("x", 1), View("y", 3), View("z", 11)]) and where.place == 12
    assert where.proven() and not where.stale


def test_who_may_not_trust_or_knows_that_others_write_asks() -> None:
    x = KnownView(View("x", 1), 5)
    assert not OpenSnapshot("serializable", 1, trusting=False).take_known(["x"], {"x": x})
    assert not OpenSnapshot("serializable", 1, trusting=True).take_known(["x"], {"x": x._replace(steady=False)})
    assert not OpenSnapshot("snapshot", 6, trusting=True).take_known(["x"], {"x": x}), "the session has seen more"
    assert OpenSnapshot("serializable", 6, trusting=True).take_known(["x"], {"x": x})


async def test_what_is_written_unseen_and_was_known_is_known_again(counted: tuple[BokiStore, FaultyBook]) -> None:
    store, book = counted
    await store.object("x").inc("n")

    async def unseen(tx: Transaction) -> None:
        tx["x"].inc("n")

    for _ in range(3):
        await store.transact(unseen)
    asked = len(book.operations)
    assert await store.transact(bump, "x") == 4
    assert len(book.operations) == asked + 1, "its append"


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
async def test_what_others_changed_and_is_written_unseen_is_right(
    store: BokiStore, another: Another, isolation: Any
) -> None:
    other = await another()
    await store.object("x").inc("n")

    async def unseen(tx: Transaction) -> None:
        await look(tx, "y")
        tx["x"].inc("n", 10)

    for _ in range(3):
        await other.object("x").inc("n", 100)
        await store.transactional(isolation=isolation, retries=0)(unseen)()
    assert await store.object("x").get("n") == 331


def test_what_is_written_unseen_is_expected_where_it_is_known() -> None:
    x = KnownView(View("x", 3), 9)
    for isolation, place, expected in [("serializable", 5, 9), ("snapshot", 5, 5), ("snapshot", 2, 0)]:
        where = OpenSnapshot(isolation, 0, trusting=True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        where.fix(place)
        assert where.take_unseen(["x", "z"], {"x": x}).get("x", 0) == expected
        assert where.guessed
    assert not OpenSnapshot("serializable", 0, trusting=True).take_unseen(["x"], {"x": x._replace(steady=False)})


@pytest.mark.parametrize("keeps", [True, False])
async def test_an_object_comes_with_the_snapshot(cluster: MemoryCluster, another: Another, keeps: bool) -> None:
    book = FaultyBook((await cluster.connect()).book("shop"))
    store = BokiStore(book, settings=BARE if keeps else StoreSettings(checkpoints=False, cached_views=0))
    other = await another()
    await store.object("x").set("n", 1)
    asked = len(book.operations)
    async with store.snapshot(of=["x", "nothing"]) as then:
        first = len(book.operations)
        await other.object("x").set("n", 2)
        await store.log.book.now(consistency="linearizable")
        assert await then.get("x", "n") == 1 and await then.value("nothing") is None
        assert len(book.operations) == first + 1, "only our query"
    assert await store.object("x").get("n") == 2
    if keeps:
        asked = len(book.operations)
        async with store.snapshot(of=["x", "nothing"]) as then:
            assert await then.get("x", "n") == 2
        assert len(book.operations) == asked + 1


def test_an_object_that_stays_missing_is_no_change() -> None:
    for found, same in [(gone("a", 9), True), (View("a", 8, True, {"n": 1}), False)]:
        where = OpenSnapshot("serializable", 3, trusting=True)
        assert where.take_known(["a"], {"a": KnownView(gone("a", 3), 5)})
        assert not where.take_known(["b"], {"a": KnownView(found, 9), "b": KnownView(View("b", 6, True), 6)})
        assert where.take_read(9, [found, View("b", 7, True)]) is same
        assert (where.place, where.stale) == ((9, False) if same else (5, True))
