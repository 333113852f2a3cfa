"""Events and records that must not end a lane, or every host in turn: only what they concern waits."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import pytest

from boki.testing import MemoryCluster
from bokilib.append.log import Log
from bokilib.records import tags
from bokirsm import AnswerTimeout, App, Ask, Host, Machine, MachineFaulted, Ref, Refused, Rsm, State
from bokirsm_tools.reading import group_states
from libs.tests.rsm.conftest import NewHost
from libs.tests.rsm.upkeep import checkpoint


class Unshowable(Exception):
    """An error whose text cannot be made."""

    def __str__(self) -> str:
        raise AttributeError("missing")


ENDS: Final[dict[str, type[BaseException]]] = {
    one.__name__: one for one in (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, StopIteration)
}
"""Errors that would end a program, or a task, outside of a handler."""


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
        if e.how in ENDS:
            raise ENDS[e.how]
        if e.how == "refused":
            raise Refused("x" * 600_000)
        self.reply(e, 1)


WORKERS = App("workers", [Worker])


@pytest.mark.parametrize("how", ["long", "lone surrogate", "no text", "refused", *ENDS])
async def test_whatever_the_error_of_a_handler_only_its_machine_has_a_fault(new_host: NewHost, how: str) -> None:
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


@pytest.mark.parametrize("kind", ["foreign", "damaged", "hook"])
async def test_a_record_that_is_unreadable_means_the_same_to_each_host(
    new_host: NewHost, cluster: MemoryCluster, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that no library wrote is passed over; one that may have messages stops its partition, and no other one."""
    tag = tags.rsm_partition("workers", tags.partition_of("bad"))
    book = (await cluster.connect()).book("b")
    async with await new_host(WORKERS, name="h", lease_s=1.0) as host:
        bad, good = await host.create(Worker, key="bad"), await host.create(Worker, key="good")
        assert await host.ask(Do("").to(bad)) == await host.ask(Do("").to(good)) == 1
        if kind == "hook":
            await Rsm(WORKERS, Log((await cluster.connect()).book("b"), hook=Hook())).send(bad, Do(""))
        else:
            wrong = msgspec.msgpack.encode([1, "by", 0, [["rsm.input", "workers", 5]]])
            await book.append(b"hello" if kind == "foreign" else wrong, tags=[tag])
        async with asyncio.timeout(30):
            await host.lane._delivered_up_to(await host.lane._log.book.now(consistency="linearizable"))
        for _ in range(2):
            await answers(host, bad, kind == "foreign")
            assert await host.ask(Do("").to(good)) == 1
            if bad.partition in host.partitions:
                await checkpoint(host, bad.partition)
        if kind == "foreign":
            await book.append(b"hello", tags=[tag])  # no checkpoint covers this one
    async with await new_host(WORKERS, name="i", lease_s=1.0) as host:
        assert (bad.partition in host.partitions) == (kind == "foreign")
        assert await host.ask(Do("").to(good)) == 1
        await answers(host, bad, kind == "foreign")
    said = capsys.readouterr().err
    assert ("passed over" in said, "partition unreadable" in said) == (kind == "foreign", kind != "foreign")
    states = await group_states(Log(book), "workers")
    assert list(states.unreadable) == ([] if kind == "foreign" else [bad.partition])
    if kind == "hook":
        opened = Log((await cluster.connect()).book("b"), hook=Hook())
        async with Host(WORKERS, opened, name="j", stuck_after_s=None) as host:
            assert await host.ask(Do("").to(bad)) == 1
            assert host.lane._machines[str(bad)].state is not None, "nothing is lost"


async def answers(host: Host, machine: Ref[Do], does: bool) -> None:
    """Check that a machine answers, or that its partition is left alone."""
    if does:
        assert await host.ask(Do("").to(machine)) == 1
        return
    while machine.partition in host.partitions:
        await asyncio.sleep(0)
    with pytest.raises(AnswerTimeout):
        await host.ask(Do("").to(machine), timeout_s=0.1)


async def test_a_record_that_no_library_wrote_among_claims_stops_no_host(
    new_host: NewHost, cluster: MemoryCluster
) -> None:
    book = (await cluster.connect()).book("b")
    fences = [tags.rsm_owner("workers", one) for one in range(tags.PARTITIONS)]
    worker: Ref[Do] | None = None
    for name in ("h", "i"):
        async with await new_host(WORKERS, name=name) as host:
            worker = worker or await host.create(Worker, key="w")
            await book.append(b"junk", tags=fences)
            assert await host.ask(Do("well").to(worker)) == 1
        await book.append(b"junk", tags=fences)
