"""One cluster with bookies of both kinds: three of ours and three of Apache's, on one tree of one ZooKeeper.

    async with BothKinds.start(apache, folder) as cluster:
        cluster.ours, cluster.theirs            # bookie ids; ledgers are placed by naming them
        cluster.shut_doors(); await cluster.open_doors()

Ours, and the first of theirs, are reached through a *door*: a proxy in this process whose address stands in the registration
instead of the bookie's. Shut, the bookie is gone for every client at once, connections and all, which costs no restart. Ours
register another loopback address than they listen on; Apache's registration is written over. Ours lay out the cluster, so
Apache's join a cluster that was made by ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Self

from boki_cli.demo.local_cluster import LocalCluster
from boki_common.bookkeeper import layout
from boki_common.metadata.open import open_store
from boki_common.metadata.store import MetadataStore
from boki_common.net.connection import Address
from itests.support.apache_bookkeeper import ApacheBookkeeper

OF_EACH_KIND: Final = 3
CHUNK_BYTES: Final = 65_536
DOORS: Final = "127.0.0.3"


class Door:
    """Passes every connection on to one bookie, as long as it is open."""

    def __init__(self, bookie_id: str, target: Address, *, port: int = 0) -> None:
        self.bookie_id = bookie_id
        self.port = port
        self._target = target
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Once more on the same port. Idempotent."""
        if self._server is None:
            self._server = await asyncio.start_server(self._pass_on, DOORS, self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    def shut(self) -> None:
        """Refuses connections from now on, and resets those there are. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(self._target.host, self._target.port)
        both = (writer, inner_writer)
        self._open.update(both)
        try:
            await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
        finally:
            self._open.difference_update(both)
            for one in both:
                one.transport.abort()


class BothKinds:
    """See the module. Use `start`."""

    def __init__(self, apache: ApacheBookkeeper, cluster: LocalCluster, store: MetadataStore) -> None:
        self.apache = apache
        self.cluster = cluster
        self.store = store
        self.ours: list[str] = []
        self.theirs: list[str] = []
        self._doors: list[Door] = []

    @classmethod
    @asynccontextmanager
    async def start(cls, apache: ApacheBookkeeper, folder: Path) -> AsyncIterator[Self]:
        """Starts everything; ends our processes. Raises ServerMissing, RoleFailed."""
        store = open_store(apache.boki_uri)
        await store.start()
        made = None
        try:
            settings = {"BOKI_BOOKIE_HOST": DOORS}
            async with LocalCluster(
                folder, apache.boki_uri, bookies=OF_EACH_KIND, sequencers=0, engines=0, settings=settings
            ) as cluster:
                made = cls(apache, cluster, store)
                for role in cluster.roles:
                    address = Address.parse(cluster.address(role))
                    bookie_id = await bookie_at(store, address)
                    made.ours.append(bookie_id)
                    made._doors.append(Door(bookie_id, address, port=address.port))
                made.theirs = [one.bookie_id for one in await asyncio.to_thread(apache.start_bookies, OF_EACH_KIND)]
                made._doors.append(Door(made.theirs[0], Address.parse(made.theirs[0])))
                await made.open_doors()
                yield made
        finally:
            for door in made._doors if made is not None else ():
                door.shut()
            await store.close()

    async def open_doors(self) -> None:
        """Every bookie can be reached, and the doors are where clients are sent."""
        for door in self._doors:
            await door.open()
            path = layout.bookie_path(door.bookie_id)
            wanted = layout.encode_bookie_service(Address(DOORS, door.port))
            found = await self.store.get(path)
            if found.value != wanted:
                await self.store.set(path, wanted, version=found.version)

    def shut_doors(self) -> None:
        """The first bookie of each kind is gone, though still registered."""
        for door in self._doors:
            if door.bookie_id in (self.ours[0], self.theirs[0]):
                door.shut()


async def bookie_at(store: MetadataStore, address: Address) -> str:
    """The id of the bookie that is registered with the port of an address."""
    for bookie_id in await layout.available_bookies(store):
        if (await layout.bookie_address(store, bookie_id)).port == address.port:
            return bookie_id
    raise LookupError(f"no bookie is registered with port {address.port}")


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # a door was shut, or one end went away: so does the other
    finally:
        writer.transport.abort()
