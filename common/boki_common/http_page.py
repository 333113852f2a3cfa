"""The HTTP pages of a process: metrics, health, administration. One server each; JSON, errors too.

    page = HttpPage("admin page", setting="admin_port")
    page.get("/info", "What this is.", info)          # async def info(request: web.Request) -> web.StreamResponse
    await page.listen("127.0.0.1", 0)

- What goes wrong is answered `{"error": <what was expected, what was found, what to do>}`. A path that is not there is
  answered with the paths that are; a method that is not, with those that are.
- There is no authentication: a page is for those who can reach its address. A web page in somebody's browser on this
  machine can reach it too, so requests that change something are refused when a browser sent them for a page (`Origin`).
- Bodies of requests are bounded; nothing here is on the path of an append.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from boki_common.errors import (
    BokiError,
    InvalidArgument,
    MetadataError,
    NetworkError,
    Overloaded,
    SettingsError,
    UsageError,
)
from boki_common.limits import KIB
from boki_common.logs import get_logger

REQUEST_BYTES: Final = 64 * KIB

Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]

_log = get_logger("http")


def answer(value: Any, status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.Response(body=msgspec.json.encode(value) + b"\n", status=status, content_type="application/json")


async def body_of(request: web.Request) -> dict[str, Any]:
    """The JSON object that a request carries; empty for no body. Raises InvalidArgument."""
    data = await request.read()
    if not data:
        return {}
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"expected a JSON object as body, found {data[:80]!r}: {error}") from error


def number_of(request: web.Request, name: str, default: int, *, minimum: int, maximum: int) -> int:
    """A whole number of the query. Raises InvalidArgument."""
    text = request.query.get(name)
    if text is None:
        return default
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < 20 and minimum <= int(text) <= maximum:
        return int(text)
    raise InvalidArgument(f"{name}: expected a number from {minimum} to {maximum}, found {text!r}")


class HttpPage:
    """One listening page; add paths, then `listen`."""

    def __init__(self, what: str, *, setting: str) -> None:
        """`what` it is called in errors, and the `setting` that gives its port."""
        self._what = what
        self._setting = setting
        self._paths: dict[str, str] = {}
        self._application = web.Application(middlewares=[self._in_json], client_max_size=REQUEST_BYTES)
        self._runner: web.AppRunner | None = None

    def get(self, path: str, meaning: str, serve: Serve) -> None:
        self.add("GET", path, meaning, serve)

    def add(self, method: str, path: str, meaning: str, serve: Serve) -> None:
        """Serves `method path`; `meaning` is what the list of paths says of it."""
        self._paths[f"{method} {path}"] = meaning
        self._application.router.add_route(method, path, serve)

    async def listen(self, host: str, port: int) -> None:
        """Listens; port 0 picks a free one, see `port`. Raises SettingsError: the address cannot be bound."""
        assert self._runner is None, "listens once"
        self._runner = runner = web.AppRunner(self._application, access_log=None, handle_signals=False)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as fault:
            await runner.cleanup()
            reason = "is in use" if fault.errno == errno.EADDRINUSE else f"cannot be bound ({fault.strerror})"
            raise SettingsError(
                f"expected a free address for the {self._what}, found that {host}:{port} {reason}; "
                f"choose another {self._setting}, or 0 for any",
                host=host,
                port=port,
            ) from fault

    @property
    def port(self) -> int:
        """The port really bound."""
        assert self._runner is not None, "listens"
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Stops listening. Idempotent."""
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _in_json(self, request: web.Request, handler: Serve) -> web.StreamResponse:
        try:
            if request.method != "GET" and "Origin" in request.headers:
                return answer({"error": "expected a program, found a browser's page; send it without Origin"}, 403)
            return await handler(request)
        except web.HTTPNotFound:
            return answer({"error": f"expected one of the paths, found {request.path}", "paths": self._paths}, 404)
        except web.HTTPMethodNotAllowed as refused:
            methods = sorted(refused.allowed_methods)
            return answer({"error": f"expected {', '.join(methods)} of {request.path}, found {request.method}"}, 405)
        except web.HTTPException as refused:
            return answer({"error": f"{refused.reason}: {refused.text}"}, refused.status)
        except BokiError as error:
            return answer({"error": str(error), "type": type(error).__name__}, _status_of(error))
        except Exception as fault:
            _log.error("a page could not be served", path=request.path, error=repr(fault))
            raise


def _status_of(error: BokiError) -> int:
    if isinstance(error, Overloaded | NetworkError | MetadataError):
        return 503
    return 400 if isinstance(error, UsageError) else 500
