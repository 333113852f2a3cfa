"""Keeps the newest view known, and wakes its owner when it moves. The metadata store may be away for a while.

What was read stays; versions never go back (a store may answer with an old one). A store that cannot be reached is asked
again, with growing pauses. A view that cannot be read ends the feed: `error`.

A store may report changes late (SQLite is polled). A caller that learns that a term is over calls `hurry`: the view is then read
again every `HURRY_PAUSE_S` until it moves, for `HURRY_S` at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from boki_common.background_tasks import ended
from boki_common.backoff import Backoff
from boki_common.errors import MetadataError, NoNode
from boki_common.logs import get_logger
from boki_common.metadata.store import MetadataStore, Watch
from boki_common.retry import event_or_timeout
from boki_metalog.terms.metadata_tree import read_view
from boki_metalog.terms.view import VIEW_PATH, View

HURRY_S: Final = 0.5
HURRY_PAUSE_S: Final = 0.02

_log = get_logger("view_feed")


class ViewFeed:
    """See the module. `on_change` is called after each new view, and after the error that ends the feed."""

    def __init__(self, metadata: MetadataStore, on_change: Callable[[], None], backoff: Backoff) -> None:
        """`backoff`: pauses while the store is away."""
        self.view: View | None = None
        self.version = -1
        self.error: Exception | None = None
        self._metadata = metadata
        self._on_change = on_change
        self._backoff = backoff
        self._task: asyncio.Task[None] | None = None
        self._hurried = asyncio.Event()
        self._hurry_until = 0.0

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        await ended(self._task)

    def offer(self, view: View, version: int) -> None:
        """A view that the owner read itself; kept when it is newer."""
        if version > self.version:
            self.view, self.version = view, version

    def hurry(self) -> None:
        """The view is about to move: it is looked at again and again for a moment."""
        self._hurry_until = asyncio.get_running_loop().time() + HURRY_S
        self._hurried.set()

    async def _run(self) -> None:
        watch = self._metadata.watch(VIEW_PATH)
        try:
            while True:
                try:
                    await self._read()
                    await self._moved(watch)
                    self._backoff.reset()
                except MetadataError as error:
                    if not error.retryable:
                        raise
                    _log.debug("the metadata store is away", error=error)
                    await asyncio.sleep(self._backoff.next())
        except Exception as error:  # noqa: BLE001 - raised by the owner
            self.error = error
            self._on_change()
        finally:
            watch.close()

    async def _moved(self, watch: Watch) -> None:
        """Returns when the view may have moved: the store says so, or it is time to look again in a hurry."""
        if asyncio.get_running_loop().time() < self._hurry_until:
            await event_or_timeout(self._hurried, HURRY_PAUSE_S)
            return
        change, hurried = asyncio.ensure_future(watch.changed()), asyncio.ensure_future(self._hurried.wait())
        try:
            await asyncio.wait([change, hurried], return_when=asyncio.FIRST_COMPLETED)
            if change.done():
                change.result()
        finally:
            change.cancel()
            hurried.cancel()
            self._hurried.clear()

    async def _read(self) -> None:
        try:
            found = await read_view(self._metadata)
        except NoNode:
            return  # no process has made it yet; the watch notifies
        if found.version > self.version:
            self._hurry_until = 0.0
            self.view, self.version = found
            self._on_change()
