"""Following an object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import boki
from boki.testing import MemoryCluster
from bokilib.records.tags import store_object
from bokilib.retention.checkpoint_rules import RETENTION_MS
from bokistore import MISSING, BokiStore, Change, Inc, Set, Watched
from libs.tests.cutting import cut_everywhere
from libs.tests.store.conftest import Another, SetClock


async def _begun(changes: AsyncIterator[Watched], cluster: MemoryCluster) -> asyncio.Future[Watched]:
    """Ask for the next change; return when the place is known from which on changes are wanted."""
    asked: asyncio.Queue[str] = asyncio.Queue()
    cluster.before_each = asked.put_nowait
    following = asyncio.ensure_future(anext(changes))
    await asked.get()
    cluster.before_each = None
    return following


async def test_changes_as_they_come(store: BokiStore, another: Another, cluster: MemoryCluster) -> None:
    writer = (await another()).object("x")
    await store.object("x").set("n", 1)
    changes = store.object("x").watch()
    following = await _begun(changes, cluster)
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


async def test_who_was_overtaken_by_a_trim_gets_all_changes_as_one(store: BokiStore, cluster: MemoryCluster) -> None:
    x = store.object("x")
    await x.inc("n")
    changes = x.watch()
    following = await _begun(changes, cluster)
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


async def test_a_call_that_is_cancelled_after_any_turn_loses_no_change(store: BokiStore, another: Another) -> None:
    writer = (await another()).object("x")
    await writer.set("n", 0)
    changes = store.object("x").watch(start=1)
    for _ in range(5):
        await writer.inc("n")
    found = await cut_everywhere(changes, 6)
    assert [one.after for one in found] == [{"n": number} for number in range(6)]


async def test_changes_count_from_the_first_call_also_if_it_is_cancelled_at_once(
    store: BokiStore, another: Another, cluster: MemoryCluster
) -> None:
    """The answer that says from where on comes while no task waits for it."""
    writer = (await another()).object("x")
    await writer.set("n", 0)
    changes = store.object("x").watch()
    following = await _begun(changes, cluster)
    following.cancel()
    await asyncio.wait([following])
    assert following.cancelled()
    await writer.set("n", 1)
    assert (await anext(changes)).after == {"n": 1}


async def test_a_watch_that_is_closed_ends_and_one_whose_client_is_closed_fails(
    store: BokiStore, cluster: MemoryCluster
) -> None:
    changes = store.object("x").watch()
    following = asyncio.ensure_future(anext(changes, None))
    await asyncio.sleep(0)
    await changes.aclose()
    assert await following is None
    client = await cluster.connect()
    others = BokiStore(client.book("shop")).object("x").watch(start=1)
    following = asyncio.ensure_future(anext(others, None))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(boki.ClosedError):
        await following
