"""The past of an object."""

from __future__ import annotations

import pytest

import boki
from bokilib.records.tags import store_object
from bokistore import MISSING, BokiStore, Change, Inc, Set
from libs.tests.store.conftest import Another, SetClock


async def test_what_happened_to_it(store: BokiStore, clock: SetClock) -> None:
    x = store.object("x")
    first = await x.send(Set("n", 1), Inc("n", 1))
    clock.ms += 5
    async with store.transaction() as tx:
        tx["y"].set("n", 0)
        tx["x"].inc("n", 5)
    await store.delete("x")
    found = await x.history()
    assert [(one.kind, one.value) for one in found] == [
        ("operations", {"n": 2}), ("transaction", {"n": 7}), ("deleted", None),
    ]  # fmt: skip
    assert found[0].operations == (Set("n", 1), Inc("n", 1)) and found[1].operations == (Inc("n", 5),)
    assert (found[0].seqnum, found[1].seqnum) == (first, tx.seqnum)
    assert found[1].time_ms - found[0].time_ms == 5 and found[0].by == store.log.by
    assert await x.history(start=tx.seqnum, stop=tx.seqnum + 1) == found[1:2]
    assert await store.object("never").history() == []


async def test_differences_between_two_places(store: BokiStore, another: Another) -> None:
    x = store.object("x")
    places = [await x.send(Inc("n", 1)) for _ in range(3)]
    assert await x.diff(places[0], places[2]) == [Change("n", 1, 3)]
    await (await another()).object("x").set("m", 1)
    changes = await x.diff(places[2], consistency="linearizable")
    assert changes == [Change("m", MISSING, 1)]
    with pytest.raises(boki.InvalidArgument):
        await x.diff(2**62)


async def test_where_the_beginning_is_trimmed_history_begins_with_a_checkpoint(store: BokiStore) -> None:
    x = store.object("x")
    for _ in range(3):
        await x.inc("n")
    assert await store.checkpointer.checkpoint("x")
    seen = (await x.view()).seen
    last = await x.send(Inc("n", 10))
    await store.log.book.trim([(store_object("x"), seen)])
    found = await x.history()
    assert [(one.kind, one.value) for one in found] == [("checkpoint", {"n": 3}), ("operations", {"n": 13})]
    assert found[1].seqnum == last


async def test_the_newest_versions_are_had_without_folding_all_that_is_before_them(
    store: BokiStore, another: Another
) -> None:
    """The state before them is had as any other: from the nearest checkpoint, or a view."""
    for number in range(195):
        await store.object("x").send(Inc("n", number))
    await store.checkpointer.checkpoint("x")
    for number in range(5):
        await store.object("x").send(Inc("n", number))
    other = await another()
    x = other.object("x")
    await other.log.book.now(consistency="linearizable")
    newest = await x.history(limit=3)
    assert other.views.checkpoints.folded <= 5
    assert newest == (await x.history())[-3:]
    assert await x.history(limit=1_000) == await x.history(limit=200) == await x.history()
    assert await x.history(limit=2, stop=newest[2].seqnum) == newest[:2]
    assert await x.history(limit=2, start=newest[2].seqnum) == newest[2:]
    assert await other.object("never").history(limit=5) == []
    with pytest.raises(boki.InvalidArgument):
        await x.history(limit=0)


async def test_the_newest_versions_where_the_beginning_is_trimmed(store: BokiStore, another: Another) -> None:
    x = store.object("x")
    for _ in range(3):
        await x.inc("n")
    assert await store.checkpointer.checkpoint("x")
    await store.log.book.trim([(store_object("x"), (await x.view()).seen)])
    await x.inc("n")
    other = await another()
    await other.log.book.now(consistency="linearizable")
    for limit in (1, 2, 9):
        assert await other.object("x").history(limit=limit) == (await x.history())[-limit:]


async def test_names_of_all_objects(store: BokiStore, another: Another, clock: SetClock) -> None:
    """Also of those whose records are trimmed and whose checkpoint is left; not of what is deleted, nor of names of collections."""
    for name in ("b", "a", "gone"):
        await store.object(name).set("n", 1)
    await store.collection("c", dict).create("k", {})
    await store.expire("a", clock.ms + 10**9)
    then = await store.log.book.now()
    await store.delete("gone")
    assert await store.names(at=then) == ["a", "b", "c/k", "gone"]
    await store.checkpointer.checkpoint("b")
    await store.log.book.trim([(store_object("b"), (await store.object("b").view()).seen)])
    await store.object("new").set("n", 1)
    other = await another()
    assert await other.names(consistency="linearizable") == ["a", "b", "c/k", "new"]
