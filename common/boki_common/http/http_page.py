"""The HTTP pages of a process: metrics, health, administration. One server each; JSON, errors too.

    page = HttpPage("admin page", setting="admin_port")
    page.get("/info", "What this is.", info)          # async def info(request: web.Request) -> web.StreamResponse
    await page.listen("127.0.0.1", 0)

- What goes wrong is answered `{"error": <what was expected, what was found, what to do>}`. A path that is not there is
  answered with the paths that are; a method that is not, with those that are.
- Where the cluster has a token every request shows it (`http_credential`), health and metrics too; else a page is for those who can
  reach its address. A web page in somebody's browser can reach it too: `host_rules` refuses what it sends.
- Bodies of requests are bounded; nothing here is on the path of an append.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from aiohttp import hdrs, web

from boki_common import limits
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import (
    DECODE_FAULTS,
    BokiError,
    InvalidArgument,
    MetadataError,
    NetworkError,
    Overloaded,
    Unauthenticated,
    UsageError,
)
from boki_common.http.host_rules import HostRefused, HostRules, OriginRefused
from boki_common.http.http_credential import CHALLENGES, shown_in
from boki_common.http.http_server import STATUSES, HttpRunner, MalformedRequest, admitted
from boki_common.logs import get_logger

BODY_S: Final = 10.0
"""A body comes within that."""
IDENTITY: Final = "identity"

Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]

_log = get_logger("http")


def answer(value: Any, status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.Response(body=msgspec.json.encode(value) + b"\n", status=status, content_type="application/json")


async def body_of(request: web.Request) -> dict[str, Any]:
    """The JSON object that a request carries; empty for no body. Raises InvalidArgument."""
    encoding = request.headers.get(hdrs.CONTENT_ENCODING, IDENTITY)
    if encoding.lower() != IDENTITY:
        raise InvalidArgument(f"expected a body without Content-Encoding, found {encoding!r:.80}")
    try:
        async with asyncio.timeout(BODY_S):
            data = await request.read()
    except TimeoutError as fault:
        raise MalformedRequest(f"expected the whole body within {BODY_S:g} s, found it unfinished") from fault
    except web.RequestPayloadError as fault:
        raise MalformedRequest(f"expected a body as its headers announce it, found {fault}") from fault
    if not data:
        return {}
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except DECODE_FAULTS as error:
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

    def __init__(
        self, what: str, *, setting: str, allowed_hosts: Sequence[str] = (), token: ClusterToken = NO_TOKEN
    ) -> None:
        """`what` it is called in errors, the `setting` that gives its port, further names that Host may have, what is shown."""
        self._token = token
        self._allowed_hosts = allowed_hosts
        self._hosts = HostRules("", allowed_hosts)
        self._what = what
        self._setting = setting
        self._paths: dict[str, str] = {}
        self._application = web.Application(middlewares=[self._in_json], client_max_size=limits.HTTP_PAGE_REQUEST_BYTES)
        self._runner: HttpRunner | None = None
        self.port: int
        """The port really bound."""

    def get(self, path: str, meaning: str, serve: Serve) -> None:
        self.add("GET", path, meaning, serve)

    def add(self, method: str, path: str, meaning: str, serve: Serve) -> None:
        """Serves `method path`; `meaning` is what the list of paths says of it."""
        self._paths[f"{method} {path}"] = meaning
        self._application.router.add_route(method, path, serve)

    async def listen(self, host: str, port: int) -> None:
        """Listens; port 0 picks a free one, see `port`. Raises SettingsError: the address cannot be bound."""
        assert self._runner is None, "listens once"
        self._hosts = HostRules(host, self._allowed_hosts)
        self._runner = HttpRunner(self._application, refuse=_refusal, connections=limits.HTTP_PAGE_CONNECTIONS)
        self.port = await self._runner.listen(host, port, what=self._what, setting=self._setting)

    async def close(self) -> None:
        """Stops listening. Idempotent."""
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _in_json(self, request: web.Request, handler: Serve) -> web.StreamResponse:
        try:
            self._hosts.check(request.method, request.headers)
            self._token.admit(shown_in(request.headers.get("Authorization")), f"this {self._what}")
            admitted(request)
            return await handler(request)
        except web.HTTPNotFound:
            return answer({"error": f"expected one of the paths, found {request.path}", "paths": self._paths}, 404)
        except web.HTTPMethodNotAllowed as refused:
            methods = sorted(refused.allowed_methods)
            return answer({"error": f"expected {', '.join(methods)} of {request.path}, found {request.method}"}, 405)
        except web.HTTPException as refused:
            return answer({"error": f"{refused.reason}: {refused.text}"}, refused.status)
        except Unauthenticated as error:
            refusal = f"{error}; over HTTP it is sent as Authorization: Bearer TOKEN, or as the password of Basic"
            refused_answer = answer({"error": refusal, "type": type(error).__name__}, 401)
            for challenge in CHALLENGES:
                refused_answer.headers.add(hdrs.WWW_AUTHENTICATE, challenge)
            return refused_answer
        except BokiError as error:
            return _refusal(error)
        except Exception as fault:
            _log.error("a page could not be served", path=request.path, error=repr(fault))
            raise


def _refusal(error: BokiError) -> web.Response:
    return answer({"error": str(error), "type": type(error).__name__}, _status_of(error))


def _status_of(error: BokiError) -> int:
    if isinstance(error, Overloaded | NetworkError | MetadataError):
        return 503
    if type(error) in STATUSES:
        return STATUSES[type(error)]
    if isinstance(error, HostRefused | OriginRefused):
        return 403
    return 400 if isinstance(error, UsageError) else 500
