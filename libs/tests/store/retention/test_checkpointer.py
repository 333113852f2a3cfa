"""Checkpoints, trims and deletions: at every crash, against each other, and by the clock of the log."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

import boki
from bokilib.ports import BookPort
from bokilib.records.tags import store_checkpoint, store_object
from bokilib.retention.checkpoint_rules import GRACE_MS, RETENTION_MS
from bokilib.testing import UNKNOWNS, crash_everywhere, start_anywhere
from bokistore import BokiStore, Inc, Set, StoreSettings, Transaction
from bokistore.model.directory_rules import of_bucket
from bokistore.retention.checkpointer import Checkpointer
from libs.tests.store.conftest import Another, SetClock

BARE = StoreSettings(checkpoints=False, cached_views=0, aux_data=False)
LATER_MS = 10**15


async def live(book: BookPort | boki.Book, tag: str) -> int:
    """Records of a stream that are there."""
    count = 0
    async for _ in book.read(tag):
        count += 1
    return count


async def grow(store: BokiStore, count: int, name: str = "x") -> None:
    await asyncio.gather(*(store.object(name).send(Inc("n", 1)) for _ in range(count)))


async def test_a_hot_objects_history_stays_short(store: BokiStore, another: Another, clock: SetClock) -> None:
    for _ in range(10):
        await grow(store, 50)
        clock.ms += GRACE_MS
        await store.tend("x")
        assert await live(store.log.book, store_object("x")) <= 150
        assert await live(store.log.book, store_checkpoint("x")) <= 2 + 1
        assert await (await another(BARE)).object("x").get("n", consistency="linearizable") % 50 == 0  # type: ignore[operator]
    assert await store.object("x").get("n") == 500


async def test_the_history_of_an_object_that_is_never_at_rest_stays_short(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    """Its checkpoints come faster than any of them grows old: trimmed is by one that was read back while it was too young."""
    longest = 0
    for _ in range(300):
        await grow(store, 5)
        clock.ms += GRACE_MS // 20
        await store.tend("x")
        longest = max(longest, await live(store.log.book, store_object("x")))
    assert longest <= 5 * 25, "what is older than the grace, and what came since the checkpoint before it"
    assert await live(store.log.book, store_checkpoint("x")) <= 25
    assert await (await another(BARE)).object("x").get("n", consistency="linearizable") == 1_500


async def test_a_snapshot_of_an_object_that_is_never_at_rest_is_there_for_the_grace(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    fresh = await another(BARE)
    taken: deque[tuple[int, int]] = deque(maxlen=20)
    for number in range(1, 100):
        await grow(store, 5)
        taken.append((await store.log.book.now(), 5 * number))
        clock.ms += GRACE_MS // 20
        await store.tend("x")
        await fresh.log.book.now(consistency="linearizable")
        at, value = taken[0]
        assert await fresh.object("x").get("n", at=at) == value


async def test_a_checkpoint_is_made_by_itself_when_enough_lies_above_the_last(another: Another) -> None:
    store = await another(StoreSettings(checkpoint_records=10))
    for _ in range(25):
        await store.object("x").inc("n")
    await store.close()
    assert await live(store.log.book, store_checkpoint("x")) == 2


async def test_processes_that_all_see_it_grow_do_not_all_make_the_checkpoint(another: Another) -> None:
    stores = [await another(StoreSettings(checkpoint_records=100)) for _ in range(3)]
    for _ in range(100):
        for store in stores:
            await store.object("x").inc("n")
            await store.close()
    assert await live(stores[0].log.book, store_checkpoint("x")) == 3


async def test_snapshots_within_the_grace_are_still_there(store: BokiStore, another: Another, clock: SetClock) -> None:
    await grow(store, 5)
    assert await store.checkpointer.checkpoint("x")
    clock.ms += GRACE_MS // 2
    old = await store.log.book.now()
    await grow(store, 5)
    assert await store.checkpointer.checkpoint("x")
    clock.ms += GRACE_MS // 2 - 1
    await grow(store, 1, "other")
    assert not await store.checkpointer.trim("x"), "the one before the newest is not old enough"
    clock.ms += 1
    await grow(store, 1, "other")
    assert await store.checkpointer.trim("x")
    fresh = await another(BARE)
    await fresh.log.book.now(consistency="linearizable")
    assert [await fresh.object("x").get("n", at=old), await fresh.object("x").get("n")] == [5, 10]


async def test_nothing_new_makes_no_checkpoint(store: BokiStore) -> None:
    assert not await store.checkpointer.checkpoint("never")
    await grow(store, 1)
    assert await store.checkpointer.checkpoint("x")
    assert not await store.checkpointer.checkpoint("x")


async def test_a_state_that_fits_no_record_goes_in_parts(store: BokiStore, another: Another) -> None:
    parts = Checkpointer(store.views, part_bytes=100)
    for number in range(10):
        await store.object("x").set(f"key{number}", "x" * 50)
    assert await parts.checkpoint("x")
    assert await live(store.log.book, store_checkpoint("x")) > 5
    await store.object("x").set("more", 1)
    value = await (await another(BARE)).object("x").value(consistency="linearizable")
    assert value is not None and len(value) == 11


def with_parts(book: BookPort) -> Checkpointer:
    """Of a store with small records and no grace."""
    return Checkpointer(BokiStore(book, settings=BARE).views, part_bytes=40, grace_ms=0)


async def ten(book: BookPort) -> None:
    store = BokiStore(book, settings=BARE)
    for number in range(5):
        await store.object("x").send(Set(f"k{number}", number))
        await store.object("x").send(Inc("n", 1))


async def checkpointed(book: BookPort) -> None:
    """Without a grace its snapshot may be trimmed before it has read it: then it makes none."""
    try:
        await with_parts(book).checkpoint("x")
    except boki.Trimmed:
        pass


async def checkpoint_and_trim(book: BookPort) -> None:
    await with_parts(book).checkpoint("x")
    await BokiStore(book, settings=BARE).object("x").inc("later")
    await with_parts(book).checkpoint("x")
    await with_parts(book).trim("x", LATER_MS)


async def whole(book: boki.Book) -> None:
    """Nothing of what was is missing, for a process that has nothing but the log."""
    value = await BokiStore(book, settings=BARE).object("x").value(consistency="linearizable")
    assert value is not None
    assert {key: value[key] for key in value if key != "later"} == {"n": 5, **{f"k{n}": n for n in range(5)}}


async def test_a_checkpointer_may_die_between_any_two_steps() -> None:
    async def program(book: BookPort) -> None:
        await ten(book)
        await checkpoint_and_trim(book)

    async def recover(book: BookPort) -> None:
        store = BokiStore(book, settings=BARE)
        value = await store.object("x").value() or {}
        for number in range(5):
            if f"k{number}" not in value:
                await store.object("x").set(f"k{number}", number)
        while await store.object("x").get("n", 0) != 5:
            await store.object("x").inc("n")
        await checkpoint_and_trim(book)

    explored = await crash_everywhere(program, recover, whole)
    assert explored.operations > 20


async def test_lost_answers_of_checkpoints() -> None:
    """A checkpointer waits until it knows: it makes no second one of what is in the log."""

    async def program(book: BookPort) -> None:
        for _ in range(2):
            await with_parts(book).checkpoint("y")
            await with_parts(book).trim("y", LATER_MS)

    async def begin(book: BookPort) -> None:
        try:
            await BokiStore(book, settings=BARE).object("y").set("a", "x" * 100)
        except boki.OutcomeUnknown as unknown:
            if not isinstance(await unknown.outcome(), boki.Committed):
                await begin(book)
        await program(book)

    async def check(book: boki.Book) -> None:
        assert await live(book, store_object("y")) == 1
        assert await live(book, store_checkpoint("y")) == 3, "one, in parts"

    assert (await crash_everywhere(begin, check=check, kinds=UNKNOWNS)).runs == 8


async def test_a_checkpointer_at_any_point_of_another() -> None:
    """While one looks, another makes two, and trims by the first: the one that looked earlier must not become the newest."""

    async def program(book: BookPort) -> None:
        await ten(book)
        await checkpointed(book)

    async def second(book: BookPort) -> None:
        for _ in range(2):
            await BokiStore(book, settings=BARE).object("x").inc("later")
            await with_parts(book).checkpoint("x")
        await with_parts(book).trim("x", LATER_MS)
        ran.append(1)

    ran: list[int] = []

    async def check(book: boki.Book) -> None:
        await whole(book)
        later = await BokiStore(book, settings=BARE).object("x").get("later", 0, consistency="linearizable")
        assert later == 2 * len(ran)
        ran.clear()

    explored = await start_anywhere(program, second, check)
    assert explored.runs > 12


async def test_what_is_deleted_stays_deleted_and_its_records_go(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    await grow(store, 5)
    await store.checkpointer.checkpoint("x")
    assert await store.delete("x") and not await store.delete("x")
    left = []
    for wait_ms in (0, GRACE_MS, RETENTION_MS):
        clock.ms += wait_ms
        await grow(store, 1, "clock")
        await store.checkpointer.trim("x")
        assert await (await another(BARE)).object("x").value(consistency="linearizable") is None
        left.append((await live(store.log.book, store_object("x")), await live(store.log.book, store_checkpoint("x"))))
    assert left == [(6, 2), (0, 1), (0, 0)], "first the history, at last that there was one"
    await grow(store, 2)
    assert await (await another(BARE)).object("x").get("n", consistency="linearizable") == 2


async def test_what_is_made_anew_while_its_deletion_is_kept_is_read_from_there(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    """Its stream is trimmed below the deletion: without the deletion it would look like a history with a hole."""
    await grow(store, 5)
    await store.delete("x")
    clock.ms += GRACE_MS
    await grow(store, 1, "clock")
    assert await store.checkpointer.trim("x")
    await grow(store, 2)
    assert await (await another(BARE)).object("x").get("n", consistency="linearizable") == 2


async def test_what_is_made_anew_while_it_is_being_forgotten_can_be_read(clock: SetClock) -> None:
    """At any step of whoever lets the deletion go, and in whatever order things die."""

    async def deleted_long_ago(book: BookPort) -> None:
        store = BokiStore(book, settings=BARE)
        clock.ms = 1_000_000
        await grow(store, 3)
        await store.delete("x")
        clock.ms += 2 * RETENTION_MS
        await grow(store, 1, "clock")
        for _ in range(2):
            await store.checkpointer.trim("x")

    async def anew(book: BookPort) -> None:
        store = BokiStore(book, settings=BARE)
        existed = await store.object("x").exists(consistency="linearizable")
        await store.object("x").set("anew", not existed)

    async def check(book: boki.Book) -> None:
        value = await BokiStore(book, settings=BARE).object("x").value(consistency="linearizable")
        assert value in (None, {"anew": True}), value

    explored = await start_anywhere(deleted_long_ago, anew, check, clock=clock)
    assert explored.runs > 15


async def test_what_was_made_anew_behind_a_deletion_is_not_trimmed_with_it(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    await grow(store, 5)
    await store.delete("x")
    await grow(store, 3)
    clock.ms += 2 * RETENTION_MS
    await grow(store, 1, "clock")
    await store.checkpointer.trim("x")
    assert await (await another(BARE)).object("x").get("n", consistency="linearizable") == 3


async def test_a_checkpoint_under_way_when_an_object_is_deleted_does_not_restore_it() -> None:
    """It looked before the deletion, and lands when the object and its deletion are trimmed, minutes later."""

    async def program(book: BookPort) -> None:
        deleted.clear()
        await ten(book)
        await checkpointed(book)

    deleted: list[bool] = []

    async def delete_and_trim(book: BookPort) -> None:
        deleted.append(await BokiStore(book, settings=BARE).delete("x"))
        await with_parts(book).trim("x", LATER_MS)

    async def check(book: boki.Book) -> None:
        value = await BokiStore(book, settings=BARE).object("x").value(consistency="linearizable")
        if deleted:
            assert value is None or not deleted[-1] or len(value) < 6, "what came after the deletion, and no more"

    explored = await start_anywhere(program, delete_and_trim, check)
    assert explored.runs > 12


async def test_directories_are_checkpointed_and_trimmed_too(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    things = store.collection("c", dict)
    await asyncio.gather(*(things.create(f"k{number}", {}) for number in range(40)))
    await asyncio.gather(*(things.delete(f"k{number}") for number in range(0, 40, 2)))
    for _ in range(2):
        for bucket in range(16):
            await store.checkpointer.checkpoint_subject(of_bucket("c", bucket))
        await things.create(f"more{clock.ms}", {})
        clock.ms += GRACE_MS
        await grow(store, 1, "clock")
    trimmed = [await store.checkpointer.remove_old([of_bucket("c", bucket)]) for bucket in range(16)]
    assert any(trimmed)
    fresh = (await another(BARE)).collection("c", dict)
    ids = await fresh.ids(consistency="linearizable")
    assert [id for id in ids if id.startswith("k")] == sorted(f"k{number}" for number in range(1, 40, 2))
    assert not await store.checkpointer.checkpoint_subject(of_bucket("none", 3))


async def test_time_to_live_is_by_the_clock_of_the_log(store: BokiStore, clock: SetClock) -> None:
    await grow(store, 1)
    await grow(store, 1, "y")
    await store.expire("x", clock.ms + 10)
    await store.expire("y", clock.ms + 10)
    await store.expire("y", None)
    assert await store.sweep(["x", "y", "never"]) == []
    clock.ms += 10
    await grow(store, 1, "clock")
    assert await store.sweep(["x", "y", "never"]) == ["x"]
    assert [await store.object(name).exists() for name in "xy"] == [False, True]
    with pytest.raises(boki.LogBookError, match="no object"):
        await store.expire("never", 7)


async def test_who_changes_an_object_only_by_transactions_makes_its_checkpoints(another: Another) -> None:
    """Its views are known without being folded: a count that went on would have each transaction look for a checkpoint."""
    store = await another(StoreSettings(checkpoint_records=10))

    async def bump(tx: Transaction) -> None:
        tx["x"].set("n", int(str(await tx["x"].get("n", 0))) + 1)

    for _ in range(45):
        await store.transact(bump)
        await asyncio.sleep(0)
    await store.close()
    assert 3 <= store.log.appends - 45 <= 5
    assert store.views.checkpoints.folded <= 5 * 20
    known = store.views.cache.get("x")
    assert known is not None and known.view.records < 20
