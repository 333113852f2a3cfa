"""Transactions of one process together: one record, as if one after the other, and never a result of what did not happen."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.testing.machine import SeededRandom
from bokiflow.testing import LoopClock
from bokilib.append.log import Log
from bokilib.errors import AtomicTooLarge, PayloadHookFailed
from bokilib.ports import BookPort, Expect, Tag, TicketPort
from bokilib.records.contribution import Contribution
from bokilib.records.tags import store_object
from bokilib.testing import Died, Fault, FaultKind, FaultyBook
from bokistore import BokiStore, StoreSettings, Transaction
from bokistore.commit.turns import CLAIM_LOSSES, LOSSES
from bokistore.model.events import Claim, Commit
from bokistore.model.operations import Inc
from libs.tests.store.conftest import Another


async def bump(tx: Transaction, name: str, by: int = 1) -> int:
    before = await tx[name].get("n", 0)
    assert isinstance(before, int)
    tx[name].set("n", before + by)
    return before


async def test_fifty_on_one_object_are_one_record_and_none_is_lost(store: BokiStore) -> None:
    assert await store.transact(bump, "x") == 0
    before = store.log.appends
    found = await asyncio.gather(*(store.transact(bump, "x") for _ in range(50)))
    assert found == list(range(1, 51)), "in the order in which they came"
    assert store.log.appends == before + 1
    assert await store.object("x").get("n") == 51


async def test_fifty_on_an_object_that_has_to_be_read_first_are_few_records(store: BokiStore) -> None:
    """A record waits a moment for reads of others, but not longer."""
    found = await asyncio.gather(*(store.transact(bump, "x") for _ in range(50)))
    assert sorted(found) == list(range(50)) and store.log.appends <= 3


async def test_processes_against_each_other_lose_nothing(store: BokiStore, another: Another) -> None:
    stores = [store, await another(), await another()]
    names = ["x", "y"]
    await asyncio.gather(*(one.transact(bump, names[n % 2]) for one in stores for n in range(20)))
    found = await store.values(names, consistency="linearizable")
    assert found == [{"n": 30}, {"n": 30}]


async def test_a_process_that_commits_without_rest_starves_no_other() -> None:
    """Each operation takes 20 ms, and each process always has transactions to commit on one object.

    The incarnations are fixed, since pauses are drawn from them: of thirty random pairs, two shared eight seconds less evenly.
    """

    async def pause(_: int) -> None:
        await asyncio.sleep(0.02 * (0.5 + chance.random()))

    async def client(process: int) -> None:
        while asyncio.get_running_loop().time() < end_s:
            await stores[process].transact(bump, "x")
            committed[process] += 1

    chance, committed = random.Random(1), [0, 0]
    async with MemoryCluster() as cluster:
        books = [FaultyBook((await cluster.connect()).book("shop"), pause=pause) for _ in committed]
        logs = [Log(book, random=SeededRandom(process)) for process, book in enumerate(books)]
        stores = [BokiStore(log, settings=StoreSettings(checkpoints=False)) for log in logs]
        end_s = asyncio.get_running_loop().time() + 8
        await asyncio.gather(*(client(process) for process in (0, 1) for _ in range(4)))
        found = await stores[0].values(["x"], consistency="linearizable")
        appends = sum(store.log.appends for store in stores)
    assert min(committed) > max(committed) / 4, committed
    assert found == [{"n": sum(committed)}] and appends < sum(committed) / 2


class Racer(NamedTuple):
    """A process that commits to one object without rest: a round trip and the rest of its body take so long."""

    trip_s: float
    body_s: float = 0.0


async def race(racers: list[Racer], last_s: float, seed: int = 1) -> list[list[float]]:
    """Return when each process committed, one transaction at a time, in time that begins at 0; pauses are drawn from the seed."""
    clock = asyncio.get_running_loop().time
    chance = random.Random(seed)

    async def client(racer: Racer, store: BokiStore, committed: list[float]) -> None:
        async def body(tx: Transaction) -> None:
            before = await tx["x"].get("n", 0)
            assert isinstance(before, int)
            await asyncio.sleep(racer.body_s)
            tx["x"].set("n", before + 1)

        while clock() < end_s:
            await store.transact(body)
            committed.append(clock() - start_s)

    def trips(racer: Racer) -> Callable[[int], Awaitable[None]]:
        return lambda _: asyncio.sleep(racer.trip_s * (0.8 + 0.4 * chance.random()))

    async with MemoryCluster(clock=LoopClock()) as cluster:
        books = [FaultyBook((await cluster.connect()).book("shop"), pause=trips(racer)) for racer in racers]
        logs = [Log(book, random=SeededRandom(100 * seed + number)) for number, book in enumerate(books)]
        stores = [BokiStore(log, settings=StoreSettings(checkpoints=False)) for log in logs]
        start_s = clock()
        end_s = start_s + last_s
        committed: list[list[float]] = [[] for _ in racers]
        await asyncio.gather(*map(client, racers, stores, committed))
        (found,) = await stores[0].values(["x"], consistency="linearizable")
    assert found == {"n": sum(map(len, committed))}
    return committed


def longest_wait_s(committed: list[float]) -> float:
    return max(after - before for before, after in itertools.pairwise([0.0, *committed]))


@pytest.mark.parametrize(
    "slow", [Racer(0.1), Racer(0.02, 0.04), Racer(0.02, 0.4)], ids=lambda one: f"{one.trip_s}-{one.body_s}"
)
async def test_a_slow_process_commits_beside_a_fast_one_on_one_object(slow: Racer) -> None:
    """The fast one keeps a third of what it commits alone, or more."""
    last_s = 6.0
    fast, waiting = await race([Racer(0.02), slow], last_s)
    assert longest_wait_s(waiting) < 5.0, waiting
    a_run_s = slow.body_s + 2 * slow.trip_s
    assert len(waiting) * a_run_s > 0.1 * last_s / 2, "a tenth of its share of the time"
    assert len(fast) * 0.02 > last_s / 3 and longest_wait_s(fast) < 2.0


async def test_of_four_processes_of_different_speed_each_commits() -> None:
    committed = await race([Racer(0.03), Racer(0.03, 0.1), Racer(0.1), Racer(0.04, 0.3)], 8.0)
    assert all(longest_wait_s(one) < 6.0 for one in committed), committed
    assert len(committed[0]) * 0.03 > 8.0 / 3


async def test_a_process_that_dies_behind_its_claim_costs_one_rest() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        stores = [BokiStore((await cluster.connect()).book("shop")) for _ in range(2)]
        clock = asyncio.get_running_loop().time
        took_s = []
        for number in range(4):
            if number == 2:
                claim = Claim("x", (), 0, 800)
                await stores[1].log.append(Contribution((store_object("x"),), {}, (claim,)))
            before_s = clock()
            assert await stores[0].transact(bump, "x") == number
            took_s.append(clock() - before_s)
        assert 0.7 < took_s.pop(2) < 1.0 and max(took_s) < 0.1


async def test_a_claim_of_an_earlier_program_or_of_long_ago_is_no_rest() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        stores = [BokiStore((await cluster.connect()).book("shop")) for _ in range(2)]
        await stores[0].transact(bump, "x")
        for claim, later_s in ((Commit("x", (), 0), 0.0), (Claim("x", (), 0, 800), 60.0)):
            await stores[1].log.append(Contribution((store_object("x"),), {}, (claim,)))
            await asyncio.sleep(later_s)
            before_s = asyncio.get_running_loop().time()
            await stores[0].transact(bump, "x")
            assert asyncio.get_running_loop().time() - before_s < 0.1


async def test_a_conflict_once_in_many_commits_costs_no_more_each_time() -> None:
    """The process reads an object that another one changes now and then, and writes its own."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        store, other = [
            BokiStore((await cluster.connect()).book("shop"), settings=StoreSettings(checkpoints=False))
            for _ in range(2)
        ]
        appends: list[int] = []
        for _ in range(2 * CLAIM_LOSSES):
            changes = [1]

            async def body(tx: Transaction, changes: list[int]) -> None:
                price = await tx["price"].get("n", 0)
                if changes:
                    changes.pop()
                    await other.object("price").inc("n")
                tx["mine"].set("at", price)

            before = store.log.appends
            await store.transact(body, changes)
            appends.append(store.log.appends - before)
            await store.transact(body, [])
        assert max(appends) == 2, "the record that lost, and the one that did not: it never claims"


class Interferes:
    """A payload hook that changes nothing, and lets something happen before the next record is sent."""

    name = "interferes"

    def __init__(self) -> None:
        self.then: Callable[[], Awaitable[object]] | None = None

    async def seal(self, events: bytes) -> bytes:
        then, self.then = self.then, None
        if then is not None:
            await then()
        return events

    async def open(self, sealed: bytes) -> bytes:
        return sealed


@pytest.fixture
async def hook() -> Interferes:
    return Interferes()


@pytest.fixture
async def hooked(cluster: MemoryCluster, hook: Interferes) -> BokiStore:
    return BokiStore((await cluster.connect()).book("shop"), settings=StoreSettings(checkpoints=False), hook=hook)


async def test_who_ran_on_the_state_of_one_that_lost_runs_again(
    hooked: BokiStore, hook: Interferes, another: Another
) -> None:
    """The group's record fails by a foreign write: a result computed on what never happened is not given out."""
    other = await another()
    hook.then = lambda: other.object("x").set("n", 100)

    async def second(tx: Transaction) -> int:
        found = await bump(tx, "x", 10)
        tx["seen"].set("x", found)
        return found

    jobs = (hooked.transact(bump, "x"), hooked.transact(second), hooked.transact(bump, "z"))
    assert list(await asyncio.gather(*jobs)) == [100, 101, 0]
    assert await hooked.values(["x", "seen", "z"]) == [{"n": 111}, {"x": 101}, {"n": 1}]


async def test_who_ran_on_anothers_state_expects_what_it_read_at_snapshot_isolation_too(
    hooked: BokiStore, hook: Interferes, another: Another
) -> None:
    """It saw an earlier member's write and not a foreign one that comes before both: no past of the log is like that."""
    other = await another()
    hook.then = lambda: other.object("y").set("n", 5)
    seen: list[tuple[object, object]] = []

    async def first(tx: Transaction) -> None:
        tx["x"].inc("n")

    async def second(tx: Transaction) -> tuple[object, object]:
        found = await tx["x"].get("n", 0), await tx["y"].get("n", 0)
        seen.append(found)
        tx["x"].inc("n")
        return found

    snapshot = hooked.transactional(isolation="snapshot")
    results = await asyncio.gather(snapshot(first)(), snapshot(second)())
    assert (1, 0) in seen and results[1] == (1, 5)


async def test_an_error_that_came_of_what_did_not_happen_is_not_raised(
    hooked: BokiStore, hook: Interferes, another: Another
) -> None:
    """A member sees what an earlier one is about to write, and refuses; the earlier one loses: it has to look again."""
    other = await another()
    hook.then = lambda: other.object("limit").set("closed", True)
    refused = 0

    async def spend_or_close(tx: Transaction) -> str:
        if await tx["limit"].get("closed", False):
            return "closed"
        await bump(tx, "spent", 80)
        return "spent"

    async def refuse(tx: Transaction) -> str:
        nonlocal refused
        if await tx["spent"].get("n", 0) == 80:
            refused += 1
            raise ValueError("too much is spent")
        tx["other"].set("n", 1)
        return "fine"

    results = await asyncio.gather(hooked.transact(spend_or_close), hooked.transact(refuse))
    assert list(results) == ["closed", "fine"] and refused


async def test_an_error_of_a_body_is_raised_only_to_its_caller(store: BokiStore) -> None:
    async def broken(tx: Transaction) -> None:
        await bump(tx, "x")
        raise KeyError("mine")

    results = await asyncio.gather(
        store.transact(bump, "x"), store.transact(broken), store.transact(bump, "x"), return_exceptions=True
    )
    assert results[0] == 0 and isinstance(results[1], KeyError) and results[2] == 1
    assert await store.object("x").get("n") == 2


async def test_who_reads_only_appends_nothing_and_is_not_held_up(store: BokiStore) -> None:
    await store.object("x").set("n", 5)
    before = store.log.appends

    async def look(tx: Transaction) -> Any:
        return await tx["x"].get("n")

    assert await asyncio.gather(*(store.transact(look) for _ in range(5))) == [5] * 5
    assert store.log.appends == before


async def test_who_loses_too_often_gets_an_error(store: BokiStore, another: Another) -> None:
    other = await another()
    runs = []

    @store.transactional(retries=3)
    async def unlucky(tx: Transaction) -> None:
        runs.append(1)
        await bump(tx, "x")
        await other.object("x").inc("n")

    with pytest.raises(boki.Conflict):
        await unlucky()
    assert len(runs) == 4


async def test_who_gave_up_waiting_is_left_out_and_who_saw_his_writes_runs_again(store: BokiStore) -> None:
    async def slow(tx: Transaction) -> int:
        found = await bump(tx, "x")
        task.cancel()
        return found

    task = asyncio.ensure_future(store.transact(slow))
    assert await store.transact(bump, "x") in (0, 1)
    await asyncio.gather(task, return_exceptions=True)
    assert await store.object("x").get("n") == await store.transact(bump, "x")


@pytest.mark.parametrize("losses", range(1, LOSSES + 3))
async def test_a_transaction_given_up_while_its_record_loses_leaves_no_turn(
    hooked: BokiStore, hook: Interferes, another: Another, losses: int
) -> None:
    """With a turn that nothing ends, all later transactions on its objects would wait forever. The other reads what was claimed."""
    other = await another(hook=Interferes())
    lost = 0

    async def overtake() -> None:
        nonlocal lost
        lost += 1
        await other.object("x").inc("n")
        if lost == losses:
            task.cancel()
            await asyncio.sleep(0)

    async def loses(tx: Transaction) -> None:
        await bump(tx, "x")
        hook.then = overtake

    task = asyncio.ensure_future(hooked.transact(loses))
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(5):
        assert await hooked.transact(bump, "x") == losses


@pytest.mark.parametrize("before", ["living", "deleted", "never written"])
async def test_a_claim_changes_nothing(before: str) -> None:
    """Neither the object, in any process and as of any place, nor its history; a checkpoint covers it."""
    async with MemoryCluster() as cluster:

        async def process() -> BokiStore:
            return BokiStore((await cluster.connect()).book("shop"), settings=StoreSettings(checkpoints=False))

        one, other = await process(), await process()
        if before != "never written":
            await other.object("x").set("n", 7)
        if before == "deleted":
            await other.delete("x")
        value = {"n": 7} if before == "living" else None
        then = await one.log.book.now(consistency="linearizable")
        history = await one.object("x").history() if then else []
        runs = 0

        async def loses(tx: Transaction) -> None:
            nonlocal runs
            runs += 1
            await tx["x"].get("n", 0)
            tx["x"].set("n", 100)
            if runs > CLAIM_LOSSES:
                raise ValueError("given up")
            await other.log.append(Contribution((store_object("x"),), {}, (Commit("x", (), 0),)))

        with pytest.raises(ValueError, match="given up"):
            await one.transact(loses)
        assert one.log.appends == CLAIM_LOSSES + 1, "records that lost, and one claim"
        now = await one.log.book.now(consistency="linearizable")
        for store in (one, other, await process()):
            await store.log.book.now(consistency="linearizable")
            x = store.object("x")
            assert await store.values(["x"]) == await store.values(["x"], at=now) == [value]
            if then:
                assert await store.values(["x"], at=then) == [value]
            assert await x.history() == history and await x.history(limit=1) == history[-1:]
            assert await store.names() == (["x"] if value else [])
        assert await other.checkpointer.checkpoint("x")
        assert await other.values(["x"]) == await (await process()).values(["x"], consistency="linearizable") == [value]
        assert await one.transact(bump, "x") == (7 if value else 0), "no turn is left"


async def test_a_process_claims_nothing_from_itself() -> None:
    """It loses to operations without a condition of its own, which lose to nothing."""
    async with MemoryCluster() as cluster:
        store = BokiStore((await cluster.connect()).book("shop"), settings=StoreSettings(checkpoints=False))
        runs = 0

        async def loses(tx: Transaction) -> None:
            nonlocal runs
            runs += 1
            await bump(tx, "x")
            if runs <= 2 * CLAIM_LOSSES:
                await store.object("x").send(Inc("n", 1))

        await store.transact(loses)
        assert store.log.appends == runs + 2 * CLAIM_LOSSES
        assert await store.object("x").get("n") == 2 * CLAIM_LOSSES + 1


async def test_an_error_of_the_hook_ends_only_the_transaction_whose_record_it_was(cluster: MemoryCluster) -> None:
    class Enlarges:
        """Makes the record of three transactions too large, fails at that of the first one, and leaves the others alone."""

        name = "enlarges"
        seals = 0

        async def seal(self, events: bytes) -> bytes:
            self.seals += 1
            if self.seals == 2:
                raise RuntimeError("no key")
            return bytes(2_000_000) if self.seals == 1 else events

        async def open(self, sealed: bytes) -> bytes:
            return sealed

    book = (await cluster.connect()).book("shop")
    one = BokiStore(book, settings=StoreSettings(checkpoints=False), hook=Enlarges())
    async with asyncio.timeout(5):
        found = await asyncio.gather(*(one.transact(bump, f"x{n}") for n in range(3)), return_exceptions=True)
    assert isinstance(found[0], PayloadHookFailed) and "no key" in str(found[0])
    assert [await one.object(f"x{n}").get("n") for n in range(3)] == [None, 1, 1]


async def test_an_error_of_the_driver_ends_all_whose_record_was_split(cluster: MemoryCluster) -> None:
    class Enlarges:
        name = "enlarges"
        seals = 0

        async def seal(self, events: bytes) -> bytes:
            self.seals += 1
            return bytes(2_000_000) if self.seals == 1 else events

        async def open(self, sealed: bytes) -> bytes:
            return sealed

    class Breaks(FaultyBook):
        def submit(self, data: bytes, *, tags: Sequence[Tag] = (), expect: Expect | None = None) -> TicketPort:
            raise RuntimeError("no driver")

    one = BokiStore(
        Breaks((await cluster.connect()).book("shop")), settings=StoreSettings(checkpoints=False), hook=Enlarges()
    )
    async with asyncio.timeout(5):
        found = await asyncio.gather(*(one.transact(bump, f"x{n}") for n in range(3)), return_exceptions=True)
    assert [str(error) for error in found] == ["no driver"] * 3


async def test_many_that_do_not_fit_one_record_go_as_several(store: BokiStore) -> None:
    before = store.log.appends

    async def large(tx: Transaction, name: str) -> None:
        await tx[name].get("n")
        tx[name].set("n", "x" * 200_000)

    await asyncio.gather(*(store.transact(large, f"x{n}") for n in range(6)))
    assert store.log.appends == before + 3


async def test_one_that_fits_no_record_at_all_takes_nobody_along(store: BokiStore) -> None:
    async def huge(tx: Transaction) -> None:
        tx["z"].set("n", "x" * 600_000)

    jobs = (store.transact(bump, "y"), store.transact(huge), store.transact(bump, "y"))
    first, refused, second = await asyncio.gather(*jobs, return_exceptions=True)
    assert [first, second] == [0, 1] and isinstance(refused, AtomicTooLarge)


async def test_an_unknown_outcome_is_raised_to_all_whose_record_it_was(store: BokiStore) -> None:
    counted = FaultyBook(store.log.book)
    one = BokiStore(counted)
    await asyncio.gather(*(one.transact(bump, "y") for _ in range(3)))
    lost = BokiStore(FaultyBook(store.log.book, Fault(counted.appends[0], "lost")))
    results = await asyncio.gather(*(lost.transact(bump, "z") for _ in range(3)), return_exceptions=True)
    assert all(isinstance(result, boki.OutcomeUnknown) for result in results), results
    assert await store.object("z").get("n", consistency="linearizable") == 3


@pytest.mark.parametrize("fault", ["lost", "never"])
async def test_who_has_nothing_in_a_record_gets_no_outcome_of_it(store: BokiStore, fault: FaultKind) -> None:
    """Its body raised, or returned without a write, on the state of those before it: it looks again at what is in the log."""

    class Refused(Exception):
        pass

    async def left(tx: Transaction) -> int:
        found = await tx["ann"].get("n", 0)
        assert isinstance(found, int)
        return found

    async def pay(tx: Transaction) -> str:
        if await left(tx) < 10:
            raise Refused
        await bump(tx, "ann", -10)
        return "paid"

    async def pay_or_say(tx: Transaction) -> str:
        return await pay(tx) if await left(tx) >= 10 else "refused"

    async def three(one: BokiStore) -> list[object]:
        await store.object("ann").set("n", 15)
        await one.object("ann").get("n")
        some = (one.transact(body) for body in (pay, pay, pay_or_say))
        return list(await asyncio.gather(*some, return_exceptions=True))

    counted = FaultyBook(store.log.book)
    paid, raised, said = await three(BokiStore(counted))
    assert (paid, type(raised), said) == ("paid", Refused, "refused") and len(counted.appends) == 1

    paid, raised, said = await three(BokiStore(FaultyBook(store.log.book, Fault(counted.appends[0], fault))))
    assert isinstance(paid, boki.OutcomeUnknown) and said == "refused"
    assert raised == "paid" if fault == "never" else isinstance(raised, Refused)
    assert await store.object("ann").get("n", consistency="linearizable") == 5


async def test_a_process_that_dies_takes_all_that_wait_with_it(store: BokiStore) -> None:
    async def program(book: BookPort) -> None:
        await asyncio.gather(*(BokiStore(book).transact(bump, "x") for _ in range(3)))

    with pytest.raises(Died):
        await program(FaultyBook(store.log.book, Fault(4, "before")))


async def test_transactional_keeps_name_arguments_and_isolation(store: BokiStore) -> None:
    @store.transactional(isolation="snapshot", consistency="linearizable")
    async def named(tx: Transaction, name: str, *, by: int = 1) -> int:
        """What it does."""
        assert tx.staging.isolation == "snapshot"
        return await bump(tx, name, by)

    assert (named.__name__, named.__doc__) == ("named", "What it does.")
    assert [await named("x"), await named("x", by=5), await named("x")] == [0, 1, 6]
    with pytest.raises(boki.InvalidArgument, match="serializable"):
        store.transactional(isolation="none")  # type: ignore[arg-type]


async def test_a_body_that_commits_another_transaction_on_what_it_read_is_refused(store: BokiStore) -> None:
    """The outer one can never commit; the inner ones must not wait for its turn."""

    async def inner(tx: Transaction) -> None:
        tx["x"].inc("n")

    async def outer(tx: Transaction) -> None:
        await tx["x"].get("n", 0)
        await store.transact(inner)
        tx["x"].inc("m")

    async with asyncio.timeout(10):
        with pytest.raises(boki.InvalidArgument, match="another transaction on the objects that it reads"):
            await store.transact(outer)
        await store.transact(inner)


async def test_a_body_that_commits_another_transaction_on_other_objects_commits(store: BokiStore) -> None:
    async def inner(tx: Transaction) -> None:
        tx["y"].inc("n")

    async def outer(tx: Transaction) -> None:
        await store.transact(inner)
        tx["x"].inc("n")

    async with asyncio.timeout(10):
        await asyncio.gather(*(store.transact(outer) for _ in range(5)))
    assert await store.object("x").value() == {"n": 5}
