"""Parameters of paths and queries: parsed, bounded, and never passed over."""

from __future__ import annotations

import dataclasses

import pytest

from boki_common.errors import InvalidArgument
from boki_gateway.calls import parameters as p
from boki_gateway.calls.parameters import Asked, parse
from boki_gateway.server import ROUTES

ALL = [p.BOOK, p.TAG, p.START, p.STOP, p.LIMIT, p.WAIT, p.CONSISTENCY, p.ENCODING]


def test_what_is_asked() -> None:
    query = [
        ("tag", "~7"),
        ("start", "5"),
        ("limit", "10"),
        ("wait", "1.5"),
        ("consistency", "any"),
        ("encoding", "text"),
    ]
    asked = parse(ALL, path={"book": "~~b"}, query=query)
    assert asked == Asked(book="~b", tag=7, start=5, limit=10, wait=1.5, consistency="any", encoding="text")
    assert parse(ALL, path={"book": "b"}, query=[]) == Asked(book="b")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            [("at_lest", "5")],
            "expected the parameters tag, start, stop, limit, wait, consistency, encoding, found 'at_lest'",
        ),
        ([("start", "1"), ("start", "2")], "start: expected once"),
        ([("start", "-1")], "start: expected a seqnum in decimal digits, found '-1'"),
        ([("limit", "0")], "limit: expected 1 to 4096"),
        ([("limit", "4097")], "limit: expected 1 to 4096"),
        ([("wait", "60.1")], "wait: expected 0 to 60 seconds"),
        ([("wait", "nan")], "wait: expected 0 to 60 seconds"),
        ([("consistency", "strong")], "consistency: expected session or .*any, found 'strong'"),
        ([("encoding", "hex")], "encoding: expected base64 or text"),
    ],
)
def test_what_cannot_be_is_named(query: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        parse(ALL, path={"book": "b"}, query=query)


def test_routes_ask_for_fields_that_there_are() -> None:
    fields = {field.name for field in dataclasses.fields(Asked)}
    assert {parameter.name for route in ROUTES for parameter in route.parameters} <= fields
    for route in ROUTES:
        in_path = {parameter.name for parameter in route.parameters if parameter.place == "path"}
        assert {f"{{{name}}}" in route.path for name in in_path} <= {True}
        assert route.path.count("{") == len(in_path), route.path
