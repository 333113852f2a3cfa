"""One durable ledger append at a time: what an append to a LogBook stands on, from the same process, on the same bookies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from boki_common.metadata.open import open_store
from boki_common.runtime.process import SystemRandom
from boki_ledger.client import LedgerClient


@asynccontextmanager
async def ledger_appends(metadata_uri: str, data: bytes) -> AsyncIterator[Callable[[int], Awaitable[int]]]:
    """One step of a closed loop on a ledger of its own: E = Qw = 3, Qa = 2, as data ledgers have it."""
    store = open_store(metadata_uri)
    await store.start()
    client = LedgerClient(metadata=store, rng=SystemRandom())
    try:
        await client.start()
        writer = await client.create(replicas=3, acks=2)

        async def once(task: int) -> int:
            await writer.append(data)
            return 1

        yield once
        await writer.close()
        await client.delete(writer.ledger_id)
    finally:
        await client.close()
        await store.close()
