"""Graceful stop: what a worker that is drained gives up at once, what it keeps, for how long, and what other workers see of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count, pairwise
from typing import Any

import boki
import bokiflow
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Worker
from bokiflow.flow_events import PICKER, Claimed, Ended, Leaving, PartitionClaimed, Stepped
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib import tags
from bokilib.contribution import Contribution
from libs.tests.flow.conftest import until, working

LEASE_S = 15.0
FINISH_S = 600.0
"""Far beyond any lease: what waits for a lease, or for the end of the drain, is told apart."""
SOON_S = 1.0


def clock() -> float:
    """Return the time of the running loop, in seconds."""
    return asyncio.get_running_loop().time()


def ids_of(partition: int, *, elsewhere: bool = False) -> Iterator[str]:
    """Yield ids of workflows of one partition, or of all others."""
    return (id for id in map(str, count()) if (tags.partition_of(id) == partition) is not elsewhere)


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

        self.place, self.pays = place, pays

    async def _hang(self) -> None:
        while True:
            try:
                await self.may_end.wait()
                return
            except asyncio.CancelledError:
                if not self.swallows:
                    raise


@in_virtual_time
async def test_one_hanging_step_delays_no_order_of_other_partitions_and_no_new_one() -> None:
    shop = Shop()
    async with two_workers(shop.app) as (old, new):
        hangs = await old.start(shop.pays.call("hangs"), id="hangs")
        partition = tags.partition_of("hangs")
        others = ids_of(partition, elsewhere=True)
        orders = [await old.start(shop.place.call(id), id=id) for id in (next(others) for _ in range(20))]
        await until(lambda: "hangs" in shop.ran)
        began_s = clock()
        draining = asyncio.create_task(old.drain(finish_s=FINISH_S))
        for order in orders:
            await order.signal("approved")
            assert await new.handle(order.id, shop.place).result() == "paid 1"
        fresh = [next(ids_of(partition)), *(f"fresh {number}" for number in range(20))]
        for id in fresh:
            started = await new.start(shop.pays.call(id), id=id)
            assert await started.result() == "paid 1"
        assert clock() - began_s < SOON_S and not draining.done()
        shop.may_end.set()
        assert await draining == [] and await new.handle("hangs", shop.pays).result() == "paid 1"
        assert shop.ran.count("hangs") == 1, "its outcome was recorded by the worker that was drained"
        assert hangs.id == "hangs" and clock() - began_s < 2 * SOON_S


@in_virtual_time
async def test_a_kept_partition_is_given_up_as_soon_as_its_last_body_has_ended() -> None:
    """Two partitions have a running step. That of the first ends; its other workflows go on elsewhere while the second hangs."""
    shop = Shop()
    async with two_workers(shop.app) as (old, new):
        first, beside = [id for id, _ in zip(ids_of(tags.partition_of("0")), range(2), strict=False)]
        ends = asyncio.Event()

        @shop.app.step
        async def ends_first() -> str:
            await ends.wait()
            return "first"

        @shop.app.workflow
        async def waits() -> str:
            return await ends_first()

        await old.start(shop.pays.call("hangs"), id="hangs")
        await old.start(waits.call(), id=first)
        order = await old.start(shop.place.call("beside"), id=beside)
        assert tags.partition_of("hangs") != tags.partition_of(first)
        await until(lambda: "hangs" in shop.ran)
        draining = asyncio.create_task(old.drain(finish_s=FINISH_S))
        await let_pass(60)
        await order.signal("approved")
        await let_pass(60)
        assert "beside" not in shop.ran, "it is of a kept partition: it begins no step here, and runs nowhere else"
        ended_s = clock()
        ends.set()
        assert await new.handle(beside, shop.place).result() == "paid 1"
        assert await new.handle(first, waits).result() == "first"
        assert clock() - ended_s < SOON_S and not draining.done()
        shop.may_end.set()
        assert await draining == []


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
        assert clock() - began_s < SOON_S and new._peers.over(old.name)


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
            await old._partitions.look()
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
async def test_a_drain_of_many_partitions_takes_one_record_for_each_that_it_keeps_at_most() -> None:
    shop = Shop()
    async with two_workers(shop.app) as (old, _):
        for number in range(100):
            await old.start(shop.pays.call(f"hangs {number}"), id=f"hangs {number}")
        await until(lambda: len(shop.ran) == 100)
        draining = asyncio.create_task(old.drain(finish_s=FINISH_S))
        await let_pass(10)
        told = [one for one in await events(old, tags.flow_blocked("shop")) if isinstance(one, Leaving)]
        kept = tuple(sorted({tags.partition_of(f"hangs {number}") for number in range(100)}))
        assert [one.keeps for one in told] == [kept]
        shop.may_end.set()
        assert await draining == []
        told = [one for one in await events(old, tags.flow_blocked("shop")) if isinstance(one, Leaving)]
        assert told[-1].keeps == () and len(told) <= 1 + len(kept)
        assert all(set(one.keeps) <= set(before.keeps) for before, one in pairwise(told))


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
        assert new._peers.over(held.worker)


async def events(worker: Worker, tag: str) -> list[Any]:
    """Return the events of a stream."""
    found: list[Any] = []
    async for item in worker.log.book.read(tag):
        assert not isinstance(item, boki.Gap)
        found += PICKER.of(item.seqnum, await worker.log.open(item))
    return found
