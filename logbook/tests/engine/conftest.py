"""An engine without sockets, over ledgers and a log whose acks and cuts a test gives."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
from tests.engine.scripted import QUICK, Scripted

from boki_common.runtime.ports import MachineClock
from boki_common.testing.virtual_time import VirtualTimeLoop
from boki_logbook.core import EngineCore
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.cluster import RecordingSource
from boki_logbook.testing.engines import EngineCluster


class Cluster(Scripted):
    """A log in its first term, and the engines that joined it."""

    async def engine(
        self,
        *,
        settings: EngineSettings = QUICK,
        join: bool = True,
        carrying: bool = False,
        clock: MachineClock | None = None,
    ) -> EngineCore:
        """A new engine; with `join` it follows the log and has its shard. Not `carrying`: every entry goes to its ledger first."""
        core = self.core(settings if carrying else dataclasses.replace(settings, carried_entry_bytes=0), clock=clock)
        if join:
            await self.log.join(core)
            await self.until(lambda: core.logs[0].appender.shard is not None)
        return core


def pytest_asyncio_loop_factories(item: pytest.Function) -> Mapping[str, Callable[[], VirtualTimeLoop]] | None:
    """Of tests that use `virtual_time`."""
    return {"virtual": VirtualTimeLoop} if "virtual_time" in item.fixturenames else None


@pytest.fixture
async def virtual_time() -> None:
    """Time passes when nothing else can happen: a wait runs out after all that the test does meanwhile, on any machine."""


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    await made.log.begin_term()
    yield made
    await made.close()


@pytest.fixture
async def core(cluster: Cluster) -> EngineCore:
    """An engine that follows the log and has its shard."""
    return await cluster.engine()


@pytest.fixture
async def source() -> RecordingSource:
    return RecordingSource()


@pytest.fixture
async def engines() -> AsyncIterator[EngineCluster]:
    """Whole engines, and a sequencer."""
    made = EngineCluster()
    await made.ledgers.start()
    await made.start_sequencer()
    yield made
    await made.close()
