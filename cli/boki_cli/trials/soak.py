"""Clients that load a cluster and believe nothing: every call is recorded, every payload carries its checksum, and after
each round the history is compared with what a log may do (`boki_sim.checkers`).

A round has a book of its own, so that memory and the time for checking stay bounded however long the soak is. It ends with
a marker and a read of the whole book by the session that appended the marker, which must show all that was acknowledged.
Calls whose outcome is unknown are part of the load: the checkers know what they allow.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import crc32c

import boki
from boki_cli.stopwatch import seconds_now
from boki_common.errors import BokiError, Conflict, OutcomeUnknown
from boki_sim.checkers.check import check
from boki_sim.checkers.findings import Finding
from boki_sim.checkers.history import Operation
from boki_sim.checkers.recorder import RecordedBook, Recorder

ROUND_CALLS: Final = 20_000
"""A round ends early with so many: they are checked in a few seconds."""
PAYLOAD_BYTES: Final = (0, 100, 1_000, 20_000)
TAGS: Final = ("a", "b", "c")
_CHECKSUM_BYTES: Final = 4
_KINDS: Final = ("append", "conditional", "next", "prev", "tail")
_WEIGHTS: Final = (5, 2, 1, 1, 1)


class Round(NamedTuple):
    """One round and what is wrong with it."""

    operations: list[Operation]
    findings: list[Finding]
    corrupt: list[str]
    """Records whose payload is not what was appended."""
    unknown: int
    """Calls whose outcome is unknown."""
    seconds: float


class Soak:
    """Rounds against the cluster at a URL."""

    def __init__(
        self, url: str, *, clients: int, timeout_s: float, rng: random.Random, round_calls: int = ROUND_CALLS
    ) -> None:
        self._url = url
        self._clients = clients
        self._timeout_s = timeout_s
        self._rng = rng
        self._round_calls = round_calls

    async def round(
        self,
        book: str,
        seconds: float,
        *,
        progress: Callable[[int], None] = lambda _: None,
        over: Callable[[], bool] = lambda: False,
    ) -> Round:
        """One round on a new book, until its time is up or it is `over`. Raises what a client cannot go on after."""
        recorder = Recorder(clock=seconds_now)
        corrupt: list[str] = []
        begun = seconds_now()
        end = begun + seconds
        async with asyncio.TaskGroup() as group:
            for name in (f"c{number}" for number in range(self._clients)):
                seed = self._rng.getrandbits(64)
                group.create_task(self._client(recorder, book, name, random.Random(seed), end, corrupt, progress, over))
        async with boki.connect(self._url, timeout=self._timeout_s) as client:
            last = recorder.book(client.book(book), client_name="last", name=book)
            await last.append(_payload(self._rng, 0))
            async for record in last.read():
                _verify(record, corrupt)
        unknown = sum(one.outcome == "unknown" for one in recorder.operations)
        return Round(recorder.operations, check(recorder.operations), corrupt, unknown, seconds_now() - begun)

    async def _client(
        self,
        recorder: Recorder,
        name: str,
        client_name: str,
        rng: random.Random,
        end: float,
        corrupt: list[str],
        progress: Callable[[int], None],
        over: Callable[[], bool],
    ) -> None:
        async with boki.connect(self._url, timeout=self._timeout_s) as client:
            book = recorder.book(client.book(name), client_name=client_name, name=name)
            while seconds_now() < end and len(recorder.operations) < self._round_calls and not over():
                try:
                    _verify(await _call(book, rng), corrupt)
                except Conflict:
                    pass  # an answer like any other
                except BokiError as error:
                    if not (error.retryable or isinstance(error, OutcomeUnknown)):
                        raise
                    # Recorded; the next call shows how it goes on.
                progress(len(recorder.operations))


async def _call(book: RecordedBook, rng: random.Random) -> Any:
    """One call of a random kind; the record that it read, if it did."""
    kind = rng.choices(_KINDS, _WEIGHTS)[0]
    tag = rng.choice(TAGS)
    if kind == "append":
        await book.append(_payload(rng, rng.choice(PAYLOAD_BYTES)), tags=rng.sample(TAGS, rng.randrange(3)))
        return None
    if kind == "conditional":
        newest = await book.check_tail(tag)
        seqnum = None if newest is None else newest.seqnum
        await book.append(_payload(rng, 8), tags=[tag], expect={tag: seqnum})
        return newest
    stream = rng.choice((None, *TAGS))
    if kind == "next":
        tail = await book.check_tail()
        return await book.read_next(stream, at_least=rng.randrange(tail.seqnum) if tail else 0)
    return await (book.read_prev(stream) if kind == "prev" else book.check_tail(stream))


def _payload(rng: random.Random, size: int) -> bytes:
    data = rng.randbytes(size)
    return data + crc32c.crc32c(data).to_bytes(_CHECKSUM_BYTES, "big")


def _verify(record: Any, corrupt: list[str]) -> None:
    if record is None:
        return
    name, _, payload = record.data.partition(b"\0")
    data, checksum = payload[:-_CHECKSUM_BYTES], payload[-_CHECKSUM_BYTES:]
    if crc32c.crc32c(data).to_bytes(_CHECKSUM_BYTES, "big") != checksum:
        corrupt.append(f"record {record.seqnum}, {name!r}: {len(payload)} bytes do not match their checksum")


def failed(done: Round) -> bool:
    return bool(done.findings or done.corrupt)
