"""The OpenAPI 3.1 document, made from the table of routes. Pure.

Schemas of bodies come from the types of `bodies`, which are also what decodes and encodes them. Every route may answer with
the errors of all; its own are added by their statuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from boki_common.version import VERSION
from boki_gateway.calls import patterns
from boki_gateway.calls.bodies import ONE_OF_TWO, BatchRecord
from boki_gateway.calls.call import JSON, NDJSON
from boki_gateway.calls.http_errors import ErrorAnswer, status_of_class
from boki_gateway.calls.table import Route
from boki_gateway.sessions import HEADER

COMMON_STATUSES: Final = (400, 401, 403, 404, 405, 414, 417, 431, 500, 502, 503, 504)
BODY_STATUSES: Final = (408, 413, 415)
SECURITY_SCHEMES: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "The cluster token, where the cluster has one."},
    "basic": {"type": "http", "scheme": "basic", "description": "The cluster token as password, with any user name."},
}
EVENT_SCHEMAS: Final = "x-events"
"""Event of a stream by its name → the schema of its data."""
REFERENCE: Final = "#/components/schemas/{name}"

_SUMMARIES: Final = {
    400: "An argument is wrong.",
    401: "The cluster token is asked for.",
    403: "The Host or the Origin is refused.",
    404: "Nothing is there.",
    405: "The path takes other methods.",
    408: "The body did not arrive in time.",
    409: "The log decided against it.",
    410: "It was there, and is trimmed or lost.",
    413: "The body or the record is too large.",
    414: "Path and query are too long.",
    415: "The content type or the encoding is none that is read.",
    417: "What the request expects is not done.",
    429: "Too many undecided appends to the book.",
    431: "The headers are too large.",
    500: "Storage or the gateway failed.",
    502: "The engine's answer was wrong or cut off.",
    503: "Not now.",
    504: "No answer in time: perhaps applied.",
}


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The whole document, of plain values."""
    _, components = msgspec.json.schema_components(_types(routes), ref_template=REFERENCE)
    for kind in ONE_OF_TWO:
        if kind.__name__ in components:
            _say_one_of_two(components[kind.__name__])
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
        "components": {"schemas": components, "securitySchemes": SECURITY_SCHEMES},
        "security": [*({name: []} for name in SECURITY_SCHEMES), {}],
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
    if route.open:
        described["security"] = []
    if route.body is not None:
        content: dict[str, Any] = {JSON: {"schema": _reference(route.body)}}
        if route.lines:
            lines = {"type": "string", "description": "One BatchRecord a line.", "contentMediaType": NDJSON}
            content[NDJSON] = {"schema": lines}
        described["requestBody"] = {
            "required": True,
            "description": f"At most {route.body_bytes} bytes, also when decoded, and {route.body_values} JSON values.",
            "content": content,
        }
    return described


def _parameters(route: Route) -> list[dict[str, Any]]:
    found = [_parameter(one.name, one.place, one.meaning, one.schema) for one in route.parameters]
    headers = [*route.headers]
    if route.session:
        meaning = f"What an earlier answer of this cluster carried in {HEADER}: this request sees at least as much."
        headers.append((HEADER, meaning, patterns.TOKEN))
    return found + [
        _parameter(name, "header", meaning, {"type": "string", **constraints}) for name, meaning, constraints in headers
    ]


def _parameter(name: str, place: str, meaning: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "description": meaning, "schema": dict(schema)}


def _say_one_of_two(component: dict[str, Any]) -> None:
    """Of what excludes or needs one another only one form is described: a field that is left out, not null."""
    properties = component["properties"]
    for name in ("data", "text", "writer", "number"):
        choices = properties.get(name, {}).get("anyOf")
        if choices is not None:
            (kept,) = (choice for choice in choices if choice.get("type") != "null")
            properties[name] = kept
    component["oneOf"] = [{"required": ["data"]}, {"required": ["text"]}]
    if "writer" in properties:
        component["dependentRequired"] = {"writer": ["number"], "number": ["writer"]}


def _responses(route: Route) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"} if route.answer is None else _reference(route.answer)
    content: dict[str, Any] = {"schema": schema}
    if route.events:  # what comes is no one value: OpenAPI 3.1 has no word for its parts
        content = {EVENT_SCHEMAS: {name: _reference(kind) for name, kind in route.events}}
    answered: dict[str, Any] = {"description": route.summary, "content": {route.content_type: content}}
    if route.session:
        answered["headers"] = {
            HEADER: {"description": "The session, for requests that are to see as much.", "schema": {"type": "string"}}
        }
    responses: dict[str, Any] = {str(route.status): answered}
    if route.failing is not None:
        responses[str(route.failing)] = {**answered, "description": "It says what is wrong."}
    for status in statuses(route):
        refused = {JSON: {"schema": _reference(ErrorAnswer)}}
        responses.setdefault(str(status), {"description": _SUMMARIES[status], "content": refused})
    return responses


def statuses(route: Route) -> list[int]:
    """The statuses of the errors that a route may answer with."""
    own = {status_of_class(kind) for kind in route.refusals}
    body = BODY_STATUSES if route.body is not None else ()
    return sorted(own | set(COMMON_STATUSES) | set(body))


def _types(routes: Sequence[Route]) -> list[type[Any]]:
    types: dict[type[Any], None] = {ErrorAnswer: None}
    for route in routes:
        of_events = [kind for _, kind in route.events]
        for kind in (route.body, route.answer, BatchRecord if route.lines else None, *of_events):
            if kind is not None:
                types[kind] = None
    return list(types)


def _reference(kind: type[Any]) -> dict[str, str]:
    if kind is dict:
        return {"type": "object"}
    return {"$ref": REFERENCE.format(name=kind.__name__)}
