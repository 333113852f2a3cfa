"""Transactions on tables, in memory and on a real Cassandra, and faults between the log and the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import boki
from boki.testing import MemoryCluster
from bokiflow.tables import (
    ForeignWrite,
    MemoryTables,
    Schema,
    TableBehind,
    TablePort,
    TableRefused,
    Tables,
    TableUnavailable,
    Transaction,
    WriteUnknown,
)
from bokiflow.tables.schema import ABSENT, RowKey
from bokilib.append.log import Log
from bokilib.records.codec import Json
from libs.tests.flow.tables.conftest import HOTEL, tables_of

SEVEN = RowKey("hotel", "seven")


async def take(tx: Transaction, key: str, least: int = 0) -> int:
    row = await tx.get("hotel", key) or {"left_over": 10}
    left = row.get("left_over", 10)
    assert isinstance(left, int)
    if left <= least:
        raise ValueError(f"only {left}")
    tx.put("hotel", key, {"left_over": left - 1})
    return left - 1


async def stored(port: TablePort, key: str = "seven") -> dict[str, Json]:
    return {name: cell.value for name, cell in (await port.read(HOTEL, key)).items() if not name.startswith("boki_")}


# -- what they do, on each database


async def test_a_row_is_written_read_changed_and_deleted(cluster: MemoryCluster, port: TablePort) -> None:
    one, other = await tables_of(cluster, port), await tables_of(cluster, port)

    async def make(tx: Transaction) -> None:
        assert await tx.get("hotel", "seven") is None
        tx.put("hotel", "seven", {"name": "Löwen", "left_over": 3, "more": {"a": [1]}, "open": True})
        tx.put("hotel", "seven", {"price": 0.5, "open": None})
        expected = {"name": "Löwen", "left_over": 3, "more": {"a": [1]}, "price": 0.5}
        assert await tx.get("hotel", "seven") == expected, "its own writes"

    async def change(tx: Transaction) -> None:
        tx.put("hotel", "seven", {"left_over": 2, "name": None})

    async def end(tx: Transaction) -> None:
        tx.delete("hotel", "seven")

    async def anew(tx: Transaction) -> None:
        tx.put("hotel", "seven", {"name": "Bär"})

    await one.transact(make)
    await other.transact(change)
    for tables in (one, other, await tables_of(cluster, port)):
        assert await tables.get("hotel", "seven") == {"left_over": 2, "more": {"a": [1]}, "price": 0.5}
    await one.transact(end)
    assert await other.get("hotel", "seven") is None
    await other.transact(anew)
    assert await one.get("hotel", "seven") == {"name": "Bär"}, "nothing of what was before the deletion"
    for tables in (one, other):
        await tables.applier.applied([SEVEN])
    fresh = await tables_of(cluster, port)
    assert await fresh.get("hotel", "seven") == {"name": "Bär"}


async def test_transactions_of_several_processes_lose_no_update(cluster: MemoryCluster, port: TablePort) -> None:
    several = [await tables_of(cluster, port) for _ in range(3)]
    await asyncio.gather(*(tables.transact(take, "seven") for tables in several for _ in range(3)))
    assert await (await tables_of(cluster, port)).get("hotel", "seven") == {"left_over": 1}
    with pytest.raises(ValueError, match="only 1"):
        await several[0].transact(take, "seven", 1)
    for tables in several:
        await tables.applier.applied([SEVEN])
    assert await stored(port) == {"left_over": 1}


async def test_what_a_process_left_undone_the_next_reader_does(cluster: MemoryCluster, port: TablePort) -> None:
    one = await tables_of(cluster, port)
    for _ in range(3):
        await one.transact(take, "seven")
        await one.applier.close()  # it dies before the database is written, mostly
    other = await tables_of(cluster, port)
    assert await other.get("hotel", "seven") == {"left_over": 7}
    await other.applier.applied([SEVEN])
    assert await stored(port) == {"left_over": 7}


async def test_a_table_is_brought_up_to_date_and_the_log_need_not_keep_it(
    cluster: MemoryCluster, port: TablePort
) -> None:
    one = await tables_of(cluster, port)
    for number in range(5):
        await one.transact(take, f"h{number}")
    await one.applier.close()
    other, third = await tables_of(cluster, port), await tables_of(cluster, port)
    assert await third.get("hotel", "h1") == {"left_over": 9}
    await other.transact(take, "h1")
    settled = await other.settle("hotel")
    assert settled.rows == 5
    assert await stored(port, "h1") == {"left_over": 8}
    assert await stored(port, "h4") == {"left_over": 9}
    assert (await other.settle("hotel")).rows == 0, "nothing is left of it in the log"
    for tables in (one, other, third, await tables_of(cluster, port)):
        assert await tables.get("hotel", "h1") == {"left_over": 8}
    await third.transact(take, "h1")
    assert await other.get("hotel", "h1") == {"left_over": 7}


async def test_a_write_past_the_log_is_found(cluster: MemoryCluster, port: TablePort) -> None:
    one = await tables_of(cluster, port)
    await one.transact(take, "seven")
    await one.applier.applied([SEVEN])
    now_us = 1_700_000_000_000_000  # a server's clock, or one that is ahead
    await port.write(HOTEL, SEVEN, {"left_over": 99}, now_us)
    with pytest.raises(ForeignWrite, match="without the log"):
        await (await tables_of(cluster, port)).get("hotel", "seven")


# -- whose it is, and what it is


async def test_a_table_is_of_one_book(cluster: MemoryCluster, port: TablePort) -> None:
    await tables_of(cluster, port)
    async with MemoryCluster() as elsewhere:
        with pytest.raises(TableRefused, match="another book"):
            await tables_of(elsewhere, port)
    await tables_of(cluster, port)


async def test_a_column_that_is_added_is_known_to_all(cluster: MemoryCluster, port: TablePort) -> None:
    one = await tables_of(cluster, port)
    await one.transact(take, "seven")
    other = Tables(one.log, port)
    await other.open(Schema("hotel", {"stars": "int"}))

    async def rate(tx: Transaction) -> None:
        tx.put("hotel", "seven", {"stars": 4})

    await other.transact(rate)
    with pytest.raises(boki.InvalidArgument, match="stars"):
        await one.transact(rate)
    assert await one.transact(take, "seven") == 8, "who knew the old columns learns of the new ones, and goes on"
    assert await one.get("hotel", "seven") == {"left_over": 8, "stars": 4}
    with pytest.raises(TableRefused, match="stars"):
        await one.open(Schema("hotel", {"stars": "text"}))


async def test_a_column_that_is_added_while_another_commits_is_a_conflict(cluster: MemoryCluster) -> None:
    port = MemoryTables()
    one = await tables_of(cluster, port)
    tx = await one.begin()
    await take(tx, "seven")
    await Tables(one.log, port).open(Schema("hotel", {"stars": "int"}))
    with pytest.raises(boki.Conflict):
        await one.commit(tx)


async def test_a_column_that_a_process_did_not_know_is_not_lost(cluster: MemoryCluster, port: TablePort) -> None:
    one = await tables_of(cluster, port)
    other = Tables(Log((await cluster.connect()).book("shop")), port)
    await other.open(Schema("hotel", {"stars": "int"}))

    async def rate(tx: Transaction) -> None:
        tx.put("hotel", "seven", {"stars": 4})

    await other.transact(rate)
    await other.settle("hotel")  # the log has trimmed it
    assert await one.transact(take, "seven") == 9
    tx = await one.begin()
    await tx.get("hotel", "seven")
    await other.open(Schema("hotel", {"view": "text"}))
    assert await one.transact(take, "seven") == 8, "another transaction of the process learns of the column first"
    tx.put("hotel", "seven", {"left_over": 0})
    with pytest.raises(boki.Conflict):
        await one.commit(tx)
    for tables in (one, other):
        assert await tables.get("hotel", "seven") == {"stars": 4, "left_over": 8}


async def test_what_the_database_refuses_the_log_keeps(cluster: MemoryCluster) -> None:
    def fault(what: str) -> None:
        if what == "write" and refusing:
            raise TableRefused("no", table="hotel")

    refusing = True
    port = MemoryTables(fault)
    tables = await tables_of(cluster, port)
    await tables.transact(take, "seven")
    with pytest.raises(TableUnavailable, match="the log keeps them"):
        await tables.settle("hotel")
    assert await (await tables_of(cluster, port)).get("hotel", "seven") == {"left_over": 9}
    refusing = False
    assert (await tables.settle("hotel")).rows == 1
    assert await stored(port) == {"left_over": 9}


async def test_what_is_no_table_row_or_column_is_refused(cluster: MemoryCluster) -> None:
    tables = await tables_of(cluster, MemoryTables())
    tx = await tables.begin()
    calls: list[Callable[[], None]] = [
        lambda: tx.put("hostel", "seven", {}),
        lambda: tx.put("hotel", "", {"left_over": 1}),
        lambda: tx.put("hotel", "seven", {"left": 1}),
        lambda: tx.put("hotel", "seven", {"left_over": "1"}),
        lambda: tx.put("hotel", "seven", {"left_over": 2**63}),
        lambda: tx.put("hotel", "seven", {"open": 1}),
        lambda: tx.put("hotel", "seven", {"price": float("nan")}),
    ]
    for call in calls:
        with pytest.raises(boki.InvalidArgument):
            call()
    with pytest.raises(boki.InvalidArgument, match="120 rows"):
        await tx.get_many("hotel", [f"h{number}" for number in range(121)])
    tx.end()
    with pytest.raises(boki.InvalidArgument, match="ended"):
        await tx.get("hotel", "seven")


# -- reads of one place


async def test_two_rows_are_read_as_of_one_place(cluster: MemoryCluster) -> None:
    port = MemoryTables()
    one, other = await tables_of(cluster, port, cached_rows=0), await tables_of(cluster, port)

    async def move(tx: Transaction, a: str, b: str) -> None:
        for key, by in ((a, -1), (b, 1)):
            row = await tx.get("hotel", key) or {"left_over": 10}
            left = row["left_over"]
            assert isinstance(left, int)
            tx.put("hotel", key, {"left_over": left + by})

    await other.transact(move, "a", "b")
    tx = await one.begin()
    assert await tx.get("hotel", "a") == {"left_over": 9}
    await other.transact(move, "c", "b")
    await other.applier.applied([RowKey("hotel", "b")])
    assert await tx.get("hotel", "b") == {"left_over": 12}, "a has not changed: both are as of now"
    tx = await one.begin()
    assert await tx.get("hotel", "a") == {"left_over": 9}
    await other.transact(move, "a", "b")
    assert await tx.get("hotel", "c") == {"left_over": 9}, "it is as it was when a was read"
    await other.applier.applied([RowKey("hotel", "b")])
    with pytest.raises(boki.Conflict, match="has changed since it was read"):
        await tx.get("hotel", "b")


async def test_who_reads_only_appends_nothing(cluster: MemoryCluster) -> None:
    tables = await tables_of(cluster, MemoryTables())
    await tables.transact(take, "seven")
    before = tables.log.appends

    async def look(tx: Transaction) -> Json:
        return await tx.get("hotel", "seven")

    assert await tables.transact(look) == {"left_over": 9}
    assert await tables.transact(take, "seven") == 8
    assert tables.log.appends - before == 1


async def test_a_row_that_is_known_is_not_read_from_the_database_again(cluster: MemoryCluster) -> None:
    port = MemoryTables()
    one, other = await tables_of(cluster, port), await tables_of(cluster, port, cached_rows=1)
    for _ in range(4):
        await one.transact(take, "seven")
    assert port.reads == 1, "the log is asked whether it is what it was"
    await other.get_many("hotel", ["seven", "eight"])
    await other.get_many("hotel", ["seven"])
    assert port.reads == 4, "of two rows it keeps one"


# -- the database is down, slow, or does not answer


class Faults:
    """The number of failures left, by the name of the operation."""

    def __init__(self, error: Callable[[str], Exception]) -> None:
        self.left: dict[str, int] = {}
        self._error = error

    def __call__(self, what: str) -> None:
        if self.left.get(what, 0):
            self.left[what] -= 1
            raise self._error(what)


@pytest.mark.parametrize("error", [TableUnavailable, WriteUnknown])
async def test_a_database_that_is_down_gets_it_later(
    cluster: MemoryCluster, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bokiflow.tables.applier.FIRST_DELAY_S", 0)
    monkeypatch.setattr("bokiflow.tables.applier.LAST_DELAY_S", 0)
    faults = Faults(error)
    port = MemoryTables(faults)
    tables = await tables_of(cluster, port)
    faults.left = {"write": 3}
    assert await tables.transact(take, "seven") == 9
    assert await tables.transact(take, "seven") == 8, "what the log has decided is known, wherever it is stored"
    await tables.applier.applied([SEVEN])
    assert await stored(port) == {"left_over": 8}
    assert tables.applier.written == 2


async def test_a_write_whose_answer_is_lost_is_repeated(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bokiflow.tables.applier.FIRST_DELAY_S", 0)
    faults = Faults(WriteUnknown)
    port = MemoryTables(faults)
    tables = await tables_of(cluster, port)
    faults.left = {"after write": 2}
    await tables.transact(take, "seven")
    await tables.applier.applied([SEVEN])
    assert port.writes == 3
    assert await stored(port) == {"left_over": 9}


async def test_a_zombies_write_comes_late_and_changes_nothing(cluster: MemoryCluster) -> None:
    port = MemoryTables()
    zombie, other = await tables_of(cluster, port), await tables_of(cluster, port)
    await zombie.transact(take, "seven")
    await zombie.applier.applied([SEVEN])
    old = {name: cell.value for name, cell in (await port.read(HOTEL, "seven")).items()}
    stamp = (await port.read(HOTEL, "seven"))[ABSENT].written
    await other.transact(take, "seven")
    await other.applier.applied([SEVEN])
    await port.write(HOTEL, SEVEN, old, stamp)
    assert await stored(port) == {"left_over": 8}


async def test_a_column_that_is_dropped_stops_writes_and_loses_nothing(cluster: MemoryCluster) -> None:
    port = MemoryTables()
    tables = await tables_of(cluster, port)
    await tables.transact(take, "seven")
    await tables.applier.applied([SEVEN])
    port.drop_column("hotel", "left_over")
    await tables.transact(take, "seven")  # the log knows it; the database refuses it
    await tables.applier.applied([SEVEN])
    with pytest.raises(TableRefused, match="dropped"):
        await tables.get("hotel", "seven")
    await port.ensure(HOTEL)  # an operator adds the column again
    assert await tables.get("hotel", "seven") == {"left_over": 8}


async def test_a_table_from_an_older_backup_is_found(cluster: MemoryCluster) -> None:
    port = MemoryTables()
    tables = await tables_of(cluster, port)
    await tables.transact(take, "seven")
    await tables.settle("hotel")
    emptied = MemoryTables()
    other = await tables_of(cluster, emptied)
    with pytest.raises(TableBehind, match="backup"):
        await other.get("hotel", "seven")


async def test_transactions_wait_while_too_many_rows_wait(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bokiflow.tables.applier.ROWS", 2)
    monkeypatch.setattr("bokiflow.tables.applier.FIRST_DELAY_S", 0)
    faults = Faults(TableUnavailable)
    tables = await tables_of(cluster, MemoryTables(faults))
    faults.left = {"write": 10_000_000}
    for number in range(2):
        await tables.transact(take, f"h{number}")
    third = asyncio.create_task(tables.transact(take, "h2"))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not third.done()
    faults.left = {}
    assert await third == 9
    assert len(tables.applier) <= 2
    await tables.applier.close()
