"""What simulated clients wrote down: every call, when it began and ended, what was asked and what was told.

A session is a name in `Operation.client`: a process of its own, or a call that took over what its caller had seen. Such a
handing over is an operation too (`TOKEN`), of all books at once.

| kind | asked | told |
|---|---|---|
| append | `payload`, `tags`, `expect`, perhaps `writer` and `number` | `outcome`, `seqnum` or `actual` |
| next, prev, tail, at | `bound`, a tag or none, `consistency` | `seqnum`, `payload`, `aux`, `time_ms`, `position`; or `mark` |
| trim | `bound`, a tag or none, `forget` | that it was done |
| seek | `time_ms` | `bound`: the place to read from |
| aux | `bound`: of which record; `aux` | `said`: "kept" or "" |
| why | `payload`: of which append | `said`: one word |
| token | `of`: the session whose position this one takes over | |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from boki_sim.checkers.history import Consistency

BOOKS: Final = ("orders", "users", "audit")
"""One is in the lower half of the slots, two in the upper."""
TAGS: Final = ("a", "b", "c", "d")
LOCKS: Final = ("lock-1", "lock-2")
"""Tags of records that somebody appends if nobody else did, and trims soon after: streams that are empty now and then."""

APPEND: Final = "append"
TRIM: Final = "trim"
NEXT: Final = "next"
PREV: Final = "prev"
TAIL: Final = "tail"
AT: Final = "at"
SEEK: Final = "seek"
AUX: Final = "aux"
WHY: Final = "why"
TOKEN: Final = "token"
READS: Final = (NEXT, PREV, TAIL, AT)

PENDING: Final = "pending"
OK: Final = "ok"
CONFLICT: Final = "conflict"
FAILED: Final = "failed"
"""Certainly not applied."""
UNKNOWN: Final = "unknown"

SESSION: Final = "session"
LINEARIZABLE: Final = "linearizable"
ANY: Final = "any"

KEPT: Final = "kept"
"""What an engine said that took aux data."""
NOTHING: Final = "nothing"
"""What an append waits for that is decided."""
NOT_DECIDED: Final = "nothing, and is not decided"
"""What `why` must not say."""


@dataclass(slots=True)
class Operation:
    """One call and what came of it. Times are virtual.

    Attributes:
        client: the session.
        kind: see the module; a trim of several streams is an operation for each.
        bound: seqnum that a read began at (next, at) or ended at (prev), or that a trim keeps first; None: no bound.
        expect: tag → seqnum or None, of a conditional append; actual: what a conflict met instead.
        seqnum: of the appended or found record; None: a read found nothing.
        mark: a read was told that everything below is trimmed.
        position: what its session claimed to see of the book's log when a read had found something.
        writer, number: of a named writer's append; each time it is sent is an operation.
    """

    client: str
    kind: str
    book: str
    start: float
    tags: tuple[str, ...] = ()
    payload: bytes = b""
    bound: int | None = None
    expect: dict[str | int, int | None] | None = None
    actual: dict[str | int, int | None] | None = None
    outcome: str = PENDING
    end: float = 0.0
    seqnum: int | None = None
    error: str = ""
    consistency: Consistency = SESSION
    mark: int = 0
    position: int = 0
    writer: str = ""
    number: int = 0
    forget: bool = False
    time_ms: int = 0
    aux: bytes = b""
    said: str = ""
    of: str = ""


class Noted(NamedTuple):
    """A record of a named writer, as it is sent every time."""

    tags: tuple[str, ...]
    payload: bytes
    expect: dict[str | int, int | None] | None


@dataclass(slots=True)
class Notes:
    """What a named writer of one book knows for sure, whatever happens to its process: its records, by number from 1 on.

    Attributes:
        decided: numbers that were answered; they have no holes.
    """

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
