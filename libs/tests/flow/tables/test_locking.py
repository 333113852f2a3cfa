"""Transactions with locks over steps and children: all or nothing and without deadlocks, wherever processes die."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from bokiflow import App, Worker
from bokiflow.tables import (
    LockingTransaction,
    MemoryTables,
    Mode,
    Schema,
    TablePort,
    Tables,
    Transaction,
    WrittenUnlocked,
    locked,
    staged,
)
from bokiflow.tables.locking import lock_name
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.testing import UNKNOWNS, FaultKind, crash_everywhere, start_anywhere, while_alive
from libs.tests.flow.conftest import Inline, started
from libs.tests.flow.tables.faulty_database import fail_everywhere

MODES: list[Mode] = ["log", "versioned"]


class SoldOut(Exception):
    pass


class Process:
    """Tables and a worker of one log: trips need a room and a seat, which children find."""

    def __init__(self, book: BookPort, port: TablePort, mode: Mode = "log", name: str = "w") -> None:
        self.tables = tables = Tables(Log(book), port)
        self.mode: Mode = mode
        self.app = App("trips")
        self.worker = Worker(self.app, tables.log, name=name, bodies=Inline())
        self.paid: list[str] = []

        @self.app.step
        async def pay(what: str) -> str:
            self.paid.append(what)
            return what

        async def take(tx: Transaction, kind: str) -> int:
            row = await tx.get("rooms", kind) or {"left": 2}
            left = cast(int, row["left"])
            if left < 1:
                raise SoldOut(kind)
            tx.put("rooms", kind, {"left": left - 1})
            return left - 1

        @self.app.workflow
        async def find(kind: str) -> dict[str, Any]:
            return await staged(tables, take, kind)

        @self.app.workflow
        async def trip(id: str) -> list[int]:
            """Book a room and a seat, each found by a child, and pay: all of it, or nothing."""

            async def both(tx: LockingTransaction) -> list[int]:
                left = [await tx.join(await find(kind)) for kind in ("room", "seat")]
                await pay(id)
                assert await tx.get("rooms", id) is None
                tx.put("rooms", id, {"left": 1})
                assert await tx.get("rooms", id) == {"left": 1}
                return left

            return await locked(tables, both)

        @self.app.workflow
        async def move(a: str, b: str, rounds: int) -> None:
            async def one(tx: LockingTransaction) -> None:
                there, more = await tx.get("rooms", a), await tx.get("rooms", b)
                tx.put("rooms", a, {"left": cast(int, (there or {"left": 50})["left"]) - 1})
                tx.put("rooms", b, {"left": cast(int, (more or {"left": 50})["left"]) + 1})

            for _ in range(rounds):
                await locked(tables, one)

        self.trip, self.move = trip, move

    async def open(self) -> None:
        await self.tables.open(Schema("rooms", {"left": "int"}, self.mode))


class World:
    """A database that processes share, one run after the other."""

    def __init__(self, mode: Mode) -> None:
        self.mode: Mode = mode
        self.port = MemoryTables()

    async def begin(self, _: boki.Book) -> None:
        self.port = MemoryTables()

    async def work(self, book: BookPort) -> None:
        process = Process(book, self.port, self.mode)

        async def work() -> None:
            async with process.tables:
                await process.open()
                async with process.worker:
                    handle = await started(process.worker, process.trip.call("t"), "t")
                    assert await handle.result() == [1, 1]

        await while_alive(book, work())

    async def check(self, book: boki.Book) -> None:
        process = Process(book, self.port, self.mode)
        await process.open()
        found = await process.tables.get_many("rooms", ["room", "seat", "t"])
        assert found == [{"left": 1}, {"left": 1}, {"left": 1}]


@pytest.mark.parametrize("kinds", [("before", "after"), UNKNOWNS])
async def test_a_death_or_a_lost_answer_at_every_operation_of_the_log(kinds: tuple[FaultKind, ...]) -> None:
    """This includes the time between a lock and the record, and between the record and the release."""
    world = World("log")
    assert (await crash_everywhere(world.work, world.work, world.check, kinds=kinds, before=world.begin)).runs > 8


async def test_a_second_worker_before_every_operation() -> None:
    world = World("versioned")
    assert (await start_anywhere(world.work, world.work, world.check, before=world.begin)).runs > 8


async def test_a_death_around_every_operation_of_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bokiflow.tables.applier.FIRST_DELAY_S", 0)
    assert await fail_everywhere(lambda: World("log"), World.work, dies=True) >= 8


@pytest.mark.parametrize("mode", MODES)
async def test_a_trip_is_booked_whole_or_not_at_all(cluster: MemoryCluster, port: TablePort, mode: Mode) -> None:
    process = Process((await cluster.connect()).book("shop"), port, mode)
    await process.open()
    async with process.tables, process.worker as worker:
        for number, expected in enumerate(([1, 1], [0, 0])):
            assert await (await worker.start(process.trip.call(f"t{number}"), id=f"t{number}")).result() == expected

        async def more(tx: Transaction) -> None:
            tx.put("rooms", "room", {"left": 5})

        await process.tables.transact(more)
        with pytest.raises(SoldOut, match="seat"):
            await (await worker.start(process.trip.call("t2"), id="t2")).result()
        found = await process.tables.get_many("rooms", ["room", "seat", "t2"])
        assert found == [{"left": 5}, {"left": 0}, None]
        assert process.paid == ["t0", "t1"]


@pytest.mark.parametrize("mode", MODES)
async def test_transactions_that_lock_in_opposite_orders_end(cluster: MemoryCluster, mode: Mode) -> None:
    process = Process((await cluster.connect()).book("shop"), MemoryTables(), mode)
    await process.open()
    async with process.tables, process.worker as worker:
        handles = [
            await worker.start(process.move.call(a, b, 2), id=f"{a}{b}{number}")
            for number in range(2)
            for a, b in (("a", "b"), ("b", "a"))
        ]
        await asyncio.gather(*(handle.result() for handle in handles))
        assert await process.tables.get_many("rooms", ["a", "b"]) == [{"left": 50}, {"left": 50}]


async def test_a_row_that_is_changed_without_a_lock_undoes_it(cluster: MemoryCluster) -> None:
    process = Process((await cluster.connect()).book("shop"), MemoryTables())
    await process.open()
    tables = process.tables
    runs = 0

    async def set_to(tx: Transaction, left: int) -> None:
        tx.put("rooms", "room", {"left": left})

    @process.app.step
    async def meddle() -> int:
        nonlocal runs
        runs += 1
        if runs < 3:
            await tables.transact(set_to, 10 * runs)
        return runs

    @process.app.workflow
    async def add() -> int:
        async def one(tx: LockingTransaction) -> int:
            left = cast(int, (await tx.get("rooms", "room") or {"left": 0})["left"])
            await meddle()
            tx.put("rooms", "room", {"left": left + 1})
            return left + 1

        return await locked(tables, one)

    async with tables, process.worker as worker:
        assert await (await worker.start(add.call(), id="x")).result() == 21
        assert await tables.get("rooms", "room") == {"left": 21}
        assert runs == 3


async def test_what_is_no_use_of_it_is_refused(cluster: MemoryCluster) -> None:
    process = Process((await cluster.connect()).book("shop"), MemoryTables())
    await process.open()

    async def nothing(_: object) -> None:
        pass

    @process.app.workflow
    async def unread() -> None:
        async def one(tx: LockingTransaction) -> None:
            tx.put("rooms", "room", {"left": 1})

        await locked(process.tables, one)

    for call in (locked, staged):
        with pytest.raises(bokiflow.NotInWorkflow):
            await call(process.tables, nothing)
    async with process.worker as worker:
        with pytest.raises(boki.InvalidArgument, match="await tx"):
            await (await worker.start(unread.call(), id="x")).result()
    assert len(lock_name("rooms", "ä" * 500).encode()) <= 200
    assert lock_name("rooms", "ä" * 500) != lock_name("rooms", "ä" * 501)
    assert not WrittenUnlocked.retryable
