"""Hosts: they run machines, share partitions, and take over from one another."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import ClosedError
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Log
from bokilib.records.tags import PARTITIONS
from bokirsm import App, Ask, Event, Host, Machine, Ref, Register, Rsm, State
from libs.tests.rsm.conftest import WORDS, NewHost
from libs.tests.rsm.traces import traces_of
from libs.tests.rsm.words import Best, Counter, Freq, Init, Max, Word


async def until(host: Host, partitions: int) -> None:
    """Wait until a host has so many partitions."""
    while len(host.partitions) != partitions:
        await let_pass(0.02)


@asynccontextmanager
async def opened(cluster: MemoryCluster, name: str, app: App = WORDS, lease_s: float = 3.0) -> AsyncIterator[Host]:
    book = (await cluster.connect()).book("b")
    async with Host(app, book, name=name, lease_s=lease_s, stuck_after_s=None) as host:
        yield host


async def test_the_word_count_of_the_paper(new_host: NewHost) -> None:
    async with await new_host(name="host-1") as host:
        top = await host.create(Max, key="max")
        counters = [await host.create(Counter, Init(top), key=f"c-{number}") for number in range(4)]
        text = ["to", "be", "or", "not", "to", "be", "to"]
        answers = [await host.ask(Word(word).to(counters[hash(word) % 4])) for word in text]
        assert answers == [1, 1, 1, 1, 2, 2, 3] and await host.ask(Best().to(top)) == "to 3"
        assert host.partitions == list(range(PARTITIONS))
    with pytest.raises(ClosedError, match="make a new Host"):
        await host.__aenter__()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("lease_s", [0, -1, 15_000, math.inf, math.nan, "15", None, True]),
        ("stuck_after_s", [0, -1, math.inf, "1"]),
        ("carry_s", [0, -1, math.nan, "1", None]),
        ("retention_s", [-1, math.inf, "1"]),
        ("memory_bytes", [-1, 1.5, "1m"]),
        ("inbox_bytes", [0, -1, 1.5, "1m"]),
        ("name", [5, "x" * 10_000]),
    ],
)
async def test_an_option_that_is_out_of_range_is_refused(cluster: MemoryCluster, name: str, wrong: list[Any]) -> None:
    book = (await cluster.connect()).book("b")
    for found in wrong:
        with pytest.raises(boki.InvalidArgument, match={"lease_s": "a lease", "name": "name"}.get(name, f"{name}=")):
            Host(WORDS, book, **{name: found})


class Hop(Event):
    left: int


class Count(Ask[int]):
    pass


class Chain(Machine[Hop | Count]):
    seen: Register[int] = Register(0)
    next: Register[Ref[Hop | Count] | None] = Register(None)
    run = State(start=True)

    @run.on(Hop)
    def hop(self, e: Hop) -> None:
        self.seen += 1
        if e.left:
            if self.next is None:
                self.next = self.create(Chain)
            self.send(self.next, Hop(e.left - 1))

    @run.on(Count)
    def count(self, e: Count) -> None:
        self.reply(e, self.seen)


async def test_a_chain_of_machines_costs_one_append(new_host: NewHost) -> None:
    """Creations, local sends and answers are free: the record that was needed for the first handler has them."""
    async with await new_host(App("chain", [Chain]), name="host-1") as host:
        first = await host.create(Chain)
        assert await host.ask(Count().to(first)) == 0
        before = host.rsm.log.appends
        await host.send(first, Hop(20))
        assert await host.ask(Count().to(first)) == 1
        assert host.rsm.log.appends - before <= 4, (
            "an event and a question from outside, and two records for all that became of them"
        )
    book = host.rsm.log.book
    assert isinstance(book, boki.Book)
    traces = await traces_of(book)
    assert len(traces) == 21 and sum(trace.count("Hop") for trace in traces.values()) == 21


async def test_many_questions_share_records(new_host: NewHost) -> None:
    async with await new_host(name="host-1") as host:
        top = await host.create(Max)
        counter = await host.create(Counter, Init(top))
        before = host.rsm.log.appends
        answers = await asyncio.gather(*(host.ask(Word("a").to(counter)) for _ in range(500)))
        assert sorted(answers) == list(range(1, 501))
        assert host.rsm.log.appends - before < 60


@in_virtual_time
async def test_hosts_share_partitions_and_lose_nothing() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        rsm = Rsm(WORDS, (await cluster.connect()).book("b"))
        async with rsm, opened(cluster, "one") as one:
            top = await rsm.create(Max, key="max")
            counters = [await rsm.create(Counter, Init(top), key=f"c-{number}") for number in range(16)]
            asking = [asyncio.create_task(ask_on(rsm, counter)) for counter in counters]
            async with opened(cluster, "two") as two:
                while len(two.partitions) < 20 or len(one.partitions) + len(two.partitions) < PARTITIONS:
                    await let_pass(0.02)
                assert set(one.partitions) | set(two.partitions) == set(range(PARTITIONS))
                await asyncio.gather(*asking)
            await until(one, PARTITIONS)
            assert [await rsm.ask(Word("a").to(counter)) for counter in counters] == [31] * 16
        await traces_of((await cluster.connect()).book("b"))


async def ask_on(rsm: Rsm, counter: Ref[Init | Word]) -> None:
    for number in range(30):
        assert await rsm.ask(Word("a").to(counter)) == number + 1


@in_virtual_time
async def test_a_host_that_dies_is_replaced_after_its_lease() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        counter, top = await dies(cluster, "one", lease_s=2.0)
        begun_s = asyncio.get_running_loop().time()
        async with opened(cluster, "two", lease_s=2.0) as host:
            assert await host.ask(Word("a").to(counter)) == 2 and await host.ask(Best().to(top)) == "a 2"
            assert 1.0 < asyncio.get_running_loop().time() - begun_s < 4.0


async def dies(cluster: MemoryCluster, name: str, *, lease_s: float) -> tuple[Ref[Init | Word], Ref[Freq | Best]]:
    """Start a host that counts one word and dies; return the counter and the maximum."""
    dying = Host(WORDS, (await cluster.connect()).book("b"), name=name, lease_s=lease_s, stuck_after_s=None)
    await dying.__aenter__()
    top = await dying.create(Max, key="max")
    counter = await dying.create(Counter, Init(top), key="c")
    assert await dying.ask(Word("a").to(counter)) == 1
    await kill(dying)
    return counter, top


async def kill(host: Host) -> None:
    """End the tasks of a host as if its process died: it releases nothing."""
    for task in host._tasks:
        task.cancel()
    await host.lane.close()
    await host._follower.close()
    await host.rsm.__aexit__(None, None, None)
    await host._peers._members.__aexit__(None, None, None)


@in_virtual_time
async def test_a_host_of_the_name_of_one_that_died_takes_over_at_once() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        counter, _ = await dies(cluster, "one", lease_s=60.0)
        begun_s = asyncio.get_running_loop().time()
        async with opened(cluster, "one", lease_s=60.0) as host:
            assert await host.ask(Word("a").to(counter)) == 2
            assert asyncio.get_running_loop().time() - begun_s < 1.0


async def test_the_log_forgets_the_writer_of_a_host(new_host: NewHost, cluster: MemoryCluster) -> None:
    async with await new_host(name="host-1") as host:
        top = await host.create(Max, key="max")
        counter = await host.create(Counter, Init(top), key="c")
        for number in range(3):
            cluster.forget_writers()
            cluster.disconnect()
            assert await host.ask(Word("a").to(counter)) == number + 1


async def test_a_claim_of_another_host_makes_a_lane_forget(new_host: NewHost, cluster: MemoryCluster) -> None:
    """A zombie: its claim is replaced while it handles. What it did is void, and the new owner does it."""
    async with (
        await new_host(name="host-1", lease_s=60.0) as host,
        await new_host(name="host-2", lease_s=60.0) as other,
    ):
        top = await host.create(Max, key="max")
        counter = await host.create(Counter, Init(top), key="c")
        assert await host.ask(Word("a").to(counter)) == 1
        await other._owner.refresh()
        taken = list(range(PARTITIONS))
        claim = await other._owner.claim(taken)
        answers = [asyncio.create_task(host.ask(Word("a").to(counter))) for _ in range(5)]
        await other.lane.take(dict.fromkeys(taken, claim))
        assert sorted(await asyncio.gather(*answers)) == [2, 3, 4, 5, 6]
        assert len(host.partitions) + len(other.partitions) <= PARTITIONS
    book = Log((await cluster.connect()).book("b")).book
    assert isinstance(book, boki.Book)
    await traces_of(book)


async def test_a_zombie_that_hears_of_no_claim_commits_nothing(new_host: NewHost, cluster: MemoryCluster) -> None:
    """The former owner reads no claims, and handles each event as well: only its appends tell it that it lost its partitions."""
    async with (
        await new_host(name="host-1", lease_s=60.0) as zombie,
        await new_host(name="host-2", lease_s=60.0) as other,
    ):
        top = await zombie.create(Max, key="max")
        counter = await zombie.create(Counter, Init(top), key="c")
        assert await zombie.ask(Word("a").to(counter)) == 1
        for fence in zombie._owner.fences:
            zombie._follower.discard(fence)
        await other._owner.refresh()
        taken = list(range(PARTITIONS))
        claim = await other._owner.claim(taken)
        await other.lane.take(dict.fromkeys(taken, claim))
        answers = [await other.ask(Word("a").to(counter)) for _ in range(5)]
        await zombie.lane.settled()
        assert answers == [2, 3, 4, 5, 6] and await other.ask(Best().to(top)) == "a 6"
        assert zombie.partitions == []
    book = Log((await cluster.connect()).book("b")).book
    assert isinstance(book, boki.Book)
    await traces_of(book)
