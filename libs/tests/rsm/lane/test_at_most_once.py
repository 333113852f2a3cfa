"""Events that are sent at most once: in no record within a host, lost with it, and as any other to machines of other hosts."""

from __future__ import annotations

from functools import partial

import boki
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.ports import BookPort
from bokilib.testing import crash_everywhere, while_alive
from bokirsm import App, Ask, Event, Host, Machine, Ref, Register, State
from bokirsm.model.events import PICKER, Commit
from bokirsm_tools.record_laws import RecordLaws
from libs.tests.rsm.test_faults import surely
from libs.tests.rsm.test_host import kill
from libs.tests.rsm.traces import records_of, traces_of
from libs.tests.rsm.two_hosts import hosts, started_on, take_over, traces


class Level(Event):
    value: int


class Read(Event):
    value: int
    to: Ref[Level]


class Open(Event):
    pass


class Newest(Ask[list[int]]):
    pass


class Sensor(Machine[Read]):
    """A sensor that sends each value once at most, and every tenth surely."""

    run = State(start=True)

    @run.on(Read)
    def read(self, e: Read) -> None:
        self.send(e.to, Level(e.value), at_most_once=bool(e.value % 10))


class Gauge(Machine[Level | Newest | Open]):
    """A gauge that shows the values that it got, once it is open."""

    values: Register[list[int]] = Register([])
    closed, opened = State(start=True, defer=(Level, Newest)), State()

    @closed.on(Open)
    def open(self, e: Open) -> None:
        self.jump(self.opened)

    @opened.on(Level)
    def level(self, e: Level) -> None:
        if e.value < 0 and broken:
            raise ValueError("below zero")
        self.values.append(e.value)

    @opened.on(Newest)
    def newest(self, e: Newest) -> None:
        self.reply(e, self.values)


APP = App("gauges", [Sensor, Gauge])
broken: list[bool] = []


async def values(host: Host, gauge: Ref[Newest]) -> list[int]:
    return await host.ask(Newest().to(gauge), timeout_s=20.0)


async def sent_in(book: boki.Book) -> list[bytes]:
    """Return the bodies of what machines sent by records."""
    found = []
    async for seqnum, envelope in records_of(book):
        found += [one.body for event in PICKER.of(seqnum, envelope) if isinstance(event, Commit) for one in event.sends]
    return found


@in_virtual_time
async def test_an_event_within_a_host_is_in_no_record_and_one_to_another_host_is() -> None:
    async with hosts(APP, 2) as (cluster, (one, two)):
        gauge = await one.create(Gauge, Open(), key="gauge", near=Ref[Level]("gauges", 1, "x"))
        sensor = await one.create(Sensor, key="sensor", near=Ref[Level]("gauges", 2, "x"))
        await one.send_many([(sensor, Read(value, gauge)) for value in (1, 10, 2)])
        assert sorted(await values(one, gauge)) == [1, 2, 10]
        book = (await cluster.connect()).book("b")
        assert len(await sent_in(book)) == 1
        await take_over(two, sensor.partition)
        await two.send(sensor, Read(3, gauge))
        while len(await values(one, gauge)) < 4:
            await let_pass(0.1)
        assert len(await sent_in(book)) == 2
        assert (await traces(cluster))[str(gauge)].count("at most once") == 2


@in_virtual_time
async def test_an_event_that_waits_is_lost_with_its_host_and_others_are_not() -> None:
    async with hosts(APP, 1) as (cluster, (one,)):
        gauge = await one.create(Gauge, key="gauge")
        sensor = await one.create(Sensor, key="sensor")
        await one.send_many([(sensor, Read(value, gauge)) for value in (1, 10)])
        await one.lane.settled()
        await kill(one)
        two = await started_on(cluster, APP, "h0")
        await two.send(gauge, Open())
        assert await values(two, gauge) == [10]
        await two.__aexit__(None, None, None)


@in_virtual_time
async def test_an_event_whose_handler_fails_gets_a_record_and_is_a_fault_that_moves() -> None:
    broken[:] = [True]
    async with hosts(APP, 1) as (cluster, (one,)):
        gauge = await one.create(Gauge, Open(), key="gauge")
        sensor = await one.create(Sensor, key="sensor")
        await one.send_many([(sensor, Read(value, gauge)) for value in (-1, 2)])
        state = one.lane._states[gauge.partition]
        while not state.faults:
            await let_pass(0.1)
        assert state.faults[str(gauge)].message in state.pending
        await kill(one)
        two = await started_on(cluster, APP, "h0")
        broken.clear()
        await two.rsm.resume(gauge)
        assert sorted(await values(two, gauge)) == [-1, 2]
        await two.__aexit__(None, None, None)


async def measure(book: BookPort) -> None:
    async with Host(APP, book, name="host", lease_s=1.0, stuck_after_s=None) as host:
        gauge = await surely(partial(host.create, Gauge, Open(), key="gauge"))
        sensor = await surely(partial(host.create, Sensor, key="sensor"))
        for value in (1, 2, 10):
            await surely(partial(host.send, sensor, Read(value, gauge), dedup_id=str(value)))
        while 10 not in await surely(partial(host.ask, Newest().to(gauge), timeout_s=3_600)):
            await let_pass(0.02)


async def program(book: BookPort) -> None:
    await while_alive(book, measure(book))


async def check(book: boki.Book) -> None:
    traces = await traces_of(book)
    (gauge,) = (name for name in traces if name.endswith("gauge"))
    assert traces[gauge].count("Level") == 1 and traces[gauge].count("at most once") <= 2
    laws = RecordLaws("gauges")
    async for item in book.read():
        if isinstance(item, boki.Record) and any(str(tag).startswith("rsm/") for tag in item.tags):
            laws.read(item.seqnum, item.time_ms, item.data)
    assert laws.broken == []


@in_virtual_time
async def test_crashes_at_every_operation_deliver_no_such_event_twice() -> None:
    explored = await crash_everywhere(program, program, check, clock=LoopClock())
    assert explored.operations > 15 and explored.runs > 30
