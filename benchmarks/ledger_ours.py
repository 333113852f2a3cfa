"""Closed loops on one ledger through our client, as `java/LedgerBench.java` has them through Apache's.

Each completion issues the next operation; a latency runs from the call to the callback (of adds) or to the return of the
coroutine (of reads). The first part of a loop is not measured. Ledgers are deleted when a loop is over.
"""

from __future__ import annotations

import asyncio
import os
import random
from array import array
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Final, NamedTuple

from benchmarks.ledger_cluster import Processor, Side, processor
from boki_common.errors import BokiError
from boki_common.records.batch_builder import BatchBuilder
from boki_common.records.record_batch import RecordBatch, join
from boki_common.records.tag_names import NO_NAMES
from boki_common.runtime.ports import Buffer
from boki_common.runtime.process import SystemRandom
from boki_ledger.client import LedgerClient
from boki_ledger.settings import LedgerSettings
from boki_ledger.write.writer import LedgerWriter

FILL_WINDOW: Final = 512
ENTRY_RECORDS: Final = 256
"""With 1 KiB each, the 256 KiB at which the engine stops filling an entry."""
PIECE_RECORDS: Final = 64
"""Records in one batch of an SDK, of which the engine joins several."""


class WrongFigure(Exception):
    """What was measured did not do what it had to do, or nothing of it was done in time."""


class Measured(NamedTuple):
    """One closed loop. Processor time in µs per entry (or record)."""

    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: Sequence[float]
    """Of the client user, system; of the bookies user, system."""


class Span(NamedTuple):
    """How long a loop runs unmeasured, and measured."""

    warm_s: float
    seconds: float


class Meter:
    """What happened between `begin` and `end`."""

    def __init__(self, bookies: list[int]) -> None:
        self.taken = array("d")
        self.count = 0
        self.running = True
        self.measuring = False
        self._bookies = bookies
        self._started = self._elapsed = 0.0
        self._before = self._after = Processor(0.0, 0.0, 0.0, 0.0)

    def schedule(self, span: Span) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(span.warm_s, self._begin)
        loop.call_later(span.warm_s + span.seconds, self._end)

    def _begin(self) -> None:
        self._before = processor(self._bookies)
        self._started = perf_counter()
        self.measuring = True

    def _end(self) -> None:
        self._elapsed = perf_counter() - self._started
        self._after = processor(self._bookies)
        self.measuring = self.running = False

    def result(self) -> Measured:
        if not self.taken:
            raise WrongFigure(f"expected operations within {self._elapsed:.1f} s, found none that ended")
        ordered = sorted(self.taken)
        used = [after - before for before, after in zip(self._before, self._after, strict=True)]
        return Measured(
            self.count / self._elapsed,
            ordered[len(ordered) // 2] * 1000,
            ordered[len(ordered) * 99 // 100] * 1000,
            [one * 1e6 / self.count for one in used],
        )


class AddLoop:
    """Keeps a number of entries in flight: each acknowledgement submits the next."""

    def __init__(
        self, writer: LedgerWriter, entry: Callable[[], Sequence[Buffer]], *, worth: int, meter: Meter
    ) -> None:
        self._writer = writer
        self._entry = entry
        self._worth = worth
        self._meter = meter
        self._acked = -1
        self._submitted: deque[float] = deque()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        writer.listen(self._take, self.ended.set_exception)

    def start(self, outstanding: int) -> None:
        for _ in range(outstanding):
            self._submit()

    def _submit(self) -> None:
        self._submitted.append(perf_counter())
        self._writer.submit(*self._entry())

    def _take(self, lac: int) -> None:
        meter = self._meter
        count, self._acked = lac - self._acked, lac
        now = perf_counter()
        for _ in range(count):
            started = self._submitted.popleft()
            if meter.measuring:
                meter.taken.append(now - started)
        if meter.measuring:
            meter.count += count * self._worth
        if meter.running:
            for _ in range(count):
                self._submit()
        elif not self._submitted and not self.ended.done():
            self.ended.set_result(None)


@asynccontextmanager
async def client_of(side: Side, settings: LedgerSettings | None = None) -> AsyncIterator[LedgerClient]:
    client = LedgerClient(metadata=side.store, rng=SystemRandom(), settings=settings)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def adds(side: Side, size: int, outstanding: int, span: Span) -> Measured:
    payload = (os.urandom(size),)
    return await _add_loop(side, lambda: payload, 1, outstanding, span)


async def batched_records(side: Side, size: int, outstanding: int, span: Span) -> Measured:
    """Records as an SDK sends them, joined into entries as an engine does; each entry is joined anew."""
    pieces = [_piece(size, number) for number in range(ENTRY_RECORDS // PIECE_RECORDS)]
    records = 0

    def entry() -> Sequence[Buffer]:
        nonlocal records
        buffers = join(pieces, term=1, shard=1, first_local_id=records, compress=None)
        records += ENTRY_RECORDS
        return (b"".join(buffers),)

    return await _add_loop(side, entry, ENTRY_RECORDS, outstanding // ENTRY_RECORDS, span)


def _piece(size: int, number: int) -> RecordBatch:
    builder = BatchBuilder()
    builder.start_run(1, os.urandom(16), 1 + number * PIECE_RECORDS, 1)
    for _ in range(PIECE_RECORDS):
        builder.add(b"", 0, NO_NAMES, os.urandom(size))
    return RecordBatch.parse(memoryview(b"".join(builder.finish())))


async def _add_loop(
    side: Side, entry: Callable[[], Sequence[Buffer]], worth: int, outstanding: int, span: Span
) -> Measured:
    async with client_of(side) as client:
        writer = await client.create(replicas=3, acks=2)
        meter = Meter(side.bookies)
        loop = AddLoop(writer, entry, worth=worth, meter=meter)
        meter.schedule(span)
        loop.start(outstanding)
        await loop.ended
        await writer.close()
        await client.delete(writer.ledger_id)
    return meter.result()


async def reads(side: Side, ledger_id: int, batch: int, outstanding: int, span: Span) -> Measured:
    """Random single entries, or with `batch` ranges of so many one after another."""
    meter = Meter(side.bookies)
    async with client_of(side) as client:
        reader = await client.open(ledger_id, recover=False)
        count = reader.last_entry + 1
        rng = random.Random(7)
        at = -batch

        async def once() -> int:
            nonlocal at
            at = int(rng.random() * count) if batch == 1 else (at + batch) % (count // batch * batch)
            return len(await reader.read(at, at + batch - 1))

        meter.schedule(span)
        await asyncio.gather(*(_read_on(once, meter) for _ in range(outstanding)))
        await reader.close()
    return meter.result()


async def _read_on(once: Callable[[], Awaitable[int]], meter: Meter) -> None:
    while meter.running:
        started = perf_counter()
        count = await once()
        if meter.measuring:
            meter.taken.append(perf_counter() - started)
            meter.count += count


async def fill(side: Side, size: int, entries: int) -> int:
    """A closed ledger to read."""
    data = os.urandom(size)
    async with client_of(side) as client:
        writer = await client.create(replicas=3, acks=2)
        room = asyncio.Semaphore(FILL_WINDOW)
        acked = -1
        failure: BokiError | None = None

        def take(lac: int) -> None:
            nonlocal acked
            for _ in range(lac - acked):
                room.release()
            acked = lac

        def fail(error: BokiError) -> None:
            nonlocal failure
            failure = error
            room.release()

        writer.listen(take, fail)
        for _ in range(entries):
            await room.acquire()
            if failure is not None:
                raise failure
            writer.submit(data)
        for _ in range(FILL_WINDOW):
            await room.acquire()
        await writer.close()
    return writer.ledger_id


async def leave_open(side: Side, size: int, entries: int) -> int:
    """An open ledger of entries that were all submitted before the first was acknowledged: bookies know of no LAC."""
    settings = LedgerSettings(window_entries=2 * entries, window_bytes=4 * entries * size, explicit_lac_ms=0.0)
    data = os.urandom(size)
    async with client_of(side, settings) as client:
        writer = await client.create(replicas=3, acks=2)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        writer.listen(lambda lac: done.set_result(None) if lac == entries - 1 else None, done.set_exception)
        for _ in range(entries):
            writer.submit(data)
        await done
        writer.abandon()
    return writer.ledger_id


async def recover(side: Side, ledger_id: int, entries: int) -> float:
    """Seconds; the ledger is deleted."""
    async with client_of(side) as client:
        started = perf_counter()
        reader = await client.open(ledger_id, recover=True)
        taken = perf_counter() - started
        if reader.last_entry != entries - 1:
            raise WrongFigure(f"expected the recovered ledger to end at {entries - 1}, found {reader.last_entry}")
        await reader.close()
        await client.delete(ledger_id)
    return taken


async def delete(side: Side, ledger_id: int) -> None:
    async with client_of(side) as client:
        await client.delete(ledger_id)
