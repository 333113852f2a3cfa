"""A cluster for tests: ledger clients over scripted bookies and the metadata store in memory. No sockets, no waiting.

ledgers = Ledgers(); await ledgers.start()
writer = await ledgers.client.create()
await turns()                                       # all that can happen without time passing has happened
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from boki_common.bookkeeper import layout, ledger_metadata
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.ids import BookieId
from boki_common.metadata.memory import MemoryStore, MemoryTree
from boki_common.metadata.store import NOTHING, MetadataStore
from boki_common.testing.machine import CountingRandom
from boki_ledger.client import LedgerClient
from boki_ledger.rules.write_set import write_set
from boki_ledger.settings import LedgerSettings
from boki_ledger.testing.held_messages import Hold
from boki_ledger.testing.scripted_bookies import ScriptedBookies
from boki_ledger.write.writer import LedgerWriter

T = TypeVar("T")

STRIPED_IDS: Final = 1_000_000
"""Ids of the ledgers that `Ledgers.striped` makes begin here."""

QUICK = LedgerSettings(
    retry_least_s=0.001,
    retry_most_s=0.002,
    suspect_s=1000.0,
    quarantine_s=0.0,
    retry_for_s=0.0,
    answer_timeout_s=30.0,
    speculative_read_s=30.0,
    explicit_lac_ms=0.0,
)


class GatedStore(MemoryStore):
    """A metadata store whose compare-and-swaps wait while the gate is shut."""

    def __init__(self, tree: MemoryTree | None = None) -> None:
        super().__init__(tree)
        self.gate = asyncio.Event()
        self.gate.set()
        self.swaps = 0

    async def set(self, path: str, value: bytes, *, version: int, creating: Mapping[str, bytes] = NOTHING) -> int:
        await self.gate.wait()
        self.swaps += 1
        return await super().set(path, value, version=version, creating=creating)


async def make_cookie(store: MetadataStore, bookie: str, *, ours: bool = True) -> None:
    """A new cookie, in the place of the one that may be there: without `ours` one of Apache's bookies."""
    path = layout.cookie_path(bookie)
    if await store.exists(path):
        await store.delete(path, version=(await store.get(path)).version)
    await store.create(path, layout.encode_cookie(layout.Cookie(BookieId(bookie), "journal", ("ledgers",), ours=ours)))


class Ledgers:
    """One client, its bookies and its store; `other_client` makes further ones on the same cluster."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.bookies = ScriptedBookies(["b1", "b2", "b3", "b4", "b5"])
        self.bookies.register("b1", "b2", "b3")
        self.settings = QUICK
        self.clients: list[LedgerClient] = []
        self.stores: list[GatedStore] = []
        self._next_striped = STRIPED_IDS

    async def start(self) -> None:
        self.client = await self.other_client()
        self.store = self.stores[0]
        await layout.init_cluster(self.store, rng=CountingRandom())
        for bookie in self.bookies.bookies:
            await make_cookie(self.store, bookie)

    async def other_client(self, settings: LedgerSettings = QUICK) -> LedgerClient:
        store = GatedStore(self.tree)
        await store.start()
        client = LedgerClient(
            metadata=store,
            rng=CountingRandom(1_000 * len(self.clients)),
            settings=settings,
            bookies=self.bookies,
        )
        await client.start()
        self.clients.append(client)
        self.stores.append(store)
        return client

    async def close(self) -> None:
        for client in self.clients:
            await client.close()

    async def striped(
        self,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        *,
        client: LedgerClient | None = None,
        settings: LedgerSettings = QUICK,
    ) -> LedgerWriter:
        """A ledger of any E, Qw, Qa on the first registered bookies, and its writer."""
        made = client or self.client
        ledger_id, self._next_striped = self._next_striped, self._next_striped + 1
        metadata = LedgerMetadata(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            ensembles=((0, self.bookies.writable()[:ensemble_size]),),
        )
        seen = await made._updates.create(ledger_id, metadata)
        return LedgerWriter(ledger_id, seen, made._ports()._replace(settings=settings))

    async def closed(self, *payloads: bytes, password: bytes = b"") -> int:
        """A ledger of these entries, which all its bookies have; the messages are forgotten."""
        writer = await self.client.create(password=password)
        for payload in payloads:
            await writer.append(payload)
        await turns()
        await writer.close()
        self.bookies.seen.clear()
        return writer.ledger_id

    async def change(self, ledger_id: int, **changes: Any) -> None:
        """What another process makes of a ledger's metadata."""
        path = layout.ledger_path(ledger_id)
        seen = await self.store.get(path)
        changed = replace(ledger_metadata.decode(seen.value), ctoken=77, **changes)
        await self.store.set(path, ledger_metadata.encode(changed), version=seen.version)

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        return await self.clients[-1].metadata_of(ledger_id)

    def copies(self, ledger_id: int, metadata: LedgerMetadata, entry_id: int) -> list[str]:
        """Bookies of an entry's write set, as the metadata names it, that store the entry."""
        ensemble = metadata.ensemble_of(entry_id)
        slots = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum)
        return [ensemble[slot] for slot in slots if entry_id in self.bookies.stored(ensemble[slot], ledger_id)]


def ensemble(*names: str) -> tuple[BookieId, ...]:
    """Bookies by name, as the metadata lists them."""
    return tuple(BookieId(name) for name in names)


async def turns(count: int = 60) -> None:
    """Lets everything that can happen without time passing happen."""
    for _ in range(count):
        await asyncio.sleep(0)


async def submit(writer: LedgerWriter, *payloads: bytes) -> None:
    """Hands entries to the writer, and lets everything happen that can without time passing."""
    for payload in payloads:
        writer.submit(payload)
    await turns()


async def deliver(*held: Hold) -> None:
    """Lets held messages travel, and everything happen that can without time passing."""
    for one in held:
        one.release()
    await turns()


async def until(condition: Callable[[], bool]) -> None:
    """Waits for something that needs a timer of a millisecond or so."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)
