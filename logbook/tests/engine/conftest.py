"""An engine without sockets, over ledgers and a log whose acks and cuts a test gives."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import pytest
from tests.engine.scripted import QUICK, Scripted

from boki_common.runtime.ports import MachineClock
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
