"""What a row says of itself beyond its fields."""

from __future__ import annotations

from boki_gateway.server import ROUTES


def test_what_may_change_something_is_known_of_every_route() -> None:
    """Of what only reads no outcome is unknown: its errors are definite."""
    assert {route.name for route in ROUTES if route.changes} == {"append", "append_batch", "set_aux", "trim"}
    assert all(route.method == "GET" for route in ROUTES if not route.changes and route.name != "read_prev_many")
