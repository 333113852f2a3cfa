"""Every number and header of every route, given values at and beyond its bounds: one answer each, never a fault.

The routes, their parameters, headers and bodies are those of the table: one that is added is asked too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
import pytest

from boki_gateway.calls import bodies
from boki_gateway.calls.book_routes import BOOK_ROUTES
from boki_gateway.calls.call import EVENTS
from boki_gateway.server import ROUTES
from boki_gateway.sessions import HEADER
from boki_gateway.testing import running_gateway

if TYPE_CHECKING:
    from boki.testing import MemoryCluster
    from boki_gateway.calls.table import Route
    from boki_gateway.testing import Requester

EDGES: Final = sorted({edge + by for edge in (0, 2**31, 2**32, 2**53, 2**63, 2**64, 10**20) for by in (-1, 0, 1)})
TEXTS: Final = (
    *map(str, EDGES), "9" * 5_000, "00", "+1", " 1", "1 ", "1_0", "1.0", "1e3", "0x1", "nan", "inf", "-inf", "1e400", "١", "²",
    "", "~", "~~", "~-1", "~18446744073709551616", "true", "null", "\x00", "é",
)  # fmt: skip
JSONS: Final = (
    *map(str, EDGES), "9" * 5_000, "-0", "1.0", "1e3", "1e400", "-1e400", "1e-400", "true", "null", "[]", "{}",
    '""', '"\\ud800"',
    *(f'"{text}"' for text in TEXTS if text.isprintable()),
)  # fmt: skip
BODIES: Final[dict[type[Any], list[Any]]] = {
    bodies.AppendRequest: [
        {"text": "x", "tags": ["t", 7], "expect": {"t": None}},
        {"data": "eA==", "writer": "w", "number": 1, "expect": {}, "tags": []},
    ],
    bodies.BatchRequest: [{"records": [{"text": "x", "tags": [7]}, {"data": "eA=="}]}],
    bodies.PrevManyRequest: [{"queries": [{"tag": 7, "at_most": 5}]}],
    bodies.TrimRequest: [{"pairs": [{"tag": 7, "before": 5}], "forget": True}],
    bodies.AuxRequest: [{"text": "x"}, {"data": "eA=="}],
}
"""Bodies that are taken, which together have every field."""
_HOLE: Final = "a value stands here"


@pytest.fixture
async def asked(cluster: MemoryCluster) -> AsyncIterator[Requester]:
    async with running_gateway(cluster) as requester:
        await requester.append("b", "x", "t")
        yield requester


async def answer_to(requester: Requester, method: str, target: str, headers: dict[str, str], body: bytes) -> bytes:
    """All that one request is answered with; of a stream of events the first event."""
    reader, writer = await asyncio.open_connection("127.0.0.1", requester.gateway.address.port)
    if body:
        headers = headers | {"Content-Type": "application/json", "Content-Length": str(len(body))}
    lines = [
        f"{method} {target} HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        *(f"{k}: {v}" for k, v in headers.items()),
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    found = b""
    try:
        while b"event: position" not in found and (more := await reader.read(2**16)):
            found += more
    finally:
        writer.close()
    return found


def check(answer: bytes, asked: object) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    assert answer.count(b"HTTP/1.1 ") == 1, (asked, answer)
    assert status < 500, (asked, answer)
    if status >= 400:
        assert msgspec.json.decode(body)["definite"] is True, (asked, answer)


def target_of(route: Route, **given: str) -> str:
    usual = {"book": "b", "seqnum": "34359738368", "writer": "w", "time_ms": "0"}
    path = route.path.format(**{name: quote(given.get(name, value), safe="") for name, value in usual.items()})
    in_query = [
        f"{one.name}={quote(given[one.name], safe='')}"
        for one in route.parameters
        if one.place == "query" and one.name in given
    ]
    return f"{path}?{'&'.join(in_query)}" if in_query else path


def with_a_hole(value: Any) -> Iterator[Any]:
    """Copies of a JSON value, each with one of its scalars replaced."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from ({**value, name: other} for other in with_a_hole(inner))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from ([*value[:index], other, *value[index + 1 :]] for other in with_a_hole(inner))
    else:
        yield _HOLE


ASKED: Final = [route for route in ROUTES if route.parameters or route.headers]


@pytest.mark.parametrize("route", ASKED, ids=lambda route: route.name)
async def test_a_parameter_or_header_of_any_value_has_one_answer(asked: Requester, route: Route) -> None:
    body = msgspec.json.encode(BODIES[route.body][0]) if route.body else b""
    for parameter in route.parameters:
        for text in TEXTS:
            target = target_of(route, **{parameter.name: text})
            if len(target) < 8_000:
                check(await answer_to(asked, route.method, target, {}, body), target)
    for name in (*(header for header, _, _ in route.headers), HEADER):
        for text in TEXTS:
            if text.isprintable() and text.isascii():
                check(await answer_to(asked, route.method, target_of(route), {name: text}, body), (name, text))


@pytest.mark.parametrize("route", [route for route in BOOK_ROUTES if route.body], ids=lambda route: route.name)
async def test_a_field_of_a_body_of_any_value_has_one_answer(asked: Requester, route: Route) -> None:
    assert route.body is not None
    for whole in BODIES[route.body]:
        check(await answer_to(asked, route.method, target_of(route), {}, msgspec.json.encode(whole)), whole)
        for holed in with_a_hole(whole):
            for json in JSONS:
                body = msgspec.json.encode(holed).replace(f'"{_HOLE}"'.encode(), json.encode())
                check(await answer_to(asked, route.method, target_of(route), {}, body), body[:200])


def test_the_sample_bodies_have_every_field() -> None:
    for route in BOOK_ROUTES:
        if route.body is not None:
            used = {name for body in BODIES[route.body] for name in body}
            assert used == {field.name for field in msgspec.structs.fields(route.body)}, route.body


@pytest.mark.parametrize("start", [2**64 - 1, 2**64, 10**20])
async def test_a_stream_of_events_is_refused_before_it_begins(asked: Requester, start: int) -> None:
    for target, headers in ((f"start={start}", {}), ("", {"Last-Event-ID": str(start)})):
        answer = await answer_to(asked, "GET", f"/v1/books/b/events?{target}", headers, b"")
        if target == f"start={2**64 - 1}":
            assert EVENTS.encode() in answer, "a bound of 64 bits is one, although no record lies there"
        else:
            assert answer.startswith(b"HTTP/1.1 400 ") and b"InvalidArgument" in answer
