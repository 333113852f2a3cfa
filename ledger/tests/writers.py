"""Listeners of writers, and closes that wait."""

from __future__ import annotations

import asyncio

from boki_common.errors import BokiError
from boki_ledger.testing.ledgers import Ledgers, turns
from boki_ledger.write.writer import LedgerWriter


class RecordedAcks:
    """What a writer called its listener with."""

    def __init__(self, writer: LedgerWriter) -> None:
        self.acked: list[int] = []
        self.failed: list[BokiError] = []
        writer.listen(self.acked.append, self.failed.append)


async def close_begun(ledgers: Ledgers, writer: LedgerWriter) -> asyncio.Task[int]:
    """A close, which waits at the shut gate of the store."""
    ledgers.store.gate.clear()
    closing = asyncio.get_running_loop().create_task(writer.close())
    await turns()
    return closing
