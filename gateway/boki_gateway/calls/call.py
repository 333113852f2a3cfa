"""One request on its way through the gateway: what it asks, in which session, and what its handler has at hand.

A handler is `async def handler(call: Call) -> Answer`: a body of `bodies`, or a response of its own (streams, pages).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
from aiohttp import web

from boki import Book, Client
from boki_common.metrics import Metrics
from boki_gateway.calls.admission import Admission
from boki_gateway.calls.board import StatusBoard
from boki_gateway.calls.parameters import Asked
from boki_gateway.sessions import Sessions
from boki_gateway.settings import GatewaySettings

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
EVENTS: Final = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Created:
    """An answer of 201: something was made, and where it is read."""

    body: msgspec.Struct
    location: str


Answer: TypeAlias = msgspec.Struct | Created | web.StreamResponse


@dataclass(frozen=True, slots=True)
class Parts:
    """What all requests of a gateway share."""

    client: Client
    settings: GatewaySettings
    sessions: Sessions
    admission: Admission
    board: StatusBoard
    metrics: Metrics
    document: bytes
    """The OpenAPI document."""
    closing: asyncio.Event
    """Set when the gateway closes."""


@dataclass(frozen=True, slots=True)
class Call:
    """See the module."""

    parts: Parts
    request: web.Request
    asked: Asked
    body: Any
    """Of the type that the route names; None without one."""
    session: Client
    admitted: bool
    """Whether it showed the cluster token, or none is asked for; what is not open asks before."""

    @property
    def book(self) -> Book:
        """The book that the path names. Raises InvalidArgument, ClosedError."""
        return self.session.book(self.asked.book)


Handler: TypeAlias = Callable[[Call], Awaitable[Answer]]
