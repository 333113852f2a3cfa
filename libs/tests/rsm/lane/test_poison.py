"""Events and records that must not end a lane, or every host in turn: only what they concern waits."""

from __future__ import annotations

import asyncio

import pytest

from boki.testing import MemoryCluster
from bokilib.append.log import Log
from bokirsm import App, Ask, Machine, MachineFaulted, Refused, Rsm, State
from libs.tests.rsm.conftest import NewHost


class Unshowable(Exception):
    """An error whose text cannot be made."""

    def __str__(self) -> str:
        raise AttributeError("missing")


class Do(Ask[int]):
    how: str


class Worker(Machine[Do]):
    run = State(start=True)

    @run.on(Do)
    def do(self, e: Do) -> None:
        if e.how == "long":
            raise ValueError("x" * 600_000)
        if e.how == "lone surrogate":
            raise ValueError("file \udcff")
        if e.how == "no text":
            raise Unshowable
        if e.how == "refused":
            raise Refused("x" * 600_000)
        self.reply(e, 1)


WORKERS = App("workers", [Worker])


@pytest.mark.parametrize("how", ["long", "lone surrogate", "no text", "refused"])
async def test_whatever_the_text_of_an_error_only_its_machine_has_a_fault(new_host: NewHost, how: str) -> None:
    async with await new_host(WORKERS, name="h") as host:
        bad, good = await host.create(Worker, key="bad"), await host.create(Worker, key="good")
        with pytest.raises(Refused if how == "refused" else MachineFaulted):
            await host.ask(Do(how).to(bad))
        assert await host.ask(Do("").to(good)) == 1 and host.failed is None
    async with await new_host(WORKERS, name="i") as host:
        assert await host.ask(Do("").to(good)) == 1 and host.failed is None


class Hook:
    """A payload hook that hosts do not have."""

    name = "zip"

    async def seal(self, events: bytes) -> bytes:
        return events

    async def open(self, sealed: bytes) -> bytes:
        return sealed


async def test_no_partition_waits_to_join_for_a_record_that_is_unreadable(
    new_host: NewHost, cluster: MemoryCluster
) -> None:
    async with await new_host(WORKERS, name="h") as host:
        machine = await host.create(Worker, key="good")
        assert await host.ask(Do("").to(machine)) == 1
        foreign = Rsm(WORKERS, Log((await cluster.connect()).book("b"), hook=Hook()))
        await foreign.send(machine, Do(""))
        async with asyncio.timeout(30):
            await host.lane._delivered_up_to(await host.lane._log.book.now(consistency="linearizable"))
        assert await host.ask(Do("").to(machine)) == 1
