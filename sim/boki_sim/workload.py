"""What simulated clients do: append in every way the SDK offers, read in every way, and write down what they were told.

Each client is a process with one SDK client; its tasks share the session. Payloads are unique, so the final log can be
compared with what was said (`verdict_on_history`). A client trusts nobody: it notes the call before it makes it.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - the type; the generators come from the seed
from dataclasses import dataclass, field
from typing import Final

import boki
from boki_common.errors import BokiError, Conflict
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


@dataclass(slots=True)
class Operation:
    """One call and what came of it. Times are virtual.

    Attributes:
        kind: append, next, prev or tail.
        bound: seqnum that a read began at (next) or ended at (prev); None: no bound.
        expect: tag → seqnum or None, of a conditional append; actual: what a conflict met instead.
        seqnum: of the appended or found record; None: a read found nothing.
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


def draw_habits(numbers: random.Random) -> Habits:
    kinds = ("append", "burst", "many", "next", "prev", "tail", "scan", "wait")
    weights = {kind: numbers.choice((0.0, 1.0, 3.0)) for kind in kinds}
    weights["append"] = weights["append"] or 1.0
    return Habits(
        tasks=numbers.choice((1, 2, 4)),
        pause_s=numbers.choice((0.005, 0.02, 0.1)),
        weights=weights,
        payload_bytes=numbers.choice((8, 100, 300)),
        books=tuple(numbers.sample(BOOKS, numbers.randrange(1, len(BOOKS) + 1))),
        burst=numbers.choice((3, 20, 100)),
        conditional=numbers.choice((0.0, 0.2, 0.8)),
        patience_s=numbers.choice((0.3, 3.0, GIVE_UP_S)),
    )


@dataclass(slots=True)
class History:
    """Everything that all clients did, in the order of the calls."""

    operations: list[Operation] = field(default_factory=list)
    defects: list[str] = field(default_factory=list)
    """Errors of clients that are no BokiError."""


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
        )
        try:
            if operation.kind == "next":
                record = await book.read_next(tag, at_least=bound, wait=wait)
            elif operation.kind == "prev":
                record = await book.read_prev(tag, at_most=bound)
            else:
                record = await book.check_tail(tag)
        except BokiError as error:
            self._refused(operation, error)
        else:
            self._told(operation, None if record is None else record.seqnum)
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
