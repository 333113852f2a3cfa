"""Records calls of clients and their answers: a book that behaves as the one it wraps and writes the history beside it.

    recorder = Recorder(clock=loop.time)
    book = recorder.book(client.book("orders"), client_name="c1")
    await book.append(b"...", tags=["a"])               # as always; what it raises, it raises
    for line in write_lines(recorder.operations): ...   # then `boki history check FILE`, or `check(recorder.operations)`

It works on any client: simulated, in memory, against real processes. A record is named by its client and number, which it
carries in front of its data, so that data need not be unique; readers get the data without it. All clients of a history
need one clock, and one recorder for each process is enough when processes share a monotonic clock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from boki_common.errors import BokiError, Conflict
from boki_sim.checkers.history import ALL, Consistency, Kind, Operation, Outcome

if TYPE_CHECKING:
    from boki import Record

_SEPARATOR: Final = b"\0"


class Recorder:
    """See the module. `operations` grows with every call, which is there from its begin, as unknown, until it returned."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self.operations: list[Operation] = []
        self._clock = clock
        self._appends = 0

    def book(self, book: Any, *, client_name: str, name: str = "") -> RecordedBook:
        """A book whose calls are recorded under a client's name; one name a session."""
        return RecordedBook(self, book, client_name, name or str(getattr(book, "name", book)))

    def handed_over(self, giver: str, taker: str) -> None:
        """`taker` continues from the session token of `giver`, or merged it: from now on it has seen what that one has."""
        now = self._clock()
        self.operations.append(Operation(taker, "token", "", now, now, "ok", of=giver))

    def begin(self, client: str, kind: Kind, book: str, **facts: Any) -> Operation:
        operation = Operation(client, kind, book, self._clock(), **facts)
        self.operations.append(operation)
        return operation

    def end(self, operation: Operation, outcome: Outcome) -> None:
        operation.end, operation.outcome = self._clock(), outcome

    def next_name(self, client: str) -> str:
        """Names the next record of a client."""
        self._appends += 1
        return f"{client}/{self._appends}"


class RecordedBook:
    """The calls of a book of the SDK that histories know."""

    def __init__(self, recorder: Recorder, book: Any, client: str, name: str) -> None:
        self._recorder = recorder
        self._book = book
        self._client = client
        self._name = name

    async def append(
        self, data: bytes, *, tags: Sequence[str] = (), expect: Mapping[str, int | None] | None = None, **options: Any
    ) -> int:
        """As the book's; errors go through."""
        name = self._recorder.next_name(self._client)
        begun = self._recorder.begin(
            self._client, "append", self._name, data=name, tags=tuple(tags), expect=dict(expect or {})
        )
        if expect is not None:
            options["expect"] = expect
        try:
            seqnum: int = await self._book.append(name.encode() + _SEPARATOR + data, tags=tags, **options)
        except Conflict as error:
            begun.actual = {str(tag): newest for tag, newest in dict(error.actual).items()}
            self._recorder.end(begun, "conflict")
            raise
        except BokiError as error:
            self._recorder.end(begun, "never" if error.definite else "unknown")
            raise
        begun.seqnum = seqnum
        self._recorder.end(begun, "ok")
        return seqnum

    async def read_next(self, tag: str | None = None, *, at_least: int | None = None, **options: Any) -> Any:
        low = at_least or 0
        begun = self._begin_read(tag, options)
        record = await self._answer(begun, self._book.read_next(tag, at_least=at_least, **options))
        high = None if record is None else record.seqnum + 1
        self._end_read(begun, [] if record is None else [record], low, high)
        return record

    async def read_prev(self, tag: str | None = None, *, at_most: int | None = None, **options: Any) -> Any:
        begun = self._begin_read(tag, options)
        record = await self._answer(begun, self._book.read_prev(tag, at_most=at_most, **options))
        low = 0 if record is None else record.seqnum
        self._end_read(begun, [] if record is None else [record], low, None if at_most is None else at_most + 1)
        return record

    async def check_tail(self, tag: str | None = None, **options: Any) -> Any:
        return await self.read_prev(tag, **options)

    async def read(
        self, tag: str | None = None, *, start: int | None = None, stop: int | None = None, **options: Any
    ) -> AsyncIterator[Any]:
        """All records of a range; recorded as one call when it has ended."""
        begun = self._begin_read(tag, options)
        records = []
        try:
            async for record in self._book.read(tag, start=start, stop=stop, **options):
                records.append(record)
                yield record
        except BokiError:
            self._recorder.end(begun, "never")
            raise
        # without a stop, a reader is shown what was there when it began: its answer is as old as that
        self._end_read(begun, records, start or 0, stop if stop is not None else _end_of(records))

    def _begin_read(self, tag: str | None, options: Mapping[str, Any]) -> Operation:
        consistency: Consistency = options.get("consistency", "session")
        return self._recorder.begin(
            self._client, "read", self._name, tag=ALL if tag is None else tag, consistency=consistency
        )

    async def _answer(self, begun: Operation, call: Any) -> Any:
        try:
            return await call
        except BokiError:
            self._recorder.end(begun, "never")
            raise

    def _end_read(self, begun: Operation, records: Iterable[Record], low: int, high: int | None) -> None:
        begun.rows, begun.low, begun.high = tuple(_row(record) for record in records), low, high
        self._recorder.end(begun, "ok")


def _row(record: Record) -> tuple[int, str]:
    return record.seqnum, record.data.partition(_SEPARATOR)[0].decode(errors="backslashreplace")


def _end_of(records: Sequence[Record]) -> int:
    return records[-1].seqnum + 1 if records else 0
