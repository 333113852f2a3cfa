"""Running reads of objects: a task waits for another task's read of the same object instead of sending a second one.

A new object that many tasks want at once (the newest posts of a timeline) is then folded once. A task that reads waits for no other task,
so nothing can deadlock. Whether another task's read helped, the cache shows afterwards: it may have failed, or be of another place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bokistore.read.view_cache import ViewCache


class UnderWay:
    """Reads that run now, by object. Belongs to one event loop and to the cache that the reads fill."""

    def __init__(self, cache: ViewCache) -> None:
        self._cache = cache
        self._ends: dict[str, asyncio.Future[None]] = {}

    async def ended(self, names: Sequence[str]) -> None:
        """Wait until no other task reads any of these objects that the cache lacks."""
        for _ in names:  # a round for each: another task may have begun with a further one meanwhile
            ends = {self._ends[name] for name in names if name in self._ends and self._cache.get(name) is None}
            if not ends:
                return
            await asyncio.wait(ends)

    @contextmanager
    def reading(self, names: Sequence[str]) -> Iterator[None]:
        """Let other tasks wait for these objects until the block is left, except for objects that are being read already."""
        mine = [name for name in names if self._cache.keeps and name not in self._ends]
        if not mine:
            yield
            return
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ends.update(dict.fromkeys(mine, end))
        try:
            yield
        finally:
            for name in mine:
                del self._ends[name]
            end.set_result(None)
