"""Engines without sockets, over ledgers and logs whose acks, cuts and failures a test gives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from boki_common.metrics import Metrics
from boki_common.runtime.ports import MachineClock
from boki_logbook.apply.engine_parts import KnownTerms
from boki_logbook.apply.lost_entries import LostEntries
from boki_logbook.core import EngineCore
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.cluster import ScriptedLog, ScriptedLogs, model_ledgers

QUICK: Final = EngineSettings(retry_first_s=0.001, retry_limit_s=0.002, replicas=1, acks=1, carried_entry_bytes=0)
"""Every entry goes to its ledger first."""


async def until(holds: Callable[[], object]) -> None:
    """Runs the loop until something holds."""
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0)


class Scripted:
    """Ledgers, logs with equal shares of the slots, and engines. To be closed."""

    def __init__(self, logs: int = 1) -> None:
        self.ledgers = model_ledgers()
        self.logs = ScriptedLogs(logs)
        self.ledgers.entries_elsewhere = self._metalog
        self.cores: list[EngineCore] = []

    @property
    def log(self) -> ScriptedLog:
        """The first one."""
        return self.logs[0]

    def _metalog(self, ledger_id: int) -> list[bytes] | None:
        found = (log.metalog(ledger_id) for log in self.logs.logs.values())
        return next((one for one in found if one is not None), None)

    def core(
        self,
        settings: EngineSettings = QUICK,
        *,
        given_up: LostEntries | None = None,
        clock: MachineClock | None = None,
    ) -> EngineCore:
        """A new engine, which follows nothing yet."""
        made = EngineCore(
            ledgers=self.ledgers,
            incarnation=f"{len(self.cores) + 1:032x}",
            settings=settings,
            metrics=Metrics(),
            given_up=given_up,
            clock=clock,
        )
        made.parts.terms = KnownTerms(foreign=lambda _: False, record_of=self.logs.records.get)
        self.cores.append(made)
        return made

    async def until(self, holds: Callable[[], object]) -> None:
        """Runs the loop until something holds."""
        await until(holds)

    async def settle(self) -> None:
        """Lets everything happen that happens by itself."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def close(self) -> None:
        for core in self.cores:
            await core.close()
