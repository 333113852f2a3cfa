"""Tests of applications whose rows are in tables: same results as in a store, and patience with a database that is down.

    .venv/bin/python -m pytest examples/test_table_row_store.py

The tables are in memory; a trial with Cassandra is in `examples.test_hotel`.
"""

from __future__ import annotations

import pytest

from boki.testing import MemoryCluster
from bokiflow import Worker
from bokiflow.tables import MemoryTables, Tables, TableUnavailable
from bokilib.append.log import Log
from examples.apps.table_row_store import TableRowStore
from examples.hotel import data_set
from examples.hotel.app import Hotel, SoldOut
from examples.hotel.application import HOTEL
from examples.movie.application import MOVIE
from examples.test_hotel import FEW, ask
from libs.tests.flow.conftest import Inline


async def data_of(cluster: MemoryCluster, port: MemoryTables, tables: tuple[str, ...] = HOTEL.tables) -> TableRowStore:
    log = Log((await cluster.connect()).book("hotel"))
    return await TableRowStore.opened(Tables(log, port), tables)


async def test_trips_are_booked_and_refused() -> None:
    async with MemoryCluster() as cluster:
        port = MemoryTables()
        data = await data_of(cluster, port)
        await data.fill({**data_set.rows(), **FEW})
        await data.fill({"hotel:1": {"capacity": 9, "left": 9}})  # existing rows stay
        hotel = Hotel(data)
        async with Worker(hotel.app, data.log, bodies=Inline()) as worker:
            assert await ask(worker, hotel, "l", "login", "Cornell_3", "3333333333") is True
            assert len(await ask(worker, hotel, "s", "search", 37.786, -122.405, "2015-04-10", "2015-04-12") or []) == 4  # type: ignore[arg-type]  # a list, as any JSON
            assert await ask(worker, hotel, "t1", "reserve", "Cornell_1", 1, 1) == "t1"
            with pytest.raises(SoldOut):
                await ask(worker, hotel, "t2", "reserve", "Cornell_1", 1, 1)
        other = await data_of(cluster, port)
        rows = await other.all()
        assert (rows["hotel:1"]["left"], rows["flight:1"]["left"]) == (0, 1)
        assert rows["order:t1"] == {"user": "Cornell_1", "trip": "t1"}
        del rows["flight:2"]  # sold out at the beginning
        assert HOTEL.always(rows) == []
        await other.close()
        await data.close()


async def test_a_database_that_is_down_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("examples.apps.table_row_store.RETRY_S", 0)
    left = 0

    def fault(what: str) -> None:
        nonlocal left
        if what == "read" and left:
            left -= 1
            raise TableUnavailable("down")

    async with MemoryCluster() as cluster:
        data = await data_of(cluster, MemoryTables(fault), MOVIE.tables)
        left = 3
        assert await data.read(["user:dora", "movie:m1"]) == [None, None]
        assert left == 0
        await data.close()
