"""Locks among workers on hosts that are killed, paused, cut off and given wrong clocks: by the log alone, each is held by one."""

from __future__ import annotations

import asyncio

import pytest

import boki.sim
from boki.testing import virtual_time
from boki_common.errors import BokiError
from bokiflow import Flow, Worker
from libs.tests.flow.test_locks import Seats, check_locks

WORKFLOWS = 9
LOCKS = 2


async def work(env: boki.sim.Environment) -> None:
    """A worker, until it is killed."""
    async with await env.connect() as client:
        book = client.book("shop")
        options = {"clock": env.clock, "random": env.random, "bodies": env.bodies}
        async with Worker(Seats().app, book, name=env.name, lease_s=3.0, **options):  # type: ignore[arg-type]
            await asyncio.Event().wait()


async def start(env: boki.sim.Environment) -> list[int]:
    """Starts all of them, again and again until it has all results: their fencing numbers."""
    seats = Seats()
    async with (
        await env.connect() as client,
        Flow(seats.app, client.book("shop"), clock=env.clock, random=env.random) as flow,
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


@virtual_time(seeds=3, faults="harsh", seconds=12)
async def test_workers_that_are_killed_leave_each_lock_to_one(cluster: boki.sim.Cluster) -> None:
    await killed(cluster)


@pytest.mark.nightly
@pytest.mark.timeout(3_000)
@virtual_time(seeds=300, first_seed=100, faults="harsh", seconds=12)
async def test_under_hundreds_of_seeds(cluster: boki.sim.Cluster) -> None:
    await killed(cluster)
