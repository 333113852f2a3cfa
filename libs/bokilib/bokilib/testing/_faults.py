"""A book with a fault at one operation, chosen by the test.

| fault | effect at that operation |
|---|---|
| before | the process dies before the operation takes effect |
| after | the process dies after the operation took effect and before it returns |
| lost | the append takes effect, and its caller gets an unknown outcome (the SDK retries other operations) |
| never | the append does not take effect, and its caller gets an unknown outcome; asked with `settle`, it never will |
| refused | the operation does not take effect and raises Unreachable, a definite error; the process lives |
| unanswered | the append takes effect and its answer never comes; the rest of the process continues for `later` operations, then it dies |

The process also dies `SILENCE_S` after an unanswered append, since it may wait for the answer and do nothing else. Use it in virtual time.
Every operation after the death of a process raises `Died`, which is not an Exception, so that no handler swallows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, TypeAlias, overload

import boki
from boki_common.errors import OutcomeUnknown, Unreachable
from bokilib.ports import BookPort, ConsistencyName, CursorPort, Expect, RecordsPort, Tag, TicketPort

FaultKind: TypeAlias = Literal["before", "after", "lost", "never", "refused", "unanswered"]

SILENCE_S: Final = 10.0
"""Seconds after an unanswered append at which its process dies at the latest: longer than the waits of the programs under test."""
NAMED: Final = 4
"""Items of a list (tags, reads, expectations) that the text of an operation names. It counts the rest."""


class Died(BaseException):
    """The process of a test was killed here."""


class Fault(NamedTuple):
    """A fault of one kind at operation number `at` of a process, counted from 0.

    Attributes:
        later: number of further operations of the process before it dies of an unanswered append; else without effect.
    """

    at: int
    kind: FaultKind
    later: int = 0

    def __str__(self) -> str:
        died = f", and died {self.later} operations later" if self.kind == "unanswered" else ""
        return f"{self.kind} at operation {self.at}{died}"


class FaultyBook:
    """A `BookPort` over another book that counts operations and lets one of them fail.

    Attributes:
        operations: descriptions of the operations so far, for people.
        appends: numbers of the operations that are appends: only their outcome can be lost.
        always_replay: see `bokilib.Log`.
    """

    def __init__(
        self,
        book: BookPort,
        fault: Fault | None = None,
        *,
        pause: Callable[[int], Awaitable[None]] | None = None,
        always_replay: bool = False,
    ) -> None:
        """Wrap a book.

        Args:
            book: the book that does the operations.
            fault: at which operation, or None for no fault.
            pause: called before each operation with its number, so that others may run. An append is then sent when it is awaited,
                not when it is submitted.
            always_replay: libraries keep no state in memory that they can compute from the log, so each step computes it.
        """
        self.always_replay: Final = always_replay
        self.operations: Final[list[str]] = []
        self.appends: Final[list[int]] = []
        self._death: Final = asyncio.Event()
        self._book = book
        self._fault = fault
        self._last: int | None = None
        """Number of the operation after which the process dies, once an append is unanswered."""
        self._pause = pause
        self._tickets: list[TicketPort] = []

    @property
    def dead(self) -> bool:
        """True after the death of the process."""
        return self._death.is_set()

    def die(self) -> None:
        """Kill the process now."""
        self._death.set()

    async def death(self) -> None:
        """Wait until the process dies."""
        await self._death.wait()

    @property
    def id(self) -> int | None:
        found: int | None = getattr(self._book, "id", None)
        return found

    @property
    def name(self) -> str | int | None:
        found: str | int | None = getattr(self._book, "name", None)
        return found

    @property
    def cluster(self) -> str | None:
        found: str | None = getattr(self._book, "cluster", None)
        return found

    @property
    def position(self) -> int | None:
        return self._book.position

    def _count(self, what: str) -> FaultKind | None:
        """Count an operation, and return the fault that it meets after it has begun.

        Raises:
            Died: the process died before this operation.
        """
        if self.dead:
            raise Died
        number = len(self.operations)
        self.operations.append(what)
        if self._last is not None and number > self._last:
            self.die()
            raise Died
        kind = self._fault.kind if self._fault is not None and self._fault.at == number else None
        if kind == "before":
            self.die()
            raise Died
        return kind

    async def _do(self, what: str, operation: Awaitable[Any]) -> Any:
        try:
            if self._pause is not None and not self.dead:
                await self._pause(len(self.operations))
            kind = self._count(what)
            if kind == "refused":
                raise _refusal(what)
        except BaseException:
            close = getattr(operation, "close", None)
            if close is not None:
                close()
            raise
        result = await operation
        if kind == "after":
            self.die()
        if self.dead:
            raise Died
        return result

    # -- BookPort

    def submit(self, data: bytes, *, tags: Sequence[Tag] = (), expect: Expect | None = None) -> TicketPort:
        self.appends.append(len(self.operations))
        kind = self._count(f"append to {_listed(tags)} expecting {_listed(expect or {})}")
        if kind == "unanswered":
            assert self._fault is not None
            self._last = self._fault.at + self._fault.later
            asyncio.get_running_loop().call_later(SILENCE_S, self.die)

        def send() -> TicketPort:
            ticket = self._book.submit(data, tags=tags, expect=expect)
            self._tickets.append(ticket)
            return ticket

        return _FaultyTicket(self, kind, send)

    async def settle(self) -> None:
        """Wait until all sent appends are decided: those of a dead process still arrive."""
        for ticket in self._tickets:
            await ticket.outcome()

    async def ready(self) -> None:
        await self._book.ready()

    async def now(self, *, consistency: ConsistencyName = "session") -> int:
        result: int = await self._do("now", self._book.now(consistency=consistency))
        return result

    async def read_prev(
        self, tag: Tag | None = None, *, at_most: int | None = None, consistency: ConsistencyName = "session"
    ) -> boki.Record | None:
        reading = self._book.read_prev(tag, at_most=at_most, consistency=consistency)
        result: boki.Record | None = await self._do(f"read_prev {tag}", reading)
        return result

    async def read_prev_many(
        self, queries: Sequence[tuple[Tag | None, int | None]], *, consistency: ConsistencyName = "session"
    ) -> list[boki.Record | None]:
        reading = self._book.read_prev_many(queries, consistency=consistency)
        result: list[boki.Record | None] = await self._do(f"read_prev_many {_listed(queries)}", reading)
        return result

    async def read_since(
        self, seen: Mapping[Tag, int], *, at_most: int | None = None, consistency: ConsistencyName = "session"
    ) -> boki.Since:
        reading = self._book.read_since(seen, at_most=at_most, consistency=consistency)
        result: boki.Since = await self._do(f"read_since {_listed(seen)}", reading)
        return result

    @overload
    def read(
        self, tag: Tag | None = None, *, start: int | None = None, stop: int | None = None, follow: bool = False
    ) -> RecordsPort: ...

    @overload
    def read(
        self, *, tags: Sequence[Tag], start: int | None = None, stop: int | None = None, follow: bool = False
    ) -> CursorPort: ...

    def read(
        self,
        tag: Tag | None = None,
        *,
        tags: Sequence[Tag] | None = None,
        start: int | None = None,
        stop: int | None = None,
        follow: bool = False,
    ) -> RecordsPort | CursorPort:
        if tags is not None:
            cursor = self._book.read(tags=tags, start=start, stop=stop, follow=follow)
            return _FaultyCursor(self, f"read {_listed(tags)}", cursor)
        return _FaultyRecords(self, f"read {tag}", self._book.read(tag, start=start, stop=stop, follow=follow))

    async def trim(self, pairs: Sequence[tuple[Tag | None, int]], *, forget: bool = False) -> None:
        await self._do(f"trim {_listed(pairs)}{' and forget' if forget else ''}", self._book.trim(pairs, forget=forget))

    async def set_aux_data(self, seqnum: int, data: bytes) -> bool:
        result: bool = await self._do(f"set_aux_data {seqnum}", self._book.set_aux_data(seqnum, data))
        return result


def _listed(items: Collection[object]) -> str:
    """Return the text of a list or mapping, of which only the first items are named if it is long."""
    named = list(islice(items, NAMED))
    rest = f"… and {len(items) - NAMED} more" if len(items) > NAMED else ""
    if isinstance(items, Mapping):
        texts = [f"{key!r}: {items[key]!r}" for key in named]
        return "{" + ", ".join([*texts, *([rest] if rest else [])]) + "}"
    return "[" + ", ".join([*map(repr, named), *([rest] if rest else [])]) + "]"


def _refusal(what: str) -> Unreachable:
    return Unreachable(f"the test refused the operation: {what}")


class _FaultyRecords:
    """A read whose first record counts as an operation; the further ones arrive with it."""

    def __init__(self, book: FaultyBook, what: str, records: RecordsPort | CursorPort) -> None:
        self._book = book
        self._what = what
        self._records = records
        self._begun = False

    def __aiter__(self) -> _FaultyRecords:
        return self

    async def __anext__(self) -> boki.Record | boki.Gap:
        if self._begun:
            if self._book.dead:
                raise Died
            return await self._records.__anext__()
        self._begun = True
        result: boki.Record | boki.Gap = await self._book._do(self._what, self._records.__anext__())
        return result


class _FaultyCursor:
    """A read of several tags whose first record counts as an operation."""

    def __init__(self, book: FaultyBook, what: str, cursor: CursorPort) -> None:
        self._records = _FaultyRecords(book, what, cursor)
        self._cursor = cursor

    @property
    def position(self) -> int:
        return self._cursor.position

    @property
    def ready(self) -> bool:
        return self._cursor.ready

    def current(self, *, within_s: float) -> bool:
        return self._cursor.current(within_s=within_s)

    def refresh(self) -> None:
        self._cursor.refresh()

    def add(self, tag: Tag, start: int | None = None) -> None:
        self._cursor.add(tag, start)

    def discard(self, tag: Tag) -> None:
        self._cursor.discard(tag)

    def __aiter__(self) -> _FaultyCursor:
        return self

    async def __anext__(self) -> boki.Record | boki.Gap:
        return await self._records.__anext__()


class _FaultyTicket:
    """A ticket whose answer may be lost or never come, or whose record may not be sent."""

    def __init__(self, book: FaultyBook, kind: FaultKind | None, send: Callable[[], TicketPort]) -> None:
        self._book = book
        self._kind = kind
        self._send = send
        self._number = len(book.operations) - 1
        self._ticket: TicketPort | None = None if kind in ("never", "refused") or book._pause is not None else send()
        self._voided = False

    def __await__(self) -> Generator[Any, None, int]:
        return self._wait().__await__()

    async def _wait(self) -> int:
        book = self._book
        if self._kind == "refused":
            raise _refusal("append")
        if book._pause is not None and self._ticket is None:
            await book._pause(self._number)
            self._ticket = self._send()
        if self._ticket is None:
            raise OutcomeUnknown("the test lost the record")
        if self._kind == "unanswered":
            await book.death()
        if self._kind == "after":
            await self._ticket.outcome()
            book.die()
        if book.dead:
            raise Died
        if self._kind == "lost":
            await self._ticket.outcome()
            raise OutcomeUnknown("the test lost the answer")
        seqnum = await self._ticket
        if book.dead:
            raise Died
        return seqnum

    async def outcome(self, *, settle: bool = False) -> boki.Outcome:
        if self._kind == "unanswered":
            await self._book.death()
        if self._book.dead:
            raise Died
        if self._voided or self._kind == "refused":
            return boki.Never()
        if self._ticket is None:
            if settle:
                self._voided = True
                return boki.Never()
            self._ticket = self._send()
        return await self._ticket.outcome(settle=settle)
