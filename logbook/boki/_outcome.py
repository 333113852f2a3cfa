"""What became of an append, as values: `await ticket.outcome()`, and what one waits for: `await ticket.why()`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from boki_common.engine.engine_waits import POSITION, waits_of
from boki_common.errors import Conflict


class Committed(msgspec.Struct, frozen=True):
    """The record is in the log.

    Attributes:
        seqnum: its place.
    """

    seqnum: int


class Never(msgspec.Struct, frozen=True):
    """The record is not in the log and never will be: its number was voided, or it was never sent."""


Outcome: TypeAlias = Committed | Conflict | Never
"""What certainly became of an append. A `Conflict` is the error that awaiting the ticket raises, returned as a value."""


class Why(msgspec.Struct, frozen=True):
    """What an append waits for.

    Attributes:
        waits_for: "nothing" (it is decided), "connection" (no engine is connected), "window" (numbers before it),
            "engine" (the engine's index is behind), "sequencer" (the engine has none to order by), "bookies" (its entries
            are not acknowledged), "term" (the next one), or "order" (all is up: the answer is on its way).
        message: the same for a person.
        engine: what the engine said of itself, if one answered.
    """

    waits_for: str
    message: str
    engine: Mapping[str, Any] = {}

    def __str__(self) -> str:
        return self.message


def why_of(engine: str, status: Mapping[str, Any]) -> Why:
    """Reads an engine's status: what an append that it was sent waits for. What it does not say is taken as well."""
    for wait in waits_of(engine, status):
        if wait.waits_for != POSITION and wait.log in (None, status.get("log")):
            return Why(wait.waits_for, wait.message, status)
    term = status.get("term")
    where = f"{engine} (term {term})" if term else engine
    return Why("order", f"{where} has all it needs: the answer should be on its way", status)
