"""Views: followed, cached, from aux data, from checkpoints; the same whatever is gone."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from bokilib.ports import BookPort
from bokilib.records.tags import store_object
from bokilib.retention.checkpoint_rules import GRACE_MS, RETENTION_MS
from bokilib.testing import FaultyBook
from bokistore import BokiStore, HistoryMissing, Inc, StoreSettings, Transaction
from bokistore.model.directory_rules import Subject
from bokistore.model.fold import View
from bokistore.read.checkpoint_reads import AUX_RECORDS, WALKED_RECORDS
from libs.tests.store.conftest import Another, SetClock

BARE = StoreSettings(checkpoints=False, cached_views=0, aux_data=False)


async def grow(store: BokiStore, count: int) -> None:
    await asyncio.gather(*(store.object("x").send(Inc("n", 1)) for _ in range(count)))


async def test_views_are_left_for_others_and_are_believed_only_if_they_check(
    store: BokiStore, another: Another
) -> None:
    await grow(store, 20)
    await (await another()).object("x").get("n", consistency="linearizable")
    second = await another(StoreSettings(checkpoints=False, cached_views=0))
    assert await second.object("x").get("n", consistency="linearizable") == 20
    assert second.views.checkpoints.folded == 0
    newest = await store.log.book.read_prev(store_object("x"), consistency="linearizable")
    assert newest is not None and newest.aux_data is not None
    for wrong in (b"", b"\x00" * 40, newest.aux_data[:-1], newest.aux_data + b"x"):
        await store.log.book.set_aux_data(newest.seqnum, wrong)
        third = await another(StoreSettings(checkpoints=False, cached_views=0))
        assert await third.object("x").get("n", consistency="linearizable") == 20
        assert third.views.checkpoints.folded == 20


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
        assert bare.views.checkpoints.folded == 20 * times
    assert await store.checkpointer.checkpoint("x")
    assert await bare.object("x").get("n", consistency="linearizable") == 20
    assert bare.views.checkpoints.folded == 40, "from the checkpoint there is nothing to fold"


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
        (((kept, *_), _),) = await store.views.checkpoints.kept([Subject("x")])
        await store.log.book.trim([(store_object("x"), kept.covers + 1)])

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
        assert replaying.views.checkpoints.folded == again * (AUX_RECORDS + 1)


async def test_behind_a_write_the_nearest_view_is_looked_for(store: BokiStore, another: Another) -> None:
    """A reader without a cache folds what came since somebody left a view, and not all from the checkpoint."""
    await grow(store, 100)
    settings = StoreSettings(checkpoints=False, cached_views=0)
    assert await (await another(settings)).object("x").get("n", consistency="linearizable") == 100
    await grow(store, AUX_RECORDS - 1)
    reader = await another(settings)
    assert await reader.object("x").get("n", consistency="linearizable") == 100 + AUX_RECORDS - 1
    assert reader.views.checkpoints.folded == AUX_RECORDS - 1
    assert await (await another(settings)).object("x").get("n", consistency="linearizable") == 99 + AUX_RECORDS
    await grow(store, WALKED_RECORDS + 1)
    far = await another(settings)
    assert await far.object("x").get("n", consistency="linearizable") == 100 + AUX_RECORDS + WALKED_RECORDS
    assert far.views.checkpoints.folded == 100 + AUX_RECORDS + WALKED_RECORDS, "farther than one looks"


async def test_who_keeps_no_views_leaves_one_whenever_it_folded(store: BokiStore, another: Another) -> None:
    settings = StoreSettings(checkpoints=False, cached_views=0)
    await store.object("x").send(Inc("n", 1))
    folded = []
    for _ in range(2):
        reader = await another(settings)
        assert await reader.object("x").get("n", consistency="linearizable") == 1
        folded.append(reader.views.checkpoints.folded)
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


@pytest.mark.parametrize("seed", range(12))
async def test_all_forms_give_one_state(store: BokiStore, another: Another, clock: SetClock, seed: int) -> None:
    """Of each place a followed view, a cached one and a fold from the checkpoint are equal, while others change, replace and delete."""
    dice = random.Random(seed)
    reader = await another(StoreSettings(checkpoints=False, followed_objects=10, followed_within_s=60))
    cached, bare = await another(), await another(BARE)
    names = ["a", "b", "c"]
    for _ in range(30):
        for _ in range(dice.randint(1, 5)):
            name = dice.choice(names)
            match dice.choices(["delete", "tend", "inc"], [1, 2, 8])[0]:
                case "delete":
                    await store.delete(name)
                case "tend":
                    await store.tend(name)
                case "inc":
                    await store.object(name).inc("n")
            clock.ms += dice.choice([1, GRACE_MS])
        for _ in range(2):  # what is read again is followed, and what is followed is delivered
            await reader.views.as_of(names)
            await asyncio.sleep(0)
        place, views = await reader.views.as_of(names)
        await asyncio.sleep(0)
        for one in (cached, bare):
            await one.log.book.now(consistency="linearizable")
        folded = [known.view for known in await bare.views.checkpoints.objects(names, place)]
        assert [_state(view) for view in views] == [_state(view) for view in folded]
        assert [_state(view) for view in await cached.views.many(names, place)] == [_state(view) for view in folded]
    following = reader.views._following()
    assert following is not None
    assert following.served
    assert bare.views.checkpoints.folded > cached.views.checkpoints.folded


def _state(view: View) -> tuple[object, ...]:
    """All of a view but what begins again at a checkpoint: where the object was seen, and what is counted."""
    return view.name, view.exists, dict(view.value), view.expires_ms
