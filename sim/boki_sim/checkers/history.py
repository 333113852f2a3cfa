"""Histories: what clients called, when, and what was answered. One JSON object a line, so that a file of hours can be
written as it happens, read by other programs, and cut anywhere.

    {"client": "c1", "kind": "append", "book": "orders", "start": 0.0, "end": 0.1, "outcome": "ok", "data": "c1-0",
     "tags": ["a"], "seqnum": 34359738369}
    {"client": "c2", "kind": "read", "book": "orders", "start": 0.2, "end": 0.3, "outcome": "ok", "tag": "a", "low": 0,
     "rows": [[34359738369, "c1-0"]]}

`data` names a record: a digest or a prefix of what was appended, unique in the history. Times are seconds on one clock.

    {"client": "c3", "kind": "token", "book": "", "start": 0.4, "end": 0.4, "outcome": "ok", "of": "c2"}

A session is a name in `client`: a process of its own, or a call that took over what its caller had seen. Such a handing over is
an operation too (`token`), of all books at once.

What a read covered is a range: it saw `rows` and nothing else of the stream in [low, high); no `high` means that it
saw to the end. So a `read_next(at_least=5)` that found 9 covers [5, 10), one that found nothing covers [5, end).

| outcome | an append | anything else |
|---|---|---|
| ok | is in the log at `seqnum` | took effect, or returned `rows` |
| conflict | is not in the log, and never will be; `actual` says what it met | |
| never | is not in the log, and never will be | did nothing |
| unknown | may be in the log, once, or not | may have taken effect |

Clients of the simulator write down more than the checkers look at, and `boki_sim.verdicts` holds that to the log: which call a
read was, and three kinds of calls that put nothing in order.

| kind | asked | answered |
|---|---|---|
| seek | `time_ms` | `low`: the place to read from |
| aux | `low`: of which record; `aux` | `answer`: "kept" or "" |
| why | `data`: of which append | `answer`: one word |
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from math import inf
from typing import Final, Literal

import msgspec

from boki_common.errors import CorruptData

Kind = Literal["append", "read", "trim", "token", "seek", "aux", "why"]
Outcome = Literal["ok", "conflict", "never", "unknown"]
Consistency = Literal["session", "linearizable", "any"]

Read = Literal["", "next", "prev", "tail", "at"]

ALL: str = ""
"""The stream of all records of a book."""
ORDERED: Final[tuple[Kind, ...]] = ("append", "read", "trim")
"""Calls on a book that have a place in the order of its calls."""


class Operation(msgspec.Struct, omit_defaults=True):
    """One call. See the module's description. It is there from its begin, as unknown, and is filled in when it returns.

    Attributes:
        client: whose session it belongs to.
        end: None: it never returned.
        expect: an append's condition: tag → the newest seqnum allowed, None for an empty stream.
        actual: what a conflict reported: tag → its newest seqnum.
        trimmed: a read reported that everything below this is trimmed.
        before: a trim's bound, exclusive; `tag` "" trims the whole book.
        forget: a trim also forgets streams that are empty and old.
        of: a token's: the session whose position `client` takes over; it has seen what that one had. Of no book.
        how: which call a read was.
        position: what its session claimed to see of the book's log when a read had found something.
        writer, number: of a named writer's append; each time it is sent is an operation.
        error: what a call that failed was answered.
    """

    client: str
    kind: Kind
    book: str
    start: float
    end: float | None = None
    outcome: Outcome = "unknown"
    data: str = ""
    tags: tuple[str, ...] = ()
    seqnum: int | None = None
    expect: dict[str, int | None] = {}
    actual: dict[str, int | None] = {}
    tag: str = ALL
    low: int = 0
    high: int | None = None
    rows: tuple[tuple[int, str], ...] = ()
    consistency: Consistency = "session"
    trimmed: int = 0
    before: int = 0
    forget: bool = False
    of: str = ""
    how: Read = ""
    position: int = 0
    writer: str = ""
    number: int = 0
    time_ms: int = 0
    aux: bytes = b""
    answer: str = ""
    error: str = ""

    @property
    def place(self) -> int | None:
        """Where the record is that was appended, or the last one that was read."""
        return self.rows[-1][0] if self.rows else self.seqnum

    @property
    def until(self) -> float:
        """When it had returned."""
        return inf if self.end is None else self.end


def write_lines(operations: Iterable[Operation]) -> Iterator[bytes]:
    """The lines of a file, each with its end."""
    encode = msgspec.json.Encoder().encode
    for operation in operations:
        yield encode(operation) + b"\n"


def read_lines(lines: Iterable[bytes], *, name: str) -> Iterator[Operation]:
    """The operations of a file called `name`. Raises CorruptData: naming the line, what was expected and found."""
    decode = msgspec.json.Decoder(Operation).decode
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            operation = decode(line)
        except msgspec.MsgspecError as fault:
            raise CorruptData(
                f"{name}, line {number}: expected one operation as JSON, found {line[:80]!r}: {fault}",
                path=name,
                line=number,
            ) from fault
        wrong = fault_of(operation)
        if wrong:
            raise CorruptData(f"{name}, line {number}: {wrong}", path=name, line=number)
        yield operation


def fault_of(operation: Operation) -> str:
    """What makes an operation meaningless, or nothing."""
    if operation.end is not None and operation.end < operation.start:
        return f"expected an end at or after the start ({operation.start}), found {operation.end}"
    if operation.end is None and operation.outcome != "unknown":
        return f"expected the outcome unknown of a call that never returned, found {operation.outcome}"
    if operation.kind == "append" and operation.outcome == "ok" and operation.seqnum is None:
        return "expected the seqnum of an append that is in the log, found none"
    if operation.kind == "token" and (operation.book or not operation.of):
        return (
            f"expected a token of no book that names a session in `of`, found book {operation.book!r}, {operation.of!r}"
        )
    if operation.kind == "append" and not operation.data:
        return "expected `data`, which names the record, found none"
    seqnums = [seqnum for seqnum, _ in operation.rows]
    if any(a >= b for a, b in itertools.pairwise(seqnums)):
        return f"expected rows by ascending seqnum, found {seqnums[:10]}"
    inside = all(operation.low <= seqnum and (operation.high is None or seqnum < operation.high) for seqnum in seqnums)
    return "" if inside else f"expected rows in [{operation.low}, {operation.high}), found {seqnums[:10]}"
