"""Which bookies are registered, which of them take writes, and where they listen.

Follows `/ledgers/available` by a watch. Bookie ids are incarnations, not addresses: the address is the registration's, read
anew before each connection. While the metadata store is away the last known state is used: a registration that vanished
with a session says nothing about the bookie.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from boki_common.bookkeeper import layout
from boki_common.errors import BokiError, ClosedError, CorruptData, MetadataError, Unreachable
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_common.metadata.store import MetadataStore
from boki_common.net.connection import Address

_log = get_logger("ledger")


class BookieDirectory:
    """Use `start`; `on_change` callbacks run on the event loop after each change of the writable bookies."""

    def __init__(self, store: MetadataStore, *, retry_s: float) -> None:
        self._store = store
        self._retry_s = retry_s
        self._writable: tuple[BookieId, ...] = ()
        self._addresses: dict[BookieId, Address] = {}
        self._callbacks: dict[Callable[[], None], None] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Reads the registrations once. Raises MetadataUnavailable."""
        watch = self._store.watch(layout.AVAILABLE)
        try:
            await self._read()
        except BaseException:
            watch.close()
            raise

        async def follow() -> None:
            try:
                while True:
                    await watch.changed()
                    await self._reread()
            except ClosedError:
                _log.info("the metadata store was closed: bookies are no longer followed")
            finally:
                watch.close()

        self._task = asyncio.create_task(follow(), name="bookie directory")

    async def close(self) -> None:
        """Stops following. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def writable(self) -> tuple[BookieId, ...]:
        return self._writable

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back after each change; returns what ends that."""
        self._callbacks[callback] = None
        return lambda: self._callbacks.pop(callback, None) and None

    async def address(self, bookie: BookieId) -> Address:
        """Where a bookie listens now, or listened last. Raises Unreachable: it is not registered, was never seen, and its id is
        no host:port either."""
        try:
            found = await layout.bookie_address(self._store, bookie)
        except (MetadataError, CorruptData) as error:
            known = self._addresses.get(bookie)
            if known is None:
                raise Unreachable(f"the address of bookie {bookie} is not known: {error}", bookie_id=bookie) from error
            return known
        self._addresses[bookie] = found
        return found

    async def _read(self) -> None:
        writable = tuple(await layout.available_bookies(self._store))
        if writable != self._writable:
            self._writable = writable
            for callback in tuple(self._callbacks):
                callback()

    async def _reread(self) -> None:
        while True:
            try:
                return await self._read()
            except ClosedError:
                raise
            except BokiError as error:
                _log.warning("cannot read the registered bookies", error=error)
                await asyncio.sleep(self._retry_s)
