"""Following an object."""

from __future__ import annotations

import asyncio

from bokilib.records.tags import store_object
from bokilib.retention.checkpoint_rules import RETENTION_MS
from bokistore import MISSING, BokiStore, Change, Inc, Set
from libs.tests.store.conftest import Another, SetClock


async def test_changes_as_they_come(store: BokiStore, another: Another) -> None:
    writer = (await another()).object("x")
    await store.object("x").set("n", 1)
    changes = store.object("x").watch()
    following = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)
    seqnum = await writer.send(Inc("n", 1))
    first = await following
    assert (first.seqnum, first.before, first.after, first.resync) == (seqnum, {"n": 1}, {"n": 2}, False)
    assert first.changes == [Change("n", 1, 2)]
    await writer.send(Set("n", 2))
    await writer.send(Set("m", 0))
    second = await anext(changes)
    assert second.changes == [Change("m", MISSING, 0)], "what changes nothing is no change"
    await store.delete("x")
    third = await anext(changes)
    assert (third.after, third.changes) == (None, [Change("", {"n": 2, "m": 0}, MISSING)])


async def test_from_a_place_of_the_log(store: BokiStore) -> None:
    places = [await store.object("x").send(Inc("n", 1)) for _ in range(3)]
    changes = store.object("x").watch(start=places[1])
    found = [await anext(changes) for _ in range(2)]
    assert [(one.seqnum, one.before, one.after) for one in found] == [
        (places[1], {"n": 1}, {"n": 2}), (places[2], {"n": 2}, {"n": 3}),
    ]  # fmt: skip


async def test_who_was_overtaken_by_a_trim_gets_all_changes_as_one(store: BokiStore) -> None:
    x = store.object("x")
    await x.inc("n")
    changes = x.watch()
    following = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)
    await x.inc("n")
    assert (await following).after == {"n": 2}
    for _ in range(5):
        await x.inc("n")
    assert await store.checkpointer.checkpoint("x")
    await store.log.book.trim([(store_object("x"), (await x.view()).seen)])
    overtaken = await anext(changes)
    assert overtaken.after == {"n": 7} and overtaken.before == {"n": 2} and overtaken.resync
    await x.inc("n")
    last = await anext(changes)
    assert (last.before, last.after, last.resync) == ({"n": 7}, {"n": 8}, False)


async def test_who_was_away_while_an_object_was_deleted_and_forgotten_sees_it_end(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    await store.object("x").set("n", 1)
    away = await another()
    start = await away.log.book.now(consistency="linearizable") + 1
    changes = away.object("x").watch(start=start)
    view = await away.object("x").view()
    assert view.exists
    await store.delete("x")
    clock.ms += 2 * RETENTION_MS
    await store.object("clock").set("n", 1)
    for _ in range(2):
        await store.tend("x")
    end = await anext(changes)
    assert (end.before, end.after, end.resync) == ({"n": 1}, None, True)
