"""The gateway: an HTTP server over one client of the SDK.

    gateway = Gateway(client, facts, settings, metrics, address=Address("127.0.0.1", 7080))
    await gateway.listen()

Each request goes one way: Host and Origin are looked at, then it is admitted, its parameters and its body are parsed by its
row of the table, its handler answers, and whatever is raised on the way becomes the one JSON shape of errors. The answer
carries the session's token, that of an error too: a Conflict moves the session as well.

A client that goes away cancels its request; an append that was sent by then stays sent.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeAlias

import msgspec
from aiohttp import hdrs, web

from boki import Client
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import BokiError, Unauthenticated
from boki_common.http.host_rules import HostRules
from boki_common.http.http_credential import CHALLENGES, shown_in
from boki_common.http.http_server import HttpRunner, admitted
from boki_common.logs import get_logger
from boki_common.metrics import LATENCY_BUCKETS_S, Histogram, Metrics
from boki_common.net.connection import Address
from boki_gateway import metric_definitions, openapi
from boki_gateway.calls import bodies, encodings, parameters
from boki_gateway.calls.admission import Admission
from boki_gateway.calls.board import StatusBoard
from boki_gateway.calls.bodies import HealthAnswer
from boki_gateway.calls.book_routes import BOOK_ROUTES
from boki_gateway.calls.call import EVENTS, JSON, NDJSON, Answer, Call, Created, Parts
from boki_gateway.calls.cluster_state import ClusterFacts
from boki_gateway.calls.http_errors import RETRY_AFTER_S, error_answer, internal_answer, status_of
from boki_gateway.calls.operation_routes import OPERATION_ROUTES
from boki_gateway.calls.table import Route
from boki_gateway.calls.values import check_values
from boki_gateway.errors import MethodRefused, NoSuchPath, NotAdmitted, UnsupportedBody, UnsupportedEncoding
from boki_gateway.pages.library_pages import library_routes
from boki_gateway.pages.page_routes import PAGE_ROUTES, page_routes
from boki_gateway.pages.pages import Page
from boki_gateway.sessions import HEADER, Sessions
from boki_gateway.settings import GatewaySettings

Serve: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

ROUTES: Final = (*BOOK_ROUTES, *OPERATION_ROUTES, *PAGE_ROUTES)
OPEN: Final = frozenset(route.name for route in ROUTES if route.open)
"""Names of the routes that are answered without the token."""
PROMPT: Final = frozenset(route.name for route in BOOK_ROUTES if route.content_type != EVENTS)
"""Names of the routes about books that are answered at once, unless somebody waits for records."""
HOW_TO_SHOW: Final = "it is sent as Authorization: Bearer TOKEN, or as the password of Basic, with any user name"
CLOSE_TIMEOUT_S: Final = 2.0
VARIABLE: Final = re.compile(r"\{(\w+)\}")
"""Of the path of a route."""
"""Requests under way may take so long when the gateway closes."""
ELSEWHERE: Final = "none"
"""What metrics call the route of a request that has none."""

_log = get_logger("gateway")


class Gateway:
    """One gateway, which serves once it listens."""

    def __init__(
        self,
        client: Client,
        facts: ClusterFacts,
        settings: GatewaySettings,
        metrics: Metrics,
        *,
        address: Address,
        allowed_hosts: Sequence[str] = (),
        token: ClusterToken = NO_TOKEN,
        pages: Sequence[Page] = (),
    ) -> None:
        """A gateway that does not listen yet.

        Args:
            client: open; stays the caller's.
            facts: of the cluster.
            address: where it will listen; port 0 picks a free one.
            allowed_hosts: names that Host may have beside the usual ones, see `boki_common.http.host_rules`.
            token: what requests have to show; what it shows to engines is the client's own.
            pages: of libraries, see `library_pages.installed`.
        """
        self._token = token
        admission = Admission(settings)
        self._answered = 0
        self._latencies = Histogram(LATENCY_BUCKETS_S)
        """Of requests about books that do not wait for records."""
        board = StatusBoard(
            facts,
            every_s=settings.status_every_s,
            requests=lambda: self._answered,
            streams=lambda: admission.streams,
            answers=lambda: self._latencies.counts,
        )
        routes = routes_with(pages)
        document = msgspec.json.encode(openapi.document(routes)) + b"\n"
        sessions = Sessions(client, limit=settings.sessions)
        self._parts = Parts(client, settings, sessions, admission, board, metrics, document, asyncio.Event())
        self._hosts = HostRules(address.host, allowed_hosts)
        self.address = address
        """Where it really listens, once it does."""
        self._requests = metrics.counter(metric_definitions.REQUESTS)
        self._seconds = metrics.histogram(metric_definitions.REQUEST_SECONDS)
        metrics.gauge(metric_definitions.STREAMS).set_function(lambda: admission.streams)
        application = web.Application(middlewares=[self._outermost])
        for route in routes:
            handler = self._handler(route)
            path = pattern_of(route, routes)
            application.router.add_route(route.method, path, handler, name=route.name)
            if _has_head(route):
                application.router.add_route(hdrs.METH_HEAD, path, handler, name=route.name)
        self._runner = HttpRunner(
            application,
            refuse=self._refuse_unread,
            connections=settings.connections,
            handler_cancellation=True,
            shutdown_timeout_s=CLOSE_TIMEOUT_S,
        )

    async def listen(self) -> None:
        """Begins to serve. Raises SettingsError: cannot listen there."""
        host, port = self.address.host, self.address.port
        found = await self._runner.listen(host, port, what="gateway", setting="gateway.port")
        self.address = self.address._replace(port=found)

    async def close(self) -> None:
        """Ends event streams, waits shortly for what is under way, stops listening. Idempotent."""
        self._parts.closing.set()
        await self._runner.cleanup()
        await self._parts.board.close()

    # -- one request

    def _handler(self, route: Route) -> Serve:
        async def handle(request: web.Request) -> web.StreamResponse:
            session = self._parts.client
            try:
                session = self._parts.sessions.find(request.headers.get(HEADER) if route.session else None)
                answer = await self._answer(route, request, session)
                response = _response(answer, route)
            except BokiError as error:
                response = _refusal(error, changes=route.changes)
            if route.session and not response.prepared:
                response.headers[HEADER] = self._parts.sessions.token_of(session)
            return response

        return handle

    async def _answer(self, route: Route, request: web.Request, session: Client) -> Answer:
        parameters.check_target(request.raw_path)
        asked = parameters.parse(route.parameters, path=request.match_info, query=_query(route, request))
        if route.body is None:
            return await route.handler(Call(self._parts, request, asked, None, session, self._is_admitted(request)))
        lines = _are_lines(route, request)
        async with self._parts.admission.body(request, limit=route.body_bytes) as data:
            for _ in check_values(data, route.body_values):
                await asyncio.sleep(0)
            body = bodies.decode_lines(data) if lines else bodies.decode_body(data, route.body)
            return await route.handler(Call(self._parts, request, asked, body, session, admitted=True))

    def _admit(self, request: web.Request) -> None:
        """Raises NotAdmitted."""
        try:
            self._token.admit(shown_in(request.headers.get(hdrs.AUTHORIZATION)), "this gateway")
        except Unauthenticated as error:
            raise NotAdmitted(f"{error}; over HTTP {HOW_TO_SHOW}", **error.facts) from error
        admitted(request)

    def _is_admitted(self, request: web.Request) -> bool:
        try:
            self._admit(request)
        except NotAdmitted:
            return False
        return True

    def _refuse_unread(self, error: BokiError) -> web.Response:
        """Answers a request that reached no route, as it could not be parsed."""
        answer = _refusal(error)
        self._answered += 1
        self._requests.labels(ELSEWHERE, str(answer.status)).inc()
        return answer

    @web.middleware
    async def _outermost(self, request: web.Request, handler: Serve) -> web.StreamResponse:
        """Refuses, admits, counts; the last resort for what nobody expected."""
        began = asyncio.get_running_loop().time()
        name = request.match_info.route.name or ELSEWHERE
        status = 500
        try:
            response = await self._guarded(request, handler)
            status = response.status
            return response
        finally:
            self._answered += 1
            self._requests.labels(name, str(status)).inc()
            took_s = asyncio.get_running_loop().time() - began
            self._seconds.labels(name).observe(took_s)
            if name in PROMPT and "wait" not in request.query:
                self._latencies.observe(took_s)

    async def _guarded(self, request: web.Request, handler: Serve) -> web.StreamResponse:
        try:
            self._hosts.check(request.method, request.headers)
            if (request.match_info.route.name or ELSEWHERE) not in OPEN:
                self._admit(request)
            with self._parts.admission.request():
                return await handler(request)
        except BokiError as error:
            return _refusal(error)
        except web.HTTPNotFound:
            return _refusal(NoSuchPath(f"expected a path of /openapi.json, found {request.path!r:.200}"))
        except web.HTTPMethodNotAllowed as refused:
            methods = ", ".join(sorted(refused.allowed_methods))
            answer = _refusal(MethodRefused(f"expected {methods} of {request.path!r:.200}, found {request.method}"))
            answer.headers[hdrs.ALLOW] = methods
            return answer
        except Exception as fault:  # noqa: BLE001  # the outermost frame of a request: logged, and answered
            _log.error("a request could not be answered", path=request.path, error=repr(fault), exc_info=True)
            return _json(internal_answer(), 500)


def routes_with(pages: Sequence[Page]) -> list[Route]:
    """All routes of a gateway that serves pages of libraries."""
    return [*BOOK_ROUTES, *OPERATION_ROUTES, *page_routes(pages), *library_routes(pages)]


def pattern_of(route: Route, routes: Sequence[Route]) -> str:
    """The path as the router takes it: what is a path by itself is no value of a variable in its place.

    So `/records/{seqnum}` is not also the path `/records/batch`, of which another method is asked. A variable is anything without a
    slash; left to itself the router takes none with a brace.
    """
    before, variable, last = route.path.rpartition("/{")
    if not variable or "/" in last:
        return VARIABLE.sub(r"{\1:[^/]+}", route.path)
    siblings = [other.path.removeprefix(f"{before}/") for other in routes if other.path.startswith(f"{before}/")]
    fixed = "|".join(sorted({sibling for sibling in siblings if "/" not in sibling and "{" not in sibling}))
    value = f"(?!(?:{fixed})$)[^/]+" if fixed else "[^/]+"
    return VARIABLE.sub(r"{\1:[^/]+}", before) + f"/{{{last.removesuffix('}')}:{value}}}"


def _has_head(route: Route) -> bool:
    """Whether HEAD is answered as GET is, without the body: of all that ends."""
    return route.method == "GET" and route.content_type != EVENTS


def _query(route: Route, request: web.Request) -> Iterable[tuple[str, str]]:
    """What the server reads of a query; that of a page is the page's own."""
    return () if route.group == "pages" else request.query.items()


def _are_lines(route: Route, request: web.Request) -> bool:
    """Whether a body is lines of JSON. Raises UnsupportedBody: a page of another site could send what is no JSON."""
    found = request.content_type
    if found == JSON or (route.lines and found == NDJSON):
        return found == NDJSON
    expected = f"{JSON} or {NDJSON}" if route.lines else JSON
    raise UnsupportedBody(f"expected Content-Type {expected}, found {found}", expected=expected, found=found)


def _response(answer: Answer, route: Route) -> web.StreamResponse:
    if isinstance(answer, web.StreamResponse):
        return answer
    if isinstance(answer, Created):
        response = _json(answer.body, route.status)
        response.headers[hdrs.LOCATION] = answer.location
        return response
    failing = isinstance(answer, HealthAnswer) and answer.status != "ok"
    return _json(answer, (route.failing or route.status) if failing else route.status)


def _refusal(error: BokiError, *, changes: bool = True) -> web.Response:
    status = status_of(error)
    response = _json(error_answer(error, changes=changes), status)
    if isinstance(error, NotAdmitted):
        for challenge in CHALLENGES:
            response.headers.add(hdrs.WWW_AUTHENTICATE, challenge)
    if isinstance(error, UnsupportedEncoding):
        response.headers[hdrs.ACCEPT_ENCODING] = encodings.KNOWN
    if status in (429, 503):
        response.headers[hdrs.RETRY_AFTER] = str(RETRY_AFTER_S)
    return response


def _json(value: object, status: int) -> web.Response:
    response = web.Response(body=msgspec.json.encode(value) + b"\n", status=status, content_type=JSON)
    response.headers[hdrs.CACHE_CONTROL] = "no-store"
    return response
