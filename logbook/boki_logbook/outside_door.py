"""Where SDKs of another network come in: further addresses of an engine, and what is sent to those who come there.

An SDK moves to another engine when its own fails, at an address that an engine sent it. In a container network, or behind a load
balancer, the addresses that engines know of each other mean nothing outside. So who came in by this door is sent where the doors of
all engines are; for everything else the engine answers as it does anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from boki_common.advertised import all_advertised
from boki_common.net.connection import Address, FrameServer
from boki_common.net.messages import MessageHandler, MessagePeer, serve_messages
from boki_logbook.peers.engine_list import LISTED_ENGINES
from boki_logbook.settings import EngineSettings
from boki_metalog.terms.index_slots import EngineMember


class OutsideDoor:
    """See the module. `known`: addresses of engines, outside."""

    def __init__(self, settings: EngineSettings) -> None:
        self.known: list[str] = []
        self._settings = settings
        self._servers: list[FrameServer] = []

    async def open(self, handler: Callable[[MessagePeer], MessageHandler]) -> None:
        """Listens where the settings say, if they do. Raises SettingsError: it cannot."""
        for text in self._settings.outside_listen:
            self._servers.append(await serve_messages(Address.parse(text), handler))

    @property
    def advertised(self) -> list[Address]:
        """Where SDKs of another network reach this engine."""
        bound = [server.address for server in self._servers]
        return all_advertised(bound, self._settings.outside_advertise, key="engine.outside_advertise")

    def update(self, engines: Iterable[EngineMember]) -> None:
        """These engines are there."""
        self.known = [address for engine in engines for address in engine.outside][:LISTED_ENGINES]

    async def close(self) -> None:
        for server in self._servers:
            await server.close()
