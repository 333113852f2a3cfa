"""Bases of folds while objects and their neighbours in the book are checkpointed, deleted and forgotten."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import BokiError
from bokilib.records.tags import bucket_of, store_object
from bokilib.retention.checkpoint_rules import FORGET_MS, GRACE_MS, RETENTION_MS
from bokilib.testing import FaultyBook
from bokistore import BokiStore, HistoryMissing, StoreSettings, Transaction
from bokistore.model.directory_rules import Subject, of_bucket
from libs.tests.store.conftest import Another, SetClock, book_of

BARE = StoreSettings(checkpoints=False, cached_views=0, aux_data=False)


async def time_passes(store: BokiStore, clock: SetClock, wait_ms: int) -> None:
    clock.ms += wait_ms
    await store.object("clock").set("ms", clock.ms)


async def deleted_and_forgotten(store: BokiStore, clock: SetClock, name: str) -> None:
    """Deletes an object; a retention later all that is left of it is the floor of the book."""
    assert await store.delete(name)
    await time_passes(store, clock, 2 * RETENTION_MS)
    await store.tend(name)
    assert await book_of(store).read_prev(store_object(name)) is None


async def test_what_is_forgotten_makes_nothing_else_unreadable(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    await store.object("session").set("n", 1)
    await store.object("account").set("cents", 4200)
    await store.collection("user", dict).create("ann", {"name": "Ann"})
    then = await store.log.book.now()
    await deleted_and_forgotten(store, clock, "session")
    for settings in (StoreSettings(checkpoints=False), BARE):
        fresh = await another(settings)
        await fresh.log.book.now(consistency="linearizable")
        assert await fresh.object("account").value() == {"cents": 4200}
        assert await fresh.object("account").value(at=then) == {"cents": 4200}
        assert [pair async for pair in fresh.collection("user", dict).scan()] == [("ann", {"name": "Ann"})]
        assert await fresh.names() == ["account", "clock", "user/ann"]
    assert await (await another()).object("account").inc("cents", 1) == 4201, "what is written blind has its result"

    async def pay(tx: Transaction) -> None:
        tx["account"].inc("cents", -100)
        assert await tx["account"].get("cents") == 4101

    await (await another()).transact(pay)


async def test_what_is_carried_is_what_living_objects_are(store: BokiStore, another: Another, clock: SetClock) -> None:
    """With a floor above it an object is carried as any other, and is checkpointed."""
    await store.object("session").set("n", 1)
    await store.object("account").set("cents", 4200)
    await deleted_and_forgotten(store, clock, "session")
    done = await (await another()).carrier("host-7").round()
    assert done.carried == 1
    assert await (await another(BARE)).object("account").value(consistency="linearizable") == {"cents": 4200}


@pytest.mark.parametrize("settings", [StoreSettings(checkpoints=False), BARE])
async def test_what_is_made_anew_between_the_two_steps_of_its_forgetting_is_read(
    store: BokiStore, another: Another, clock: SetClock, settings: StoreSettings
) -> None:
    """Its records are forgotten, the checkpoint of its end is not, and the floor rises above both."""
    await store.object("x").set("n", 1)
    await store.object("later").set("n", 1)
    await store.delete("x")
    await store.delete("later")
    await time_passes(store, clock, 2 * RETENTION_MS)
    book = book_of(store)
    (kept,) = await store.views.checkpoints.kept([Subject("x")])
    await book.trim([(store_object("x"), kept[0][0].covers + 1)], forget=True)
    for _ in range(2):
        await store.tend("later")
    assert await (await another(settings)).object("x").value(consistency="linearizable") is None
    assert await (await another(settings)).object("x").inc("n", 5) == 5
    assert await (await another(settings)).object("x").value(consistency="linearizable") == {"n": 5}
    assert await store.checkpointer.checkpoint("x")


async def test_a_bucket_that_was_emptied_and_filled_again_is_read(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    users = store.collection("user", dict)
    await users.create("ann", {})
    await users.delete("ann")
    await store.object("later").set("n", 1)
    subject = of_bucket("user", bucket_of("ann"))
    assert await store.checkpointer.checkpoint_subject(subject)
    await store.delete("later")
    await time_passes(store, clock, 2 * RETENTION_MS)
    (kept,) = await store.views.checkpoints.kept([subject])
    await book_of(store).trim([(subject.stream, kept[0][0].covers + 1)], forget=True)
    await store.tend("later")
    await users.create("ann", {"n": 2})
    assert await (await another(BARE)).collection("user", dict).ids(consistency="linearizable") == ["ann"]


async def test_who_carries_does_not_take_a_missing_history_for_one_that_was_carried(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    for number in range(3):
        await store.object("x").set("n", number)
    newest = await book_of(store).read_prev(store_object("x"))
    assert newest is not None
    await book_of(store).trim([(store_object("x"), newest.seqnum)])
    await time_passes(store, clock, FORGET_MS + RETENTION_MS)
    carrier = (await another()).checkpointer
    assert await carrier.carry([Subject("x"), Subject("clock")], clock.ms, {}, carry_ms=1_000) == 1
    assert carrier.unreadable == 1
    for read in (carrier.checkpoint("x"), (await another()).object("x").value(consistency="linearizable")):
        with pytest.raises(HistoryMissing):
            await read


async def test_a_result_that_depends_on_a_missing_history_is_unknown(store: BokiStore, another: Another) -> None:
    for number in range(3):
        await store.object("x").set("n", number)
    newest = await book_of(store).read_prev(store_object("x"))
    assert newest is not None
    await book_of(store).trim([(store_object("x"), newest.seqnum)])
    other = await another()
    with pytest.raises(boki.LogBookError, match="is in the log at") as raised:
        await other.object("x").inc("n")
    assert isinstance(raised.value, BokiError) and not raised.value.definite
    await other.object("x").set("", {"n": 7})


async def test_a_place_below_the_floor_is_read_where_all_records_of_the_object_are_there(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    """Whether there was a checkpoint then is not known any more; it is not needed where nothing is missing from 1 on."""
    await store.object("session").set("n", 1)
    await store.object("account").set("cents", 1)
    then = await store.log.book.now()
    await store.object("account").set("cents", 2)
    await deleted_and_forgotten(store, clock, "session")
    await store.object("account").set("cents", 3)
    fresh = await another(BARE)
    await fresh.log.book.now(consistency="linearizable")
    assert await fresh.values(["account", "account"], at=then) == [{"cents": 1}] * 2
    with pytest.raises(boki.Trimmed):
        await fresh.values(["account", "none"], at=then)
    for _ in range(2):
        assert await store.checkpointer.checkpoint("account")
        await store.object("account").inc("cents")
        await time_passes(store, clock, RETENTION_MS)
    assert await store.checkpointer.trim("account")
    with pytest.raises(boki.Trimmed):
        await fresh.values(["account"], at=then)
    assert await fresh.values(["account"], consistency="linearizable") == [{"cents": 5}]


@pytest.mark.parametrize("settings", [StoreSettings(checkpoints=False), BARE])
async def test_finding_nothing_as_of_a_place_does_not_prove_that_nothing_was_there(
    store: BokiStore, another: Another, clock: SetClock, settings: StoreSettings
) -> None:
    """As of a place between the last change and the first checkpoint there is neither, once the checkpoint has replaced the change."""
    users = store.collection("user", dict)
    await store.object("x").set("n", 1)
    await users.create("ann", {})
    await store.object("other").set("n", 1)
    place = await store.log.book.now()
    subjects = [Subject("x"), of_bucket("user", bucket_of("ann"))]
    for _ in range(2):
        assert await store.checkpointer.carry(subjects, clock.ms, {}, carry_ms=0) == 2
    await time_passes(store, clock, 2 * GRACE_MS)
    assert await store.checkpointer.remove_old(subjects)
    late = await another(settings)
    await late.log.book.now(consistency="linearizable")
    with pytest.raises(boki.Trimmed):
        await late.object("x").value(at=place)
    with pytest.raises(boki.Trimmed):
        await late.views.checkpoints.objects(["x"], place, counted=True)
    with pytest.raises(boki.Trimmed):
        await late.collection("user", dict).ids(at=place)
    assert await late.object("x").value() == {"n": 1}
    assert await late.collection("user", dict).ids() == ["ann"]


async def test_the_error_names_the_object_and_the_place_from_which_on_it_is_kept(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    """The book and other objects of the same snapshot are not trimmed."""
    await store.object("sales").set("n", 7)
    await store.object("busy").set("n", 0)
    place = await store.log.book.now()
    for number in range(3):
        await store.object("busy").set("n", number)
        assert await store.checkpointer.checkpoint("busy")
        await time_passes(store, clock, 2 * GRACE_MS)
    assert await store.checkpointer.trim("busy")
    late = await another(BARE)
    await late.log.book.now(consistency="linearizable")
    async with late.snapshot(at=place) as then:
        assert await then.value("sales") == {"n": 7}
        with pytest.raises(
            boki.Trimmed, match=f"expected object 'busy' as of {place}, found that it is kept from "
        ) as gone:
            await then.values(["sales", "busy"])
    assert gone.value.object == "busy" and gone.value.mark > place
    assert "which was ordered at 1970-01-01T00:" in str(gone.value) and "grace_ms" in str(gone.value)
    assert (await late.object("busy").value(at=gone.value.mark)) == {"n": 1}
    with pytest.raises(boki.Trimmed) as before:
        await late.object("busy").value(at=gone.value.mark - 1)
    assert before.value.facts["mark"] == gone.value.mark
    with pytest.raises(boki.Trimmed, match="object 'busy'"):
        await anext(late.object("busy").watch(start=place))


async def test_the_error_of_an_object_that_was_deleted_and_forgotten_says_so(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    users = store.collection("user", dict)
    await users.create("ann", {})
    then = await store.log.book.now()
    await deleted_and_forgotten(store, clock, "user/ann")
    late = await another(BARE)
    await late.log.book.now(consistency="linearizable")
    with pytest.raises(boki.Trimmed, match=r"object 'user/ann' as of .*, found that nothing is kept of it") as gone:
        await late.collection("user", dict).get("ann", at=then)
    assert gone.value.object == "user/ann"


async def test_an_object_that_is_forgotten_and_written_again_during_a_read_is_whole(
    store: BokiStore, another: Another, clock: SetClock
) -> None:
    await store.object("x").set("n", 1)
    reader = (await another(BARE)).views.checkpoints
    (newest,) = await reader.newest([Subject("x")], None, "linearizable")
    assert newest.record is not None
    assert newest.checkpoint is None
    await deleted_and_forgotten(store, clock, "x")
    await store.object("x").set("n", 2)
    with pytest.raises(boki.Trimmed) as raised:
        [_ async for _ in reader.above(Subject("x"), newest, 0, newest.record.seqnum, empty=True)]
    assert not isinstance(raised.value, HistoryMissing)


async def replaced(store: BokiStore, clock: SetClock) -> None:
    """Lets a checkpoint take the place of all records of an object."""
    for _ in range(2):
        await store.object("x").set("n", 1)
        assert await store.checkpointer.checkpoint("x")
        await time_passes(store, clock, RETENTION_MS)
    assert await store.checkpointer.trim("x")


async def written_again(store: BokiStore, clock: SetClock) -> None:
    """Forgets an object and writes it again."""
    await deleted_and_forgotten(store, clock, "x")
    await store.object("x").set("n", 1)


@pytest.mark.parametrize("change", [replaced, written_again])
async def test_a_history_that_is_replaced_again_and_again_during_a_read_is_not_missing(
    cluster: MemoryCluster, store: BokiStore, clock: SetClock, change: Callable[[BokiStore, SetClock], Awaitable[None]]
) -> None:
    """Before any two operations of a read: its second look at what is there may be as old as its first one was."""
    await store.object("x").set("n", 1)
    for first in range(6):
        for second in range(first, first + 4):

            async def pause(number: int, at: tuple[int, int] = (first, second)) -> None:
                if number in at:
                    await change(store, clock)

            book = FaultyBook((await cluster.connect()).book("shop"), pause=pause)
            assert await BokiStore(book, settings=BARE).object("x").value() == {"n": 1}
