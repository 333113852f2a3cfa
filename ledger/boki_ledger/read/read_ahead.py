"""Reading a long range entry by entry, with what comes next already under way.

    async for entry_id, payload in ReadAhead(read, settings).entries(first, last): ...

The range is read in chunks, one task each, several at once and in order. Bounded: chunks are asked for only while what was
asked for and not consumed yet, in entries and in bytes, stays within `read_ahead_entries` and `read_ahead_bytes`; the bytes
of a chunk under way are estimated by the largest average seen so far. A consumer that is slow stops the reading, one that
leaves ends it. One chunk is always allowed, whatever its size.

An error is raised where it belongs: after all entries before its chunk.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from boki_ledger.settings import LedgerSettings

Read = Callable[[int, int], Awaitable[list[memoryview]]]
"""Payloads of the entries first … last, both inclusive."""


class _Chunk(NamedTuple):
    first: int
    entries: int
    task: asyncio.Task[list[memoryview]]


class ReadAhead:
    """See the module; for one range."""

    def __init__(self, read: Read, settings: LedgerSettings) -> None:
        self._read = read
        self._settings = settings
        self._chunks: deque[_Chunk] = deque()
        self._entries = 0
        self._bytes = 0
        self._average = 0

    async def entries(self, first: int, last: int) -> AsyncIterator[tuple[int, memoryview]]:
        """(entry id, payload) in order. Raises what reading raises."""
        following = first
        try:
            while True:
                following = self._fill(following, last)
                if not self._chunks:
                    return
                chunk = self._chunks[0]
                payloads = await chunk.task
                self._chunks.popleft()
                size = sum(map(len, payloads))
                self._average = max(self._average, size // len(payloads), 1)
                self._bytes += size
                following = self._fill(following, last)
                for entry_id, payload in enumerate(payloads, chunk.first):
                    yield entry_id, payload
                self._bytes -= size
                self._entries -= chunk.entries
        finally:
            await self._stop()

    def _fill(self, following: int, last: int) -> int:
        """Starts chunks while there is room; returns the first entry that is not asked for."""
        settings = self._settings
        while following <= last:
            count = min(self._chunk_entries(), last + 1 - following)
            ahead = self._entries + count
            under_way = sum(chunk.entries for chunk in self._chunks) + count
            if self._entries and (
                not self._average
                or ahead > settings.read_ahead_entries
                or self._bytes + under_way * self._average > settings.read_ahead_bytes
            ):
                break
            self._entries = ahead
            task = asyncio.create_task(self._read_chunk(following, count), name=f"read ahead from entry {following}")
            self._chunks.append(_Chunk(following, count, task))
            following += count
        return following

    def _chunk_entries(self) -> int:
        """A batch, or what a quarter of the bytes may hold; a small one while nothing is known of the sizes."""
        settings = self._settings
        most = min(settings.batch_read_entries, max(1, settings.read_ahead_entries // 2))
        if not self._average:
            return max(1, most // 4)
        return max(1, min(most, settings.read_ahead_bytes // (4 * self._average)))

    async def _read_chunk(self, first: int, count: int) -> list[memoryview]:
        return await self._read(first, first + count - 1)

    async def _stop(self) -> None:
        tasks = [chunk.task for chunk in self._chunks]
        self._chunks.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
