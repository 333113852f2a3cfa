"""What simulated clients do: append in every way the SDK offers, read in every way, trim, and write down what they were told.

Each client is a process with one SDK client; its tasks share the session. Payloads are unique, so the final log can be
compared with what was said (`verdict_on_history`). A client trusts nobody: it notes the call before it makes it.

Of a named writer it notes every record before it is sent first, in a place that outlives the client (`Notes`). So whatever
became of a number, and whoever comes after a crash, sends the same record under it again until the log has decided it.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - the type; the generators come from the seed
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import boki
from boki_common.errors import BokiError, Conflict, Trimmed
from boki_sim.loop import SimLoop
from boki_sim.process import SimProcess

GIVE_UP_S: Final = 60.0
BOOKS: Final = ("orders", "users", "audit")
TAGS: Final = ("a", "b", "c", "d")
PENDING: Final = "pending"
OK: Final = "ok"
CONFLICT: Final = "conflict"
FAILED: Final = "failed"
"""Certainly not applied."""
UNKNOWN: Final = "unknown"
TRIM: Final = "trim"
SESSION: Final = "session"
LINEARIZABLE: Final = "linearizable"
ANY: Final = "any"
NUMBERED_AT_ONCE: Final = 4
SENT_AGAIN: Final = 20
"""How far back a decided number of a named writer is sent again; the log keeps 1,024 answers."""


@dataclass(slots=True)
class Operation:
    """One call and what came of it. Times are virtual.

    Attributes:
        kind: append, next, prev, tail or trim; a trim of several streams is an operation for each.
        bound: seqnum that a read began at (next) or ended at (prev), or that a trim keeps first; None: no bound.
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
    consistency: str = SESSION
    mark: int = 0
    position: int = 0
    writer: str = ""
    number: int = 0


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
class Habits:
    """One client's mix, drawn by the seed."""

    tasks: int
    pause_s: float
    weights: dict[str, float]
    payload_bytes: int
    books: tuple[str, ...]
    burst: int
    conditional: float
    patience_s: float
    """Time-out of an append: short ones leave the outcome unknown."""
    consistencies: tuple[str, ...]
    """One of these is drawn for each read."""


def draw_habits(numbers: random.Random) -> Habits:
    kinds = ("append", "burst", "many", "next", "prev", "tail", "scan", "wait", "numbered")
    weights = {kind: numbers.choice((0.0, 1.0, 3.0)) for kind in kinds}
    weights["append"] = weights["append"] or 1.0
    weights[TRIM] = numbers.choice((0.0, 0.3, 1.0))
    return Habits(
        tasks=numbers.choice((1, 2, 4)),
        pause_s=numbers.choice((0.005, 0.02, 0.1)),
        weights=weights,
        payload_bytes=numbers.choice((8, 100, 300)),
        books=tuple(numbers.sample(BOOKS, numbers.randrange(1, len(BOOKS) + 1))),
        burst=numbers.choice((3, 20, 100)),
        conditional=numbers.choice((0.0, 0.2, 0.8)),
        patience_s=numbers.choice((0.3, 3.0, GIVE_UP_S)),
        consistencies=numbers.choice(((SESSION,), (SESSION, LINEARIZABLE), (SESSION, LINEARIZABLE, LINEARIZABLE, ANY))),
    )


@dataclass(slots=True)
class History:
    """Everything that all clients did, in the order of the calls."""

    operations: list[Operation] = field(default_factory=list)
    defects: list[str] = field(default_factory=list)
    """Errors of clients that are no BokiError."""
    notes: dict[tuple[str, str], Notes] = field(default_factory=dict)
    """Of each (named writer, book): what its program would keep on a disk of its own."""


class SimClient:
    """One client process. `run` until the workload is over; `finish` waits for what is undecided."""

    def __init__(
        self, loop: SimLoop, process: SimProcess, url: str, numbers: random.Random, habits: Habits, history: History
    ) -> None:
        self.process = process
        self.history = history
        self._loop = loop
        self._url = url
        self._numbers = numbers
        self._habits = habits
        self._payloads = 0
        self._seen: dict[str, int] = {}
        """Book → a recent seqnum, for choosing bounds."""
        self._numbering: set[str] = set()
        """Books in which a task of this client uses the named writer: it has one user at a time."""

    async def run(self, until: float) -> None:
        """Works until that time; then waits for what is under way."""
        try:
            client = await self._connect()
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._habits.tasks):
                        group.create_task(self._work(client, until))
            finally:
                await client.close()
        except BokiError:
            pass  # what it was told is in the history
        except Exception as error:
            self.history.defects.append(f"{self.process.name}: {error!r}")
            raise

    async def _connect(self) -> boki.Client:
        while True:
            try:
                return await boki.connect(self._url, timeout=GIVE_UP_S)
            except BokiError:
                await asyncio.sleep(0.5)

    async def _work(self, client: boki.Client, until: float) -> None:
        habits, numbers = self._habits, self._numbers
        kinds, weights = list(habits.weights), list(habits.weights.values())
        while self._loop.time() < until:
            kind = numbers.choices(kinds, weights)[0]
            book = client.book(numbers.choice(habits.books))
            if kind == "append":
                await self._append(book)
            elif kind == "burst":
                await self._burst(book)
            elif kind == "many":
                await self._many(book)
            elif kind == "scan":
                await self._scan(book)
            elif kind == "numbered":
                await self._numbered(book)
            elif kind == TRIM:
                await self._trim(book)
            else:
                await self._read(book, kind)
            await asyncio.sleep(numbers.expovariate(1 / habits.pause_s))

    # -- appends

    def _begin(self, book: boki.Book, kind: str, tags: tuple[str, ...], **facts: object) -> Operation:
        operation = Operation(self.process.name, kind, str(book.name), self._loop.time(), tags)
        for name, value in facts.items():
            setattr(operation, name, value)
        self.history.operations.append(operation)
        return operation

    def _payload(self) -> bytes:
        self._payloads += 1
        return f"{self.process.name}/{self._payloads}/".encode().ljust(self._habits.payload_bytes, b".")

    def _tags(self) -> tuple[str, ...]:
        return tuple(self._numbers.sample(TAGS, self._numbers.randrange(3)))

    def _told(self, operation: Operation, seqnum: int | None) -> None:
        operation.outcome, operation.seqnum, operation.end = OK, seqnum, self._loop.time()
        if seqnum is not None:
            self._seen[operation.book] = seqnum

    def _refused(self, operation: Operation, error: BokiError) -> None:
        operation.end, operation.error = self._loop.time(), f"{type(error).__name__}: {error}"
        if isinstance(error, Conflict):
            operation.outcome = CONFLICT
            operation.actual = dict(error.facts["actual"])
        else:
            operation.outcome = FAILED if error.definite else UNKNOWN

    async def _append(self, book: boki.Book) -> None:
        expect: dict[str | int, int | None] | None = None
        if self._numbers.random() < self._habits.conditional:
            expect = await self._expectation(book)
        operation = self._begin(book, "append", self._tags(), payload=self._payload(), expect=expect)
        try:
            seqnum = await book.append(
                operation.payload, tags=operation.tags, expect=expect, timeout=self._habits.patience_s
            )
        except BokiError as error:
            self._refused(operation, error)
        else:
            self._told(operation, seqnum)

    async def _expectation(self, book: boki.Book) -> dict[str | int, int | None] | None:
        tag = self._numbers.choice(TAGS)
        found = await self._read_one(book, "tail", tag, None)
        if found is None or found.outcome != OK:
            return None
        return {tag: found.seqnum}

    async def _burst(self, book: boki.Book) -> None:
        waiting = []
        for _ in range(self._numbers.randrange(1, self._habits.burst + 1)):
            operation = self._begin(book, "append", self._tags(), payload=self._payload())
            try:
                waiting.append((operation, book.submit(operation.payload, tags=operation.tags)))
            except BokiError as error:
                self._refused(operation, error)
                break
        for operation, ticket in waiting:
            try:
                self._told(operation, await ticket)
            except BokiError as error:
                self._refused(operation, error)

    async def _many(self, book: boki.Book) -> None:
        operations = [
            self._begin(book, "append", self._tags(), payload=self._payload())
            for _ in range(self._numbers.randrange(1, self._habits.burst + 1))
        ]
        try:
            seqnums = await book.append_many(
                [(one.payload, one.tags) for one in operations], timeout=self._habits.patience_s
            )
        except BokiError as error:
            for operation in operations:
                self._refused(operation, error)
                if operation.outcome == FAILED and error.facts.get("committed"):
                    operation.outcome = UNKNOWN
        else:
            for operation, seqnum in zip(operations, seqnums, strict=True):
                self._told(operation, seqnum)

    # -- named writers

    async def _numbered(self, book: boki.Book) -> None:
        """The next numbers of this client's writer, or those that are undecided; now and then one that is decided long since."""
        name, writer = str(book.name), self.process.name.partition("#")[0]
        if name in self._numbering:
            return
        self._numbering.add(name)
        try:
            notes = self.history.notes.setdefault((writer, name), Notes())
            await self._note_next(book, notes)
            first = notes.decided + 1
            if first > 1 and self._numbers.random() < 0.2:
                again = self._numbers.randrange(max(1, first - SENT_AGAIN), first)
                await self._send(book, writer, again, notes.records[again - 1])
            calls = [self._send(book, writer, n, notes.records[n - 1]) for n in range(first, len(notes.records) + 1)]
            for decided in await asyncio.gather(*calls):
                if not decided:
                    break
                notes.decided += 1
        finally:
            self._numbering.discard(name)

    async def _note_next(self, book: boki.Book, notes: Notes) -> None:
        """Notes records until there are some to send."""
        wanted = self._numbers.randrange(1, NUMBERED_AT_ONCE + 1)
        while len(notes.records) - notes.decided < wanted:
            expect = None
            if self._numbers.random() < self._habits.conditional:
                expect = await self._expectation(book)
            notes.records.append(Noted(self._tags(), self._payload(), expect))

    async def _send(self, book: boki.Book, writer: str, number: int, noted: Noted) -> bool:
        """Sends a record under its number; returns whether the log said what became of it."""
        operation = self._begin(
            book, "append", noted.tags, payload=noted.payload, expect=noted.expect, writer=writer, number=number
        )
        try:
            seqnum = await book.append(
                noted.payload,
                tags=noted.tags,
                expect=noted.expect,
                writer=(writer, number),
                timeout=self._habits.patience_s,
            )
        except BokiError as error:
            self._refused(operation, error)
        else:
            self._told(operation, seqnum)
        return operation.outcome in (OK, CONFLICT)

    # -- trims

    async def _trim(self, book: boki.Book) -> None:
        """Below something that this session has seen: a mark above that would be lowered."""
        seen = self._seen.get(str(book.name))
        if seen is None:
            return
        tags = (
            ("",)
            if self._numbers.random() < 0.3
            else self._numbers.sample(TAGS, self._numbers.randrange(1, len(TAGS) + 1))
        )
        operations = [
            self._begin(book, TRIM, (tag,) if tag else (), bound=max(1, seen + 1 - self._numbers.randrange(100)))
            for tag in tags
        ]
        try:
            await book.trim([(one.tags[0] if one.tags else None, one.bound or 0) for one in operations])
        except BokiError as error:
            for one in operations:
                self._refused(one, error)
        else:
            for one in operations:
                self._told(one, None)

    # -- reads

    async def _read(self, book: boki.Book, kind: str) -> None:
        tag = self._numbers.choice((None, *TAGS))
        near = self._seen.get(str(book.name), 0)
        bound = None if self._numbers.random() < 0.3 else max(0, near + self._numbers.randrange(-50, 50))
        await self._read_one(book, kind, tag, bound)

    async def _read_one(self, book: boki.Book, kind: str, tag: str | None, bound: int | None) -> Operation | None:
        wait = self._numbers.random() if kind == "wait" else None
        operation = self._begin(
            book,
            "next" if kind == "wait" else kind,
            () if tag is None else (tag,),
            bound=None if kind == "tail" else bound,
            consistency=self._numbers.choice(self._habits.consistencies),
        )
        how: Any = operation.consistency
        try:
            if operation.kind == "next":
                record = await book.read_next(tag, at_least=bound, wait=wait, consistency=how)
            elif operation.kind == "prev":
                record = await book.read_prev(tag, at_most=bound, consistency=how)
            else:
                record = await book.check_tail(tag, consistency=how)
        except Trimmed as error:
            self._told(operation, None)
            operation.mark = error.facts["mark"]
        except BokiError as error:
            self._refused(operation, error)
        else:
            self._told(operation, None if record is None else record.seqnum)
            operation.position = book.position or 0
            operation.payload = b"" if record is None else bytes(record.data)
        return operation

    async def _scan(self, book: boki.Book) -> None:
        """Record by record, as one read after the other."""
        tag = self._numbers.choice((None, *TAGS))
        bound = max(0, self._seen.get(str(book.name), 0) - self._numbers.randrange(100))
        for _ in range(20):
            operation = await self._read_one(book, "next", tag, bound)
            if operation is None or operation.outcome != OK or operation.seqnum is None:
                return
            bound = operation.seqnum + 1
