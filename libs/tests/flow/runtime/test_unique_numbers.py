"""Unique numbers under deploys: a system that was given one has to get the same one when its step is done again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import xxhash

import bokiflow
from boki.testing import MemoryCluster
from bokiflow import App, Handle
from bokiflow.client.replayer import export, replay
from bokiflow.history import inspection
from bokiflow.model.flow_events import OWN_UNIQUES, Claimed, Patched, Started, Stepped
from bokiflow.model.outcomes import Outcome, digest
from bokiflow.model.records import InstanceStreams, claim, start
from bokiflow.runtime.instance import Instance
from bokiflow.worker.takeover import record_blocked
from bokilib.append.log import Log
from libs.tests.flow.conftest import on_outer_loop, until, working
from libs.tests.flow.runtime.test_instance import delivered


class Bank:
    """A bank that notes the keys of payments.

    Attributes:
        keys: the key of each payment, in order.
        answers: the number of answers that it gives; further payments wait.
    """

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.answers = asyncio.Semaphore(0)

    def app(self, *, patch: bool = False) -> App:
        """Return the program, or the next one, which has another step before each payment."""
        app = App("shop")

        @app.step
        async def check() -> bool:
            return True

        @app.step
        async def charge(key: str) -> str:
            self.keys.append(key)
            await self.answers.acquire()
            return key

        @app.workflow
        async def order() -> list[str]:
            paid = []
            for number in range(2):
                if patch and bokiflow.patched(f"check {number}"):
                    await check()
                paid.append(await charge(bokiflow.unique()))
            return paid

        return app


def older(at_ms: int, key: str) -> str:
    """Return the number that programs gave that counted all calls together."""
    return xxhash.xxh3_128_hexdigest(f"x/{at_ms}/{key}".encode())


async def begun(cluster: MemoryCluster, bank: Bank, way: str, number: int) -> None:
    """Run the workflow of the first program until a payment is under way, and stop the worker."""
    app = bank.app()
    async with working(cluster, app) as worker:
        await worker.start(app.find("order").call(), id="x")
        await until(lambda: len(bank.keys) == number)
        executor = worker._executors["x"]
        if way == "after a checkpoint":
            assert await executor.checkpoint()
        elif way == "after it was blocked":
            await record_blocked(worker.log, InstanceStreams("x", "shop"), OSError("no disk"), executor.claim)
        elif way == "drained":
            await worker.drain(finish_s=0)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("way", ["stopped", "drained", "after a checkpoint", "after it was blocked"])
async def test_a_step_that_a_patch_puts_before_a_payment_does_not_change_its_key(
    cluster: MemoryCluster, way: str, number: int
) -> None:
    bank = Bank()
    for _ in range(number - 1):
        bank.answers.release()
    await begun(cluster, bank, way, number)
    app = bank.app(patch=True)
    async with working(cluster, app) as worker:
        handle: Handle[Any] = worker.handle("x", app.find("order"))
        await handle.resume()
        await until(lambda: len(bank.keys) == number + 1)
        assert worker._executors["x"].instance.own_uniques, "each claim repeats it"
        bank.answers.release()
        bank.answers.release()
        paid = await handle.result()
        assert len(set(paid)) == 2 and set(bank.keys) == set(paid)
        patches = [one.kind async for one in handle.steps()].count("patch")
        assert patches == 1, "what it came to for the first time is the new way"
        assert await replay(app, await export(worker.log, "x")) == []


async def test_what_an_older_program_began_keeps_the_keys_that_it_gave(cluster: MemoryCluster) -> None:
    bank = Bank()
    app = bank.app()
    for _ in range(2):
        bank.answers.release()
    log = Log((await cluster.connect()).book("shop"))
    await log.append(start(Started("x", app.find("order").name, digest([[], {}]), [[], {}], 5, group="shop"), 0))
    async with working(cluster, app) as worker:
        handle = worker.handle("x", app.find("order"))
        assert await handle.result() == bank.keys == [older(5, "0:1"), older(5, "0:3")]
        assert await replay(app, await export(worker.log, "x")) == []
        assert [one.kind async for one in handle.steps()] == ["step", "step", "end"]


async def test_keys_stay_those_of_an_older_program_that_ran_it_in_between(cluster: MemoryCluster) -> None:
    bank = Bank()
    app = bank.app()
    log = Log((await cluster.connect()).book("shop"))
    begins = Started("x", app.find("order").name, digest([[], {}]), [[], {}], 5, group="shop", own_uniques=True)
    seqnum = await log.append(start(begins, 0))
    place = InstanceStreams("x", "shop")
    older_claim = Claimed("x", "older", 0, seqnum, begins.name, begins.digest, "shop")
    seqnum = await log.append(claim(place, older_claim, seqnum, None))
    await log.append(claim(place, Claimed("x", "", 0, seqnum, begins.name, begins.digest, "shop"), seqnum, None))
    async with working(cluster, app) as worker:
        await until(lambda: len(bank.keys) == 1)
        assert bank.keys == [older(5, "0:1")]
        for _ in range(2):
            bank.answers.release()
        assert await worker.handle("x", app.find("order")).result() == [older(5, "0:1"), older(5, "0:3")]


async def test_a_history_decides_which_keys_a_replay_gives() -> None:
    bank = Bank()
    order = bank.app().find("order")

    def replayed(*, own: bool) -> Instance:
        return Instance(Started("x", order.name, "d", [[], {}], 5, own_uniques=own), order)

    def step_of(one: Instance, key: str) -> Stepped:
        wait = one.pending[key]
        return Stepped("x", key, wait.name, wait.digest, 9, Outcome("paid"))

    def check() -> None:
        new, old = replayed(own=True), replayed(own=False)
        new.begin()
        old.begin()
        assert [event for event, _ in new.effects] == [Patched("x", OWN_UNIQUES, OWN_UNIQUES)] and not old.effects
        recorded = [delivered(new.effects[0][0], step_of(new, "0:1")), delivered(step_of(old, "0:2"))]
        for history in recorded:  # an older program may have claimed it since, or a newer one
            for own in (True, False):
                again = replayed(own=own)
                again.replay(history)
                assert [wait.split(" (")[0] for wait in again.waits] == ["step 'charge'"]
                again.drop()
        new.drop()
        old.drop()

    await on_outer_loop(check)()


async def test_a_fork_pays_with_the_keys_of_its_origin(cluster: MemoryCluster) -> None:
    bank = Bank()
    for _ in range(4):
        bank.answers.release()
    app = bank.app()
    async with working(cluster, app) as worker:
        origin = await worker.start(app.find("order").call(), id="x")
        paid = await origin.result()
        fork = await origin.fork(before="0:1", id="y")
        assert (await fork.result())[0] == paid[0]
        assert (await inspection.whole_history(worker.log, "y")).started.own_uniques
