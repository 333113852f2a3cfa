"""Mode `versioned`: workflows look at rows without a record, as of the last delivery, in memory and on a real Cassandra."""

from __future__ import annotations

from typing import cast

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from bokiflow import App, Worker
from bokiflow.errors import CannotLook
from bokiflow.tables import (
    MemoryTables,
    Schema,
    TablePort,
    TableRefused,
    Tables,
    TableUnavailable,
    Transaction,
    VersionsGone,
)
from bokiflow.tables.schema import ABSENT, VERSION, RowKey
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.testing import UNKNOWNS, FaultKind, crash_everywhere, start_anywhere, while_alive
from libs.tests.flow.conftest import Inline, started
from libs.tests.flow.tables.faulty_database import fail_everywhere

STOCK = Schema("stock", {"left": "int", "name": "text", "more": "json"}, "versioned")
SEVEN = RowKey("stock", "seven")


async def opened(cluster: MemoryCluster, port: TablePort) -> Tables:
    """Open the tables of another process."""
    tables = Tables(Log((await cluster.connect()).book("shop")), port)
    await tables.open(STOCK)
    return tables


async def take(tx: Transaction, key: str) -> int:
    row = await tx.get("stock", key) or {"left": 10}
    left = cast(int, row["left"]) - 1
    tx.put("stock", key, {"left": left})
    return left


# -- the port


async def test_of_a_row_each_version_is_read_until_it_is_dropped(port: TablePort) -> None:
    await port.ensure(STOCK)
    assert await port.read_at(STOCK, "seven", 9) == {}
    for version in (7, 3, 5):
        for _ in range(2):
            await port.write(STOCK, SEVEN, {VERSION: version, ABSENT: "name", "left": version}, version)
    found = await port.read_at(STOCK, "seven", 6)
    assert {name: tuple(cell) for name, cell in found.items()} == {VERSION: (5, 5), ABSENT: ("name", 5), "left": (5, 5)}
    assert (await port.read(STOCK, "seven"))[VERSION].value == 7
    assert await port.read_at(STOCK, "seven", 2) == {}
    await port.drop_below(STOCK, "seven", 5)
    assert await port.read_at(STOCK, "seven", 4) == {}
    assert (await port.read_at(STOCK, "seven", 6))["left"].value == 5
    await port.write(STOCK, SEVEN, {VERSION: 6, ABSENT: "", "left": 6}, 6)
    assert (await port.read_at(STOCK, "seven", 6))["left"].value == 6, "what is dropped hides nothing that is newer"
    assert [key async for key in port.keys(STOCK)] == ["seven"]


async def test_a_table_of_another_mode_is_refused(port: TablePort) -> None:
    await port.ensure(Schema("plain", {"a": "int"}))
    await port.ensure(STOCK)
    for schema in (Schema("plain", {"a": "int"}, "versioned"), Schema("plain", {"a": "int"}, "lwt")):
        with pytest.raises(TableRefused, match="plain"):
            await port.ensure(schema)


# -- what was


async def test_rows_as_of_any_place_whether_the_log_has_them_or_the_table(
    cluster: MemoryCluster, port: TablePort
) -> None:
    one, other = await opened(cluster, port), await opened(cluster, port)
    places = []
    for _ in range(3):
        await one.transact(take, "seven")
        places.append(await one.log.book.now(consistency="linearizable"))
    await other.log.book.now(consistency="linearizable")

    async def look() -> list[object]:
        return [(await other.as_of("stock", ["seven", "eight"], place)) for place in places]

    assert await look() == [[{"left": 9}, None], [{"left": 8}, None], [{"left": 7}, None]]
    assert (await one.settle("stock")).rows == 1
    assert await look() == [[{"left": 9}, None], [{"left": 8}, None], [{"left": 7}, None]], "the table has them"
    assert await other.keys_at("stock", places[-1]) == ["seven"]
    wider = Tables(one.log, port)
    await wider.open(Schema("stock", {"stars": "int"}, "versioned"))

    async def rate(tx: Transaction) -> None:
        tx.put("stock", "seven", {"stars": 5})

    await wider.transact(rate)
    await wider.settle("stock")
    place = await other.log.book.now(consistency="linearizable")
    assert await other.as_of("stock", ["seven"], place) == [{"left": 7, "stars": 5}], "it learns of new columns"


async def test_versions_that_nobody_looks_at_are_collected(cluster: MemoryCluster, port: TablePort) -> None:
    tables = await opened(cluster, port)
    app = App("looking")

    @app.workflow
    async def waits() -> list[object]:
        before = await tables.look("stock", "seven")
        await bokiflow.recv("go")
        return [before, await tables.look("stock", "seven")]

    async with tables, Worker(app, tables.log, bodies=Inline()) as worker:
        await tables.transact(take, "seven")
        old = await tables.log.book.now()
        await tables.transact(take, "seven")
        handle = await worker.start(waits.call(), id="x")
        for _ in range(2):
            await tables.transact(take, "seven")
        await tables.settle("stock")
        assert await tables.collect("stock", worker.flow) <= await tables.log.book.now()
        with pytest.raises(VersionsGone, match="as of"):
            await tables.as_of("stock", ["seven"], old)
        other = Worker(app, tables.log, name="other", bodies=Inline())
        async with other:  # a process that runs it again reads the same
            await handle.signal("go", 1)
            assert await handle.result() == [{"left": 8}, {"left": 6}]
        place = await tables.collect("stock", worker.flow)
        assert await tables.collect("stock", worker.flow) >= place
        stored = (await port.read_at(STOCK, "seven", old)) or {}
        assert not stored, "versions of before are gone"
        assert await tables.get("stock", "seven") == {"left": 6}


async def test_who_is_not_counted_is_blocked_and_reads_nothing_wrong(cluster: MemoryCluster) -> None:
    tables = await opened(cluster, MemoryTables())
    app = App("looking")
    nobody = App("nobody")

    @app.workflow
    async def waits() -> object:
        await bokiflow.recv("go")
        return await tables.look("stock", "seven")

    async with tables, Worker(app, tables.log, bodies=Inline()) as worker:
        await tables.transact(take, "seven")
        await tables.settle("stock")
        handle = await worker.start(waits.call(), id="x")
        await handle.signal("go", 1)
        assert await handle.result() == {"left": 9}
        fork = await handle.fork(id="y", before=None)
        assert await fork.result() == {"left": 9}
        await tables.transact(take, "seven")
        await tables.settle("stock")
        await tables.collect("stock", bokiflow.Flow(nobody, tables.log))
        with pytest.raises(CannotLook, match="VersionsGone"):
            await (await handle.fork(id="z", before=None)).result()


async def test_what_a_mode_cannot_keep_is_refused_and_the_right_one_named(cluster: MemoryCluster) -> None:
    port = MemoryTables()
    tables = await opened(cluster, port)
    await tables.open(Schema("plain", {"a": "int"}))
    await tables.open(Schema("shared", {"a": "int"}, "lwt"))

    async def nothing(*_: object) -> None:
        pass

    async def both(tx: Transaction) -> None:
        await tx.get("shared", "x")

    with pytest.raises(TableRefused, match="nearest mode that does is 'versioned'"):
        await tables.look("plain", "x")
    with pytest.raises(TableRefused, match="nearest mode that does is 'versioned'"):
        await tables.as_of("shared", ["x"], 1)
    with pytest.raises(TableRefused, match="nearest mode that does is 'log'"):
        await tables.transact(both)
    with pytest.raises(TableRefused, match="nearest mode that does is 'lwt'"):
        await tables.change("plain", "x", nothing)
    with pytest.raises(TableRefused, match="has mode 'versioned'"):
        await tables.open(Schema("stock", {"left": "int"}))
    with pytest.raises(bokiflow.NotInWorkflow):
        await tables.look("stock", "x")
    async with MemoryCluster() as elsewhere:
        with pytest.raises(TableRefused, match="nearest mode is 'lwt'"):
            await opened(elsewhere, port)


# -- wherever the process dies


class Process:
    """A process with a workflow that looks, and writes the rows that it saw."""

    def __init__(self, book: BookPort, port: TablePort) -> None:
        self.tables = Tables(Log(book), port)
        self.app = App("stock")
        self.worker = Worker(self.app, self.tables.log, name="w", bodies=Inline())

        @self.app.step
        async def note(seen: object) -> object:
            """Record an argument, which each replay compares."""
            return seen

        @self.app.workflow
        async def both() -> list[object]:
            found: list[object] = []
            for _ in range(2):
                left = await bokiflow.transact(self.tables, take, "seven")
                row = await self.tables.look("stock", "seven")
                assert row == {"left": left}, "its own writes, and nobody's before"
                found.append(await note(row))
            return found

        self.both = both


class World:
    """A database that processes share, one run after the other; the table is brought up to date between them."""

    def __init__(self) -> None:
        self.port = MemoryTables()

    async def begin(self, _: boki.Book) -> None:
        self.port = MemoryTables()

    async def work(self, book: BookPort) -> None:
        process = Process(book, self.port)

        async def work() -> None:
            async with process.tables:
                await process.tables.open(STOCK)
                async with process.worker:
                    handle = await started(process.worker, process.both.call())
                    assert await handle.result() == [{"left": 9}, {"left": 8}]

        await while_alive(book, work())

    async def again(self, book: BookPort) -> None:
        async def settle() -> None:
            tables = Tables(Log(book), self.port)
            async with tables:
                await tables.open(STOCK)
                await tables.settle("stock")

        await while_alive(book, settle())
        await self.work(book)

    async def check(self, book: boki.Book) -> None:
        tables = Tables(Log(book), self.port)
        await tables.open(STOCK)
        assert await tables.get("stock", "seven") == {"left": 8}


@pytest.mark.parametrize("kinds", [("before", "after"), UNKNOWNS])
async def test_a_death_or_a_lost_answer_at_every_operation_of_the_log(kinds: tuple[FaultKind, ...]) -> None:
    world = World()
    assert (await crash_everywhere(world.work, world.again, world.check, kinds=kinds, before=world.begin)).runs > 8


async def test_a_second_worker_before_every_operation() -> None:
    world = World()
    assert (await start_anywhere(world.work, world.work, world.check, before=world.begin)).runs > 8


@pytest.mark.parametrize("dies", [True, False])
async def test_a_death_or_no_answer_around_every_operation_of_the_database(
    dies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bokiflow.tables.applier.FIRST_DELAY_S", 0)
    assert await fail_everywhere(World, World.again, dies=dies) >= 8


async def test_a_database_that_is_down_is_waited_for_and_is_no_answer(cluster: MemoryCluster) -> None:
    failures = 3

    def fault(what: str) -> None:
        nonlocal failures
        if what == "read" and failures:
            failures -= 1
            raise TableUnavailable("for once")

    port = MemoryTables()
    tables = await opened(cluster, port)
    await tables.transact(take, "seven")
    await tables.settle("stock")
    app = App("looking")

    @app.workflow
    async def looks() -> object:
        return await tables.look("stock", "seven")

    port.fault = fault
    async with Worker(app, tables.log, bodies=Inline()) as worker:
        before = worker.log.appends
        assert await (await worker.start(looks.call(), id="x")).result() == {"left": 9}
        assert worker.log.appends - before == 2, "start, end"
    assert failures == 0
