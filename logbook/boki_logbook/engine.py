"""The engine process: serves LogBook calls to SDKs, next to the application.

    engine = await Engine.start(metadata=…, ledgers=…, addresses=[…], rng=…)
    await engine.ready()          # everything ordered before its start is indexed
    await engine.failed           # raises what ended it: start a new process

It rebuilds its index from the metalogs and entry headers of all logs through `LogFollowers`, lists itself under
`/boki/members/engine/<incarnation>`, and listens on TCP and Unix sockets. From the start it takes appends, and queues them
until a shard is open; reads of a session wait until the index has what was ordered before the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from boki_common.errors import BokiError
from boki_common.logs import get_logger
from boki_common.metadata.membership import Membership, member_path
from boki_common.metadata.store import MetadataStore
from boki_common.metrics import Metrics
from boki_common.net.connection import Address
from boki_common.net.messages import MessagePeer, MessageServer
from boki_common.runtime.ports import Random
from boki_ledger.client import LedgerClient
from boki_logbook.core import EngineCore
from boki_logbook.engine_list import keep_engine_list
from boki_logbook.server import SdkConnection
from boki_logbook.settings import EngineSettings
from boki_metalog.log_followers import LogFollowers

ENGINE_ROLE: Final = "engine"

_log = get_logger("engine")


class Engine:
    """See the module. Use `start`."""

    def __init__(
        self, core: EngineCore, metadata: MetadataStore, ledgers: LedgerClient, metadata_uri: str = ""
    ) -> None:
        self.core = core
        self.metadata_uri = metadata_uri
        self._metadata = metadata
        self.addresses: list[Address] = []
        self._followers = LogFollowers(metadata=metadata, ledgers=ledgers, listener=core)
        self._servers: list[MessageServer] = []
        self._connections: dict[SdkConnection, None] = {}
        self._membership: Membership | None = None
        self._following: asyncio.Task[None] | None = None
        self._listing: asyncio.Task[None] | None = None
        self._closing = False

    @classmethod
    async def start(
        cls,
        *,
        metadata: MetadataStore,
        ledgers: LedgerClient,
        addresses: Sequence[Address],
        rng: Random,
        settings: EngineSettings = EngineSettings(),  # noqa: B008 - frozen
        metrics: Metrics | None = None,
        metadata_uri: str = "",
    ) -> Engine:
        """Listens, lists itself, and begins to follow the logs; `ready` tells when it has caught up.

        Args:
            metadata_uri: told to whoever asks for the status, so that people find the rest of the cluster.

        Raises:
            SettingsError: cannot listen on an address. MetadataUnavailable: the store is away.
        """
        core = EngineCore(
            ledgers=ledgers,
            incarnation=rng.token(16).hex(),
            settings=settings,
            metrics=Metrics() if metrics is None else metrics,
        )
        self = cls(core, metadata, ledgers, metadata_uri)
        try:
            for address in addresses:
                server = await MessageServer.start(address, self._connected)
                self._servers.append(server)
                self.addresses.append(server.address)
            value = msgspec.json.encode({"addresses": [str(address) for address in self.addresses]})
            path = member_path(ENGINE_ROLE, core.incarnation)
            self._membership = await Membership.join(metadata, path, value)
        except BaseException:
            await self.close()
            raise
        loop = asyncio.get_running_loop()
        self._following = loop.create_task(self._follow(), name="engine follows its logs")
        self._listing = loop.create_task(self._list(), name="engine lists engines")
        return self

    @property
    def incarnation(self) -> str:
        return self.core.incarnation

    @property
    def failed(self) -> asyncio.Future[None]:
        """Gets the error that ended this engine; never a result."""
        return self.core.failed

    async def ready(self) -> None:
        """Waits until everything that was ordered before the start is indexed. Raises what ended the engine."""
        waiting = asyncio.ensure_future(self.core.reader.caught_up())
        try:
            await asyncio.wait([waiting, self.failed], return_when=asyncio.FIRST_COMPLETED)
            if self.failed.done():
                await self.failed
        finally:
            waiting.cancel()

    def status(self) -> dict[str, Any]:
        """What `boki status` shows of this engine."""
        return {
            **self.core.status(),
            "addresses": [str(address) for address in self.addresses],
            "connections": len(self._connections),
            "metadata": self.metadata_uri,
        }

    def counted_read(self) -> None:
        self.core.counted_read()

    def engines(self) -> list[str]:
        """Addresses of the engines of this cluster, as far as this one knows."""
        return self.core.engines()

    def _connected(self, peer: MessagePeer) -> SdkConnection:
        connection = SdkConnection(
            peer,
            engine=self,
            appender=self.core.appender,
            reader=self.core.reader,
            lost=lambda one: self._connections.pop(one, None),
        )
        self._connections[connection] = None
        return connection

    async def _follow(self) -> None:
        try:
            await self._followers.run()
        except Exception as error:  # noqa: BLE001 - the engine ends with it
            self.core.fail(error)

    async def _list(self) -> None:
        def tell(addresses: list[str]) -> None:
            self.core.known_engines = addresses

        await keep_engine_list(self._metadata, ENGINE_ROLE, tell)

    async def close(self) -> None:
        """Leaves: closes its shard, its connections and its sockets. Idempotent."""
        if self._closing:
            return
        self._closing = True
        if self._membership is not None:
            try:
                await self._membership.leave()
            except BokiError as error:
                _log.info("membership vanishes with the session", error=error)
        connections = list(self._connections)
        for server in self._servers:
            await server.close()
        for connection in connections:
            await connection.close()
        await self.core.close()
        for task in (self._following, self._listing):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
