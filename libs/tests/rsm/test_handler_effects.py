"""What a handler does happens once, or not at all: timers, creations, changes in place, times, the end of a machine."""

from __future__ import annotations

import time

import pytest

from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Log
from bokilib.records.contribution import Contribution
from bokilib.retention.carrier import Carrier
from bokirsm import (
    App,
    Ask,
    Event,
    IdReused,
    Machine,
    MachineFaulted,
    NoSuchMachine,
    Ref,
    Register,
    State,
    Table,
    Volatile,
    carried,
)
from bokirsm.model.events import PICKER, Commit
from libs.tests.rsm.lane.test_checkpoints import DAY_S
from libs.tests.rsm.test_host import kill
from libs.tests.rsm.traces import records_of
from libs.tests.rsm.two_hosts import Held, hosts, of, started_on, take_over, traces
from libs.tests.rsm.upkeep import checkpoint

HOUR_MS = 3_600_000
MANY = 1_000


class Start(Event):
    pass


class Tick(Event):
    pass


class Stop(Event):
    pass


class Ticks(Ask[int]):
    pass


class Clock(Machine[Start | Tick | Stop | Ticks]):
    """A machine with a timer of ten seconds."""

    ticks: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Start)
    def start(self, e: Start) -> None:
        self.after(10.0, Tick())

    @run.on(Tick)
    def tick(self, e: Tick) -> None:
        self.ticks += 1

    @run.on(Stop)
    def stop(self, e: Stop) -> None:
        self.cancel("Tick")

    @run.on(Ticks)
    def tell(self, e: Ticks) -> None:
        self.reply(e, self.ticks)


CLOCKS = App("clocks", [Clock])


@in_virtual_time
async def test_a_timer_fires_once_though_two_hosts_take_the_machine_for_theirs() -> None:
    async with hosts(CLOCKS, 2) as (cluster, (zombie, owner)):
        clock = await zombie.create(Clock, Start(), key="c")
        assert await zombie.ask(Ticks().to(clock)) == 0
        for fence in zombie._owner.fences:
            zombie._follower.discard(fence)
        await take_over(owner, clock.partition)
        await let_pass(30.0)
        assert await owner.ask(Ticks().to(clock)) == 1
        assert (await traces(cluster))[str(clock)] == ["Start", "Ticks", "Ticks"], "a timer is no event of the log"
        await kill(owner)
        third = await started_on(cluster, CLOCKS, "h1")
        await take_over(third, clock.partition)
        await let_pass(30.0)
        assert await third.ask(Ticks().to(clock)) == 1
        await third.__aexit__(None, None, None)


@in_virtual_time
async def test_a_timer_that_is_due_while_it_is_cancelled_does_not_fire_afterwards() -> None:
    async with hosts(CLOCKS, 1) as (_, (host,)):
        clock = await host.create(Clock, Start(), key="c")
        assert await host.ask(Ticks().to(clock)) == 0
        host.lane._paused = True  # as while a checkpoint begins
        await host.send(clock, Stop())
        await let_pass(11.0)
        host.lane._paused = False
        host.lane._schedule()
        await let_pass(1.0)
        assert await host.ask(Ticks().to(clock)) == 0


class Ahead(LoopClock):
    """The clock of a sequencer that is an hour ahead of this machine's."""

    def __init__(self) -> None:
        self.begun_ms = round(time.time() * 1_000) + HOUR_MS

    def now_ms(self) -> int:
        return self.begun_ms + round(self.elapsed_s() * 1_000)


@in_virtual_time
async def test_the_time_of_machines_is_that_of_the_log() -> None:
    async with hosts(CLOCKS, 1, Ahead()) as (cluster, (one,)):
        clock = await one.create(Clock, Start(), key="c")
        await let_pass(8.0)
        assert await one.ask(Ticks().to(clock)) == 0
        await kill(one)
        two = await started_on(cluster, CLOCKS, "h0")
        await let_pass(1.0)
        assert await two.ask(Ticks().to(clock)) == 0, "nine seconds have passed"
        await let_pass(1.5)
        assert await two.ask(Ticks().to(clock)) == 1
        book = (await cluster.connect()).book("b")
        async for seqnum, envelope in records_of(book):
            for event in PICKER.of(seqnum, envelope):
                if isinstance(event, Commit):
                    record = await book.read_at(seqnum)
                    assert record is not None and abs(event.at_ms - record.time_ms) < 1_000
        await two.__aexit__(None, None, None)


class Add(Event):
    text: str


class Story(Ask[list[list[str]]]):
    pass


class Diary(Machine[Add | Story]):
    """A machine whose handlers change values in place, and may fail then."""

    texts: Register[list[str]] = Register([])
    by_key: Table[str, list[str]] = Table()
    read: Volatile[list[str]] = Volatile(list)
    run = State(start=True)

    @run.on(Add)
    def add(self, e: Add) -> None:
        self.texts.append(e.text)
        self.by_key.setdefault("all", []).append(e.text)
        self.read.append(e.text)
        if e.text == "bad":
            raise ValueError(e.text)

    @run.on(Story)
    def tell(self, e: Story) -> None:
        self.reply(e, [self.texts, self.by_key.get("all", []), self.read])


DIARIES = App("diaries", [Diary])


@in_virtual_time
async def test_changes_in_place_of_a_handler_that_failed_are_gone() -> None:
    async with hosts(DIARIES, 1) as (cluster, (one,)):
        diary = await one.create(Diary, key="d")
        await one.send(diary, Add("a"))
        assert await one.ask(Story().to(diary)) == [["a"]] * 3
        await one.send_many([(diary, Add("bad")), (diary, Add("b"))])
        with pytest.raises(MachineFaulted):
            await one.ask(Story().to(diary))
        await one.rsm.skip(diary)
        assert await one.ask(Story().to(diary)) == [["a", "b"], ["a", "b"], ["b"]]
        await checkpoint(one, diary.partition)
        await kill(one)
        two = await started_on(cluster, DIARIES, "h0")
        assert await two.ask(Story().to(diary)) == [["a", "b"], ["a", "b"], []]
        await two.__aexit__(None, None, None)


@in_virtual_time
async def test_a_key_is_not_free_before_the_retention_of_its_machine_is_over() -> None:
    """Two days pass, and a carrier rewrites what is left of the machine."""
    async with hosts(KEYED, 1) as (cluster, (one,)):
        ender = await one.create(Ender, key="k")
        await one.send(ender, Stop())
        with pytest.raises(NoSuchMachine):
            await one.ask(Ticks().to(ender))
        await let_pass(1.0)  # the host has read its last record, so the checkpoint covers all
        await checkpoint(one, ender.partition)
        await kill(one)
        await let_pass(2.0 * DAY_S)
        log = Log((await cluster.connect()).book("b"))
        await Carrier(log, [carried(log)], who="c").round()
        two = await started_on(cluster, KEYED, "h0")
        with pytest.raises(IdReused):
            await two.create(Ender, Start(), key="k")
        assert await two.create(Ender, key="k") == ender
        with pytest.raises(NoSuchMachine):
            await two.ask(Ticks().to(ender))
        await two.__aexit__(None, None, None)


class Ender(Machine[Start | Stop | Ticks]):
    run = State(start=True, ignore=(Start,))

    @run.on(Stop)
    def stop(self, e: Stop) -> None:
        self.halt()

    @run.on(Ticks)
    def tell(self, e: Ticks) -> None:
        self.reply(e, 0)


KEYED = App("keyed", [Ender])


class Born(Event):
    number: int


class Grow(Event):
    number: int
    parent: Ref[Born]


class Make(Event):
    count: int


class Count(Ask[int]):
    pass


class Parent(Machine[Make | Born | Count]):
    """A machine that creates many others by one handler. Each says so once."""

    born: Table[int, bool] = Table()
    run = State(start=True)

    @run.on(Make)
    def make(self, e: Make) -> None:
        for number in range(e.count):
            self.create(Child, Grow(number, self.me))

    @run.on(Born)
    def add(self, e: Born) -> None:
        assert e.number not in self.born
        self.born[e.number] = True

    @run.on(Count)
    def count(self, e: Count) -> None:
        self.reply(e, len(self.born))


class Child(Machine[Grow]):
    run = State(start=True)

    @run.on(Grow)
    def grow(self, e: Grow) -> None:
        self.send(e.parent, Born(e.number))


FAMILY = App("family", [Parent, Child])


@in_virtual_time
async def test_a_handler_creates_a_thousand_machines_by_one_record() -> None:
    """The host dies while they begin; another one goes on with them."""
    async with hosts(FAMILY, 1) as (cluster, (one,)):
        parent = await one.create(Parent, key="p")
        assert await one.ask(Count().to(parent)) == 0
        held = Held(one._log, has_children)
        await one.send(parent, Make(MANY))
        await held.waiting.wait()
        made = [event for part in held.parts for event in part.events if isinstance(event, Commit) and event.creates]
        assert [len(event.creates) for event in made] == [MANY]
        await kill(one)
        two = await started_on(cluster, FAMILY, "h0")
        while (born := await two.ask(Count().to(parent))) < MANY:
            await let_pass(0.1)
        found = await traces(cluster)
        assert born == MANY and found.pop(str(parent)).count("Born") == MANY
        assert len(found) == MANY and {tuple(events) for events in found.values()} == {("Grow",)}
        await two.__aexit__(None, None, None)


def has_children(part: Contribution) -> bool:
    """Return whether an append is of the children alone."""
    return of(Commit)(part) and not any(isinstance(event, Commit) and event.creates for event in part.events)
