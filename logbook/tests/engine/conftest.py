"""An engine without sockets, over ledgers and a log whose acks and cuts a test gives."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable

import pytest

from boki_common.metrics import Metrics
from boki_common.runtime.ports import MachineClock
from boki_logbook.apply.engine_parts import KnownTerms
from boki_logbook.core import EngineCore
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.cluster import ScriptedLog, model_ledgers
from boki_logbook.testing.engines import EngineCluster

QUICK = EngineSettings(retry_first_s=0.001, retry_limit_s=0.002, replicas=1, acks=1)


class Cluster:
    """Ledgers, a log in its first term, and the engines that joined it."""

    def __init__(self) -> None:
        self.ledgers = model_ledgers()
        self.log = ScriptedLog()
        self.ledgers.entries_elsewhere = self.log.metalog
        self.cores: list[EngineCore] = []

    async def engine(
        self,
        *,
        settings: EngineSettings = QUICK,
        join: bool = True,
        carrying: bool = False,
        clock: MachineClock | None = None,
    ) -> EngineCore:
        """A new engine; with `join` it follows the log and has its shard. Not `carrying`: every entry goes to its ledger first."""
        if not carrying:
            settings = dataclasses.replace(settings, carried_entry_bytes=0)
        incarnation = f"{len(self.cores) + 1:032x}"
        core = EngineCore(
            ledgers=self.ledgers, incarnation=incarnation, settings=settings, metrics=Metrics(), clock=clock
        )
        core.parts.terms = KnownTerms(foreign=lambda _: False, record_of=lambda term: self.log.records.get(term))
        self.cores.append(core)
        if join:
            await self.log.join(core)
            await self.until(lambda: core.logs[0].appender.shard is not None)
        return core

    async def until(self, holds: Callable[[], object]) -> None:
        """Runs the loop until something holds."""
        async with asyncio.timeout(10):
            while not holds():
                await asyncio.sleep(0)

    async def settle(self) -> None:
        """Lets everything happen that happens by itself."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def close(self) -> None:
        for core in self.cores:
            await core.close()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    await made.log.begin_term()
    yield made
    await made.close()


@pytest.fixture
async def engines() -> AsyncIterator[EngineCluster]:
    """Whole engines, and a sequencer."""
    made = EngineCluster()
    await made.ledgers.start()
    await made.start_sequencer()
    yield made
    await made.close()
