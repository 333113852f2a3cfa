"""What all simulated clients write down, and the words that their calls are written down with.

Calls are operations of a history (`boki_sim.checkers.history`). A record is named by its text, and by how much filling follows
it: so a name stands for every byte of a payload.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from boki_sim.checkers.history import Operation

BOOKS: Final = ("orders", "users", "audit")
"""One is in the lower half of the slots, two in the upper."""
TAGS: Final = ("a", "b", "c", "d")
LOCKS: Final = ("lock-1", "lock-2")
"""Tags of records that somebody appends if nobody else did, and trims soon after: streams that are empty now and then."""

APPEND: Final = "append"
READ: Final = "read"
TRIM: Final = "trim"
SEEK: Final = "seek"
AUX: Final = "aux"
WHY: Final = "why"
TOKEN: Final = "token"

NEXT: Final = "next"
PREV: Final = "prev"
TAIL: Final = "tail"
AT: Final = "at"

OK: Final = "ok"
CONFLICT: Final = "conflict"
NEVER: Final = "never"
UNKNOWN: Final = "unknown"

SESSION: Final = "session"
LINEARIZABLE: Final = "linearizable"
ANY: Final = "any"

FILLING: Final = "."

KEPT: Final = "kept"
"""What an engine answers that took aux data."""
NOTHING: Final = "nothing"
"""What an append waits for that is decided."""
NOT_DECIDED: Final = "nothing, and is not decided"
"""What `why` must not answer."""


def data_of(payload: bytes) -> str:
    """How a record is named."""
    text = payload.decode(errors="backslashreplace")
    bare = text.rstrip(FILLING)
    return f"{bare}+{len(text) - len(bare)}" if len(bare) < len(text) else text


def payload_of(data: str) -> bytes:
    """What a record so named is appended with."""
    bare, _, filling = data.partition("+")
    return (bare + FILLING * int(filling or 0)).encode()


class Noted(NamedTuple):
    """A record of a named writer, as it is sent every time."""

    tags: tuple[str, ...]
    data: str
    expect: dict[str, int | None]


@dataclass(slots=True)
class Notes:
    """What a named writer of one book knows for sure, whatever happens to its process: its records, by number from 1 on.
    `decided`: numbers that were answered; they have no holes."""

    records: list[Noted] = field(default_factory=list)
    decided: int = 0


@dataclass(slots=True)
class History:
    """Everything that all clients did, in the order of the calls."""

    operations: list[Operation] = field(default_factory=list)
    defects: list[str] = field(default_factory=list)
    """Errors of clients that are no BokiError."""
    notes: dict[tuple[str, str], Notes] = field(default_factory=dict)
    """Of each (named writer, book): what its program would keep on a disk of its own."""
