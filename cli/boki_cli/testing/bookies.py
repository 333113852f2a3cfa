"""Bookies for tests of commands: on disks in memory, in a loop in a thread, since each command has a loop of its own.

thread = LoopThread("bookies of a test")
cluster = BookieCluster(thread, f"sqlite://{folder}/metadata.db")     # a file: commands find it by its address
cluster.run(cluster.start())
ledger = cluster.run(cluster.client.create())
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from boki_bookie.bookie import Bookie
from boki_bookie.settings import BookieSettings
from boki_common.bookkeeper.layout import init_cluster
from boki_common.limits import KIB, MIB
from boki_common.metadata.open import open_store
from boki_common.metadata.store import MetadataStore
from boki_common.net.connection import Address
from boki_common.runtime.loop_thread import LoopThread
from boki_common.runtime.memory_disk import MemoryDisk
from boki_common.runtime.process import SystemClock, SystemRandom
from boki_ledger.client import LedgerClient
from boki_ledger.testing.ledgers import until
from boki_metalog.terms.metadata_tree import ensure_view

BOOKIES: Final = 3

T = TypeVar("T")


class BookieCluster:
    """Bookies on disks in memory, in a loop in a thread, and metadata in a file that commands find by its address."""

    def __init__(self, thread: LoopThread, uri: str) -> None:
        self._thread = thread
        self.uri = uri
        self.store: MetadataStore
        self.client: LedgerClient
        self.disks: list[MemoryDisk] = []
        self.bookies: list[Bookie | None] = []

    def run(self, routine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the loop of the bookies, and waits."""
        return self._thread.run(routine)

    async def start(self) -> None:
        self.store = open_store(self.uri)
        await self.store.start()
        await init_cluster(self.store)
        await ensure_view(self.store)
        for number in range(BOOKIES):
            self.disks.append(MemoryDisk(f"bookie {number}"))
            self.bookies.append(None)
            await self.start_bookie(number)
        self.client = LedgerClient(metadata=self.store, rng=SystemRandom())
        await self.client.start()

    async def ready(self) -> None:
        """Waits until the client sees all bookies."""
        await until(lambda: sum(bookie is not None for bookie in self.bookies) <= len(self.client._chooser.writable()))

    async def start_bookie(self, number: int, **settings: Any) -> Bookie:
        bookie = await Bookie.start(
            disk=self.disks[number],
            metadata=self.store,
            address=Address("127.0.0.1", 0),
            clock=SystemClock(),
            rng=SystemRandom(),
            settings=BookieSettings(
                journal_segment_bytes=256 * KIB,
                entry_log_bytes=1 * MIB,
                write_cache_bytes=4 * MIB,
                limbo_check_interval_s=0.02,
                disk_reserve_bytes=0,
                **settings,
            ),
        )
        self.bookies[number] = bookie
        return bookie

    async def stop_bookie(self, number: int) -> None:
        bookie, self.bookies[number] = self.bookies[number], None
        if bookie is not None:
            await bookie.close()
            self.disks[number] = self.disks[number].reopen()

    async def close(self) -> None:
        await self.client.close()
        for number in range(len(self.bookies)):
            await self.stop_bookie(number)
        await self.store.close()
