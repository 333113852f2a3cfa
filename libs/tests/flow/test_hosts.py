"""Workers on hosts that are killed, paused, cut off and given wrong clocks: what was started ends once, with the right result."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import boki
import boki.sim
from boki.testing import virtual_time
from boki_common.errors import BokiError
from bokiflow import Call, Flow, Worker
from bokiflow.model.flow_events import PICKER, Claimed, Ended, Stepped
from bokilib.append.log import Log
from libs.tests.flow.shop import Shop

DAY_S = 86_400
WORKFLOWS = 6


def call(shop: Shop, number: int) -> tuple[Call[Any], Any]:
    """What is started, and what it gives."""
    calls: list[tuple[Call[Any], Any]] = [
        (shop.steps.call(3), 3),
        (shop.at_once.call(2), [1, 2, 4]),
        (shop.parent.call(2), 1),
        (shop.patient.call(1.5), "late 2"),
        (shop.compensate.call("no"), "no: 2"),
        (shop.wait.call(1), ["now"]),
    ]
    return calls[number % len(calls)]


class _Zeros:
    """An incarnation that writes nothing."""

    def token(self, size: int) -> bytes:
        return bytes(size)


async def work(env: boki.sim.Environment) -> None:
    """A worker, until it is killed."""
    async with await env.connect() as client:
        shop = Shop()
        book = client.book("shop")
        options = {"random": env.random, "bodies": env.bodies}
        async with Worker(shop.app, book, name=env.name, lease_s=3.0, **options):  # type: ignore[arg-type]
            await asyncio.Event().wait()


async def start(env: boki.sim.Environment) -> list[object]:
    """Starts all of them, again and again until it has all results."""
    shop = Shop()
    async with await env.connect() as client:
        flow = Flow(shop.app, client.book("shop"), random=env.random)
        async with flow:
            while True:
                try:
                    handles = [await flow.start(call(shop, number)[0], id=f"x{number}") for number in range(WORKFLOWS)]
                    for number in range(5, WORKFLOWS, 6):
                        await handles[number].signal("go", "now")
                    return list(await asyncio.gather(*(handle.result() for handle in handles)))
                except BokiError:
                    await asyncio.sleep(0.5)


async def check(cluster: boki.sim.Cluster, found: object) -> int:
    """All ended, once; returns how often one was taken over."""
    assert found == [call(Shop(), number)[1] for number in range(WORKFLOWS)]
    ends: dict[str, int] = {}
    steps: dict[tuple[str, str], int] = {}
    claims = 0
    async with await cluster.connect() as client:
        book = client.book("shop")
        log = Log(book, random=_Zeros())
        async for item in book.read(consistency="linearizable"):
            if isinstance(item, boki.Gap):
                continue
            for event in PICKER.of(item.seqnum, await log.open(item)):
                claims += isinstance(event, Claimed)
                if isinstance(event, Ended):
                    ends[event.id] = ends.get(event.id, 0) + 1
                elif isinstance(event, Stepped):
                    steps[event.id, event.key] = steps.get((event.id, event.key), 0) + 1
    assert len(ends) >= WORKFLOWS and set(ends.values()) == {1} and set(steps.values()) == {1}
    return claims


async def killed(cluster: boki.sim.Cluster) -> None:
    """Three workers, and one who starts; everything that can happen to hosts happens to all."""
    hosts = [cluster.host(f"worker-{number}", work) for number in (1, 2, 3)]
    starter = cluster.host("starter", start)
    await cluster.faults_over()
    found = await starter.result()
    await check(cluster, found)
    for host in hosts:
        await host.stop()


@virtual_time(seeds=4, faults="harsh", seconds=12)
async def test_workers_that_are_killed_finish_each_workflow_once(cluster: boki.sim.Cluster) -> None:
    await killed(cluster)


@pytest.mark.nightly
@pytest.mark.timeout(3_000)
@virtual_time(seeds=1_000, first_seed=100, faults="harsh", seconds=12)
async def test_under_a_thousand_seeds(cluster: boki.sim.Cluster) -> None:
    await killed(cluster)


@virtual_time()
async def test_who_is_killed_is_taken_over_within_a_lease_and_two_seconds(cluster: boki.sim.Cluster) -> None:
    hosts = [cluster.host(f"worker-{number}", work) for number in (1, 2)]
    await asyncio.sleep(10)
    starter = cluster.host("starter", start)
    await starter.result()

    async def another(env: boki.sim.Environment) -> object:
        shop = Shop()
        async with (
            await env.connect() as client,
            Flow(shop.app, client.book("shop"), random=env.random) as flow,
        ):
            handles = [await flow.start(shop.sleep.call(5), id=f"s{number}") for number in range(50)]
            began = env.clock.elapsed_s()
            await asyncio.gather(*(handle.result() for handle in handles))
            return env.clock.elapsed_s() - began

    sleeping = cluster.host("another", another)
    await asyncio.sleep(1)
    await hosts[0].stop()
    took = await sleeping.result()
    assert isinstance(took, float) and took < 5 + 3 + 2
    await hosts[1].stop()


@virtual_time()
async def test_a_sleep_of_a_day_survives_its_worker(cluster: boki.sim.Cluster) -> None:
    async def starter(env: boki.sim.Environment) -> object:
        shop = Shop()
        async with (
            await env.connect() as client,
            Flow(shop.app, client.book("shop"), random=env.random) as flow,
        ):
            return await (await flow.start(shop.sleep.call(DAY_S), id="x")).result()

    host = cluster.host("worker-1", work)
    sleeping = cluster.host("starter", starter)
    await asyncio.sleep(5)
    await host.stop()
    other = cluster.host("worker-2", work)
    await cluster.rest(DAY_S + 60)
    slept = await sleeping.result()
    assert isinstance(slept, int) and DAY_S * 1_000 <= slept <= (DAY_S + 61) * 1_000
    await other.stop()
