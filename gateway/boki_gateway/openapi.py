"""The OpenAPI 3.1 document, made from the table of routes. Pure.

Schemas of bodies come from the types of `bodies`, which are also what decodes and encodes them. Every route may answer with
the errors of all; its own are added by their statuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from boki_common.version import VERSION
from boki_gateway.bodies import BatchRecord
from boki_gateway.call import JSON, NDJSON
from boki_gateway.http_errors import ErrorAnswer, status_of_class
from boki_gateway.sessions import HEADER
from boki_gateway.table import Route

COMMON_STATUSES: Final = (400, 403, 404, 405, 500, 502, 503, 504)
BODY_STATUSES: Final = (408, 413, 415)
REFERENCE: Final = "#/components/schemas/{name}"

_SUMMARIES: Final = {
    400: "An argument is wrong.",
    403: "The Host or the Origin is refused.",
    404: "Nothing is there.",
    405: "The path takes other methods.",
    408: "The body did not come to its end in time.",
    409: "The log decided against it.",
    410: "It was there, and is trimmed or lost.",
    413: "The body or the record is too large.",
    415: "The content type is none that is read.",
    429: "Too many undecided appends to the book.",
    500: "Storage or the gateway failed.",
    502: "The engine's answer was wrong or cut off.",
    503: "Not now.",
    504: "No answer in time: perhaps applied.",
}


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The whole document, of plain values."""
    types = _types(routes)
    _, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Boki",
            "version": VERSION,
            "summary": "LogBooks over HTTP: append, read and follow records of totally ordered logs.",
            "description": "Seqnums are text of decimal digits. A name that begins with `~` gets another `~`; `~42` is "
            "the number 42 of a book or a tag.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": components},
    }


def operation(route: Route) -> dict[str, Any]:
    """What the document says of one route."""
    described: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.group],
        "parameters": _parameters(route),
        "responses": _responses(route),
    }
    if route.body is not None:
        content: dict[str, Any] = {JSON: {"schema": _reference(route.body)}}
        if route.lines:
            lines = {"type": "string", "description": "One BatchRecord a line.", "contentMediaType": NDJSON}
            content[NDJSON] = {"schema": lines}
        described["requestBody"] = {
            "required": True,
            "description": f"At most {route.body_bytes} bytes.",
            "content": content,
        }
    return described


def _parameters(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "name": parameter.name,
            "in": parameter.place,
            "required": parameter.place == "path",
            "description": parameter.meaning,
            "schema": dict(parameter.schema),
        }
        for parameter in route.parameters
    ]
    headers = [*route.headers]
    if route.session:
        headers.append((HEADER, f"What an earlier answer carried in {HEADER}: this request sees at least as much."))
    return found + [
        {"name": name, "in": "header", "required": False, "description": meaning, "schema": {"type": "string"}}
        for name, meaning in headers
    ]


def _responses(route: Route) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"} if route.answer is None else _reference(route.answer)
    answered: dict[str, Any] = {"description": route.summary, "content": {route.content_type: {"schema": schema}}}
    if route.session:
        answered["headers"] = {
            HEADER: {"description": "The session, for requests that are to see as much.", "schema": {"type": "string"}}
        }
    responses: dict[str, Any] = {str(route.status): answered}
    if route.failing is not None:
        responses[str(route.failing)] = {**answered, "description": "It says what is wrong."}
    for status in statuses(route):
        content = {JSON: {"schema": _reference(ErrorAnswer)}}
        responses.setdefault(str(status), {"description": _SUMMARIES[status], "content": content})
    return responses


def statuses(route: Route) -> list[int]:
    """The statuses of the errors that a route may answer with."""
    own = {status_of_class(kind) for kind in route.refusals}
    body = BODY_STATUSES if route.body is not None else ()
    return sorted(own | set(COMMON_STATUSES) | set(body))


def _types(routes: Sequence[Route]) -> list[type[Any]]:
    types: dict[type[Any], None] = {ErrorAnswer: None}
    for route in routes:
        for kind in (route.body, route.answer, BatchRecord if route.lines else None):
            if kind is not None:
                types[kind] = None
    return list(types)


def _reference(kind: type[Any]) -> dict[str, str]:
    if kind is dict:
        return {"type": "object"}
    return {"$ref": REFERENCE.format(name=kind.__name__)}
