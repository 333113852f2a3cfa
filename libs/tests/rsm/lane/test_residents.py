"""Machines that are dropped from the memory of a host, and read again with their next event."""

from __future__ import annotations

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import in_virtual_time
from bokirsm import (
    App,
    Ask,
    Event,
    Host,
    Machine,
    MachineFaulted,
    NoSuchMachine,
    Ref,
    Register,
    State,
    Table,
    Volatile,
)
from bokirsm.lane import lane
from bokirsm.lane.residents import MACHINE_BYTES
from bokirsm.model import parts
from libs.tests.rsm.conftest import NewHost
from libs.tests.rsm.two_hosts import hosts, take_over
from libs.tests.rsm.upkeep import checkpoint, idle


class Put(Event):
    key: int
    text: str


class Sum(Ask[int]):
    pass


class Later(Event):
    pass


class Alarm(Event):
    seconds: float


class Fail(Ask[int]):
    by: int


class End(Event):
    pass


class Shelf(Machine[Put | Sum | Later | Alarm | Fail | End]):
    texts: Table[int, str] = Table()
    opened: Register[int] = Register(0)
    seen: Volatile[int] = Volatile(int)
    run = State(start=True, defer=(Later,))

    @run.on(Put)
    def put(self, e: Put) -> None:
        self.texts[e.key] = e.text
        self.seen += 1

    @run.on(Sum)
    def sum(self, e: Sum) -> None:
        self.reply(e, sum(len(text) for text in self.texts.values()))

    @run.on(Alarm)
    def alarm(self, e: Alarm) -> None:
        self.after(e.seconds, Put(0, "alarm"))

    @run.on(Fail)
    def fail(self, e: Fail) -> None:
        self.reply(e, 1 // e.by)

    @run.on(End)
    def end(self, e: End) -> None:
        self.halt()


SHELVES = App("shelves", [Shelf])
NEAR: Ref[Sum] = Ref("shelves", 5, "near")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let checkpoints for memory's sake follow one another at once."""
    monkeypatch.setattr(lane, "PRESSED_SHARE", 0)


async def rest(host: Host) -> None:
    """Wait until a lane does nothing more, with a look of its host."""
    await idle(host)
    host.lane.tend()
    await idle(host)


def in_memory(host: Host) -> set[str]:
    return {one.ref.name for one in host.lane._machines.values()}


def check_sums(host: Host) -> None:
    """Check the invariant of the bytes that are counted."""
    machines, found = host.lane._machines.values(), host.lane._residents
    assert found.size == sum(one.size for one in machines)
    assert found.changed == sum(one.size for one in machines if one.is_changed)


async def test_machines_that_are_idle_are_in_no_memory(new_host: NewHost) -> None:
    async with await new_host(SHELVES, name="h", memory_bytes=0) as host:
        shelves = [await host.create(Shelf, Put(1, "x" * size), key=f"s{size}", near=NEAR) for size in range(20)]
        for _ in range(2):
            assert [await host.ask(Sum().to(one)) for one in shelves] == list(range(20))
            await rest(host)
            check_sums(host)
            assert not in_memory(host) and not host.lane._residents.size


async def test_those_that_were_active_last_stay(new_host: NewHost) -> None:
    async with await new_host(SHELVES, name="h", memory_bytes=5 * (MACHINE_BYTES + 120)) as host:
        shelves = [await host.create(Shelf, key=f"s{number}", near=NEAR) for number in range(20)]
        for number in (*range(20), 3, 4):
            assert await host.ask(Sum().to(shelves[number])) == 0
            await checkpoint(host, 5)
        check_sums(host)
        assert in_memory(host) == {"s17", "s18", "s19", "s3", "s4"}


async def test_memory_is_bounded_also_between_checkpoints(new_host: NewHost) -> None:
    limit, most = 20 * MACHINE_BYTES, 0
    async with await new_host(SHELVES, name="h", memory_bytes=limit) as host:
        for number in range(200):
            await host.create(Shelf, Put(1, "text"), key=f"s{number}")
            await idle(host)
            most = max(most, host.lane._residents.size)
        check_sums(host)
        assert most < 2 * limit and len(in_memory(host)) < 20


async def test_what_waits_or_is_not_in_a_snapshot_stays(new_host: NewHost) -> None:
    async with await new_host(SHELVES, name="h") as host:
        names = ("changed", "deferring", "faulty", "idle")
        shelves = {name: await host.create(Shelf, key=name, near=NEAR) for name in names}
        await host.send(shelves["deferring"], Later())
        with pytest.raises(MachineFaulted):
            await host.ask(Fail(0).to(shelves["faulty"]))
        for name in ("deferring", "idle"):
            assert await host.ask(Sum().to(shelves[name])) == 0
        await checkpoint(host, 5)
        await host.send(shelves["changed"], Put(1, "x"))
        assert await host.ask(Sum().to(shelves["changed"])) == 1
        await idle(host)
        host.lane._residents._limit = 0  # type: ignore[misc]
        host.lane._shrink()
        assert in_memory(host) == {"changed", "deferring", "faulty"}
        check_sums(host)
        await host.rsm.skip(shelves["faulty"])
        assert [await host.ask(Sum().to(one)) for one in shelves.values()] == [1, 0, 0, 0]


@in_virtual_time
async def test_timers_of_a_machine_in_no_memory_fire() -> None:
    async with hosts(SHELVES, 1) as (_, (host,)):
        host.lane._residents._limit = 0  # type: ignore[misc]
        shelf = await host.create(Shelf, Alarm(5.0), key="s")
        await rest(host)
        assert not in_memory(host)
        await let_pass(6.0)
        assert await host.ask(Sum().to(shelf)) == len("alarm")


async def test_events_to_one_that_ended_and_is_in_no_memory_are_dropped(new_host: NewHost) -> None:
    async with await new_host(SHELVES, name="h", memory_bytes=0) as host:
        shelf = await host.create(Shelf, key="s")
        await host.send(shelf, End())
        for _ in range(3):
            await checkpoint(host, shelf.partition)
            await rest(host)
            assert not in_memory(host)
            with pytest.raises(NoSuchMachine):
                await host.ask(Sum().to(shelf))
        assert await host.create(Shelf, key="s") == shelf, "its key is in its snapshot"


@in_virtual_time
async def test_a_partition_that_moves_brings_machines_that_were_in_no_memory() -> None:
    async with hosts(SHELVES, 2) as (_, (one, other)):
        for host in (one, other):
            host.lane._residents._limit = 0  # type: ignore[misc]
        shelf = await one.create(Shelf, Put(1, "abc"), key="s")
        await idle(one)
        for number, host in enumerate((other, one, other), 2):
            await take_over(host, shelf.partition)
            await host.send(shelf, Put(number, "abc"))
            assert await one.ask(Sum().to(shelf)) == 3 * number
            await idle(one)
            await idle(other)


async def test_a_large_machine_that_is_read_again_knows_how_old_its_parts_are(
    new_host: NewHost, monkeypatch: pytest.MonkeyPatch, cluster: MemoryCluster
) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 4_096)
    monkeypatch.setattr(parts, "LEAST_BYTES", 1_024)
    live = []
    for memory_bytes in (2**30, 0):
        async with await new_host(App(f"g{memory_bytes}", [Shelf]), name="h", memory_bytes=memory_bytes) as host:
            shelf = await host.create(Shelf, key="s")
            await host.send_many([(shelf, Put(key, "x" * 100)) for key in range(200)])
            for number in range(40):
                await host.send(shelf, Put(7, f"{number:100}"))
                assert await host.ask(Sum().to(shelf)) == 20_000
                await checkpoint(host, shelf.partition)
            await rest(host)
            assert bool(in_memory(host)) == bool(memory_bytes)
        book, tag = (await cluster.connect()).book("b"), f"rsm/m/g{memory_bytes}/{shelf.name}"
        live.append(sum([len(one.data) async for one in book.read(tag) if isinstance(one, boki.Record)]))
    assert live[1] < 1.5 * live[0] < 150_000, "the oldest parts are written again"


async def test_volatile_fields_begin_again(new_host: NewHost) -> None:
    async with await new_host(App("v", [Counting]), name="h", memory_bytes=0) as host:
        one = await host.create(Counting)
        for _ in range(3):
            assert await host.ask(Next().to(one)) == 1
            await rest(host)


class Next(Ask[int]):
    pass


class Counting(Machine[Next]):
    seen: Volatile[int] = Volatile(int)
    run = State(start=True)

    @run.on(Next)
    def count(self, e: Next) -> None:
        self.seen += 1
        self.reply(e, self.seen)
