"""What the HTTP servers of a process have in common below their routes: bounds, and answers to what is no request.

    runner = HttpRunner(application, refuse=answer_of_an_error, connections=64)

- What cannot be read as HTTP is an error of the tree below and is answered by `refuse`, in the shape that all errors of that
  server have, then the connection ends. Anybody who reaches a port can send it, so the log has one line a minute about it, with
  a count.
- A connection is a *stranger* until a request on it is admitted (`admitted`: it shows the token, or none is asked for). A
  stranger gets one answer and is closed. When the server is full, a new connection takes the place of the oldest stranger;
  without a stranger the new connection is closed.
- A connection that has not brought a whole head `FIRST_HEAD_S` after it was made is ended, an idle one after `IDLE_S`.
- Bodies come as they were sent: who takes a Content-Encoding undoes it himself, within his own bound.

| status | what |
|---|---|
| 400 | no HTTP, a header that cannot be, lengths that contradict one another |
| 414 | the target of the request is over `limits.HTTP_TARGET_BYTES` |
| 417 | an expectation that is not `100-continue` |
| 431 | a header is over `limits.HTTP_FIELD_BYTES`, or there are over `limits.HTTP_FIELDS` |
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from boki_common import limits
from boki_common.errors import BokiError, SettingsError, UsageError
from boki_common.log_pace import LogPace
from boki_common.logs import get_logger

FIRST_HEAD_S: Final = 5.0
IDLE_S: Final = 75.0
"""Between two requests."""
LINGER_S: Final = 2.0
"""After an answer the rest of a body is read and dropped for so long: a client that still sends it would not read the answer."""
CONTINUE: Final = "100-continue"

_TOO_MANY: Final = "Too many headers"
"""How the parser begins to say so."""

Refuse: TypeAlias = Callable[[BokiError], web.Response]

_log = get_logger("http")


class MalformedRequest(UsageError):
    """The bytes are no HTTP request."""


class TargetTooLong(MalformedRequest):
    """Path and query are over the limit."""


class HeadersTooLarge(MalformedRequest):
    """A header is over the limit, or there are too many."""


class ExpectationRefused(UsageError):
    """The request expects what this server does not do."""


STATUSES: Final[dict[type[BokiError], int]] = {
    MalformedRequest: 400,
    TargetTooLong: 414,
    HeadersTooLarge: 431,
    ExpectationRefused: 417,
}


class HttpRunner(web.AppRunner):
    """Runs an application; see the module."""

    def __init__(
        self,
        application: web.Application,
        *,
        refuse: Refuse,
        connections: int,
        handler_cancellation: bool = False,
        shutdown_timeout_s: float = 60.0,
        first_head_s: float = FIRST_HEAD_S,
    ) -> None:
        """`refuse` answers what is no request, `connections` are open at once; the rest as of `web.AppRunner`."""
        super().__init__(application, shutdown_timeout=shutdown_timeout_s, handler_cancellation=handler_cancellation)
        self._refuse = refuse
        self._connections_limit = connections
        self._first_head_s = first_head_s

    async def listen(self, host: str, port: int, *, what: str, setting: str) -> int:
        """Listens; port 0 picks a free one. Returns the port really bound.

        Args:
            what: is listening, in errors.
            setting: that gives the port.

        Raises:
            SettingsError: the address cannot be bound.
        """
        await self.setup()
        try:
            await web.TCPSite(self, host, port).start()
        except OSError as fault:
            await self.cleanup()
            reason = "is in use" if fault.errno == errno.EADDRINUSE else f"cannot be bound ({fault.strerror})"
            raise SettingsError(
                f"expected a free address for the {what}, found that {host}:{port} {reason}; choose another {setting}, or 0 for any",
                host=host,
                port=port,
            ) from fault
        return int(self.addresses[0][1])

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _Server(made, self._refuse, self._connections_limit, self._first_head_s)


class _Server(web.Server):
    """The connections of one server. Invariant: at most `limit` are in `guests`, and `strangers` are among them."""

    def __init__(self, application: web.Server, refuse: Refuse, limit: int, first_head_s: float) -> None:
        super().__init__(
            self._handle,
            request_factory=application.request_factory,
            handler_cancellation=application.handler_cancellation,
        )
        self._answer = application.request_handler
        self.refuse = refuse
        self.guests: set[_Connection] = set()
        self.strangers: dict[_Connection, None] = {}
        """Oldest first."""
        self.limit = limit
        self.first_head_s = first_head_s
        self.unreadable = LogPace(_log.info, "no request can be read from connections")
        self.dropped = LogPace(_log.warning, "connections are dropped: as many are open as allowed")

    async def shutdown(self, timeout: float | None = None) -> None:
        """Close all connections."""
        await super().shutdown(timeout)
        self.unreadable.flush()
        self.dropped.flush()

    def __call__(self) -> _Connection:
        return _Connection(self)

    def came(self, connection: _Connection) -> None:
        """Take a new connection, or drop it, if there is no stranger to drop instead."""
        if len(self.guests) >= self.limit:
            oldest = next(iter(self.strangers), connection)
            self.left(oldest)
            self.dropped.say(connections=self.limit)
            oldest.abort()
            if oldest is connection:
                return
        self.guests.add(connection)
        self.strangers[connection] = None

    def left(self, connection: _Connection) -> None:
        """Remove a connection. Idempotent."""
        self.guests.discard(connection)
        self.strangers.pop(connection, None)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, _Connection)
        connection.received()
        expected = request.headers.get(hdrs.EXPECT)
        if expected is not None and expected.lower() != CONTINUE:
            return self.refuse(
                ExpectationRefused(f"expected Expect: {CONTINUE} or none, found {expected!r:.80}", found=expected[:80])
            )
        answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] = self._answer
        answered = await answer(request)
        if not answered.prepared and request.writer.output_size > 0:
            raise ConnectionError("an answer began already: a second status line would be read as its body")
        if connection in self.strangers:
            answered.force_close()
        return answered


def admitted(request: web.BaseRequest) -> None:
    """Keep the connection of a request that shows the token, or on a server that asks for none. Idempotent."""
    connection = request.protocol
    if isinstance(connection, _Connection):
        connection.server.strangers.pop(connection, None)


class _Connection(web.RequestHandler):
    """One connection: its bounds, and its refusals."""

    __slots__ = ("_first_head", "server")

    def __init__(self, server: _Server) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # its runner passes it too: no access log
            auto_decompress=False,
            keepalive_timeout=IDLE_S,
            lingering_time=LINGER_S,
            max_line_size=limits.HTTP_TARGET_BYTES,
            max_field_size=limits.HTTP_FIELD_BYTES,
            max_headers=limits.HTTP_FIELDS,
        )
        self.server = server
        self._first_head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._first_head = asyncio.get_running_loop().call_later(self.server.first_head_s, self.force_close)
        self.server.came(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.received()
        self.server.left(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """End the connection at once; answers that it has not taken are lost."""
        if self.transport is not None:
            self.transport.abort()
        self.force_close()

    def received(self) -> None:
        """A whole head came."""
        if self._first_head is not None:
            self._first_head.cancel()
            self._first_head = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answers what was no request, or a fault of the server's."""
        self.received()
        if isinstance(exc, HttpProcessingError):
            error: BokiError = malformed(exc)
            self.server.unreadable.say(peer=request.remote, error=str(error))
        else:
            error = BokiError("the server has a fault; its log says more")
            _log.error("a request could not be answered", status=status, error=repr(exc))
        if request.writer.output_size > 0:
            raise ConnectionError("an answer began already")
        answer = self.server.refuse(error)
        answer.force_close()
        return answer

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """What ended a connection, in one line."""
        _log.info("a connection ended by an error", error=repr(kw.get("exc_info") or args))


def malformed(fault: HttpProcessingError) -> MalformedRequest:
    """The error that a fault of the parser is."""
    if isinstance(fault, LineTooLong):
        limit = fault.args[1] if len(fault.args) > 1 else None
        if limit == limits.HTTP_TARGET_BYTES:
            return TargetTooLong(f"expected path and query of at most {limit} bytes, found more", expected=limit)
        return HeadersTooLarge(
            f"expected headers of at most {limits.HTTP_FIELD_BYTES} bytes each, found more",
            expected=limits.HTTP_FIELD_BYTES,
        )
    if fault.message.startswith(_TOO_MANY):
        return HeadersTooLarge(
            f"expected at most {limits.HTTP_FIELDS} headers, found more", expected=limits.HTTP_FIELDS
        )
    found = " ".join(fault.message.split())
    return MalformedRequest(f"expected an HTTP request, found what is none: {found:.200}")
