"""Engines index what others wrote from pushed headers, and from bookies where nothing is pushed."""

from __future__ import annotations

import pytest

import boki
from boki_logbook import server
from boki_logbook.engine import Engine
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.engines import EngineCluster, url_of

SETTINGS = EngineSettings(replicas=1, acks=1, retry_first_s=0.005, retry_limit_s=0.01)


def fetched(engine: Engine) -> int:
    """Entries that the engine read from data ledgers."""
    return int(engine.core.counters.fetched.value)


async def test_an_engine_indexes_what_another_wrote_without_reading_it(engines: EngineCluster) -> None:
    first, second = await engines.start_engine(SETTINGS), await engines.start_engine(SETTINGS)
    await engines.until(lambda: len(first.core.headers.subscribers) == 1)
    async with boki.connect(url_of(first)) as client:
        for number in range(20):
            await client.book("b").append(b"%d" % number, tags=("t",))
    await engines.until(lambda: second.core.state.records == 20)
    assert fetched(second) == 0
    async with boki.connect(url_of(second)) as client:
        found = [item.data async for item in client.book("b").read(tag="t") if isinstance(item, boki.Record)]
    assert found == [b"%d" % number for number in range(20)], "data comes from bookies when it is asked for"
    assert fetched(second) > 0


async def test_what_is_not_pushed_is_read(engines: EngineCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEADERS", "of an earlier version")
    first, second = await engines.start_engine(SETTINGS), await engines.start_engine(SETTINGS)
    async with boki.connect(url_of(first)) as client:
        await client.book("b").append(b"x")
    await engines.until(lambda: second.core.state.records == 1)
    assert not first.core.headers.subscribers
    assert fetched(second) == 1


async def test_a_connection_that_broke_is_made_again(engines: EngineCluster) -> None:
    first, second = await engines.start_engine(SETTINGS), await engines.start_engine(SETTINGS)
    await engines.until(lambda: len(first.core.headers.subscribers) == 1)
    for connection in list(first._connections):
        await connection.close()
    await engines.until(lambda: not first.core.headers.subscribers)
    await engines.until(lambda: len(first.core.headers.subscribers) == 1)
    async with boki.connect(url_of(first)) as client:
        await client.book("b").append(b"x")
    await engines.until(lambda: second.core.state.records == 1)
    assert fetched(second) == 0


async def test_engines_that_go_are_left(engines: EngineCluster) -> None:
    first, second = await engines.start_engine(SETTINGS), await engines.start_engine(SETTINGS)
    await engines.until(lambda: len(first.core.headers.subscribers) == 1 and len(second.core.headers.subscribers) == 1)
    await second.close()
    engines.running.remove(second)
    await engines.until(lambda: not first._subscriptions._following)
    assert first.status()["connections"] == 0
