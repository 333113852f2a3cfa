"""Locks among workers on hosts that are killed, paused, cut off and given wrong clocks: by the log, each is held by one."""

from __future__ import annotations

import asyncio

import pytest

import boki.sim
import bokiflow
from boki.testing import virtual_time
from boki_common.errors import BokiError
from bokiflow import App, Flow, Worker
from libs.tests.flow.locks.test_locks import Seats, check_locks

WORKFLOWS = 9
LOCKS = 2
LEASE_S = 3.0


async def work(env: boki.sim.Environment) -> None:
    """A worker, until it is killed."""
    async with await env.connect() as client:
        book = client.book("shop")
        options = {"random": env.random, "bodies": env.bodies}
        async with Worker(Seats().app, book, name=env.name, lease_s=LEASE_S, **options):  # type: ignore[arg-type]
            await asyncio.Event().wait()


async def start(env: boki.sim.Environment) -> list[int]:
    """Starts all of them, again and again until it has all results: their fencing numbers."""
    seats = Seats()
    async with (
        await env.connect() as client,
        Flow(seats.app, client.book("shop"), random=env.random) as flow,
    ):
        while True:
            try:
                calls = [seats.sit.call(f"{number % LOCKS}", number % 4 == 3) for number in range(WORKFLOWS)]
                handles = [await flow.start(call, id=f"x{number}") for number, call in enumerate(calls)]
                return list(await asyncio.gather(*(handle.result() for handle in handles)))
            except BokiError:
                await asyncio.sleep(0.5)


async def killed(cluster: boki.sim.Cluster) -> None:
    hosts = [cluster.host(f"worker-{number}", work) for number in (1, 2, 3)]
    starter = cluster.host("starter", start)
    await cluster.faults_over()
    numbers = await starter.result()
    assert isinstance(numbers, list) and len(set(numbers)) == WORKFLOWS
    async with await cluster.connect() as client:
        taken = await check_locks(client.book("shop"))
    assert sum(taken.values()) == WORKFLOWS
    for host in hosts:
        await host.stop()


@virtual_time(seeds=3)
async def test_who_waits_has_the_lock_of_who_is_killed_within_a_lease_and_a_second(cluster: boki.sim.Cluster) -> None:
    hangs: list[str] = []
    waits = asyncio.Event()

    def app_of(name: str) -> App:
        app = App("seats")

        @app.step
        async def use(what: str) -> str:
            if not hangs:
                hangs.append(name)
                await asyncio.Event().wait()
            return f"inside {what}"

        @app.workflow
        async def sit(name: str) -> int:
            async with bokiflow.lock(name) as number:
                await use(name)
                return number

        return app

    async def works(env: boki.sim.Environment) -> None:
        app, ports = app_of(env.name), {"random": env.random, "bodies": env.bodies}
        async with (
            await env.connect() as client,
            Worker(app, client.book("shop"), name=env.name, lease_s=LEASE_S, **ports),  # type: ignore[arg-type]
        ):
            await asyncio.Event().wait()

    async def starts(env: boki.sim.Environment) -> list[int]:
        app = app_of(env.name)
        async with (
            await env.connect() as client,
            Flow(app, client.book("shop"), random=env.random) as flow,
        ):
            first = await flow.start(app.find("sit").call("a"), id="first")
            while not hangs:
                await asyncio.sleep(0.05)
            second = await flow.start(app.find("sit").call("a"), id="second")
            while "lock asked" not in [done.kind async for done in second.steps()]:
                await asyncio.sleep(0.05)
            waits.set()
            return [await first.result(), await second.result()]

    hosts = {name: cluster.host(name, works) for name in ("worker-1", "worker-2")}
    await cluster.rest(4 * LEASE_S)
    starter = cluster.host("starter", starts)
    await waits.wait()
    await hosts.pop(hangs[0]).stop()
    began_s = asyncio.get_running_loop().time()
    numbers = await starter.result()
    assert isinstance(numbers, list) and numbers == sorted(numbers)
    assert asyncio.get_running_loop().time() - began_s <= LEASE_S + 1
    for host in hosts.values():
        await host.stop()


@virtual_time(seeds=3, faults="harsh", seconds=12)
async def test_workers_that_are_killed_leave_each_lock_to_one(cluster: boki.sim.Cluster) -> None:
    await killed(cluster)


@pytest.mark.nightly
@pytest.mark.timeout(3_000)
@virtual_time(seeds=300, first_seed=100, faults="harsh", seconds=12)
async def test_under_hundreds_of_seeds(cluster: boki.sim.Cluster) -> None:
    await killed(cluster)
