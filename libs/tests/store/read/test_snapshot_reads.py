"""Views: from the cache, from aux data, from checkpoints; the same whatever is gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from bokilib.ports import BookPort
from bokilib.records.tags import store_checkpoint, store_object
from bokilib.retention.checkpoint_rules import RETENTION_MS
from bokilib.testing import FaultyBook
from bokistore import BokiStore, HistoryMissing, Inc, StoreSettings, Transaction
from bokistore.model.fold import gone
from bokistore.read.snapshot_reads import AUX_RECORDS, WALKED_RECORDS, RunningReads
from bokistore.read.view_cache import ViewCache
from libs.tests.store.conftest import Another, SetClock

BARE = StoreSettings(checkpoints=False, cached_views=0, aux_data=False)


async def grow(store: BokiStore, count: int) -> None:
    await asyncio.gather(*(store.object("x").send(Inc("n", 1)) for _ in range(count)))


async def test_a_cached_object_is_one_question_and_nothing_is_folded(store: BokiStore) -> None:
    await grow(store, 20)
    counted = FaultyBook(store.log.book)
    reader = BokiStore(counted, settings=StoreSettings(checkpoints=False, aux_data=False))
    assert await reader.object("x").get("n") == 20
    before, folded = len(counted.operations), reader.views.folded
    assert await reader.object("x").get("n") == 20
    assert (len(counted.operations) - before, reader.views.folded) == (1, folded)
    await store.object("x").inc("n")
    assert await reader.object("x").get("n") == 21
    assert reader.views.folded == folded + 1, "what is new, and no more"


async def test_views_are_left_for_others_and_are_believed_only_if_they_check(
    store: BokiStore, another: Another
) -> None:
    await grow(store, 20)
    await (await another()).object("x").get("n", consistency="linearizable")
    second = await another(StoreSettings(checkpoints=False, cached_views=0))
    assert await second.object("x").get("n", consistency="linearizable") == 20
    assert second.views.folded == 0
    newest = await store.log.book.read_prev(store_object("x"), consistency="linearizable")
    assert newest is not None and newest.aux_data is not None
    for wrong in (b"", b"\x00" * 40, newest.aux_data[:-1], newest.aux_data + b"x"):
        await store.log.book.set_aux_data(newest.seqnum, wrong)
        third = await another(StoreSettings(checkpoints=False, cached_views=0))
        assert await third.object("x").get("n", consistency="linearizable") == 20
        assert third.views.folded == 20


async def test_walking_back_does_not_take_what_is_trimmed_for_what_never_was(store: BokiStore) -> None:
    """A checkpoint and its trim come between: the step that finds nothing above the mark is not the beginning."""
    await grow(store, 5)
    await store.object("y").inc("n")  # so the mark lies below the place that is asked for
    between = await store.log.book.now()
    await grow(store, 1)

    class Overtaken(FaultyBook):
        met = False

        async def read_prev(self, tag=None, *, at_most=None, consistency="session"):  # type: ignore[no-untyped-def]
            if not self.met and tag == store_object("x"):
                self.met = True
                assert await store.checkpointer.checkpoint("x")
                await store.log.book.trim([(store_object("x"), between)])
            return await super().read_prev(tag, at_most=at_most, consistency=consistency)

    book = Overtaken(store.log.book)
    reader = BokiStore(book, settings=StoreSettings(checkpoints=False, cached_views=0))
    assert await reader.object("x").get("n") == 6
    assert book.met


async def test_without_caches_and_aux_data_everything_is_folded_each_time(store: BokiStore, another: Another) -> None:
    await grow(store, 20)
    bare = await another(BARE)
    for times in (1, 2):
        assert await bare.object("x").get("n", consistency="linearizable") == 20
        assert bare.views.folded == 20 * times
    assert await store.checkpointer.checkpoint("x")
    assert await bare.object("x").get("n", consistency="linearizable") == 20
    assert bare.views.folded == 40, "from the checkpoint there is nothing to fold"


async def test_many_objects_are_one_question(store: BokiStore) -> None:
    names = [f"x{number}" for number in range(50)]
    await asyncio.gather(*(store.object(name).set("n", name) for name in names))
    counted = FaultyBook(store.log.book)
    reader = BokiStore(counted)
    assert [value and value["n"] for value in await reader.values([*names, "none"])] == [*names, None]
    assert len(counted.operations) == 1 + 50, "and what is not cached is folded, all at once"
    await reader.values(names)
    assert len(counted.operations) == 52


async def test_more_objects_than_one_question_takes_are_of_one_snapshot(store: BokiStore) -> None:
    await store.object("x0").set("n", 1)
    await store.object("x1499").set("n", 2)
    found = await store.values([f"x{number}" for number in range(1_500)])
    assert [value for value in found if value] == [{"n": 1}, {"n": 2}] and len(found) == 1_500


async def test_a_snapshot_is_one_past_of_everything(store: BokiStore, another: Another) -> None:
    other = await another()
    await store.object("x").set("n", 1)
    async with store.snapshot() as then:
        await other.object("x").set("n", 2)
        await other.object("y").set("n", 2)
        await other.collection("c", dict).create("a", {})
        await store.object("x").get("n", consistency="linearizable")
        assert await then.get("x", "n") == 1 and await then.get("y", "n", "none") == "none"
        assert await then.values(["x", "y"]) == [{"n": 1}, None] and await then.value("y") is None
        assert await then.ids("c") == []
    async with store.snapshot(at=then.at) as again:
        assert (again.at, await again.get("x", "n")) == (then.at, 1)
    async with store.snapshot(consistency="linearizable") as now:
        assert await now.values(["x", "y"]) == [{"n": 2}, {"n": 2}] and await now.ids("c") == ["a"]


async def test_a_read_that_a_checkpoint_overtakes_begins_anew(store: BokiStore) -> None:
    """Between its two queries the object is checkpointed and trimmed below what it was going to fold."""
    await grow(store, 5)

    class Overtaken(FaultyBook):
        met = False

        def read(self, tag: Any = None, **options: Any) -> Any:
            if not self.met and tag == store_object("x"):
                self.met = True
                return _After(overtake(), super().read(tag, **options))
            return super().read(tag, **options)

    async def overtake() -> None:
        assert await store.checkpointer.checkpoint("x")
        await grow(store, 1)
        kept = await store.views.checkpoint("x", await store.log.book.read_prev(store_checkpoint("x")))
        assert kept is not None
        await store.log.book.trim([(store_object("x"), kept.seen + 1)])

    book: BookPort = Overtaken(store.log.book)
    assert await BokiStore(book, settings=BARE).object("x").get("n") == 6


class _After:
    """Records of a read that begins after something else."""

    def __init__(self, first, records) -> None:  # type: ignore[no-untyped-def]
        self._first, self._records = first, records

    def __aiter__(self):  # type: ignore[no-untyped-def]
        return self

    async def __anext__(self):  # type: ignore[no-untyped-def]
        if self._first is not None:
            first, self._first = self._first, None
            await first
        return await self._records.__anext__()


async def test_a_snapshot_that_is_too_old_is_trimmed(store: BokiStore, another: Another) -> None:
    await grow(store, 3)
    old = await store.log.book.now()
    await grow(store, 3)
    assert await store.checkpointer.checkpoint("x")
    await store.log.book.trim([(store_object("x"), (await store.object("x").view()).seen)])
    fresh = await another(BARE)
    await fresh.log.book.now(consistency="linearizable")
    with pytest.raises(boki.Trimmed):
        await fresh.object("x").get("n", at=old)
    assert await fresh.object("x").get("n") == 6


async def test_a_history_trimmed_without_a_checkpoint_is_not_taken_for_a_whole_one(
    store: BokiStore, another: Another
) -> None:
    """A fold from 0 would get no gap, and count three of six. Reading again would find the same: it is an error at once, and says why."""
    await grow(store, 6)
    half = (await store.object("x").view()).seen - 2
    await store.log.book.trim([(store_object("x"), half)])
    counted = FaultyBook((await another(BARE)).log.book)
    reader = BokiStore(counted, settings=BARE)
    with pytest.raises(HistoryMissing, match=f"'x'.*below {half} was trimmed and no checkpoint has it") as raised:
        await reader.object("x").get("n", consistency="linearizable")
    assert (raised.value.object, raised.value.mark) == ("x", half)
    # Newest and records, as of the query and as of now, and whether something newer has replaced them since.
    assert len(counted.operations) == 5, "nothing is read again and again"

    async def delete(tx: Transaction) -> None:
        tx.delete("x")

    await reader.transact(delete)
    await reader.object("x").inc("n")
    assert await (await another(BARE)).object("x").get("n", consistency="linearizable") == 1


async def test_always_replay_keeps_nothing_and_believes_no_view(cluster: MemoryCluster) -> None:
    book = (await cluster.connect()).book("shop")
    plain = BokiStore(book)
    for _ in range(AUX_RECORDS + 1):
        await plain.object("x").inc("n")
    assert (await plain.object("x").get("n")) == AUX_RECORDS + 1
    replaying = BokiStore(FaultyBook(book, always_replay=True))
    for again in (1, 2):
        assert await replaying.object("x").get("n") == AUX_RECORDS + 1
        assert replaying.views.folded == again * (AUX_RECORDS + 1)


async def test_behind_a_write_the_nearest_view_is_looked_for(store: BokiStore, another: Another) -> None:
    """A reader without a cache folds what came since somebody left a view, and not all from the checkpoint."""
    await grow(store, 100)
    settings = StoreSettings(checkpoints=False, cached_views=0)
    assert await (await another(settings)).object("x").get("n", consistency="linearizable") == 100
    await grow(store, AUX_RECORDS - 1)
    reader = await another(settings)
    assert await reader.object("x").get("n", consistency="linearizable") == 100 + AUX_RECORDS - 1
    assert reader.views.folded == AUX_RECORDS - 1
    assert await (await another(settings)).object("x").get("n", consistency="linearizable") == 99 + AUX_RECORDS
    await grow(store, WALKED_RECORDS + 1)
    far = await another(settings)
    assert await far.object("x").get("n", consistency="linearizable") == 100 + AUX_RECORDS + WALKED_RECORDS
    assert far.views.folded == 100 + AUX_RECORDS + WALKED_RECORDS, "farther than one looks"


async def test_who_keeps_no_views_leaves_one_whenever_it_folded(store: BokiStore, another: Another) -> None:
    settings = StoreSettings(checkpoints=False, cached_views=0)
    await store.object("x").send(Inc("n", 1))
    folded = []
    for _ in range(2):
        reader = await another(settings)
        assert await reader.object("x").get("n", consistency="linearizable") == 1
        folded.append(reader.views.folded)
    assert folded == [1, 0]


async def test_looking_back_ends_at_a_checkpoint_at_the_beginning_and_at_a_trim(
    store: BokiStore, another: Another
) -> None:
    settings = StoreSettings(checkpoints=False, cached_views=0)
    await grow(store, 3)
    assert await (await another(settings)).object("x").get("n", consistency="linearizable") == 3
    await store.checkpointer.checkpoint("x")
    covered = (await store.object("x").view()).seen
    await grow(store, 2)
    for trimmed in (False, True):
        if trimmed:
            await store.log.book.trim([(store_object("x"), covered + 1)])
        reader = await another(settings)
        assert await reader.object("x").get("n", consistency="linearizable") == 5


async def test_what_was_lost_somewhere_is_nobodys_error_but_his_whose_records_it_was(cluster: MemoryCluster) -> None:
    """Of a record that is lost nobody knows the streams: whoever reads what is new gets the error, whatever the stream."""

    class Losing(FaultyBook):
        lost = 0

        async def read_since(self, seen, **options):  # type: ignore[no-untyped-def]  # the port's arguments
            if seen and min(seen.values()) < self.lost:
                raise boki.Lost("something is lost", first=self.lost, last=self.lost, tag=None)
            return await super().read_since(seen, **options)

    book = Losing((await cluster.connect()).book("shop"))
    store = BokiStore(book, settings=BARE)
    for name in ("x", "y"):
        await store.object(name).inc("n")
    book.lost = (book.position or 0) + 1
    await store.object("z").inc("n")
    found = await asyncio.gather(*(store.object(name).get("n") for name in "xyz"), store.values(["y", "x"]))
    assert found == [1, 1, 1, [{"n": 1}, {"n": 1}]]
    async with store.snapshot(of=["x"]) as then:
        assert await then.get("x", "n") == 1


async def test_who_reads_an_object_while_it_is_had_anew_does_not_have_it_anew_too(
    store: BokiStore, another: Another
) -> None:
    for number in range(5):
        await store.object("x").set("n", number)
    reader = await another()
    found = await asyncio.gather(*(reader.object("x").get("n") for _ in range(20)))
    assert (found, reader.views.folded) == ([4] * 20, 5)
    place = await reader.log.book.now()
    await store.object("y").set("n", 1)
    snapshots = [reader.values(["x", "y"], at=place), reader.values(["y"])]
    assert await asyncio.gather(*snapshots) == [[{"n": 4}, None], [{"n": 1}]]


async def test_who_waits_for_an_object_goes_on_when_the_other_gives_up(store: BokiStore, another: Another) -> None:
    await store.object("x").set("n", 1)
    reader = await another()
    first = asyncio.ensure_future(reader.object("x").get("n"))
    await asyncio.sleep(0)
    others = asyncio.gather(*(reader.object("x").get("n") for _ in range(3)))
    await asyncio.sleep(0)
    first.cancel()
    assert await others == [1, 1, 1]
    assert not reader.views._running._ends


@pytest.mark.parametrize("later", range(0, 40, 3))
async def test_lists_that_overlap_are_had_anew_once_an_object(store: BokiStore, another: Another, later: int) -> None:
    """As timelines do: who waits for one of his list finds another of it under way by then."""
    for name in "abc":
        await store.object(name).set("", {"n": 1})
    reader = await another()
    place = await reader.log.book.now()
    first = [asyncio.ensure_future(reader.values(names, at=place)) for names in ("a", "ab")]
    for _ in range(later):
        await asyncio.sleep(0)
    found = await asyncio.gather(*first, reader.values("bc", at=place))
    assert found == [[{"n": 1}], [{"n": 1}] * 2, [{"n": 1}] * 2]
    assert reader.views.folded == 3


async def coupon_used_and_forgotten(store: BokiStore, clock: SetClock) -> int:
    """An object that was there, was changed together with another one, and is forgotten; returns a place at which it was there."""
    await store.object("coupon").set("left", 100)
    then = await store.log.book.now()

    async def use(tx: Transaction) -> None:
        tx["coupon"].inc("left", -1)
        tx["total"].inc("n")

    await store.transact(use)
    await store.delete("coupon")
    clock.ms += 2 * RETENTION_MS
    await store.object("clock").set("n", 1)
    for _ in range(2):
        await store.tend("coupon")
    return then


async def pay(tx: Transaction) -> list[object]:
    coupon, total = await tx.values(["coupon", "total"])
    if coupon is not None:
        tx["orders"].inc("n")
    tx["total"].inc("looked")
    return [coupon, total]


@pytest.mark.parametrize("followed", [0, 10])
async def test_a_deleted_object_does_not_come_back_with_what_was_written_with_it(
    store: BokiStore, another: Another, clock: SetClock, followed: int
) -> None:
    """The record that changed both is new of the one, and is no record of the other any more."""
    other = await another(StoreSettings(checkpoints=False, followed_objects=followed))
    await store.object("total").set("n", 0)
    await other.log.book.now(consistency="linearizable")
    for _ in range(3):
        assert await other.object("total").value() == {"n": 0}
    await coupon_used_and_forgotten(store, clock)
    for _ in range(3):
        assert await other.object("coupon").value() is None
        assert await other.values(["coupon", "total"], consistency="linearizable") == [None, {"n": 1}]
        await asyncio.sleep(0)
    assert await other.transact(pay) == [None, {"n": 1}]
    async with other.transaction() as tx:
        assert await tx["coupon"].value() is None
        assert await tx["total"].get("n") == 1
    assert await (await another()).values(["coupon", "orders"], consistency="linearizable") == [None, None]


@pytest.mark.parametrize("settings", [StoreSettings(checkpoints=False), BARE, StoreSettings(followed_objects=10)])
async def test_the_past_of_a_forgotten_object_is_trimmed_whatever_is_known_of_it(
    store: BokiStore, another: Another, clock: SetClock, settings: StoreSettings
) -> None:
    then = await coupon_used_and_forgotten(store, clock)
    for looks_before in (0, 1, 3):
        other = await another(settings)
        now = await other.log.book.now(consistency="linearizable")
        for _ in range(looks_before):
            assert await other.object("coupon").value() is None
        with pytest.raises(boki.Trimmed):
            await other.object("coupon").value(at=then)
        assert await other.object("coupon").value(at=now) is None
        async with other.snapshot(at=then) as past:
            with pytest.raises(boki.Trimmed):
                await past.value("coupon")


async def test_an_idle_process_does_not_date_an_absence_back_to_where_it_was(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    """As of the place that its session had seen the object was there; it reads at a later one, which the answer does not name."""
    other = await another()
    await store.object("coupon").set("left", 100)
    idle = await other.log.book.now(consistency="linearizable")
    await coupon_used_and_forgotten(store, clock)
    assert await other.object("coupon").value() is None
    with pytest.raises(boki.Trimmed):
        await other.object("coupon").value(at=idle)


async def test_what_is_missing_in_a_new_book_can_be_written_blind(store: BokiStore) -> None:
    assert await store.object("x").value() is None

    async def put(tx: Transaction) -> None:
        tx["x"].set("n", 1)

    await store.transact(put)
    assert await store.object("x").value() == {"n": 1}


async def test_a_read_from_an_event_loop_that_stops_holds_up_nobody(store: BokiStore) -> None:
    """As a workflow's does, which is never run again: the next read of this process is answered."""
    await store.object("x").set("n", 1)

    def begin() -> tuple[asyncio.AbstractEventLoop, asyncio.Task[object]]:
        loop = asyncio.new_event_loop()
        task: asyncio.Task[object] = loop.create_task(store.object("x").value())
        loop.run_until_complete(asyncio.sleep(0))
        return loop, task

    loop, task = await asyncio.to_thread(begin)
    assert not task.done()
    async with asyncio.timeout(10):
        assert await store.object("x").value() == {"n": 1}
        assert await store.values(["x", "y"]) == [{"n": 1}, None]
    task.cancel()
    await asyncio.to_thread(loop.run_until_complete, asyncio.gather(task, return_exceptions=True))
    loop.close()


# -- running reads


async def _turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_one_waits_until_nobody_reads_any_of_them() -> None:
    running = RunningReads(ViewCache(10))
    first, second = running.reading(["a"]), running.reading(["b"])
    first.__enter__()
    waiting = asyncio.ensure_future(running.ended(["a", "b"]))
    await _turns()
    second.__enter__()  # of which nobody knew when the other began to wait
    first.__exit__(None, None, None)
    await _turns()
    assert not waiting.done()
    second.__exit__(None, None, None)
    await waiting


async def test_what_is_kept_or_read_by_nobody_is_not_waited_for() -> None:
    cache = ViewCache(10)
    running = RunningReads(cache)
    with running.reading(["a"]):
        await running.ended(["b"])
        cache.put(gone("a", 1))
        await running.ended(["a"])


async def test_who_fails_is_waited_for_no_longer() -> None:
    running = RunningReads(ViewCache(10))

    async def reads() -> None:
        with running.reading(["a"]):
            await _turns()
            raise ValueError("broken")

    reading = asyncio.ensure_future(reads())
    await asyncio.sleep(0)
    await running.ended(["a"])
    with pytest.raises(ValueError, match="broken"):
        await reading


async def test_two_who_read_the_same_do_not_end_each_others_reads() -> None:
    running = RunningReads(ViewCache(10))
    with running.reading(["a"]):
        with running.reading(["a", "b"]):
            pass
        waiting = asyncio.ensure_future(running.ended(["a", "b"]))
        await _turns()
        assert not waiting.done()
    await waiting


async def test_where_nothing_is_kept_nobody_waits() -> None:
    running = RunningReads(ViewCache(0))
    with running.reading(["a"]):
        await running.ended(["a"])
