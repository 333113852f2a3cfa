"""What a process does is told by what its tasks wait for."""

from __future__ import annotations

import asyncio
from typing import Any

from boki_sim.activity import activity


class LedgerRecovery:
    """Carries the name that counts."""

    async def run(self) -> None:
        await asyncio.sleep(10)


async def deep() -> None:
    await LedgerRecovery().run()


def test_a_coroutine_deep_down_tells_the_step(simulation: Any) -> None:
    process = simulation.process("busy")
    assert activity(process) == "idle"
    process.start(deep())
    simulation.run(asyncio.sleep(1))
    assert activity(process) == "ledger recovery"
    simulation.run(asyncio.sleep(20))
    assert activity(process) == "idle"
