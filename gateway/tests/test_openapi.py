"""The document describes what is served: its schemas are checked against real answers of every route."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from boki_gateway import openapi
from boki_gateway.calls.http_errors import status_of_class
from boki_gateway.calls.table import Route
from boki_gateway.server import ROUTES

if TYPE_CHECKING:
    from boki_gateway.testing import Requester

DOCUMENT: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(openapi.document(ROUTES)))
"""As it is served: plain JSON."""


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        found = DOCUMENT
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = found
    return schema


def faults(value: object, schema: dict[str, Any], where: str = "$") -> Iterator[str]:
    """What of a value its JSON Schema does not allow; of the keywords that this document uses."""
    schema = resolved(schema)
    unknown = set(schema) - KEYWORDS - CONSTRAINTS
    assert not unknown, f"{where}: the check knows no {sorted(unknown)}"
    if "anyOf" in schema:
        if all(any(True for _ in faults(value, choice, where)) for choice in schema["anyOf"]):
            yield f"{where}: {value!r} is none of {schema['anyOf']}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {schema['enum']}"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(type(value) in TYPES[kind] for kind in kinds):
        yield f"{where}: {value!r} is no {kinds}"
        return
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{where}: {value!r} does not match {schema['pattern']}"
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        yield from (f"{where}: {name} is missing" for name in schema.get("required", ()) if name not in value)
        for name, inner in value.items():
            if name in properties:
                yield from faults(inner, properties[name], f"{where}.{name}")
            elif isinstance(schema.get("additionalProperties"), dict):
                yield from faults(inner, schema["additionalProperties"], f"{where}.{name}")
            elif properties:
                yield f"{where}.{name} is not described"
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from faults(inner, schema.get("items", {}), f"{where}[{index}]")


TYPES = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
    "array": (list,), "object": (dict,),
}  # fmt: skip
KEYWORDS = {
    "$ref", "anyOf", "enum", "type", "pattern", "properties", "required", "additionalProperties", "items",
    "title", "description", "default", "contentEncoding",
}  # fmt: skip
CONSTRAINTS = {
    "oneOf", "dependentRequired", "maxItems", "minItems", "uniqueItems", "maxProperties", "propertyNames", "minimum", "maximum", "format",
}  # fmt: skip
"""Of requests: test_openapi_schemathesis makes values of them."""


def described(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][route.path][route.method.lower()]
    return found


def test_every_route_is_described_and_nothing_else() -> None:
    routes = {(route.path, route.method.lower()): route for route in ROUTES}
    assert {(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods} == set(routes)
    names = [described(route)["operationId"] for route in ROUTES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_description_is_whole(route: Route) -> None:
    operation = described(route)
    assert operation["summary"].endswith(".")
    in_path = re.findall(r"{(\w+)}", route.path)
    parameters = {(one["in"], one["name"]): one for one in operation["parameters"]}
    assert [name for place, name in parameters if place == "path"] == in_path
    for (place, _), one in parameters.items():
        assert one["required"] == (place == "path")
        assert one["description"].endswith(".")
    assert (("header", "Boki-Session") in parameters) == route.session
    assert str(route.status) in operation["responses"]
    for kind in route.refusals:
        assert str(status_of_class(kind)) in operation["responses"], kind
    for response in operation["responses"].values():
        for content in response["content"].values():
            for schema in [content["schema"]] if "schema" in content else content["x-events"].values():
                assert resolved(schema)
    for content in operation.get("requestBody", {"content": {}})["content"].values():
        assert resolved(content["schema"])


REQUESTS: dict[str, tuple[str, object]] = {
    "append": ("/v1/books/b/records", {"text": "x", "tags": ["t", 7], "expect": {"u": None}}),
    "append_batch": ("/v1/books/b/records/batch", {"records": [{"text": "x"}, {"data": "eA==", "tags": ["t"]}]}),
    "read_range": ("/v1/books/b/records?encoding=text", None),
    "read_next": ("/v1/books/b/records/next", None),
    "read_prev": ("/v1/books/b/records/prev", None),
    "read_tail": ("/v1/books/b/records/tail?tag=none", None),
    "read_prev_many": ("/v1/books/b/records/prev-many", {"queries": [{"tag": "t"}, {"tag": "none"}, {}]}),
    "read_at": ("/v1/books/b/records/{seqnum}", None),
    "set_aux": ("/v1/books/b/records/{seqnum}/aux", {"text": "cached"}),
    "trim": ("/v1/books/b/trim", {"pairs": [{"before": "7"}, {"before": 8, "tag": "t"}], "forget": True}),
    "read_writer": ("/v1/books/b/writers/w", None),
    "seek": ("/v1/books/b/seek/0", None),
    "status": ("/v1/status", None),
    "health": ("/health", None),
    "openapi": ("/openapi.json", None),
}
"""A request of each route that answers JSON; one that is missing fails the test."""


@pytest.mark.parametrize("route", [route for route in ROUTES if route.answer is not None], ids=lambda route: route.name)
async def test_answers_are_as_described(requester: Requester, route: Route) -> None:
    seqnum = await requester.append("b", "first", "t", 9)  # type: ignore[arg-type]
    path, body = REQUESTS[route.name]
    if body is not None:
        content = described(route)["requestBody"]["content"]["application/json"]
        assert list(faults(body, content["schema"])) == []
    reply = await requester.ask(route.method, path.replace("{seqnum}", seqnum), body)
    assert reply.status == route.status, reply
    schema = described(route)["responses"][str(route.status)]["content"]["application/json"]["schema"]
    assert list(faults(reply.body, schema)) == []


@pytest.mark.parametrize("route", [route for route in ROUTES if route.session], ids=lambda route: route.name)
async def test_refusals_are_as_described(requester: Requester, route: Route) -> None:
    path = REQUESTS.get(route.name, ("/v1/books/b/events", None))[0].replace("{seqnum}", "5")
    reply = await requester.ask(route.method, path, {} if route.body else None, params={"unknown": "1"})
    assert reply.status == 400
    schema = described(route)["responses"]["400"]["content"]["application/json"]["schema"]
    assert list(faults(reply.body, schema)) == []


def test_the_check_finds_faults() -> None:
    schema = {"$ref": "#/components/schemas/RecordAnswer"}
    good = {"record": {"seqnum": "1", "tags": [], "book": "b", "time_ms": 1, "data": ""}, "position": None}
    assert list(faults(good, schema)) == []
    record = {**good["record"], "seqnum": 1, "more": 2}  # type: ignore[dict-item]
    assert list(faults({"record": record}, schema)) != []
    assert list(faults({"record": None}, schema)) == ["$: position is missing"]
    assert list(faults({**good, "position": "x"}, schema)) != []
