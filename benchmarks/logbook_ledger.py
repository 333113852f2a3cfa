"""This process as a ledger client of the cluster: the ledger append that an append to a LogBook stands on, and changes of terms."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import perf_counter

from boki_common.metadata.open import open_store
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.process import SystemRandom
from boki_ledger.client import LedgerClient
from boki_metalog.control.log_changes import LogChanges
from boki_metalog.follow.sequencer_member import address_of
from boki_metalog.terms.metadata_tree import read_view


@asynccontextmanager
async def ledger_client(metadata_uri: str) -> AsyncIterator[tuple[MetadataStore, LedgerClient]]:
    store = open_store(metadata_uri)
    await store.start()
    client = LedgerClient(metadata=store, rng=SystemRandom())
    try:
        await client.start()
        yield store, client
    finally:
        await client.close()
        await store.close()


@asynccontextmanager
async def ledger_appends(metadata_uri: str, data: bytes) -> AsyncIterator[Callable[[int], Awaitable[int]]]:
    """One step of a closed loop on a ledger of its own: E = Qw = 3, Qa = 2, as data ledgers have it."""
    async with ledger_client(metadata_uri) as (_, client):
        writer = await client.create(replicas=3, acks=2)

        async def once(task: int) -> int:
            await writer.append(data)
            return 1

        yield once
        await writer.close()
        await client.delete(writer.ledger_id)


class Terms:
    """Changes the terms of log 0, and tells who orders it."""

    def __init__(self, store: MetadataStore, client: LedgerClient) -> None:
        self._store = store
        self._changes = LogChanges(store, client, SystemRandom())

    async def roll(self) -> float:
        """A planned term; how many seconds the protocol took, from reading the view to having it installed."""
        begin = perf_counter()
        await self._changes.roll(0)
        return perf_counter() - begin

    async def sequencer(self) -> str:
        """The address of the sequencer that the view names."""
        installed = (await read_view(self._store)).view.installed(0)
        assert installed is not None
        return str(await address_of(self._store, installed.sequencer))
