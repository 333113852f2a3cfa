"""Where engines are: the URL, and how a connection to one of them is made.

    boki://host:port         TCP; the port defaults to 7040
    unix:///path             Unix socket
    memory://name            a `boki.testing.MemoryCluster` of this process
    a,b,c                    several engines of one cluster; the scheme may be left out after the first

Options at the end, `?token_file=/path`, are taken off before (`boki_common.engine.engine_url`).

A dialer goes through its engines in turn, beginning with the one after the last that failed: those of the URL, then those
that an engine named when it was connected to last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from boki_common.errors import BokiError, InvalidArgument, Unreachable
from boki_common.net.connection import Address
from boki_common.net.messages import MessagePeer, connect_messages
from boki_common.runtime.ports import Buffer

DEFAULT_PORT: Final = 7040

LEARNED_ENGINES: Final = 64
"""Engines beyond those of the URL that a client remembers."""

_FORMS: Final = "boki://host:port, unix:///path, or several of them separated by commas"


class Abortable(Protocol):
    def abort(self, error: BokiError) -> None:
        """Ends the connection at once; the handler gets `error`."""


class EnginePeer(Protocol):
    """One connection to an engine: what the SDK needs of `MessagePeer`."""

    @property
    def connection(self) -> Abortable: ...

    @property
    def peer(self) -> str: ...

    @property
    def closed(self) -> bool: ...

    def request(self, opcode: int, *body: Buffer) -> asyncio.Future[memoryview]: ...

    def expect(self) -> tuple[int, asyncio.Future[memoryview]]: ...

    def send_all(self, messages: Iterable[tuple[int, int, Sequence[Buffer]]]) -> None: ...

    def take_answers(self, answers: Iterable[tuple[int, memoryview]]) -> None: ...

    def push_now(self, opcode: int, *body: Buffer) -> None: ...

    def close(self) -> None: ...


class EngineHandler(Protocol):
    """Who receives what an engine sends: `MessageHandler`, for any kind of connection."""

    def message_received(self, peer: EnginePeer, opcode: int, request_id: int, body: memoryview) -> None: ...

    def peer_lost(self, peer: EnginePeer, error: BokiError | None) -> None: ...


class Dialer(Protocol):
    """Makes connections to the engines of one cluster."""

    @property
    def engines(self) -> int:
        """How many there are to try."""

    async def dial(self, handler: EngineHandler) -> EnginePeer:
        """Connects to the next engine. Raises Unreachable."""

    def learn(self, addresses: Sequence[str]) -> None:
        """An engine said where the engines of the cluster are."""


class SocketDialer:
    """Engines at addresses."""

    def __init__(self, addresses: list[Address]) -> None:
        self._addresses: Final = addresses
        self._learned: list[Address] = []
        self._next = 0

    @property
    def engines(self) -> int:
        return len(self._addresses) + len(self._learned)

    def copy(self) -> SocketDialer:
        """Return a dialer of the same engines, for another event loop or thread."""
        return SocketDialer(self._addresses + self._learned)

    async def dial(self, handler: EngineHandler) -> MessagePeer:
        address = (self._addresses + self._learned)[self._next % self.engines]
        self._next += 1
        return await connect_messages(address, handler)

    def learn(self, addresses: Sequence[str]) -> None:
        """Keeps what can be reached from here: Unix sockets only if the URL has one, and no address of "this host"."""
        local = any(address.path for address in self._addresses)
        learned: dict[Address, None] = {}
        for text in addresses:
            try:
                address = Address.parse(text)
            except InvalidArgument:
                continue  # a form that a later version knows
            if (address.path and not local) or address.host in ("0.0.0.0", "::"):
                continue
            if address not in self._addresses:
                learned[address] = None
        current = self._next % self.engines
        self._learned = list(learned)[:LEARNED_ENGINES]
        self._next = current


local_clusters: Final[dict[str, Dialer]] = {}
"""Clusters inside of this process, by the name in their memory:// URL."""


def dialer_for(url: str) -> Dialer:
    """Reads a URL. Raises InvalidArgument naming the forms, Unreachable for a memory cluster that is not open."""
    if not isinstance(url, str):
        raise InvalidArgument(f"expected a URL such as {_FORMS}, found {type(url).__name__}")
    if url.startswith("memory://"):
        dialer = local_clusters.get(url.removeprefix("memory://"))
        if dialer is None:
            raise Unreachable(f"no MemoryCluster of this process is open as {url!r}", address=url)
        return dialer
    parts = [part.strip() for part in url.split(",")]
    if not parts[0].startswith(("boki://", "unix://")):
        raise InvalidArgument(f"expected a URL such as {_FORMS}, found {url!r}", found=url)
    return SocketDialer([_address(part, url) for part in parts])


def _address(part: str, url: str) -> Address:
    text = part.removeprefix("boki://").removesuffix("/") if not part.startswith("unix://") else part
    if "://" in text.removeprefix("unix://") or not text:
        raise InvalidArgument(f"expected a URL such as {_FORMS}, found {part!r} in {url!r}", found=url)
    if not text.startswith("unix://"):
        if ":" not in text or text.endswith("]"):
            text = f"{text}:{DEFAULT_PORT}"
        host = text.rpartition(":")[0]
        if (host[:1] == "[") != (host[-1:] == "]") or (":" in host and host[:1] != "["):
            raise InvalidArgument(
                f"expected an IPv6 address in brackets, boki://[::1]:7040, found {part!r} in {url!r}", found=url
            )
    try:
        return Address.parse(text)
    except InvalidArgument as fault:
        raise InvalidArgument(f"expected a URL such as {_FORMS}, found {part!r} in {url!r}", found=url) from fault
