"""States of tables rewritten out of old terms, unnoticed by processes that have the tables open."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Worker
from bokiflow.tables import MemoryTables, Schema, Tables, TablesCarried, TableUnavailable, Transaction, VersionsGone
from bokiflow.tables.schema import Made
from bokiflow.tables.versions import floor, raise_floor
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib import Carrier, Event
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.retention.checkpoint_rules import REWRITE_MS
from bokilib.testing import CRASHES, UNKNOWNS, FaultKind, crash_everywhere, start_anywhere
from libs.tests.conftest import SetClock
from libs.tests.flow.conftest import Inline

DAY_S = REWRITE_MS / 1_000
HOUR_S = 3_600
PLAIN = Schema("plain", {"left": "int"})
STOCK = Schema("stock", {"left": "int"}, "versioned")


async def tables_of(log: Log, port: MemoryTables) -> Tables:
    tables = Tables(log, port, keep_every_s=HOUR_S)
    for schema in (PLAIN, STOCK):
        await tables.open(schema)
    return tables


async def take(tx: Transaction, table: str) -> int:
    row = await tx.get(table, "seven") or {"left": 100}
    left = row["left"]
    assert isinstance(left, int)
    tx.put(table, "seven", {"left": left - 1})
    return left - 1


async def live(book: BookPort) -> list[boki.Record]:
    return [item async for item in book.read() if isinstance(item, boki.Record)]


@in_virtual_time
async def test_a_book_with_tables_keeps_no_term_of_before_two_days() -> None:
    """Terms last a day: some days of work, then days without any. A process that has the tables open all the time notices nothing."""
    clock = LoopClock()
    async with MemoryCluster(clock=clock) as cluster:
        port, books = MemoryTables(), [(await cluster.connect()).book("b") for _ in range(3)]
        idle = await tables_of(Log(books[0]), port)
        async with await tables_of(Log(books[1]), port) as tables, await tables_of(Log(books[2]), port) as other:
            assert await raise_floor(tables.log, "stock", 1) == 1
            for day in range(9):
                for _ in range(4):
                    if day < 4:
                        for table in ("plain", "stock"):
                            await (tables if day % 2 else other).transact(take, table)
                    await let_pass(DAY_S / 4)
                terms = {clock.now_ms() // REWRITE_MS - record.time_ms // REWRITE_MS for record in await live(books[0])}
                assert max(terms) <= 2, day
            assert len(await live(books[0])) == 2, "the turn, and what two tables are, with one floor"
            assert await floor(tables.log, "stock") == 1
        for table in ("plain", "stock"):
            assert await idle.get(table, "seven") == {"left": 84}
            assert await idle.transact(take, table) == 83


# -- processes that have a table open


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def logs(clock: SetClock) -> AsyncIterator[list[Log]]:
    async with MemoryCluster(clock=clock) as cluster:
        yield [Log((await cluster.connect()).book("b")) for _ in range(3)]


async def carried(log: Log, clock: SetClock) -> int:
    """Let a day pass, and rewrite the states of tables."""
    clock.ms += REWRITE_MS
    return (await Carrier(log, [TablesCarried(log)], who="c").round()).carried


async def test_a_transaction_learns_of_what_was_carried_and_is_not_run_again(logs: list[Log], clock: SetClock) -> None:
    one = await tables_of(logs[0], MemoryTables())
    left: list[int] = []

    async def both(tx: Transaction, when: str) -> None:
        left.append(await take(tx, "plain"))
        if when == "between two reads":
            await carried(logs[2], clock)
        await take(tx, "stock")
        if when == "before it is written" and len(left) < 5:
            await carried(logs[2], clock)

    for days in (1, 2):
        for _ in range(days):
            assert await carried(logs[2], clock) == 2
        await one.transact(both, "before it begins")
    await one.transact(both, "between two reads")
    assert left == [99, 98, 97]
    await one.transact(both, "before it is written")
    assert left == [99, 98, 97, 96, 96], "what it expected of its tables was over"


async def test_a_workflow_goes_on_over_what_was_carried(logs: list[Log], clock: SetClock) -> None:
    tables = await tables_of(logs[0], MemoryTables())
    app = App("shop")

    @app.workflow
    async def days() -> list[object]:
        found: list[object] = []
        for _ in range(2):
            for table in ("plain", "stock"):
                found.append(await bokiflow.transact(tables, take, table))
            found.append(await tables.look("stock", "seven"))
            await bokiflow.recv("a day later")
        return found

    async with tables, Worker(app, logs[0], bodies=Inline(), lease_s=3_600) as worker:
        handle = await worker.start(days.call(), id="x")
        for _ in range(2):
            for _ in range(2):
                await carried(logs[2], clock)
            await handle.signal("a day later", None)
        assert await handle.result() == [99, 99, {"left": 99}, 98, 98, {"left": 98}]


async def test_what_is_appended_anew_and_not_yet_trimmed_changes_nothing_for_who_reads(logs: list[Log]) -> None:
    one = await tables_of(logs[0], MemoryTables())
    stream = tags.table_catalog("plain")
    record = await logs[1].book.read_prev(stream)
    assert record is not None
    made = Made("plain", "log", {"left": "int"}, one.opened("plain").token)
    await logs[1].append(Contribution((stream,), {stream: record.seqnum}, (made,)))
    tx = await one.begin()
    assert await take(tx, "plain") == 99
    assert await one.commit(tx)


async def test_columns_that_were_added_before_it_was_carried_are_learned_of(logs: list[Log], clock: SetClock) -> None:
    port = MemoryTables()
    one, other = await tables_of(logs[0], port), await tables_of(logs[1], port)
    await other.open(Schema("plain", {"left": "int", "name": "text"}))

    async def named(tx: Transaction) -> None:
        tx.put("plain", "seven", {"left": 1, "name": "Bär"})

    await other.transact(named)
    assert await carried(logs[2], clock) == 2
    assert await one.transact(take, "plain") == 0
    assert await one.get("plain", "seven") == {"left": 0, "name": "Bär"}


async def test_a_transaction_learns_of_columns_of_a_table_that_it_reads_second(logs: list[Log]) -> None:
    port = MemoryTables()
    one, other = await tables_of(logs[0], port), await tables_of(logs[1], port)
    await other.open(Schema("stock", {"left": "int", "name": "text"}, "versioned"))

    async def both(tx: Transaction) -> None:
        await take(tx, "plain")
        await take(tx, "stock")

    await one.transact(both)
    assert await other.get("stock", "seven") == {"left": 99}


async def test_a_floor_that_was_carried_still_has_which_versions_are_gone(logs: list[Log], clock: SetClock) -> None:
    tables = await tables_of(logs[0], MemoryTables())
    old = await logs[0].book.now()
    for _ in range(2):
        await tables.transact(take, "stock")
    await tables.settle("stock")
    place = await tables.collect("stock")
    for _ in range(2):
        assert await carried(logs[1], clock) == 3
    assert await floor(logs[2], "stock") == place > old
    with pytest.raises(VersionsGone):
        await tables.as_of("stock", ["seven"], old)


class Later(Event, tag="table.later", frozen=True):
    """An event of a later version."""

    id: str


async def test_what_cannot_be_read_of_a_table_keeps_its_term_and_no_others(logs: list[Log], clock: SetClock) -> None:
    await tables_of(logs[0], MemoryTables())
    later = await logs[1].append(Contribution((tags.table_catalog("plain"),), {}, (Later("plain"),)))
    clock.ms += REWRITE_MS
    done = await Carrier(logs[2], [TablesCarried(logs[2])], who="c").round()
    assert (done.carried, done.left) == (1, {"unreadable": 1})
    left = await live(logs[2].book)
    assert left[0].seqnum == later and clock.ms - left[1].time_ms < REWRITE_MS


async def test_while_the_database_does_not_answer_its_rows_keep_their_terms(logs: list[Log], clock: SetClock) -> None:
    port = MemoryTables()
    tables = await tables_of(logs[0], port)
    await tables.transact(take, "plain")
    await tables.transact(take, "stock")
    assert await tables.settle_old() == 0, "nothing is old"
    await carried(logs[1], clock)

    def down(_: str) -> None:
        raise TableUnavailable("it is down")

    port.fault, up = down, port.fault
    assert await tables.settle_old() == 0
    port.fault = up
    assert [await tables.settle_old() for _ in range(2)] == [2, 0]
    assert await tables.get_many("plain", ["seven"]) == [{"left": 99}]


# -- wherever who carries dies


class Days:
    """Two tables that no process changes; days pass, and processes that rewrite states are killed."""

    def __init__(self, clock: SetClock) -> None:
        self.clock = clock
        self.port = MemoryTables()
        self.place = 0
        self.altered = False

    async def before(self, book: boki.Book) -> None:
        self.port, self.altered = MemoryTables(), False
        tables = await tables_of(Log(book), self.port)
        for table in ("plain", "stock"):
            await tables.transact(take, table)
            await tables.settle(table)
        self.place = await tables.collect("stock")

    async def carries(self, book: BookPort) -> None:
        log = Log(book)
        for _ in range(2):
            self.clock.ms += REWRITE_MS
            with contextlib.suppress(boki.BokiError):  # an error ends one round; the next round continues
                await Carrier(log, [TablesCarried(log)], who="c").round()

    async def alters(self, book: BookPort) -> None:
        log = Log(book)
        await Tables(log, self.port).open(Schema("plain", {"left": "int", "name": "text"}))
        await raise_floor(log, "stock", self.place + 1)
        self.altered = True

    async def check(self, book: boki.Book) -> None:
        await self.carries(book)
        assert all(self.clock.ms - record.time_ms <= REWRITE_MS for record in await live(book))
        tables = await tables_of(Log(book), self.port)
        assert await floor(tables.log, "stock") >= self.place
        for table in ("plain", "stock"):
            assert await tables.transact(take, table) == 98

    async def check_altered(self, book: boki.Book) -> None:
        await self.check(book)
        tables = await tables_of(Log(book), self.port)
        assert ("name" in tables.schema("plain").columns) == self.altered
        assert await floor(tables.log, "stock") == self.place + self.altered


@pytest.mark.parametrize("kinds", [CRASHES, UNKNOWNS])
async def test_a_crash_or_a_lost_answer_anywhere_of_who_carries(clock: SetClock, kinds: tuple[FaultKind, ...]) -> None:
    days = Days(clock)
    assert (
        await crash_everywhere(days.carries, days.carries, days.check, kinds=kinds, clock=clock, before=days.before)
    ).runs > 3


async def test_a_second_one_who_carries_anywhere_harms_nothing(clock: SetClock) -> None:
    days = Days(clock)
    assert (await start_anywhere(days.carries, days.carries, days.check, clock=clock, before=days.before)).runs > 10


@pytest.mark.parametrize("carrier_first", [True, False])
async def test_what_is_changed_of_a_table_anywhere_while_it_is_carried_stays(
    clock: SetClock, carrier_first: bool
) -> None:
    days = Days(clock)
    one, other = (days.carries, days.alters) if carrier_first else (days.alters, days.carries)
    assert (await start_anywhere(one, other, days.check_altered, clock=clock, before=days.before)).runs > 3


@in_virtual_time
async def test_who_has_tables_open_for_a_moment_carries_nothing() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        log = Log((await cluster.connect()).book("b"))
        async with await tables_of(log, MemoryTables()):
            before = log.appends
            await let_pass(0.9 * HOUR_S)
        assert log.appends == before
