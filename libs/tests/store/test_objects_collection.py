"""Typed collections: what is in them, scans, phantoms."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

import boki
from bokilib.errors import NotEncodable
from bokistore import AlreadyExists, BokiStore, NoSuchObject, Transaction
from libs.tests.cutting import cut_everywhere
from libs.tests.store.conftest import Another


@dataclass
class User:
    name: str
    age: int = 0
    friends: list[str] = field(default_factory=list)


async def test_from_creation_to_deletion(store: BokiStore, another: Another) -> None:
    users = store.collection("user", User)
    assert await users.get("ann") is None and await users.ids() == []
    await users.create("ann", User("Ann", 7, ["bob"]))
    with pytest.raises(AlreadyExists) as there:
        await users.create("ann", User("Other"))
    assert (there.value.collection, there.value.id) == ("user", "ann")
    await users.put("bob", User("Bob"))
    await users.put("ann", User("Ann", 8))
    other = (await another()).collection("user", User)
    assert await other.get("ann", consistency="linearizable") == User("Ann", 8)
    assert [item async for item in other.scan()] == [("ann", User("Ann", 8)), ("bob", User("Bob"))]
    await users.object("ann").inc("age")
    assert await users.get("ann") == User("Ann", 9)
    assert [await users.delete("ann"), await users.delete("ann")] == [True, False]
    assert [await users.ids(), await users.get("ann")] == [["bob"], None]
    await users.create("ann", User("New"))
    assert await users.ids() == ["ann", "bob"]
    assert repr(users) == "<bokistore.Collection 'user' of User>"


async def test_a_value_that_is_put_does_not_expire_with_the_one_before(store: BokiStore) -> None:
    users = store.collection("user", User)
    for id in ("ann", "bob", "carl", "dora"):
        await users.create(id, User(id))
        await store.expire(f"user/{id}", 1)
    before = store.log.appends
    await users.put("ann", User("Ann"))
    assert store.log.appends - before == 1, "the value and its expiry are one record"

    async def body(tx: Transaction) -> None:
        within = users.within(tx)
        await within.update("bob", User("Bob"))
        await within.put("carl", User("Carl"))
        await within.delete("dora")
        await within.create("dora", User("Dora"))
        tx.expire("user/dora", 2)

    await store.transact(body)
    views = [(await users.object(id).view()).expires_ms for id in ("ann", "bob", "carl", "dora")]
    assert views == [None, 1, None, 2]
    assert sorted(await store.sweep()) == ["user/bob", "user/dora"]
    assert await users.ids() == ["ann", "carl"]
    assert [await users.get("ann"), await users.get("carl")] == [User("Ann"), User("Carl")]
    await store.expire("user/ann", 1)
    await users.delete("ann")
    await users.create("ann", User("New"))
    assert await store.sweep() == [] and await users.get("ann") == User("New")


async def test_an_object_that_operations_made_is_in_no_scan_and_is_named_by_create(store: BokiStore) -> None:
    users = store.collection("user", User)
    await users.object("dan").set("name", "Dan")
    assert await users.get("dan") == User("Dan") and await users.ids() == []
    with pytest.raises(
        AlreadyExists, match="expected no object 'user/dan', found one; `put` replaces it, and `delete` removes it"
    ):
        await users.create("dan", User("D"))
    await users.delete("dan")
    await users.create("dan", User("D"))
    assert await users.ids() == ["dan"]


async def test_scans_are_of_one_snapshot(store: BokiStore) -> None:
    users = store.collection("user", User)
    await asyncio.gather(*(users.create(f"u{number:03}", User("x", number)) for number in range(300)))
    at = await store.log.book.now()
    await users.delete("u007")
    await users.put("u008", User("y"))
    then = [item async for item in users.scan(at=at)]
    assert then == [(f"u{number:03}", User("x", number)) for number in range(300)]
    assert len(await users.ids(at=at)) == 300 and len(await users.ids()) == 299


async def test_in_a_transaction(store: BokiStore) -> None:
    users = store.collection("user", User)
    await users.create("ann", User("Ann"))

    async def body(tx: Transaction) -> list[str]:
        within = users.within(tx)
        assert await within.get_many(["ann", "bob"]) == [User("Ann"), None]
        await within.create("bob", User("Bob"))
        await within.update("ann", User("Ann", 3))
        assert await within.get("ann") == User("Ann", 3)
        with pytest.raises(NoSuchObject):
            await within.update("carl", User("Carl"))
        assert not await within.delete("carl")
        await within.put("dora", User("Dora"))
        assert await within.delete("dora")
        return await within.ids()

    assert await store.transact(body) == ["ann", "bob"]
    assert await users.ids() == ["ann", "bob"]


async def test_a_scan_of_a_serializable_transaction_is_disturbed_by_who_comes_and_goes(
    store: BokiStore, another: Another
) -> None:
    users = store.collection("user", User)
    others = (await another()).collection("user", User)
    await users.create("ann", User("Ann"))
    for come_or_go in (others.create("bob", User("Bob")), others.delete("ann")):
        with pytest.raises(boki.Conflict):
            async with store.transaction() as tx:
                tx["count"].set("n", len(await users.within(tx).ids()))
                await come_or_go
    async with store.transaction(isolation="snapshot") as tx:
        tx["count"].set("n", len(await users.within(tx).ids()))
        await others.create("carl", User("Carl"))
    async with store.transaction() as tx:
        tx["count"].set("n", len(await users.within(tx).ids()))
        await others.object("bob").inc("age")
    assert await store.object("count").get("n") == 2, "a change of who is there is none of the directory"


async def test_two_that_create_the_same_and_many_that_create_different_ones(store: BokiStore, another: Another) -> None:
    stores = [store, await another(), await another()]
    results = await asyncio.gather(
        *(one.collection("user", User).create("ann", User(str(number))) for number, one in enumerate(stores)),
        return_exceptions=True,
    )
    assert [type(result) for result in results].count(AlreadyExists) == 2
    before = [one.log.appends for one in stores]
    await asyncio.gather(
        *(one.collection("user", User).create(f"u{number}", User("x")) for number, one in enumerate(stores))
    )
    assert [one.log.appends - was for one, was in zip(stores, before, strict=True)] == [1, 1, 1], "they do not meet"
    assert len(await store.collection("user", User).ids(consistency="linearizable")) == 4


async def test_a_value_has_to_be_an_object_and_what_is_stored_has_to_fit(store: BokiStore) -> None:
    numbers = store.collection("n", int)
    with pytest.raises(NotEncodable, match="JSON object"):
        await numbers.create("a", 5)
    users = store.collection("user", User)
    await users.object("odd").set("age", 5)
    with pytest.raises(NotEncodable, match="no User"):
        await users.get("odd")
    with pytest.raises(boki.InvalidArgument):
        store.collection("a/b", User)


async def test_a_scan_whose_calls_are_cut_after_any_turn_loses_no_value(store: BokiStore) -> None:
    users = store.collection("user", User)
    for number in range(5):
        await users.create(f"u{number}", User("x", number))
    assert [value.age for _, value in await cut_everywhere(users.scan(), 5)] == [0, 1, 2, 3, 4]
