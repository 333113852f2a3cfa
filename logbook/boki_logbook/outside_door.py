"""Where SDKs of another network come in: further addresses of an engine, and what is sent to those who come there.

An SDK moves to another engine when its own fails, at an address that an engine sent it. In a container network, or behind a load
balancer, the addresses that engines know of each other mean nothing outside. So who came in by this door is sent where the doors of
all engines are; for everything else the engine answers as it does anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from boki_common.advertised import all_advertised
from boki_common.engine.admission import Admission
from boki_common.engine.engine_protocol import Token
from boki_common.metrics import Counter
from boki_common.net.connection import Address
from boki_common.net.messages import MessageHandler, MessagePeer, MessageServer
from boki_common.records.record_batch import RecordBatch
from boki_logbook.connection_ports import EngineState
from boki_logbook.peers.engine_list import LISTED_ENGINES
from boki_logbook.settings import EngineSettings
from boki_logbook.writers.early_conflicts import EarlyConflicts
from boki_metalog.terms.index_slots import EngineMember


class OutsideDoor:
    """See the module. Implements `EngineState`: its engine, seen from outside."""

    def __init__(self, engine: EngineState, settings: EngineSettings) -> None:
        self._engine = engine
        self._settings = settings
        self._servers: list[MessageServer] = []
        self._known: list[str] = []

    async def open(self, handler: Callable[[MessagePeer], MessageHandler]) -> None:
        """Listens where the settings say, if they do. Raises SettingsError: it cannot."""
        for text in self._settings.outside_listen:
            self._servers.append(await MessageServer.start(Address.parse(text), handler))

    @property
    def advertised(self) -> list[Address]:
        """Where SDKs of another network reach this engine."""
        bound = [server.address for server in self._servers]
        return all_advertised(bound, self._settings.outside_advertise, key="engine.outside_advertise")

    def update(self, engines: Iterable[EngineMember]) -> None:
        """These engines are there."""
        self._known = [address for engine in engines for address in engine.outside][:LISTED_ENGINES]

    async def close(self) -> None:
        for server in self._servers:
            await server.close()

    # -- EngineState

    def engines(self) -> list[str]:
        return self._known

    @property
    def incarnation(self) -> str:
        return self._engine.incarnation

    def status(self) -> dict[str, Any]:
        return self._engine.status()

    @property
    def reads(self) -> Counter:
        return self._engine.reads

    @property
    def cluster(self) -> str:
        return self._engine.cluster

    def now_ms(self) -> int:
        return self._engine.now_ms()

    @property
    def admission(self) -> Admission:
        return self._engine.admission

    def scan(self, body: memoryview) -> bytes:
        return self._engine.scan(body)

    def early_conflicts(self, token: Token, batch: RecordBatch) -> EarlyConflicts | None:
        return self._engine.early_conflicts(token, batch)
