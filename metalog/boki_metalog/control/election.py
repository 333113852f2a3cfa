"""One leader of a group: whoever holds an ephemeral node of the metadata store.

    election = Election(metadata, "/boki/controller", value)      # `value` names this process and no other
    await election.won()                 # returns when the node is ours
    election.leading                     # until the session or the node is lost; `on_change` is called

Leadership is a hint, not a lock: a leader that was cut off learns late that there is another. What a leader does must be
safe with two of them, or none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from boki_common.background_tasks import ended
from boki_common.errors import ClosedError, MetadataError, NodeExists, NoNode
from boki_common.logs import get_logger
from boki_common.metadata import paths
from boki_common.metadata.settle import create_settled
from boki_common.metadata.store import MetadataStore, ensure_path

_log = get_logger("election")


class Election:
    """See the module."""

    def __init__(self, metadata: MetadataStore, path: str, value: bytes, *, on_change: Callable[[], None]) -> None:
        self.leading = False
        self._metadata = metadata
        self._path = path
        self._value = value
        self._on_change = on_change
        self._guard: asyncio.Task[None] | None = None
        metadata.on_session_lost(self._lost)

    async def won(self) -> None:
        """Stands for election until it is won. Raises MetadataUnavailable, MetadataUnknown: stand again."""
        if self.leading:
            return
        await ensure_path(self._metadata, paths.parent_of(self._path))
        watch = self._metadata.watch(
            self._path
        )  # one for all rounds: a new one may report a spurious change at its start
        try:
            while not await self._take():
                await watch.changed()
        finally:
            watch.close()
        self.leading = True
        self._guard = asyncio.get_running_loop().create_task(self._watch_node())

    async def leader(self) -> bytes | None:
        """Who leads, as he named himself. Raises MetadataUnavailable."""
        try:
            return (await self._metadata.get(self._path)).value
        except NoNode:
            return None

    async def resign(self) -> None:
        """Stops leading, or standing. Idempotent. What the store keeps of it ends with the session at the latest."""
        await ended(self._guard)
        self.leading = False
        try:
            value, version = await self._metadata.get(self._path)
            if value == self._value:
                await self._metadata.delete(self._path, version=version)
        except (NoNode, ClosedError):
            return
        except MetadataError as error:
            _log.info("still the leader until the session ends", path=self._path, error=error)

    async def _take(self) -> bool:
        try:
            await create_settled(self._metadata, self._path, self._value, ephemeral=True)
        except NodeExists:
            return await self.leader() == self._value
        return True

    async def _watch_node(self) -> None:
        """Sees that somebody removed the node, or took its place."""
        watch = self._metadata.watch(self._path)
        try:
            while self.leading:
                try:
                    if await self.leader() != self._value:
                        self._lost()
                        return
                except ClosedError:
                    return
                except MetadataError as error:
                    _log.debug("the metadata store is away", error=error)
                await watch.changed()
        finally:
            watch.close()

    def _lost(self) -> None:
        if self.leading:
            self.leading = False
            self._on_change()
