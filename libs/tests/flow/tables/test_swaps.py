"""Mode `lwt`: each change of a row happens once, beside other writers and with lost statements, in memory and on a real Cassandra."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
import xxhash

import boki
import bokiflow
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, NonDeterminism, Worker, WorkflowBlocked
from bokiflow.history import inspection
from bokiflow.model.flow_events import Started
from bokiflow.model.outcomes import AT_THE_FUNCTION, Failure, RecordedFailure, digest
from bokiflow.model.records import start
from bokiflow.tables import MemoryTables, OneRow, Schema, TablePort, Tables, TableUnavailable, WriteUnknown, swapping
from bokiflow.tables.errors import NotHeld
from bokiflow.tables.swap_rules import NOTHING, OUTSIDE_MS, Name, Standing, Swap, ended, is_over, name_of
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.records.codec import Json
from bokilib.testing import UNKNOWNS, FaultKind, crash_everywhere, start_anywhere, while_alive
from libs.tests.conftest import SetClock
from libs.tests.flow.conftest import Inline, started
from libs.tests.flow.tables.faulty_database import fail_everywhere
from libs.tests.flow.tables.test_tables import Faults

STOCK = Schema("stock", {"left": "int", "name": "text", "more": "json"}, "lwt")


class SoldOut(Exception):
    pass


async def opened(cluster: MemoryCluster, port: TablePort, book: str = "shop") -> Tables:
    """Open the tables of another process."""
    tables = Tables(Log((await cluster.connect()).book(book)), port)
    await tables.open(STOCK)
    return tables


async def take(row: OneRow, by: int = 1) -> int:
    there = row.value or {"left": 10}
    left = cast(int, there["left"]) - by
    if left < 0:
        raise SoldOut(f"only {left + by}")
    row.put({"left": left})
    return left


# -- rules


def test_an_operation_ended_as_its_row_has_it_or_as_was_noted() -> None:
    assert ended("p", Standing("p", "ok", {}), None) == "ok"
    assert ended("p", Standing("q", "no", {}), "ok") == "ok"
    assert ended("p", Standing("q", "no", {}), None) is None
    assert ended("p", NOTHING, None) is None


def test_names_are_distinguished_from_those_of_others() -> None:
    name = Name("token", "a|b", 5, "x")
    assert name_of(name.text) == name
    assert name_of("somebody's") is None
    assert not is_over(name, 10**15), "a workflow's is over when that is"
    assert is_over(Name("token", "", 5, "x"), 10**15)
    assert not is_over(Name("token", "", 5, "x"), 6)


def test_a_row_within_an_operation() -> None:
    row = OneRow(STOCK, Standing("q", "", {"left": 3, "name": "a"}))
    assert row.swap("p", "o") == Swap("p", "o", None)
    row.put({"name": None, "more": [1]})
    assert row.value == {"left": 3, "more": [1]}
    assert row.swap("p", "o") == Swap("p", "o", {"left": 3, "more": [1]})
    row.delete()
    assert row.value is None
    assert row.swap("p", "o") == Swap("p", "o", {}, gone=True)
    row.put({"left": 1})
    assert row.value == {"left": 1}
    with pytest.raises(boki.InvalidArgument):
        row.put({"left": "x"})


# -- the port


async def test_a_row_changes_if_its_operation_is_what_was_seen(port: TablePort) -> None:
    await port.ensure(STOCK)
    assert await port.standing(STOCK, "seven") == NOTHING
    assert await port.swap(STOCK, "seven", None, Swap("p", "1", {"left": 2**62, "more": {"a": [None]}}))
    assert await port.standing(STOCK, "seven") == ("p", "1", {"left": 2**62, "more": {"a": [None]}})
    assert not await port.swap(STOCK, "seven", None, Swap("q", "2", {}))
    assert not await port.swap(STOCK, "seven", "x", Swap("q", "2", {}))
    assert await port.swap(STOCK, "seven", "p", Swap("q", "2", {"name": "b"}))
    assert await port.standing(STOCK, "seven") == ("q", "2", {"name": "b"})
    assert await port.swap(STOCK, "seven", "q", Swap("r", "3"))
    assert await port.standing(STOCK, "seven") == ("r", "3", {"name": "b"})
    assert await port.swap(STOCK, "seven", "r", Swap("s", "4", {}, gone=True))
    assert await port.standing(STOCK, "seven") == ("s", "4", None)
    assert await port.swap(STOCK, "seven", "s", Swap("t", "5", {"left": 1}))
    assert await port.standing(STOCK, "seven") == ("t", "5", {"left": 1})
    assert [key async for key in port.keys(STOCK)] == ["seven"]


async def test_operations_are_noted_until_nobody_asks(port: TablePort) -> None:
    await port.ensure(STOCK)
    assert await port.helped("p") is None
    for _ in range(2):
        await port.help("p", "ok")
    assert await port.helped("p") == "ok"
    assert [op async for op in port.helps()] == ["p"]
    await port.unhelp("p")
    assert await port.helped("p") is None
    await port.help("p", "ok")  # a very late note
    assert [op async for op in port.helps()] in ([], ["p"])


# -- what they do


async def test_rows_change_and_processes_of_two_books_lose_no_update(cluster: MemoryCluster, port: TablePort) -> None:
    """Two applications change one table, each with a book of its own."""
    async with MemoryCluster() as elsewhere:
        several = [await opened(cluster, port), await opened(elsewhere, port), await opened(cluster, port, "other")]
        await asyncio.gather(*(tables.change("stock", "seven", take) for tables in several for _ in range(3)))
        for tables in several:
            assert await tables.get_many("stock", ["seven", "eight"]) == [{"left": 1}, None]
        with pytest.raises(SoldOut, match="only 1"):
            await several[0].change("stock", "seven", take, by=2)
        assert await several[1].change("stock", "seven", take) == 0


async def test_a_workflow_changes_a_row_once_in_a_step(cluster: MemoryCluster, port: TablePort) -> None:
    process = Process((await cluster.connect()).book("shop"), port)
    await process.tables.open(STOCK)
    async with process.worker as worker:
        before = worker.log.appends
        assert await (await worker.start(process.twice.call(), id="x")).result() == [9, 8, "only 8"]
        assert worker.log.appends - before == 5, "start, how changes are named, three steps, the last with the end"
    assert await process.tables.get("stock", "seven") == {"left": 8}
    assert (await process.tables.settle("stock")).rows == 2, "all but the last were noted"
    assert [op async for op in port.helps()] == []


@pytest.mark.parametrize(
    ("recorded", "raised"),
    [("a_gone_stock:SoldOut", SoldOut), ("a_gone_stock:Missing", (NonDeterminism, WorkflowBlocked))],
    ids=["moved with the body", "lost"],
)
async def test_an_error_that_a_row_has_is_looked_for_where_the_body_is(
    cluster: MemoryCluster, recorded: str, raised: type[Exception] | tuple[type[Exception], ...]
) -> None:
    """An older program applied the change and recorded its error; its workflow resumes in this program."""
    monday = Process((await cluster.connect()).book("shop"), MemoryTables())
    await monday.tables.open(STOCK)

    async def take_as_before(row: OneRow) -> None:
        raise RecordedFailure(Failure(recorded, "none left", ["none left"], known_by=AT_THE_FUNCTION))

    @monday.app.workflow
    async def tries() -> None:
        await monday.tables.change("stock", "seven", take_as_before)

    async with monday.worker as worker:
        handle = await worker.start(tries.call(), id="x")
        with pytest.raises(raised, match="none left" if raised is SoldOut else recorded):
            await handle.result(blocked="raise")


class Stopping(MemoryTables):
    """A database that does a swap, the n-th one, and does not answer it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.left = number
        self.swapped = asyncio.Event()

    async def swap(self, schema: Schema, key: str, seen: str | None, swap: Swap) -> bool:
        made = await super().swap(schema, key, seen, swap)
        self.left -= 1
        if self.left == 0:
            self.swapped.set()
            await asyncio.Event().wait()
        return made


def taking(tables: Tables, called_ms: list[int], *, patch: bool = False) -> App:
    """Return a program that takes two, or the next one, which does something else before each."""
    app = App("stock")

    @app.step
    async def check() -> None:
        pass

    @app.workflow
    async def twice() -> list[Json]:
        taken: list[Json] = []
        for number in range(2):
            if patch and bokiflow.patched(f"check {number}"):
                await check()
                await let_pass(60)
            called_ms.append(bokiflow.now_ms())
            taken.append(await tables.change("stock", "seven", take))
        return taken

    return app


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("way", ["left", "drained"])
@in_virtual_time
async def test_a_step_that_a_patch_puts_before_a_change_does_not_change_its_name(way: str, number: int) -> None:
    port, called_ms = Stopping(number), list[int]()
    async with MemoryCluster(clock=LoopClock()) as cluster:
        tables = await opened(cluster, port)
        app = taking(tables, called_ms)
        async with Worker(app, tables.log, name="w", bodies=Inline()) as worker:
            await worker.start(app.find("twice").call(), id="x")
            await port.swapped.wait()
            if way == "drained":
                await worker.drain(finish_s=0)
        tables = await opened(cluster, port)
        app = taking(tables, called_ms, patch=True)
        async with Worker(app, tables.log, name="w", bodies=Inline()) as worker:
            assert await worker.handle("x").result() == [9, 8]
        assert await tables.get("stock", "seven") == {"left": 8}
    assert called_ms[-1] >= called_ms[0] + 60_000, "the time of the call is another one, too"


async def test_a_change_that_an_older_program_began_keeps_its_name(cluster: MemoryCluster) -> None:
    """It counted changes with the calls before them, and named them by their time."""
    port = MemoryTables()
    tables = await opened(cluster, port)
    app = App("stock")

    @app.workflow
    async def once() -> Json:
        return await tables.change("stock", "seven", take)

    await tables.log.append(start(Started("x", "once", digest([[], {}]), [[], {}], 5, group="stock"), 0))
    async with Worker(app, tables.log, name="w", bodies=Inline()) as worker:
        assert await worker.handle("x").result() == 9
    unique = xxhash.xxh3_128_hexdigest(b"x/5/0:1")
    standing = await port.standing(STOCK, "seven")
    assert standing.op is not None and name_of(standing.op) == Name(standing.op.split("|")[0], "x", 5, unique)


# -- statements that are lost


@pytest.mark.parametrize("what", ["standing", "helped", "help", "after help", "swap", "after swap", "late swap"])
async def test_after_a_time_out_the_row_has_what_became_of_it(
    cluster: MemoryCluster, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(WriteUnknown if "swap" in what or "after" in what else TableUnavailable)
    port = MemoryTables(faults)
    one, other = await opened(cluster, port), await opened(cluster, port)
    await other.change("stock", "seven", take)
    faults.left = {what: 2}
    assert await one.change("stock", "seven", take) == 8
    port.arrive()
    assert await other.change("stock", "seven", take) == 7
    port.arrive()
    assert await one.get("stock", "seven") == {"left": 7}


async def test_what_comes_late_is_applied_once_or_never(cluster: MemoryCluster) -> None:
    faults = Faults(WriteUnknown)
    port = MemoryTables(faults)
    one = await opened(cluster, port)
    asked = 0

    async def body(row: OneRow) -> int:
        """Depend on more than the row, as a body may."""
        nonlocal asked
        asked += 1
        if asked == 1:
            faults.left = {"late swap": 1}
        if asked == 2:
            port.arrive()  # the first attempt's, after its row was read again
        row.put({"left": 100 + asked})
        return asked

    assert await one.change("stock", "seven", body) == 1
    assert await one.get("stock", "seven") == {"left": 101}


async def test_one_that_is_given_up_is_unknown(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swapping, "OUTSIDE_S", 0.01)
    faults = Faults(TableUnavailable)
    tables = await opened(cluster, MemoryTables(faults))
    faults.left = {"standing": 10**6}
    with pytest.raises(WriteUnknown, match="may or may not") as unknown:
        await tables.change("stock", "seven", take)
    assert not unknown.value.definite


async def test_notes_are_forgotten_a_day_later_whoever_has_a_wrong_clock() -> None:
    """A clock is two days behind and another two days ahead: no process deletes the outcome of an operation that has just begun."""
    clock, behind, ahead = SetClock(), SetClock(), SetClock()
    clock.ms, ahead.ms = 10 * OUTSIDE_MS, 12 * OUTSIDE_MS
    behind.ms = 8 * OUTSIDE_MS
    async with MemoryCluster(clock=clock) as cluster:
        port, logs = MemoryTables(), [Log((await cluster.connect()).book("shop")) for _ in range(2)]
        one, other = Tables(logs[0], port, clock=behind), Tables(logs[1], port, clock=ahead)
        for tables in (one, other):
            await tables.open(STOCK)
            for _ in range(2):  # who overwrites an operation notes how it ended
                await tables.change("stock", "seven", take)
        assert await other.settle("stock") == (0, 0) == await one.settle("stock")
        for late in (clock, behind, ahead):
            late.ms += OUTSIDE_MS + 60_000  # the log's clock advances between two records
        await other.open(Schema("other", {"a": "int"}))
        assert await one.settle("stock") == (0, 0), "by his clock it has not begun yet"
        assert (await other.settle("stock")).rows == 2, "what began by the log's time"
        ahead.ms = clock.ms = 14 * OUTSIDE_MS
        await other.open(Schema("more", {"a": "int"}))
        assert (await other.settle("stock")).rows == 1, "and what began by the clock that was ahead"


# -- zombies


class Process:
    """A workflow that takes two, and then more than there is."""

    def __init__(self, book: BookPort, port: TablePort) -> None:
        self.tables = Tables(Log(book), port)
        self.app = App("stock")
        self.worker = Worker(self.app, self.tables.log, name="w", bodies=Inline())

        @self.app.workflow
        async def twice() -> list[Json]:
            found: list[Json] = [await self.tables.change("stock", "seven", take) for _ in range(2)]
            try:
                await self.tables.change("stock", "seven", take, by=20)
            except SoldOut as refused:
                found.append(str(refused))
            return found

        self.twice = twice


class World:
    """A database that processes share, one run after the other; another program changes the row between them."""

    def __init__(self) -> None:
        self.port = MemoryTables()
        self.others = 0

    async def begin(self, _: boki.Book) -> None:
        self.port, self.others = MemoryTables(), 0

    async def work(self, book: BookPort) -> None:
        process = Process(book, self.port)

        async def work() -> None:
            async with process.tables:
                await process.tables.open(STOCK)
                async with process.worker:
                    handle = await started(process.worker, process.twice.call())
                    found = await handle.result()
                    assert isinstance(found[0], int) and isinstance(found[1], int)
                    assert found[0] > found[1] and str(found[2]).startswith("only")

        await while_alive(book, work())

    async def again(self, book: BookPort) -> None:
        """Write as another application first, over any value."""
        async with MemoryCluster() as elsewhere:
            other = await opened(elsewhere, self.port)
            await other.change("stock", "seven", take)
            self.others += 1
        await self.work(book)

    async def check(self, book: boki.Book) -> None:
        tables = Tables(Log(book), self.port)
        await tables.open(STOCK)
        assert await tables.get("stock", "seven") == {"left": 8 - self.others}
        await tables.settle("stock")
        assert [op async for op in self.port.helps() if "|x" in op] == [], "its workflow is over"


@pytest.mark.parametrize("kinds", [("before", "after"), UNKNOWNS])
async def test_a_death_or_a_lost_answer_at_every_operation_of_the_log(kinds: tuple[FaultKind, ...]) -> None:
    world = World()
    assert (await crash_everywhere(world.work, world.again, world.check, kinds=kinds, before=world.begin)).runs > 8


async def test_a_second_worker_before_every_operation() -> None:
    world = World()
    assert (await start_anywhere(world.work, world.work, world.check, before=world.begin)).runs > 8


@pytest.mark.parametrize("dies", [True, False])
async def test_a_death_or_no_answer_around_every_operation_of_the_database(dies: bool) -> None:
    assert await fail_everywhere(World, World.again, dies=dies) >= 12


async def test_two_zombies_of_one_workflow_race_and_the_row_changes_once(
    cluster: MemoryCluster, port: TablePort
) -> None:
    one = Process((await cluster.connect()).book("shop"), port)
    await one.tables.open(STOCK)
    async with one.worker as worker:
        handle = await worker.start(one.twice.call(), id="x")
        other = Process((await cluster.connect()).book("shop"), port)
        await other.tables.open(STOCK)
        async with other.worker:  # of the same name: it takes over what the first one still runs
            assert await handle.result() == [9, 8, "only 8"]
    assert await one.tables.get("stock", "seven") == {"left": 8}


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_a_zombie_whose_operation_is_forgotten_writes_nothing(cluster: MemoryCluster, elsewhere: bool) -> None:
    """The zombie has stood still since before it read the row; its workflow ended in between, and recorded outcomes were deleted.

    The zombie may be in the same process: code of the user may continue after it was cancelled, until the workflow runs again and ends.
    """
    port = MemoryTables()
    one = Process((await cluster.connect()).book("shop"), port)
    await one.tables.open(STOCK)
    names: list[str] = []
    applied: Callable[..., object] = swapping.applied
    async with one.worker as worker:
        handle = await worker.start(one.twice.call(), id="x")
        assert await handle.result() == [9, 8, "only 8"]
    names = [op async for op in port.helps()]
    state = await inspection.newest(one.tables.log, "x")
    assert state is not None
    await one.tables.settle("stock")
    zombie = await opened(cluster, port) if elsewhere else one.tables
    late = swapping.Operation(STOCK, "seven", names[0], take)
    with pytest.raises(NotHeld, match="another worker"):
        await applied(port, late, lambda: swapping.held_here(zombie.log, "x", state.start))  # type: ignore[misc]  # a coroutine
    assert await one.tables.get("stock", "seven") == {"left": 8}


async def test_a_zombie_of_an_id_that_has_begun_again_in_its_process_writes_nothing(cluster: MemoryCluster) -> None:
    """The workflow ended and was forgotten, with the outcomes of its operations; a new workflow has its id in the same process."""
    async with Process((await cluster.connect()).book("shop"), MemoryTables()).worker as worker:

        @worker.flow.app.workflow
        async def waits() -> None:
            await bokiflow.recv("never")

        await worker.start(waits.call(), id="x")
        state = await inspection.newest(worker.log, "x")
        assert state is not None
        await swapping.held_here(worker.log, "x", state.start)
        with pytest.raises(NotHeld, match="another worker"):
            await swapping.held_here(worker.log, "x", state.start - 1)


async def test_tables_of_another_log_than_the_workers_are_refused(cluster: MemoryCluster) -> None:
    tables = await opened(cluster, MemoryTables())
    app = App("stock")

    @app.workflow
    async def once() -> int:
        return await tables.change("stock", "seven", take)

    async with Worker(app, (await cluster.connect()).book("shop"), bodies=Inline()) as worker:
        with pytest.raises(NotHeld, match="different Logs"):
            await (await worker.start(once.call(), id="x")).result()
    with pytest.raises(bokiflow.NotInWorkflow):
        await bokiflow.recv("x")
