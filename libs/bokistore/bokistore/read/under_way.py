"""Reads of objects that are under way: a task that wants what another is about to keep waits for it, and does not read it as well.

A new object that many want at once (the newest posts of a timeline) is then folded once. Who reads waits for nobody, so nobody waits for
ever; whether a read served others, the cache shows afterwards: it may have failed, or be of another place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bokistore.read.view_cache import ViewCache


class UnderWay:
    """Belongs to one event loop and to the cache that what is read goes to."""

    def __init__(self, cache: ViewCache) -> None:
        self._cache = cache
        self._ends: dict[str, asyncio.Future[None]] = {}

    async def ended(self, names: Sequence[str]) -> None:
        """Returns when nobody reads any of these that the cache does not have."""
        for _ in names:  # a round for each: meanwhile somebody may have begun with another of them
            ends = {self._ends[name] for name in names if name in self._ends and self._cache.get(name) is None}
            if not ends:
                return
            await asyncio.wait(ends)

    @contextmanager
    def reading(self, names: Sequence[str]) -> Iterator[None]:
        """Others wait for these until the block is left, but for those that somebody reads already."""
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
