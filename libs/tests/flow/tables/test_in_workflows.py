"""Rows changed once with steps of workflows: a process dies anywhere, also between the log and the database, beside zombies."""

from __future__ import annotations

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from bokiflow import App, Worker
from bokiflow.tables import MemoryTables, TablePort, Tables, Transaction
from bokiflow.tables.schema import RowKey
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.testing import UNKNOWNS, FaultKind, crash_everywhere, start_anywhere, while_alive
from libs.tests.flow.conftest import Inline, started
from libs.tests.flow.tables.conftest import HOTEL, tables_of
from libs.tests.flow.tables.faulty_database import fail_everywhere


async def move(tx: Transaction, a: str, b: str) -> int:
    one, other = await tx.get_many("hotel", [a, b])
    left = (one or {"left_over": 10})["left_over"]
    more = (other or {"left_over": 0})["left_over"]
    assert isinstance(left, int)
    assert isinstance(more, int)
    if left < 3:
        raise ValueError(f"only {left}")
    tx.put("hotel", a, {"left_over": left - 3})
    tx.put("hotel", b, {"left_over": more + 3})
    return left - 3


class Process:
    """Tables and a worker of one log."""

    def __init__(self, book: BookPort, port: TablePort) -> None:
        self.tables = Tables(Log(book), port)
        self.app = App("hotel")
        self.worker = Worker(self.app, self.tables.log, name="w", bodies=Inline())

        @self.app.workflow
        async def twice() -> list[int]:
            return [await bokiflow.transact(self.tables, move, "a", "b") for _ in range(2)]

        @self.app.workflow
        async def refused() -> int:
            return await bokiflow.transact(self.tables, move, "b", "a")

        self.twice, self.refused = twice, refused


class World:
    """A database that processes share, one run after the other."""

    def __init__(self) -> None:
        self.port = MemoryTables()

    async def begin(self, _: boki.Book) -> None:
        self.port = MemoryTables()

    async def work(self, book: BookPort) -> None:
        process = Process(book, self.port)

        async def work() -> None:
            async with process.tables:
                await process.tables.open(HOTEL)
                async with process.worker:
                    handle = await started(process.worker, process.twice.call())
                    assert await handle.result() == [7, 4]

        await while_alive(book, work())

    async def check(self, book: boki.Book) -> None:
        tables = Tables(Log(book), self.port)
        await tables.open(HOTEL)
        assert await tables.get_many("hotel", ["a", "b"]) == [{"left_over": 4}, {"left_over": 6}]
        await tables.applier.applied([RowKey("hotel", "a"), RowKey("hotel", "b")])
        emptied = Tables(Log(book), self.port, cached_rows=0)
        await emptied.open(HOTEL)
        assert await emptied.get_many("hotel", ["a", "b"]) == [{"left_over": 4}, {"left_over": 6}]


@pytest.mark.parametrize("kinds", [("before", "after"), UNKNOWNS])
async def test_a_death_or_a_lost_answer_at_every_operation_of_the_log(kinds: tuple[FaultKind, ...]) -> None:
    world = World()
    explored = await crash_everywhere(world.work, world.work, world.check, kinds=kinds, before=world.begin)
    assert explored.runs > 8


async def test_a_second_worker_before_every_operation() -> None:
    world = World()
    assert (await start_anywhere(world.work, world.work, world.check, before=world.begin)).runs > 8


@pytest.mark.parametrize("dies", [True, False])
async def test_a_death_or_no_answer_around_every_operation_of_the_database(
    dies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bokiflow.tables.applier.FIRST_DELAY_S", 0)
    assert await fail_everywhere(World, World.work, dies=dies) >= 12


async def test_a_step_and_its_rows_are_one_record(cluster: MemoryCluster, port: TablePort) -> None:
    process = Process((await cluster.connect()).book("shop"), port)
    await process.tables.open(HOTEL)
    async with process.tables, process.worker as worker:
        before = worker.log.appends
        assert await (await worker.start(process.twice.call(), id="x")).result() == [7, 4]
        assert worker.log.appends - before == 4, "start, two transactions, end"
        with pytest.raises(ValueError, match="only"):
            for number in range(3):
                await (await worker.start(process.refused.call(), id=f"y{number}")).result()
    other = await tables_of(cluster, port)
    assert await other.get_many("hotel", ["a", "b"]) == [{"left_over": 10}, {"left_over": 0}]


async def test_two_zombies_of_one_workflow_change_a_row_once(cluster: MemoryCluster, port: TablePort) -> None:
    one = Process((await cluster.connect()).book("shop"), port)
    await one.tables.open(HOTEL)
    async with one.tables, one.worker as worker:
        handle = await worker.start(one.twice.call(), id="x")
        other = Process((await cluster.connect()).book("shop"), port)
        await other.tables.open(HOTEL)
        async with other.tables, other.worker:  # of the same name: it takes over what the first one still runs
            assert await handle.result() == [7, 4]
    third = await tables_of(cluster, port)
    assert await third.get_many("hotel", ["a", "b"]) == [{"left_over": 4}, {"left_over": 6}]
