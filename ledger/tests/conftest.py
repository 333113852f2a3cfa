"""One cluster of scripted bookies per test; time for questions whether anybody fenced."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
from tests.real_bookies import Cluster

from boki_common.bookkeeper import layout
from boki_common.cluster_token import NO_TOKEN
from boki_common.metadata.memory import MemoryStore
from boki_common.testing.machine import CountingRandom
from boki_common.testing.virtual_time import VirtualTimeLoop
from boki_ledger.rules import unfenced
from boki_ledger.testing.ledgers import Ledgers
from boki_ledger.write.writer import LedgerWriter


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    """The metadata of an empty cluster."""
    made = MemoryStore()
    await made.start()
    await layout.init_cluster(made, rng=CountingRandom())
    yield made
    await made.close()


@pytest.fixture
async def ledgers() -> AsyncIterator[Ledgers]:
    made = Ledgers()
    await made.start()
    yield made
    await made.close()


def pytest_asyncio_loop_factories(item: pytest.Function) -> Mapping[str, Callable[[], VirtualTimeLoop]] | None:
    """Of tests that use `virtual_time`."""
    return {"virtual": VirtualTimeLoop} if "virtual_time" in item.fixturenames else None


@pytest.fixture
async def virtual_time() -> AsyncIterator[None]:
    """Time passes by itself, and no callback may fail."""
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    yield
    assert faults == []


@pytest.fixture
async def writer(ledgers: Ledgers) -> LedgerWriter:
    """Of a ledger on three bookies, which has no entry yet."""
    return await ledgers.client.create()


@pytest.fixture
def unhurried(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where real time passes, a machine that is busy elsewhere leaves no question unproven."""
    if inspect.iscoroutinefunction(request.function) and "virtual_time" not in request.fixturenames:
        monkeypatch.setattr(unfenced, "UNPROVEN_S", 20.0)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three real bookies and a client."""
    made = Cluster()
    await made.start(NO_TOKEN, NO_TOKEN, NO_TOKEN)
    await made.client()
    yield made
    await made.close()
