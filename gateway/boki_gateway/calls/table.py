"""What a route is: one row says everything about it, for the server and for the OpenAPI document alike. Pure.

The server adds rows to its router and parses by them; `openapi` describes them. Neither knows a route that the other does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from boki_common.errors import BokiError
from boki_common.limits import MIB
from boki_gateway.calls.call import JSON, Handler
from boki_gateway.calls.parameters import Parameter

SMALL_BODY: Final = 2 * MIB
"""A record of 1 MiB in base64, and its tags."""
LARGE_BODY: Final = 16 * MIB
FEW_VALUES: Final = 2_048
"""A record with its tags and expectations."""

Group = Literal["records", "operation", "pages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    summary: str
    handler: Handler
    group: Group = "records"
    parameters: tuple[Parameter, ...] = ()
    headers: tuple[tuple[str, str, Mapping[str, Any]], ...] = ()
    """(name, meaning, constraints) of request headers that it reads, beside those that all read."""
    body: type[Any] | None = None
    lines: bool = False
    """Whether the body may be lines of JSON as well."""
    body_bytes: int = SMALL_BODY
    body_values: int = FEW_VALUES
    """JSON values of a body at most, see `values`; it lies well above what the body's own lists may hold."""
    answer: type[Any] | None = None
    """The JSON body of an answer; None for another content type."""
    content_type: str = JSON
    status: int = 200
    refusals: tuple[type[BokiError], ...] = ()
    """Errors that are its own, beside those that every route may have."""
    failing: int | None = None
    """A second status that the answer may have with the same body."""
    events: tuple[tuple[str, type[Any]], ...] = ()
    """(name, type of its data) of the events that a stream consists of."""
    reads: bool = False
    """Whether a POST only reads."""
    open: bool = False
    """Whether it is answered without the cluster token too: it has no data."""
    session: bool = True
    """Whether it takes and gives a session."""
    named: str = ""
    """Where its handler's name is not its own."""

    @property
    def name(self) -> str:
        """Unique; the operation id."""
        return self.named or self.handler.__name__

    @property
    def changes(self) -> bool:
        """Whether it may apply something: of what only reads no outcome is unknown."""
        return self.method != "GET" and not self.reads
