"""What the gateway takes on at once: requests, event streams and bytes of bodies, each with a bound.

    with admission.request(): ...
    async with admission.body(request, limit=…) as data: ...

What is over a bound is refused as `Overloaded` before anything of it is read; nothing waits here. A body is measured by
its Content-Length, one without a length or in an encoding as if it were as large as its path allows. The limit of a path holds for the
bytes that were sent and for what they stand for. Other requests have their turn between two parts of a body that is decoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from aiohttp import hdrs, web

from boki_common.errors import Overloaded
from boki_common.http.http_server import MalformedRequest
from boki_gateway.calls.encodings import Decoder, decoder_of
from boki_gateway.errors import BodyIncomplete, BodyTooLarge
from boki_gateway.settings import GatewaySettings


class Admission:
    """Counts what is under way; see the module."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self.requests = 0
        self.streams = 0
        self.body_bytes = 0

    @contextmanager
    def request(self) -> Iterator[None]:
        """One request under way. Raises Overloaded."""
        if self.requests >= self._settings.requests:
            raise _full("requests are under way", self._settings.requests)
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    @contextmanager
    def stream(self) -> Iterator[None]:
        """One open event stream. Raises Overloaded."""
        if self.streams >= self._settings.streams:
            raise _full("event streams are open", self._settings.streams)
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    @asynccontextmanager
    async def body(self, request: web.Request, *, limit: int) -> AsyncIterator[bytes]:
        """The body of a request, in memory while the block runs.

        Raises:
            BodyTooLarge: over `limit` bytes; nothing, or no more than that, was read. Overloaded. BodyIncomplete.
            UnsupportedEncoding, InvalidArgument: its encoding is not known, or another. MalformedRequest.
        """
        decoder = decoder_of(request.headers.get(hdrs.CONTENT_ENCODING))
        expected = request.content_length
        if expected is not None and expected > limit:
            raise _too_large(limit, expected)
        unknown = expected is None or decoder is not None
        reserved = limit if unknown and request.can_read_body else expected or 0
        if self.body_bytes + reserved > max(self._settings.body_bytes, reserved):
            raise _full("bytes of bodies are under way", self._settings.body_bytes)
        self.body_bytes += reserved
        try:
            yield await self._read(request, limit, decoder)
        finally:
            self.body_bytes -= reserved

    async def _read(self, request: web.Request, limit: int, decoder: Decoder | None) -> bytes:
        parts = bytearray()
        sent = 0
        try:
            async with asyncio.timeout(self._settings.call_timeout_s):
                async for piece in request.content.iter_any():
                    sent += len(piece)
                    if sent > limit:
                        raise _too_large(limit, None)
                    if decoder is None:
                        parts += piece
                        continue
                    for part in decoder.feed(piece):
                        parts += part
                        if len(parts) > limit:
                            raise _too_large(limit, None)
                        await asyncio.sleep(0)
            if decoder is not None:
                decoder.finish()
        except web.RequestPayloadError as fault:
            raise MalformedRequest(f"expected a body as its headers announce it, found {fault!s:.200}") from fault
        except TimeoutError as error:
            raise BodyIncomplete(
                f"expected the whole body within {self._settings.call_timeout_s:g} s, found {len(parts)} bytes by then"
            ) from error
        return bytes(parts)


def _full(what: str, limit: int) -> Overloaded:
    return Overloaded(f"{limit} {what} at this gateway already; come back later, or start another gateway", limit=limit)


def _too_large(limit: int, found: int | None) -> BodyTooLarge:
    size = "more" if found is None else f"{found}"
    return BodyTooLarge(f"expected a body of at most {limit} bytes, found {size}", expected=limit, found=found)
