"""Claims that move while a lane reads or appends: each event is handled once, on what the owner before committed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

import pytest

from boki import Book
from boki.testing import MemoryCluster
from boki_common.errors import BokiError
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokirsm import App, Ask, Event, Host, Machine, Ref, Register, Rsm, State, Table
from bokirsm.model.events import Claimed
from bokirsm.model.partition_state import PartitionState
from libs.tests.rsm.conftest import NewHost, NewRsm
from libs.tests.rsm.traces import traces_of

EVERYTHING = range(tags.PARTITIONS)


class Number(Event):
    number: int
    source: str = ""


class Begin(Event):
    sinks: list[Ref[Number]]


class Tick(Event):
    pass


class Numbers(Ask[list[int]]):
    pass


class Last(Ask[dict[str, int]]):
    pass


class Sent(Ask[int]):
    pass


class Passer(Machine[Number | Begin | Numbers]):
    """A machine that sends each number on."""

    sinks: Register[list[Ref[Number]]] = Register([])
    numbers: Register[list[int]] = Register([])
    run = State(start=True)

    @run.on(Begin)
    def begin(self, e: Begin) -> None:
        self.sinks = e.sinks

    @run.on(Number)
    def add(self, e: Number) -> None:
        self.numbers.append(e.number)
        for one in self.sinks:
            self.send(one, e)

    @run.on(Numbers)
    def tell(self, e: Numbers) -> None:
        self.reply(e, self.numbers)


class Source(Machine[Begin | Tick | Sent]):
    """A machine that sends numbers by a timer."""

    sinks: Register[list[Ref[Number]]] = Register([])
    number: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Begin)
    def begin(self, e: Begin) -> None:
        self.sinks = e.sinks
        self.after(0.02, Tick(), every=0.02)

    @run.on(Tick)
    def tick(self, e: Tick) -> None:
        self.number += 1
        for one in self.sinks:
            self.send(one, Number(self.number, str(self.me)))

    @run.on(Sent)
    def sent(self, e: Sent) -> None:
        self.reply(e, self.number)
        self.cancel("Tick")


class Sink(Machine[Number | Last]):
    """A machine that fails if a number is missing, comes twice or in another order."""

    last: Table[str, int] = Table()
    run = State(start=True)

    @run.on(Number)
    def got(self, e: Number) -> None:
        assert e.number == self.last.get(e.source, 0) + 1, f"{e} after {self.last.get(e.source)}"
        self.last[e.source] = e.number

    @run.on(Last)
    def tell(self, e: Last) -> None:
        self.reply(e, dict(self.last))


APP = App("n", [Passer, Source, Sink])


async def passed_until(holds: Callable[[], bool]) -> None:
    """Let virtual time pass until something holds."""
    while not holds():
        await let_pass(0.01)


@in_virtual_time
async def test_claims_lost_and_made_again_under_a_record_in_flight_join_once() -> None:
    """A round claims again what was lost while the lane waits for its turn to read: it joins with the new claim once."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        host = Host(APP, (await cluster.connect()).book("b"), name="host", stuck_after_s=None)
        async with Rsm(APP, (await cluster.connect()).book("b")) as rsm, host:
            delivered = host.lane._delivered_up_to

            async def slowly(position: int) -> None:
                await let_pass(0.05)  # a read of the log takes a moment, as over a network
                await delivered(position)

            host.lane._delivered_up_to = slowly  # type: ignore[method-assign]
            async with Host(APP, (await cluster.connect()).book("b"), name="gone") as gone:
                pass
            await passed_until(lambda: len(host.partitions) == len(EVERYTHING))
            sink = await rsm.create(Passer, key="sink")
            passer = await rsm.create(Passer, Begin([sink]), key="passer")
            await rsm.send(passer, Number(0))
            async with host.lane._turn:  # a record is in flight
                await claimed(rsm.log, gone.name, EVERYTHING)
                await passed_until(lambda: not host._owner.mine)
                for number in range(1, 21):
                    await rsm.send(passer, Number(number))
                due = asyncio.create_task(host._look(True))
                await passed_until(lambda: len(host._owner.mine) == len(EVERYTHING))
            await due
            await let_pass(0.5)
            assert await rsm.ask(Numbers().to(passer)) == list(range(21))
            assert await rsm.ask(Numbers().to(sink)) == list(range(21))


async def claimed(log: Log, who: str, partitions: Sequence[int]) -> None:
    """Append claims of a host that expects nothing of their former owner: it took this one for dead."""
    claims = tuple(Claimed("n", one, who) for one in partitions)
    fences = tuple(tags.rsm_owner("n", one) for one in partitions)
    await log.append(Contribution(fences, {}, claims))


async def test_a_claim_lost_and_made_again_during_a_read_needs_another(new_host: NewHost, new_rsm: NewRsm) -> None:
    """Another host owned the partition for a while: what it committed is above the position of the read."""
    rsm = await new_rsm(APP)
    async with (
        rsm,
        await new_host(APP, name="one", lease_s=60.0) as one,
        await new_host(APP, name="two", lease_s=60.0) as two,
    ):
        passer = await rsm.create(Passer, key="p")
        assert passer.partition in one.partitions and not two.partitions
        await rsm.send(passer, Number(1))
        assert await rsm.ask(Numbers().to(passer)) == [1]
        load, times = one.lane._load, []

        async def meanwhile(partitions: Sequence[int], position: int) -> dict[int, PartitionState]:
            states = await load(partitions, position)
            times.append(position)
            if len(times) == 1:
                await two._owner.refresh()
                assert await two._owner.claim([passer.partition])
                await two.lane.take(dict(two._owner.mine))
                await rsm.send(passer, Number(2))
                assert await rsm.ask(Numbers().to(passer)) == [1, 2]
                await one._owner.refresh()
                assert await one._owner.claim([passer.partition])
            return states

        one.lane._load = meanwhile  # type: ignore[method-assign]
        async with one.lane._turn:
            await one.lane._reload()
        await one.lane.take(dict(one._owner.mine))
        await rsm.send(passer, Number(3))
        assert await rsm.ask(Numbers().to(passer)) == [1, 2, 3]
    book = one._log.book
    assert isinstance(book, Book)
    assert (await traces_of(book))[str(passer)] == ["", *["Number", "Numbers"] * 3]


@pytest.mark.parametrize("seed", [1, 2])
@in_virtual_time
async def test_hosts_that_steal_partitions_handle_each_event_once(seed: int) -> None:
    chance = random.Random(seed)
    async with MemoryCluster(clock=LoopClock()) as cluster, Rsm(APP, (await cluster.connect()).book("b")) as rsm:

        async def started(number: int) -> Host:
            book = (await cluster.connect()).book("b")
            return await Host(APP, book, name=f"h{number}", lease_s=0.5, stuck_after_s=None).__aenter__()

        hosts = [await started(number) for number in range(3)]
        sinks = [await rsm.create(Sink, key=f"sink-{number}") for number in range(3)]
        sources = [await rsm.create(Source, Begin(list(sinks)), key=f"source-{number}") for number in range(6)]
        for _ in range(25):
            await let_pass(chance.random() * 0.1)
            number = chance.randrange(3)
            if chance.random() < 0.15:
                await hosts[number].__aexit__(None, None, None)
                hosts[number] = await started(number)
            elif chance.random() < 0.2:
                cluster.disconnect()
            else:
                await stolen(hosts[number], chance.sample(EVERYTHING, chance.choice([3, 20, 64])))
        sent = {str(one): await rsm.ask(Sent().to(one)) for one in sources}
        for sink in sinks:
            while (last := await rsm.ask(Last().to(sink))) != sent:
                assert all(last.get(one, 0) <= count for one, count in sent.items())
                await let_pass(0.1)
        for one in hosts:
            await one.__aexit__(None, None, None)


async def stolen(host: Host, partitions: Sequence[int]) -> None:
    """Have a host claim partitions of others."""
    try:
        if await host._owner.claim(partitions):
            await host.lane.take({one: host._owner.mine[one] for one in partitions if one in host._owner.mine})
    except BokiError:
        pass  # the next round of the host reads what it claimed
