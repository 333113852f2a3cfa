"""Server-sent events: the records of a stream as they are ordered, over one response that never ends.

    id: 34359738369
    event: record
    data: {"seqnum": "34359738369", "tags": [...], ...}

- The first event is `position`: its id is where the stream begins, so that a reader that is cut off before the first record
  goes on from there. After a cut, a browser's EventSource sends `Last-Event-ID` by itself: the stream goes on behind it.
- Where records are missing that were trimmed or lost, an event `gap` says so: its id is the last seqnum of the gap.
- Between events a comment says every `heartbeat_s` that the stream is alive.
- A failure is an event `error` with the body that errors have everywhere, and the end of the stream.
- A reader that takes nothing for `slow_reader_s` is cut off: it goes on later from the id it has. Until then it holds one
  page of records, at most 1 MiB, and the next one: nothing is queued for it.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from aiohttp import web

from boki import Book, Gap, Record, RecordIterator
from boki_common.errors import BokiError, InvalidArgument, NetworkError
from boki_common.ids import SEQNUM_MAX
from boki_common.logs import get_logger
from boki_gateway.calls import bodies
from boki_gateway.calls.book_calls import end_of, position_of
from boki_gateway.calls.call import EVENTS, Call
from boki_gateway.calls.http_errors import ErrorAnswer, error_answer
from boki_gateway.calls.names import is_number
from boki_gateway.sessions import HEADER

LAST_EVENT_ID: Final = "Last-Event-ID"
HEARTBEAT: Final = b":\n\n"
RETRY_MS: Final = 1_000
"""How long a browser waits before it connects again."""
EVENT_TYPES: Final = (
    ("position", bodies.PositionEvent),
    ("record", bodies.RecordBody),
    ("gap", bodies.GapBody),
    ("error", ErrorAnswer),
)
"""Events by name, and what their data are."""
WRITE_RECORDS: Final = 256
"""Records that are encoded at once."""

_log = get_logger("gateway")


class SlowReader(NetworkError):
    """The reader of an event stream took nothing for too long."""


async def follow(call: Call) -> web.StreamResponse:
    """Serve the stream until its reader leaves or the gateway closes.

    A refusal is raised before the response begins; from then on every error becomes an event, since a second status line would
    land inside of the body.
    """
    with call.parts.admission.stream():
        start = await _start(call)
        asked, book = call.asked, call.book
        pages = book.read(asked.tag, start=start, follow=True, consistency=asked.consistency)
        response = web.StreamResponse(
            headers={
                "Content-Type": EVENTS,
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
                HEADER: call.parts.sessions.token_of(call.session),
            }
        )
        response.enable_chunked_encoding()
        await response.prepare(call.request)
        stream = _Stream(call, response, book, pages)
        try:
            await stream.serve(max(start - 1, 0))
        except ConnectionResetError:
            pass  # the reader left; it has the id of what it got
        except SlowReader as error:
            _log.debug("an event stream was ended", path=call.request.path, error=error)
            if call.request.transport is not None:
                call.request.transport.abort()
        return response


async def _start(call: Call) -> int:
    """The first seqnum to send. Raises InvalidArgument."""
    last = call.request.headers.get(LAST_EVENT_ID)
    if last is not None:
        if not is_number(last) or int(last) > SEQNUM_MAX:
            raise InvalidArgument(f"{LAST_EVENT_ID}: expected the id of an event of this stream, found {last!r:.80}")
        return int(last) + 1
    if call.asked.start is not None:
        return call.asked.start
    book = call.book
    await book.check_tail(call.asked.tag, consistency=call.asked.consistency)
    return (book.position or 0) + 1


class _Stream:
    """One open response."""

    def __init__(self, call: Call, response: web.StreamResponse, book: Book, pages: RecordIterator) -> None:
        self._call = call
        self._response = response
        self._book = book
        self._pages = pages

    async def serve(self, position: int) -> None:
        """Write the position, which the reader has or begins behind, then what follows it."""
        pages = self._pages
        known = msgspec.json.encode(bodies.PositionEvent(position_of(self._book)))
        await self._write(b"retry: %d\nid: %d\nevent: position\ndata: %s\n\n" % (RETRY_MS, position, known))
        closing = asyncio.ensure_future(self._call.parts.closing.wait())
        page = asyncio.ensure_future(pages.next_batch())
        try:
            while not closing.done():
                await asyncio.wait(
                    (page, closing),
                    timeout=self._call.parts.settings.heartbeat_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if page.done():
                    await self._send(await page)
                    page = asyncio.ensure_future(pages.next_batch())
                elif not closing.done():
                    await self._write(HEARTBEAT)
        except SlowReader:
            raise
        except BokiError as error:
            await self._fail(error)
        finally:
            for waiting in (page, closing):
                waiting.cancel()
            await asyncio.gather(page, closing, return_exceptions=True)

    async def _send(self, items: list[Record | Gap]) -> None:
        encoding = self._call.asked.encoding
        for first in range(0, len(items), WRITE_RECORDS):
            lines = bytearray()
            for item in items[first : first + WRITE_RECORDS]:
                lines += b"id: %d\nevent: " % end_of(item)
                if isinstance(item, Gap):
                    lines += b"gap\ndata: " + msgspec.json.encode(bodies.gap_body(item))
                else:
                    lines += b"record\ndata: " + msgspec.json.encode(bodies.record_body(item, encoding))
                lines += b"\n\n"
            await self._write(bytes(lines))

    async def _fail(self, error: BokiError) -> None:
        await self._write(b"event: error\ndata: %s\n\n" % msgspec.json.encode(error_answer(error, changes=False)))

    async def _write(self, data: bytes) -> None:
        """Waits while the reader takes nothing. Raises SlowReader, ConnectionResetError."""
        limit_s = self._call.parts.settings.slow_reader_s
        try:
            async with asyncio.timeout(limit_s):
                await self._response.write(data)
        except TimeoutError as error:
            raise SlowReader(f"the reader took nothing for {limit_s:g} s") from error
