"""Workflows that take their workers down: others end beside them, they are begun again less and less often, and people can end them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Worker
from bokiflow.history import inspection
from bokiflow.model.flow_events import PICKER, AnyFlowEvent, Claimed, Leaving, Waits
from bokiflow.runtime.calls import Step, Workflow
from bokiflow.testing import LoopClock, in_virtual_time
from bokiflow.worker import held_back
from bokiflow_tools.living import living
from bokilib import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokistore import BokiStore, StoreSettings, Transaction
from libs.tests.flow.conftest import Inline, working

LEASE_S = 15.0
RESTART_S = 1.0


def clock() -> float:
    """Return the time of the running loop, in seconds."""
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("lease_s", [1.0, LEASE_S, 60.0])
def test_pauses_double_up_to_a_bound_and_are_spread(lease_s: float) -> None:
    assert held_back.pause_ms("x", 7, 0, lease_s) == 0, "a first time in vain delays nothing"
    for vain in range(1, 40):
        doubled_s = min(lease_s * 2 ** (vain - 1), held_back.MOST_S)
        pauses = [held_back.pause_ms(f"order-{number}", 7, vain, lease_s) / 1_000 for number in range(200)]
        assert lease_s + 0.5 * doubled_s <= min(pauses) < lease_s + 0.6 * doubled_s
        assert lease_s + 1.4 * doubled_s < max(pauses) <= lease_s + 1.5 * doubled_s
    assert held_back.pause_ms("x", 7, 3, lease_s) != held_back.pause_ms("x", 8, 3, lease_s)


def test_what_is_left_of_a_pause_counts_from_the_claim_and_is_bounded_by_it() -> None:
    assert held_back.left_ms(2, 30_000, 1_000, 11_000) == 20_000
    assert held_back.left_ms(2, 30_000, 1_000, 31_000) == held_back.left_ms(2, 30_000, 1_000, 90_000) == 0
    assert held_back.left_ms(2, 30_000, 90_000, 1_000) == 30_000, "the clock of the log was set back"
    assert held_back.left_ms(1, 30_000, 1_000, 1_000) == 0


def test_the_count_is_of_times_in_a_row() -> None:
    assert held_back.begun_in_vain(3, lost=True, progressed=False) == 4
    assert held_back.begun_in_vain(3, lost=True, progressed=True) == 0
    assert held_back.begun_in_vain(3, lost=False, progressed=False) == 3
    assert held_back.begun_in_vain(held_back.MOST_VAIN, lost=True, progressed=False) == held_back.MOST_VAIN


class Shop:
    """Workflows whose step ends its process, and others. `begun`: when each step was, since the loop began."""

    def __init__(self) -> None:
        self.app = App("shop")
        self._loop = asyncio.get_running_loop()
        self.kill = asyncio.Event()
        self.kills = True
        self.begun: dict[str, list[float]] = {}
        self.store: BokiStore | None = None

        @self.app.step
        async def explode(id: str) -> None:
            self._note(id)
            await let_pass(0.05)
            if self.kills:
                self.kill.set()
                await asyncio.Event().wait()

        @self.app.step
        async def slow(id: str, seconds: float) -> float:
            self._note(id)
            await let_pass(seconds)
            return seconds

        @self.app.workflow
        async def killer() -> bokiflow.Json:
            await explode(bokiflow.workflow_id())
            return await bokiflow.recv("go")

        @self.app.workflow
        async def healthy(seconds: float) -> float:
            return await slow(bokiflow.workflow_id(), seconds)

        @self.app.workflow
        async def in_two(seconds: float) -> float:
            id = bokiflow.workflow_id()
            return await slow(id, seconds) + await slow(id, seconds)

        @self.app.workflow
        async def sleeper() -> str:
            self._note(bokiflow.workflow_id())
            await bokiflow.recv("go")
            return "woke"

        self.killer, self.healthy, self.in_two, self.sleeper = killer, healthy, in_two, sleeper
        self.killers: dict[str, Workflow[[], Any]] = {"killer": killer, **self._careful_killers(explode, killer)}

    def _careful_killers(self, explode: Step[[str], None], killer: Workflow[[], Any]) -> dict[str, Workflow[[], Any]]:
        """Return workflows that run the killing step at most once, or in a child of a transaction."""

        @self.app.step(at_most_once=True)
        async def explode_once(id: str) -> None:
            await explode.function(id)

        @self.app.workflow
        async def again_by_hand() -> None:
            while True:
                try:
                    return await explode_once(bokiflow.workflow_id())
                except bokiflow.StepInterrupted:
                    await let_pass(0.1)

        @self.app.step
        async def look(id: str) -> str:
            return id

        @self.app.workflow
        async def looks_between() -> None:
            while True:
                try:
                    return await explode_once(bokiflow.workflow_id())
                except bokiflow.StepInterrupted:
                    await look(bokiflow.workflow_id())

        async def calls_the_killer(tx: Transaction) -> None:
            tx["x"].inc("n")
            await killer()

        @self.app.workflow
        async def in_transaction() -> None:
            assert self.store is not None
            await bokiflow.transact(self.store, calls_the_killer)

        return {
            "by_hand": again_by_hand,
            "looks_between": looks_between,
            "in_transaction": in_transaction,
        }

    def _note(self, id: str) -> None:
        self.begun.setdefault(id, []).append(self._loop.time())

    async def begins(self, id: str, times: int) -> None:
        """Wait until a step of a workflow has been begun so many times."""
        await comes(lambda: len(self.begun.get(id, ())) >= times)


class Fleet:
    """One worker after the other under one name: each ends without a word when the shop says so, the next begins a second later.

    Attributes:
        worker: the one that is there; None: none. deaths: when they were.
    """

    def __init__(self, cluster: MemoryCluster, shop: Shop) -> None:
        self._cluster, self._shop = cluster, shop
        self.worker: Worker | None = None
        self.deaths: list[float] = []

    async def run(self) -> None:
        while True:
            self._shop.kill.clear()
            log = Log((await self._cluster.connect()).book("shop"))
            self._shop.store = BokiStore(log, settings=StoreSettings(checkpoints=False))
            async with Worker(self._shop.app, log, name="w", bodies=Inline(), lease_s=LEASE_S) as self.worker:
                await self._shop.kill.wait()
            self.worker = None
            self.deaths.append(clock())
            await let_pass(RESTART_S)

    async def there(self) -> Worker:
        """Wait for a worker."""
        await comes(lambda: self.worker is not None)
        assert self.worker is not None
        return self.worker

    async def died(self, times: int) -> None:
        """Wait until so many workers have ended."""
        await comes(lambda: len(self.deaths) == times)


@asynccontextmanager
async def fleet_of(shop: Shop) -> AsyncIterator[tuple[Fleet, bokiflow.Flow]]:
    """Yield a running fleet, and the workflows of its book from outside."""
    async with (
        MemoryCluster(clock=LoopClock()) as cluster,
        bokiflow.Flow(shop.app, (await cluster.connect()).book("shop")) as outside,
    ):
        fleet = Fleet(cluster, shop)
        running = asyncio.create_task(fleet.run())
        try:
            yield fleet, outside
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def events_of(flow: bokiflow.Flow, tag: str) -> list[AnyFlowEvent]:
    """Return the events of a stream."""
    found: list[AnyFlowEvent] = []
    async for item in flow.log.book.read(tag):
        assert isinstance(item, boki.Record)
        found += PICKER.of(item.seqnum, await flow.log.open(item))
    return found


async def claims(flow: bokiflow.Flow, id: str) -> list[Claimed]:
    """Return the claims of a workflow."""
    return [one for one in await events_of(flow, tags.flow_own(id)) if isinstance(one, Claimed)]


async def comes(condition: Callable[[], bool]) -> None:
    """Let time pass until something holds."""
    for _ in range(100_000):
        if condition():
            return
        await let_pass(0.01)
    raise AssertionError("it never came to that")


def holds(worker: Worker | None, id: str) -> bool:
    """Return True if a worker holds a workflow back."""
    return worker is not None and id in worker._takeover._held_back


@pytest.mark.parametrize("kind", ["killer", "by_hand", "looks_between", "in_transaction"])
@in_virtual_time
async def test_others_end_beside_a_workflow_that_ends_each_worker(kind: str) -> None:
    """Also where each worker records something: that a step begins, a timer, a step that looks, a child of a transaction's attempt."""
    shop = Shop()
    async with fleet_of(shop) as (fleet, outside):
        killer = await outside.start(shop.killers[kind].call(), id="k")
        healthy = [await outside.start(shop.healthy.call(1.5), id=f"h{number}") for number in range(5)]
        began_s = clock()
        async with asyncio.timeout(8 * LEASE_S):
            assert await asyncio.gather(*(one.result() for one in healthy)) == [1.5] * 5
        await let_pass(began_s + 600 - clock())
        assert len(fleet.deaths) <= (40 if kind == "in_transaction" else 8), (
            "each part of a transaction has its own count"
        )
        assert await killer.status() == "running"
        found = [one.vain for one in await claims(outside, "k")]
        assert found == list(range(len(found)))


@in_virtual_time
async def test_a_workflow_whose_worker_was_lost_once_is_begun_again_at_once() -> None:
    shop = Shop()
    async with fleet_of(shop) as (fleet, outside):
        handle = await outside.start(shop.healthy.call(5.0), id="x")
        await shop.begins("x", 1)
        shop.kill.set()
        await shop.begins("x", 2)
        assert clock() - fleet.deaths[0] < RESTART_S + 0.1
        assert await handle.result() == 5.0 and [one.vain for one in await claims(outside, "x")] == [0, 1]


@in_virtual_time
async def test_what_recorded_something_is_begun_at_once_however_often_workers_are_lost() -> None:
    shop = Shop()
    async with fleet_of(shop) as (fleet, outside):
        handle = await outside.start(shop.in_two.call(3.0), id="x")
        await shop.begins("x", 2)  # the first step is in the log
        for times in (3, 4):
            shop.kill.set()
            await shop.begins("x", times)
            assert clock() - fleet.deaths[-1] < RESTART_S + 0.1
        assert await handle.result() == 6.0 and [one.vain for one in await claims(outside, "x")] == [0, 1, 1]


@in_virtual_time
async def test_what_was_drained_is_never_held_back() -> None:
    shop = Shop()
    async with (
        MemoryCluster(clock=LoopClock()) as cluster,
        bokiflow.Flow(shop.app, (await cluster.connect()).book("shop")) as outside,
    ):
        handle = await outside.start(shop.healthy.call(5.0), id="x")
        for times in range(1, 8):
            async with working(cluster, shop.app, lease_s=LEASE_S) as worker:
                began_s = clock()
                await shop.begins("x", times)
                assert clock() - began_s < 0.1
                await worker.drain(finish_s=0)
        async with working(cluster, shop.app, lease_s=LEASE_S):
            assert await handle.result() == 5.0
        assert {one.vain for one in await claims(outside, "x")} == {0}


@in_virtual_time
async def test_a_worker_learns_late_that_another_one_was_drained() -> None:
    """What it held back until then it begins at once."""
    shop = Shop()
    async with fleet_of(shop) as (fleet, outside):
        await outside.start(shop.healthy.call(1.0), id="x")
        for times in (1, 2):
            await shop.begins("x", times)
            shop.kill.set()
            await fleet.died(times)
        worker = await fleet.there()
        await comes(lambda: holds(worker, "x"))
        told = Leaving("shop", worker._takeover.others["x"])
        await outside.log.append(Contribution((tags.flow_blocked("shop"),), {}, (told,)))
        began_s = clock()
        await shop.begins("x", 3)
        assert clock() - began_s < 0.1 and (await claims(outside, "x"))[-1].vain == 1


@in_virtual_time
async def test_what_waits_is_held_back_once_at_most() -> None:
    shop = Shop()
    async with fleet_of(shop) as (fleet, outside):
        handle = await outside.start(shop.sleeper.call(), id="x")
        for times in range(1, 10):
            await shop.begins("x", times)
            assert clock() - (fleet.deaths[-1] if fleet.deaths else clock()) < 3 * LEASE_S
            await let_pass(1.0)
            shop.kill.set()
            await fleet.died(times)
        await fleet.there()
        await handle.signal("go")
        assert await handle.result() == "woke"
        assert [one.vain for one in await claims(outside, "x")] == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
        told = [one for one in await events_of(outside, tags.flow_history("x")) if isinstance(one, Waits)]
        assert len(told) == 3


async def twice_in_vain(fleet: Fleet, shop: Shop, outside: bokiflow.Flow) -> bokiflow.Handle[bokiflow.Json]:
    """Start a workflow that ends its process; return when a worker holds it back."""
    handle = await outside.start(shop.killer.call(), id="k")
    await comes(lambda: holds(fleet.worker, "k"))
    assert len(fleet.deaths) == 2
    return handle


@in_virtual_time
async def test_cancelling_ends_what_is_held_back_at_once() -> None:
    shop = Shop()
    async with fleet_of(shop) as (fleet, outside):
        handle = await twice_in_vain(fleet, shop, outside)
        began_s = clock()
        await handle.cancel("it ends its process")
        with pytest.raises(bokiflow.WorkflowCancelled):
            await handle.result()
        assert clock() - began_s < 0.1 and len(shop.begun["k"]) == 2, "its step was not begun again"


@in_virtual_time
async def test_what_is_cancelled_while_no_worker_is_there_is_not_held_back() -> None:
    shop = Shop()
    async with fleet_of(shop) as (fleet, outside):
        handle = await outside.start(shop.killer.call(), id="k")
        await fleet.died(2)
        await handle.cancel("it ends its process")
        began_s = clock()
        with pytest.raises(bokiflow.WorkflowCancelled):
            await handle.result()
        assert clock() - began_s < RESTART_S + 0.1


@in_virtual_time
async def test_resuming_begins_what_is_held_back_at_once_with_a_new_count() -> None:
    shop = Shop()
    async with fleet_of(shop) as (fleet, outside):
        handle = await twice_in_vain(fleet, shop, outside)
        await handle.signal("go", 7)
        shop.kills = False
        began_s = clock()
        await handle.resume()
        assert await handle.result() == 7, "what was sent while it was held back is not lost"
        assert clock() - began_s < 0.1 and (await claims(outside, "k"))[-1].vain == 0


@in_virtual_time
async def test_people_are_told_until_when_it_is_held_back_and_why() -> None:
    shop = Shop()
    async with fleet_of(shop) as (fleet, outside):
        await twice_in_vain(fleet, shop, outside)
        state = await inspection.newest(outside.log, "k")
        assert state is not None
        seen = (await living(outside.log, "shop"))._replace(now_ms=LoopClock().now_ms())
        until_ms = state.time_ms + state.pause_ms
        assert seen.facts(state)["held_back_until_ms"] == until_ms
        at = datetime.fromtimestamp(until_ms / 1_000, UTC)
        assert seen.text(state) == (
            f"held back until about {at:%H:%M:%S}Z: its process ended or stood still 2 times in a row while it ran; "
            "if a step of it does that, `boki flow cancel k` ends it"
        )
        shop.kills = False
        await shop.begins("k", 3)
        state = await inspection.newest(outside.log, "k")
        assert state is not None and state.pause_ms
        seen = (await living(outside.log, "shop"))._replace(now_ms=LoopClock().now_ms())
        assert seen.text(state) == "" and seen.facts(state)["held_back_until_ms"] is None, "it runs"


@in_virtual_time
async def test_what_is_held_back_ends_by_itself_once_its_code_is_mended() -> None:
    shop = Shop()
    async with fleet_of(shop) as (fleet, outside):
        handle = await twice_in_vain(fleet, shop, outside)
        state = await inspection.newest(outside.log, "k")
        assert state is not None and state.pause_ms
        shop.kills = False
        await handle.signal("go", 7)
        assert await handle.result() == 7
        late_ms = LoopClock().now_ms() - (state.time_ms + state.pause_ms)
        assert 0 <= late_ms < 100, "as its claim says"


@in_virtual_time
async def test_a_partition_that_moves_takes_what_is_held_back_with_it() -> None:
    """Its new owner holds it back for what is left of the pause, and the old one no more."""
    shop = Shop()
    async with fleet_of(shop) as (fleet, outside):
        await twice_in_vain(fleet, shop, outside)
        old = await fleet.there()
        state = await inspection.newest(outside.log, "k")
        assert state is not None
        shop.kills = False
        async with working(fleet._cluster, shop.app, "other", lease_s=LEASE_S) as new:
            await old.drain()
            await comes(lambda: holds(new, "k"))
            assert not old._takeover._held_back
            await shop.begins("k", 3)
            late_ms = LoopClock().now_ms() - (state.time_ms + state.pause_ms)
            assert -1 <= late_ms < 100 and (await claims(outside, "k"))[-1].owner == new.name


@in_virtual_time
async def test_a_worker_that_stood_still_is_lost_and_what_ended_meanwhile_counts() -> None:
    """It blocks its event loop for longer than the lease, as `time.sleep` in a step does: others see no heartbeat of it."""
    shop = Shop()
    async with (
        MemoryCluster(clock=LoopClock()) as cluster,
        bokiflow.Flow(shop.app, (await cluster.connect()).book("shop")) as outside,
        working(cluster, shop.app, "one", lease_s=LEASE_S) as one,
        working(cluster, shop.app, "two", lease_s=LEASE_S) as two,
    ):
        handle = await outside.start(shop.healthy.call(4 * LEASE_S), id="x")
        await shop.begins("x", 1)
        one.finishing = True  # it claims nothing while it stands still
        _, beating = one._peers._members._tasks
        beating.cancel()
        await comes(lambda: "x" in two._executors)
        assert [claim.vain for claim in await claims(outside, "x")] == [0, 1]
        await comes(lambda: "x" not in one._executors)
        assert await handle.result() == 4 * LEASE_S
