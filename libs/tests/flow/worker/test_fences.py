"""What runs here and is claimed by somebody else is dropped at once, though it waits in a body and appends nothing."""

from __future__ import annotations

import asyncio

from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow import App
from bokiflow.model.flow_events import Claimed
from bokiflow.testing import LoopClock, in_virtual_time
from bokiflow.worker.fences import FenceWatch
from bokilib.append.log import Log
from bokilib.follow.follower import Follower
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from libs.tests.conftest import unexpected
from libs.tests.flow.conftest import until, working


class Shop:
    """A workflow whose step waits until `released` is set."""

    def __init__(self) -> None:
        self.app = App("shop")
        self.began, self.released, self.stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @self.app.step
        async def wait() -> str:
            self.began.set()
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.stopped.set()
                raise
            return "done"

        @self.app.workflow
        async def patient() -> str:
            return await wait()

        self.patient = patient


async def test_who_takes_over_ends_a_body_that_waits_elsewhere(cluster: MemoryCluster) -> None:
    first, second = Shop(), Shop()
    async with working(cluster, first.app) as worker:
        handle = await worker.start(first.patient.call(), id="x")
        await first.began.wait()
        async with working(cluster, second.app) as other:
            await first.stopped.wait()
            await until(lambda: "x" not in worker._executors)
            await second.began.wait()
            second.released.set()
            assert await handle.result() == "done", "whoever waits for it gets the end from whoever ends it"
            assert await other.handle("x").status() == "completed"
    assert not first.released.is_set()


async def claim(log: Log, owner: str) -> int:
    return await log.append(Contribution((tags.flow_own("x"),), {}, (Claimed("x", owner),)))


async def test_own_claims_are_passed_and_those_of_others_are_reported_until_left(log: Log) -> None:
    taken: list[str] = []
    async with Follower(log, unexpected) as follower:
        fences = FenceWatch(log, follower, "me", taken.append)
        fences.watch("x", await claim(log, "me"))
        fences.watch("x", 1)
        await claim(log, "me")
        seen = await claim(log, "you")
        await until(lambda: follower.position >= seen)
        await until(lambda: taken == ["x"])
        fences.discard("x")
        fences.discard("x")
        assert tags.flow_own("x") not in follower
        await fences.close()


async def test_where_claims_are_trimmed_the_newest_record_has_the_owner(log: Log) -> None:
    taken: list[str] = []
    first = await claim(log, "me")
    await claim(log, "you")
    mine = await claim(log, "me")
    await log.book.trim([(tags.flow_own("x"), mine)])
    async with Follower(log, unexpected) as follower:
        fences = FenceWatch(log, follower, "me", taken.append)
        fences.watch("x", first)
        await until(lambda: follower.position >= mine)
        await until(lambda: not fences._tasks)
        assert taken == []
        yours = await claim(log, "you")
        await log.book.trim([(tags.flow_own("x"), yours)])
        await until(lambda: taken == ["x"])
        await fences.close()


@in_virtual_time
async def test_what_a_worker_put_down_of_anothers_partition_it_takes_up_again() -> None:
    """Who owns the partition waits for its claim to be nobody's, and it is alive: nobody else would run it for ever."""
    first, second = Shop(), Shop()
    async with MemoryCluster(clock=LoopClock()) as cluster, working(cluster, first.app, name="a") as worker:
        handles = [await worker.start(first.patient.call(), id=f"x{number}") for number in range(40)]
        async with working(cluster, second.app, name="b") as other:
            while len(other._partitions.mine) < 20:
                await let_pass(1)
            put_down = [id for id in worker._executors if not worker.is_mine(id)]
            assert put_down
            for id in put_down:
                worker._executors[id].park()
            first.released.set()
            assert [await handle.result() for handle in handles] == ["done"] * len(handles)
            assert not second.began.is_set()
