"""Graceful stop: what a worker that is drained gives up at once, what it keeps, for how long, and what other workers see of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import islice, pairwise
from typing import Any

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from boki_common.errors import ClosedError
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Retry, StepInterrupted, Worker, WorkflowBlocked
from bokiflow.errors import OnlyInSteps
from bokiflow.model.flow_events import PICKER, Claimed, Ended, Leaving, PartitionClaimed, Stepped
from bokiflow.replayer import export, replay
from bokiflow.testing import LoopClock, in_virtual_time
from bokiflow.worker import draining as draining_module
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from libs.tests.flow.conftest import ids_of, until, working

LEASE_S = 15.0
FINISH_S = 600.0
"""Far beyond any lease: what waits for a lease, or for the end of the drain, is told apart."""
SOON_S = 1.0


def clock() -> float:
    """Return the time of the running loop, in seconds."""
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def two_workers(app: App) -> AsyncIterator[tuple[Worker, Worker]]:
    """Yield a worker that owns every partition, and another one that began later. Both are idle."""
    async with (
        MemoryCluster(clock=LoopClock()) as cluster,
        working(cluster, app, "old", lease_s=LEASE_S) as old,
        working(cluster, app, "new", lease_s=LEASE_S) as new,
    ):
        assert len(old._partitions.mine) == tags.PARTITIONS and not new._partitions.mine
        yield old, new


class Shop:
    """Orders that are paid by a step, which hangs, ends when it is let, or swallows its cancellation."""

    def __init__(self) -> None:
        self.app = App("shop")
        self.ran: list[str] = []
        self.may_end = asyncio.Event()
        self.swallows = False

        @self.app.step
        async def pay(order: str) -> str:
            self.ran.append(order)
            if order.startswith("hangs") and self.ran.count(order) == 1:
                await self._hang()
            return f"paid {self.ran.count(order)}"

        @self.app.workflow
        async def place(order: str) -> str:
            await bokiflow.recv("approved")
            return await pay(order)

        @self.app.workflow
        async def pays(order: str) -> str:
            return await pay(order)

        self.pay, self.place, self.pays = pay, place, pays

    async def _hang(self) -> None:
        while True:
            try:
                await self.may_end.wait()
                return
            except asyncio.CancelledError:
                if not self.swallows:
                    raise


@in_virtual_time
async def test_one_hanging_step_delays_no_other_order_and_no_new_one() -> None:
    shop = Shop()
    async with two_workers(shop.app) as (old, new):
        hangs = await old.start(shop.pays.call("hangs"), id="hangs")
        partition = tags.partition_of("hangs")
        beside, others = islice(ids_of(partition), 10), islice(ids_of(partition, elsewhere=True), 10)
        orders = [await old.start(shop.place.call(id), id=id) for id in (*beside, *others)]
        await until(lambda: "hangs" in shop.ran)
        began_s = clock()
        draining = asyncio.create_task(old.drain(finish_s=FINISH_S))
        for order in orders:
            await order.signal("approved")
            assert await new.handle(order.id, shop.place).result() == "paid 1"
        fresh = [f"fresh {number}" for number in range(20)]
        for id in fresh:
            started = await new.start(shop.pays.call(id), id=id)
            assert await started.result() == "paid 1"
        assert clock() - began_s < SOON_S and not draining.done()
        shop.may_end.set()
        assert await draining == [] and await new.handle("hangs", shop.pays).result() == "paid 1"
        assert shop.ran.count("hangs") == 1, "its outcome was recorded by the worker that was drained"
        assert hangs.id == "hangs" and clock() - began_s < 2 * SOON_S


@in_virtual_time
async def test_a_kept_workflow_is_given_up_as_soon_as_its_last_step_has_ended() -> None:
    """Two workflows of one partition have a running step. The first goes on elsewhere while the second hangs."""
    shop = Shop()
    async with two_workers(shop.app) as (old, new):
        first = next(ids_of(tags.partition_of("hangs")))
        ends = asyncio.Event()

        @shop.app.step
        async def ends_first() -> str:
            await ends.wait()
            return "first"

        @shop.app.workflow
        async def waits() -> str:
            await ends_first()
            return await shop.pay("second")

        await old.start(shop.pays.call("hangs"), id="hangs")
        await old.start(waits.call(), id=first)
        await until(lambda: "hangs" in shop.ran)
        draining = asyncio.create_task(old.drain(finish_s=FINISH_S))
        await let_pass(60)
        ended_s = clock()
        ends.set()
        assert await new.handle(first, waits).result() == "paid 1"
        assert clock() - ended_s < SOON_S and not draining.done()
        shop.may_end.set()
        assert await draining == []


@in_virtual_time
async def test_a_drain_that_cannot_name_all_workflows_keeps_their_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining_module, "NAMED_BYTES", 1)
    shop = Shop()
    async with two_workers(shop.app) as (old, new):
        first, beside = islice(ids_of(tags.partition_of("hangs")), 2)
        await old.start(shop.pays.call("hangs"), id="hangs")
        await old.start(shop.pays.call("hangs too"), id=first)
        order = await old.start(shop.place.call("beside"), id=beside)
        await until(lambda: "hangs" in shop.ran and "hangs too" in shop.ran)
        draining = asyncio.create_task(old.drain(finish_s=FINISH_S))
        await let_pass(60)
        await order.signal("approved")
        await let_pass(60)
        assert "beside" not in shop.ran, "it begins no step here, and others take the partition for kept"
        shop.may_end.set()
        assert await draining == []
        assert await new.handle(beside, shop.place).result() == "paid 1"


@in_virtual_time
async def test_a_step_that_swallows_its_cancellation_holds_no_drain_and_is_refused() -> None:
    shop = Shop()
    shop.swallows = True
    async with two_workers(shop.app) as (old, new):
        await old.start(shop.pays.call("hangs"), id="hangs")
        await until(lambda: "hangs" in shop.ran)
        began_s = clock()
        assert await old.drain(finish_s=20) == ["pay of hangs"]
        assert 20 <= clock() - began_s < 20 + 2 * SOON_S
        assert await new.handle("hangs", shop.pays).result() == "paid 2" and clock() - began_s < 20 + 2 * SOON_S
        shop.may_end.set()
        await let_pass(60)
        stepped = [one for one in await events(new, tags.flow_history("hangs")) if isinstance(one, Stepped | Ended)]
        assert [one.outcome.value for one in stepped] == ["paid 2", "paid 2"]
    assert clock() - began_s < 20 + 120, "nor does it hold the end of its worker"


@pytest.mark.parametrize("how", ["drain", "leave"])
@in_virtual_time
async def test_steps_that_swallow_their_cancellation_do_not_keep_their_process(
    how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The loop of this test ends as that of `asyncio.run` does: if it awaited the steps, it would have nothing left to do."""
    shop = Shop()
    shop.swallows = True

    @shop.app.workflow
    async def gives_up(order: str) -> None:
        async with asyncio.timeout(1):
            await shop.pay(order)

    async with MemoryCluster(clock=LoopClock()) as cluster:
        async with working(cluster, shop.app, "old", lease_s=LEASE_S) as worker:
            await worker.start(shop.pays.call("hangs"), id="a")
            given_up = await worker.start(gives_up.call("hangs too"), id="b")
            with pytest.raises(TimeoutError):
                await given_up.result()
            began_s = clock()
            if how == "drain":
                await worker.drain(finish_s=20)
        assert clock() - began_s < 20 + 2 * SOON_S
    lines = [line for line in capsys.readouterr().err.split("\n") if "step left behind" in line]
    assert [line.partition(" id=")[2].split()[:2] for line in lines] == [["a", "step=pay"], ["b", "step=pay"]]
    assert all("in _hang" in line and "await self.may_end.wait()" in line for line in lines)


@in_virtual_time
async def test_a_drained_worker_without_partitions_leaves_at_once_too() -> None:
    """Another worker took its partitions while it lived; its workflows ran on with it."""
    shop = Shop()
    async with two_workers(shop.app) as (old, new):
        order = await old.start(shop.place.call("x"), id="x")
        await new._partitions.claim(range(tags.PARTITIONS))
        await new._load_again(tags.partition_of("x"))
        await until(lambda: not old._partitions.mine)
        assert "x" in old._executors and new._takeover.others["x"] == old.name
        began_s = clock()
        assert await old.drain() == []
        await order.signal("approved")
        assert await new.handle("x", shop.place).result() == "paid 1"
        assert clock() - began_s < SOON_S and new._peers.is_gone(old.name)


@in_virtual_time
async def test_who_waits_at_a_drained_worker_is_told_how_it_ended_elsewhere() -> None:
    shop = Shop()
    async with two_workers(shop.app) as (old, new):
        orders = [await old.start(shop.place.call(id), id=id) for id in ("x", "y")]
        waiting = [asyncio.create_task(order.result()) for order in orders]
        await let_pass(1)
        await old.drain()
        for order in orders:
            await new.handle(order.id).signal("approved")
        async with asyncio.timeout(SOON_S):
            assert await asyncio.gather(*waiting) == ["paid 1", "paid 1"]


@in_virtual_time
async def test_a_worker_that_begins_during_a_drain_waits_for_what_is_kept() -> None:
    shop = Shop()
    async with MemoryCluster(clock=LoopClock()) as cluster, working(cluster, shop.app, "old", lease_s=LEASE_S) as old:
        await old.start(shop.pays.call("hangs"), id="hangs")
        await until(lambda: "hangs" in shop.ran)
        draining = asyncio.create_task(old.drain(finish_s=FINISH_S))
        await until(lambda: not old._partitions.mine)
        async with working(cluster, shop.app, "late", lease_s=LEASE_S) as late:
            await let_pass(4 * LEASE_S)
            assert len(late._partitions.mine) == tags.PARTITIONS and "hangs" in old._executors
            assert late._takeover.others == {"hangs": old.name}
            shop.may_end.set()
            assert await draining == [] and await late.handle("hangs", shop.pays).result() == "paid 1"


@in_virtual_time
async def test_a_worker_that_dies_while_it_is_drained_is_taken_over_after_a_lease() -> None:
    shop = Shop()
    async with MemoryCluster(clock=LoopClock()) as cluster, working(cluster, shop.app, "new", lease_s=LEASE_S) as new:
        async with working(cluster, shop.app, "old", lease_s=LEASE_S) as old:
            await old._partitions.refresh()
            await old._partitions.claim(range(tags.PARTITIONS))
            await old.start(shop.pays.call("hangs"), id="hangs")
            await until(lambda: "hangs" in shop.ran)
            draining = asyncio.create_task(old.drain(finish_s=FINISH_S))
            await let_pass(1)
            assert len(new._partitions.mine) == tags.PARTITIONS and not draining.done()
            draining.cancel()
        died_s = clock()
        assert await new.handle("hangs", shop.pays).result() == "paid 2"
        assert LEASE_S - SOON_S < clock() - died_s < 2 * LEASE_S


@in_virtual_time
async def test_a_drain_takes_at_most_one_record_for_each_workflow_that_it_keeps() -> None:
    shop = Shop()
    async with two_workers(shop.app) as (old, _):
        for number in range(100):
            await old.start(shop.pays.call(f"hangs {number}"), id=f"hangs {number}")
        await until(lambda: len(shop.ran) == 100)
        draining = asyncio.create_task(old.drain(finish_s=FINISH_S))
        await let_pass(10)
        told = [one for one in await events(old, tags.flow_blocked("shop")) if isinstance(one, Leaving)]
        ids = sorted(f"hangs {number}" for number in range(100))
        assert [one.runs for one in told] == [tuple(ids)]
        assert [one.keeps for one in told] == [tuple(sorted({tags.partition_of(id) for id in ids}))]
        shop.may_end.set()
        assert await draining == []
        told = [one for one in await events(old, tags.flow_blocked("shop")) if isinstance(one, Leaving)]
        assert not told[-1].runs and not told[-1].keeps and len(told) <= 1 + len(ids)
        assert all(set(one.runs) <= set(before.runs) for before, one in pairwise(told))


@in_virtual_time
async def test_each_order_is_paid_once_whenever_its_worker_is_drained() -> None:
    """The drain begins at each moment of the life of an order, and nothing of it is done twice or lost: no step was cut off."""
    for after in range(0, 24, 4):
        shop = Shop()
        async with two_workers(shop.app) as (old, new):
            orders = [await old.start(shop.place.call(id), id=id) for id in ("x", "y", "z")]
            signals = [asyncio.create_task(order.signal("approved")) for order in orders]
            for _ in range(after):
                await asyncio.sleep(0)
            assert await old.drain(finish_s=FINISH_S) == []
            await asyncio.gather(*signals)
            assert [await new.handle(order.id).result() for order in orders] == ["paid 1"] * 3, after
            ends = [one for id in "xyz" for one in await events(new, tags.flow_own(id)) if isinstance(one, Ended)]
            assert len(ends) == 3
            claims = [one for id in "xyz" for one in await events(new, tags.flow_own(id)) if isinstance(one, Claimed)]
            assert len(claims) <= 3, "each order moves once at most"


@in_virtual_time
async def test_a_worker_of_an_older_program_is_believed_when_it_gives_up_its_partitions() -> None:
    """It says nothing else: it runs nothing any more."""
    shop = Shop()
    async with two_workers(shop.app) as (old, new):
        held, mine = old._partitions, dict(old._partitions.mine)
        given = tuple(PartitionClaimed("shop", one, "", old.name) for one in mine)
        fences = {tags.flow_partition_owner("shop", one): claim for one, claim in mine.items()}
        old.finishing = True
        await old.log.append(Contribution(tuple(fences), dict(fences), given))
        await until(lambda: len(new._partitions.mine) == tags.PARTITIONS)
        assert new._peers.is_gone(held.who)


class Charges:
    """Charges that run at most once: coroutines that take a second, or plain functions."""

    def __init__(self) -> None:
        self.app = App("shop")
        self.ran: list[str] = []

        @self.app.step(at_most_once=True)
        async def charge(order: str) -> str:
            self.ran.append(order)
            await let_pass(1)
            return order

        @self.app.step(at_most_once=True)
        def bill(order: str) -> str:
            self.ran.append(order)
            return "billed"

        @self.app.workflow
        async def charges(order: str, count: int) -> list[str]:
            await bokiflow.recv("go")
            return [await charge(f"{order}{number}") for number in range(count)]

        @self.app.workflow
        async def charges_beside(order: str, count: int) -> list[str]:
            await bokiflow.recv("go")
            return await asyncio.gather(*(self._twice(f"{order}{number}") for number in range(count)))

        @self.app.workflow
        async def bills(order: str) -> str:
            return await bill.aio(order)

        self.charge, self.bill = charge, bill
        self.charges, self.charges_beside, self.bills = charges, charges_beside, bills

    async def _twice(self, order: str) -> str:
        bokiflow.emit("progress", order)
        return await self.charge(order + "a") + await self.charge(order + "b")


@in_virtual_time
async def test_a_drain_begins_no_step_that_runs_at_most_once() -> None:
    shop = Charges()
    async with two_workers(shop.app) as (old, new):
        handle = await old.start(shop.charges.call("x", 20), id="x")
        await handle.signal("go")
        await until(lambda: len(shop.ran) == 1)
        await let_pass(1.5)
        began_s = clock()
        assert await old.drain() == [] and clock() - began_s < 2 * SOON_S
        assert shop.ran == ["x0", "x1"]
        assert await new.handle("x").result() == [f"x{number}" for number in range(20)]
        assert shop.ran == [f"x{number}" for number in range(20)]
        kinds = [one.kind async for one in new.handle("x").steps()]
        assert kinds.count("begun") == 20 and "withdrawn" not in kinds, "its beginning was not recorded either"


@in_virtual_time
async def test_a_way_that_is_taken_while_a_drain_holds_back_is_taken_again() -> None:
    app, ran = App("shop"), list[str]()
    ends = {"a": asyncio.Event(), "b": asyncio.Event()}

    @app.step
    async def waits(name: str) -> None:
        await ends[name].wait()

    @app.step
    async def goes(way: str) -> str:
        ran.append(way)
        return way

    @app.step(at_most_once=True)
    async def once() -> None:
        ran.append("once")

    @app.workflow
    async def flow() -> str:
        waiting = [asyncio.create_task(waits(name)) for name in ("a", "b")]
        await waiting[0]
        paying = asyncio.create_task(once())
        await asyncio.sleep(0)
        way = "new" if bokiflow.patched("the new way") else "old"
        bokiflow.emit("way", way)
        going = asyncio.create_task(goes(way))
        await waiting[1]
        await paying
        return await going

    async with two_workers(app) as (old, new):
        handle = await old.start(flow.call(), id="x")
        await until(lambda: bool(old._executors["x"].running_steps))
        drained = asyncio.create_task(old.drain(finish_s=FINISH_S))
        await until(lambda: old.finishing)
        for one in ends.values():
            one.set()
            await let_pass(SOON_S)
        await drained
        assert await new.handle("x").result() == "new"
        assert ran == ["once", "new"], "what the new way does was held back"
        assert [way async for way in handle.events("way", follow=False)] == ["new"]
        assert await replay(app, await export(new.log, "x")) == []


@in_virtual_time
async def test_each_charge_runs_once_whenever_its_worker_is_drained() -> None:
    """Also those beside others that run, and those whose beginning is on its way into the log."""
    for after in range(0, 40, 3):
        shop = Charges()
        async with two_workers(shop.app) as (old, new):
            orders = [await old.start(shop.charges.call("x", 3), id="x")]
            orders.append(await old.start(shop.charges_beside.call("y", 3), id="y"))
            signals = [asyncio.create_task(order.signal("go")) for order in orders]
            for _ in range(after):
                await asyncio.sleep(0)
            await let_pass(1 if after % 2 else 0)
            began_s = clock()
            assert await old.drain(finish_s=FINISH_S) == [] and clock() - began_s < 1 + SOON_S
            await asyncio.gather(*signals)
            assert await new.handle("x").result() == ["x0", "x1", "x2"], after
            assert await new.handle("y").result() == ["y0ay0b", "y1ay1b", "y2ay2b"], after
            beside = [f"y{number}{half}" for number in range(3) for half in "ab"]
            assert sorted(shop.ran) == ["x0", "x1", "x2", *beside], after


class Queue:
    """Threads that are all taken: functions wait for one until `free`. keeps: their results never arrive."""

    def __init__(self, *, keeps: bool = False) -> None:
        self.waiting, self.free, self._keeps = 0, asyncio.Event(), keeps

    async def run(self, body: Callable[[], Any], *, name: str = "", begun: Callable[[], None] | None = None) -> Any:
        self.waiting += 1
        await self.free.wait()
        result = body()
        if self._keeps:
            await asyncio.Event().wait()
        return result


@asynccontextmanager
async def threaded(cluster: MemoryCluster, app: App, name: str, bodies: Queue) -> AsyncIterator[Worker]:
    client = await cluster.connect()
    async with Worker(app, client.book("shop"), name=name, bodies=bodies, lease_s=LEASE_S) as worker:
        yield worker


@pytest.mark.parametrize("finish_s", [60, 0])
@in_virtual_time
async def test_a_step_that_waits_for_a_thread_runs_at_the_next_worker_at_most_once(finish_s: float) -> None:
    """Its beginning is in the log, and that it did not begin. When it begins elsewhere, and that worker dies, it is not begun again."""
    for keeps in (False, True):
        shop, full, runs = Charges(), Queue(), Queue(keeps=keeps)
        runs.free.set()
        async with MemoryCluster(clock=LoopClock()) as cluster, threaded(cluster, shop.app, "old", full) as old:
            for number in range(4):
                await old.start(shop.bills.call("x"), id=f"x{number}")
            await until(lambda full=full: full.waiting == 4)  # type: ignore[misc]
            async with threaded(cluster, shop.app, "new", runs):
                began_s = clock()
                assert await old.drain(finish_s=finish_s) == [] and clock() - began_s < SOON_S
                full.free.set()
                await let_pass(1)
                assert len(shop.ran) == 4, "each once, at the next worker"
            runs.free.clear()
            async with working(cluster, shop.app, "third", lease_s=LEASE_S) as third:
                for number in range(4):
                    kinds = [one.kind async for one in third.handle(f"x{number}").steps()]
                    assert kinds[:3] == ["begun", "withdrawn", "withdrawn"], kinds
                    if keeps:
                        with pytest.raises(StepInterrupted):
                            await third.handle(f"x{number}").result()
                    else:
                        assert await third.handle(f"x{number}").result() == "billed"
            assert len(shop.ran) == 4


@in_virtual_time
async def test_a_step_between_two_attempts_is_handed_over_at_once() -> None:
    app, ran = App("shop"), list[str]()

    @app.step(retry=Retry(attempts=100, delay_s=60, most_s=60))
    async def call() -> str:
        ran.append("call")
        if len(ran) < 3:
            raise ConnectionError("down")
        return "called"

    @app.workflow
    async def flow() -> str:
        return await call()

    async with two_workers(app) as (old, new):
        await old.start(flow.call(), id="x")
        await let_pass(1)
        began_s = clock()
        assert await old.drain(finish_s=FINISH_S) == [] and len(ran) == 1
        assert await new.handle("x").result() == "called" and clock() - began_s < 61 + SOON_S


@in_virtual_time
async def test_no_attempt_begins_in_a_partition_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining_module, "NAMED_BYTES", 1)
    shop, ran = Shop(), list[str]()

    @shop.app.step(retry=Retry(attempts=100, delay_s=1, backoff=1.0))
    async def call() -> str:
        ran.append("call")
        raise ConnectionError("down")

    @shop.app.workflow
    async def flow() -> str:
        return await call()

    async with two_workers(shop.app) as (old, _):
        first, beside = [id for id, _ in zip(ids_of(7), range(2), strict=False)]
        await old.start(shop.pays.call("hangs"), id=first)
        await old.start(flow.call(), id=beside)
        await until(lambda: "hangs" in shop.ran and len(ran) > 0)
        began = len(ran)
        assert await old.drain(finish_s=20) == [f"pay of {first}"] and len(ran) == began


@in_virtual_time
async def test_a_kept_workflow_that_another_worker_claims_is_stopped_at_once() -> None:
    """As a worker of an older version claims it, which takes the one that is drained for gone."""
    shop = Shop()
    async with two_workers(shop.app) as (old, new):
        await old.start(shop.pays.call("hangs"), id="hangs")
        await until(lambda: "hangs" in shop.ran)
        began_s = clock()
        draining = asyncio.create_task(old.drain(finish_s=FINISH_S))
        await let_pass(1)
        new._peers._left.add(old.name)
        new._changed()
        assert await new.handle("hangs").result() == "paid 2"
        assert await draining == [] and clock() - began_s < 1 + SOON_S


@in_virtual_time
async def test_all_drains_return_the_same_and_the_shortest_one_counts() -> None:
    shop = Shop()
    async with two_workers(shop.app) as (old, _):
        await old.start(shop.pays.call("hangs"), id="hangs")
        await until(lambda: "hangs" in shop.ran)
        began_s = clock()
        first = asyncio.create_task(old.drain(finish_s=FINISH_S))
        await let_pass(1)
        assert await old.drain(finish_s=10) == await first == ["pay of hangs"]
        assert 11 <= clock() - began_s < 12
        assert await old.drain() == ["pay of hangs"], "also one that is called after the end"


@in_virtual_time
async def test_a_drain_whose_caller_is_cancelled_is_not_left_half_way() -> None:
    shop = Shop()
    async with two_workers(shop.app) as (old, new):
        await old.start(shop.pays.call("hangs"), id="hangs")
        await until(lambda: "hangs" in shop.ran)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await old.drain(finish_s=20)
        assert await new.handle("hangs").result() == "paid 2" and new._peers.is_gone(old.name)


@in_virtual_time
async def test_leaving_a_worker_ends_its_drain_and_tells_what_it_cut_off() -> None:
    shop = Shop()
    async with MemoryCluster(clock=LoopClock()) as cluster:
        async with working(cluster, shop.app, "old", lease_s=LEASE_S) as old:
            await old.start(shop.pays.call("hangs"), id="hangs")
            await until(lambda: "hangs" in shop.ran)
            draining = asyncio.create_task(old.drain(finish_s=FINISH_S))
            await let_pass(1)
        assert await draining == ["pay of hangs"]


@in_virtual_time
async def test_a_worker_that_was_drained_is_not_entered_again() -> None:
    shop = Shop()
    async with two_workers(shop.app) as (old, _):
        await old.drain()
        with pytest.raises(ClosedError, match="make a new Worker"):
            await old.__aenter__()


@in_virtual_time
async def test_a_drain_ends_though_the_cluster_does_not_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shop = Shop()
    async with MemoryCluster(clock=LoopClock()) as cluster, working(cluster, shop.app, "old", lease_s=LEASE_S) as old:
        await old.start(shop.pays.call("hangs"), id="hangs")
        await until(lambda: "hangs" in shop.ran)
        began_s = clock()
        with cluster.losing_answers():
            assert await old.drain(finish_s=2) == ["pay of hangs"] and clock() - began_s < 10
        assert "other workers take them over after a lease" in capsys.readouterr().err


@in_virtual_time
async def test_code_of_a_workflow_cannot_drain_its_worker() -> None:
    shop, workers = Shop(), list[Worker]()

    @shop.app.workflow
    async def drains() -> None:
        await workers[0].drain()

    @shop.app.workflow
    async def leaves() -> None:
        await workers[0].__aexit__(None, None, None)

    async with two_workers(shop.app) as (old, _):
        workers.append(old)
        for workflow in (drains, leaves):
            handle = await old.start(workflow.call(), id=workflow.name)
            with pytest.raises((OnlyInSteps, WorkflowBlocked)):
                await handle.result()
        assert not old.finishing and len(old._partitions.mine) == tags.PARTITIONS
        order = await old.start(shop.pays.call("x"), id="x")
        assert await order.result() == "paid 1"


@in_virtual_time
async def test_no_step_begins_while_a_worker_is_left() -> None:
    """A task of the worker takes a while to end; a timer of a workflow is due meanwhile."""
    shop = Charges()

    @shop.app.workflow
    async def later() -> str:
        await let_pass(2)
        return await shop.charge("later")

    async def ends_slowly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await let_pass(5)

    async with MemoryCluster(clock=LoopClock()) as cluster:
        async with working(cluster, shop.app, "old", lease_s=LEASE_S) as old:
            await old.start(later.call(), id="x")
            old.spawn(ends_slowly)
            await let_pass(1)
        assert shop.ran == []


async def events(worker: Worker, tag: str) -> list[Any]:
    """Return the events of a stream."""
    found: list[Any] = []
    async for item in worker.log.book.read(tag):
        assert not isinstance(item, boki.Gap)
        found += PICKER.of(item.seqnum, await worker.log.open(item))
    return found


@in_virtual_time
async def test_errors_without_a_text_are_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = App("shop")

    @app.workflow
    async def late() -> None:
        async with asyncio.timeout(1):
            await asyncio.Event().wait()

    async def no_answer(*_: Any) -> bool:
        return await asyncio.Event().wait()

    async with (
        MemoryCluster(clock=LoopClock()) as cluster,
        working(cluster, app, "old", lease_s=LEASE_S) as old,
    ):
        with pytest.raises(TimeoutError):
            await (await old.start(late.call(), id="x")).result()
        old._takeover._put_aside("y", AssertionError(), 0)
        monkeypatch.setattr(draining_module, "leave", no_answer)
        await old.drain()
    said = capsys.readouterr().err.splitlines()
    (failed,) = [line for line in said if "workflow failed" in line]
    (blocked,) = [line for line in said if "a workflow is blocked" in line]
    (drained,) = [line for line in said if "other workers take them over after a lease" in line]
    assert " error=TimeoutError " in failed and " error=AssertionError()" in blocked
    assert "no answer within" in drained and "error=" not in drained
