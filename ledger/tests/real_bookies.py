"""Real bookies on loopback sockets and disks in memory, which can be killed and started again, and clients of theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from boki_bookie.bookie import Bookie
from boki_bookie.settings import BookieSettings
from boki_common.bookkeeper import layout
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.limits import KIB, MIB
from boki_common.metadata.memory import MemoryStore, MemoryTree
from boki_common.metadata.store import MetadataStore
from boki_common.net.connection import Address
from boki_common.runtime.memory_disk import MemoryDisk
from boki_common.runtime.process import SystemClock, SystemRandom
from boki_ledger.client import LedgerClient
from boki_ledger.settings import LedgerSettings
from boki_ledger.testing.ledgers import QUICK

SMALL: Final = BookieSettings(journal_segment_bytes=256 * KIB, entry_log_bytes=1 * MIB, write_cache_bytes=4 * MIB)
LONG_RETRIES: Final = replace(QUICK, retry_for_s=10.0, answer_timeout_s=10.0)


async def start_bookie(
    disk: MemoryDisk, store: MetadataStore, token: ClusterToken = NO_TOKEN, settings: BookieSettings = SMALL
) -> Bookie:
    return await Bookie.start(
        disk=disk,
        metadata=store,
        address=Address("127.0.0.1", 0),
        clock=SystemClock(),
        rng=SystemRandom(),
        settings=settings,
        token=token,
    )


class Process:
    """A bookie that can be killed and started again on its disk."""

    def __init__(self, tree: MemoryTree, number: int, token: ClusterToken, settings: BookieSettings = SMALL) -> None:
        self._tree = tree
        self._settings = settings
        self._token = token
        self.disk = MemoryDisk(f"bookie {number}")
        self.bookie: Bookie | None = None

    async def start(self) -> None:
        self.store = MemoryStore(self._tree)
        await self.store.start()
        self.bookie = await start_bookie(self.disk, self.store, self._token, self._settings)

    async def stop(self) -> None:
        bookie, self.bookie = self.bookie, None
        if bookie is not None:
            if "sync" in self.disk._held:
                self.disk.release("sync")
            await bookie.close()
            await self.store.close()
            self.disk = self.disk.reopen()


class Cluster:
    """Bookies and clients over one metadata tree."""

    def __init__(self, bookie_settings: BookieSettings = SMALL) -> None:
        self._bookie_settings = bookie_settings
        self.tree = MemoryTree()
        self.settings = LONG_RETRIES
        self.processes: list[Process] = []
        self.clients: list[LedgerClient] = []
        self.stores: list[MemoryStore] = []

    async def start(self, *tokens: ClusterToken) -> None:
        """A bookie for each."""
        await layout.init_cluster(await self.store())
        for token in tokens:
            await self.add_bookie(token)

    async def store(self) -> MemoryStore:
        self.stores.append(MemoryStore(self.tree))
        await self.stores[-1].start()
        return self.stores[-1]

    async def add_bookie(self, token: ClusterToken = NO_TOKEN) -> None:
        self.processes.append(Process(self.tree, len(self.processes), token, self._bookie_settings))
        await self.processes[-1].start()

    async def client(self, settings: LedgerSettings | None = None, token: ClusterToken = NO_TOKEN) -> LedgerClient:
        client = LedgerClient(
            metadata=await self.store(), rng=SystemRandom(), settings=settings or self.settings, token=token
        )
        await client.start()
        self.clients.append(client)
        return client

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        for process in self.processes:
            await process.stop()
        for store in self.stores:
            await store.close()
