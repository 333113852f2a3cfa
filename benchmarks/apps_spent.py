"""Where the time of one request goes while nothing else is asked: what it waits for of the log, one after the other, and what is left.

    found = await spent(application, url)       # a line of each operation

A worker in this process runs the workflows, and its log is watched: appends and reads, from when they are asked until they are answered.
Times that overlap count once. What is left is the process's own: its event loop, the workflow's code, encoding. The same function
without logging runs beside it, in turns.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any, Final, NamedTuple, cast

import boki
import bokiflow
from benchmarks.apps_functions import FUNCTIONS
from benchmarks.apps_peer import Plain, book_of
from boki_common.errors import BokiError
from bokilib.append.log import Log
from bokilib.ports import BookPort, TicketPort
from bokilib.records.codec import Json
from bokistore import BokiStore
from examples.apps.application import Application, WorkflowSet
from examples.apps.row_store import ObjectRowStore

READS: Final = ("now", "read_prev", "read_prev_many", "read_since")
WARM: Final = 20


class Span(NamedTuple):
    """Something that was waited for."""

    began: float
    ended: float


class Watched:
    """A book whose appends and reads are timed. What else it can it does as the book does."""

    def __init__(self, book: BookPort) -> None:
        self.appends: list[Span] = []
        self.reads: list[Span] = []
        self._book: Final = book

    def submit(self, data: bytes, **options: Any) -> TicketPort:
        """See `BookPort`."""
        return cast(TicketPort, _Timed(self._book.submit(data, **options), self.appends))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._book, name)
        return self._read(found) if name in READS else found

    def _read(self, ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def timed(*args: Any, **options: Any) -> Any:
            began = perf_counter()
            try:
                return await ask(*args, **options)
            finally:
                self.reads.append(Span(began, perf_counter()))

        return timed

    def clear(self) -> None:
        """What comes is another request's."""
        self.appends.clear()
        self.reads.clear()


class _Timed:
    """The ticket of an append."""

    def __init__(self, ticket: TicketPort, spans: list[Span]) -> None:
        self._ticket: Final = ticket
        self._spans: Final = spans
        self._began: Final = perf_counter()

    def __await__(self) -> Any:
        try:
            return (yield from self._ticket.__await__())
        finally:
            self._spans.append(Span(self._began, perf_counter()))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ticket, name)


def covered(spans: Iterable[Span]) -> float:
    """Seconds in which any of them is under way."""
    total, end = 0.0, float("-inf")
    for span in sorted(spans):
        total += max(0.0, span.ended - max(span.began, end))
        end = max(end, span.ended)
    return total


def in_sequence(spans: Iterable[Span]) -> int:
    """How many of them came after one another, at most."""
    count, end = 0, float("-inf")
    for span in sorted(spans, key=lambda span: span.ended):
        if span.began >= end:
            count, end = count + 1, span.ended
    return count


class Spent(NamedTuple):
    """Of one request, in milliseconds; or medians of many. `chain`: appends that came after one another. `own`: what is left."""

    whole: float
    appends: float
    chain: float
    reads: float
    reads_chain: float
    own: float
    bare: float

    @property
    def line(self) -> str:
        """For people."""
        return (
            f"{self.whole:.2f} ms: {self.chain:.0f} appends in a row {self.appends:.2f}, {self.reads_chain:.0f} reads in a row "
            f"{self.reads:.2f}, its own {self.own:.2f}; without logging {self.bare:.2f}"
        )


def spent_of(began: float, ended: float, watched: Watched, bare: float) -> Spent:
    """What a request came to. A read that goes on while an append does is the append's."""
    appends = [Span(max(began, one.began), min(ended, one.ended)) for one in watched.appends if one.began < ended]
    reads = [Span(max(began, one.began), min(ended, one.ended)) for one in watched.reads if one.began < ended]
    waited, both = covered(appends), covered([*appends, *reads])
    parts = (ended - began, waited, both - waited, ended - began - both, bare)
    whole, appended, read, own, plain = (seconds * 1_000 for seconds in parts)
    return Spent(whole, appended, in_sequence(appends), read, in_sequence(reads), own, plain)


@asynccontextmanager
async def _sides(
    application: Application, url: str
) -> AsyncIterator[tuple[Watched, WorkflowSet, bokiflow.Worker, BokiStore]]:
    async with boki.connect(url) as client:
        watched = Watched(client.book(f"{application.name}-spent"))
        data = ObjectRowStore(BokiStore(Log(cast(BookPort, watched))))
        await data.fill(application.rows())
        store = BokiStore(client.book(book_of(f"{application.name}-spent")))
        plain = ObjectRowStore(store)
        await plain.fill(application.rows())
        running = application.run(data)
        async with bokiflow.Worker(running.app, data.log) as worker:
            yield watched, running, worker, store
        await data.close()
        await plain.close()


async def spent(application: Application, url: str, requests: int) -> Mapping[str, Spent]:
    """Medians of so many requests of each operation, one after the other."""
    found: dict[str, list[Spent]] = {operation: [] for operation in application.mix}
    chance = random.Random(1)
    async with _sides(application, url) as (watched, running, worker, store):
        for number in range(WARM + requests):
            for operation, some in found.items():
                request = application.request(chance, operation, f"{operation}-{number}")
                began = perf_counter()
                await _ignored(FUNCTIONS[application.name][operation](Plain(store, request.id), *request.args))
                bare = perf_counter() - began
                watched.clear()
                began = perf_counter()
                call = running.operations[operation].call(*request.args)
                handle: bokiflow.Handle[Json] = await worker.start(call, id=request.id)
                await _ignored(handle.result())
                some.append(spent_of(began, perf_counter(), watched, bare))
    return {operation: _middle(some[WARM:]) for operation, some in found.items()}


async def _ignored(asked: Awaitable[object]) -> None:
    """A refusal takes its time as well."""
    try:
        await asked
    except BokiError:
        pass


def _middle(some: list[Spent]) -> Spent:
    return Spent(*(statistics.median(column) for column in zip(*some, strict=True)))
