"""A process that lists itself and works until it is closed or something ends it: what sequencers and controllers are made of.

process = ListedProcess("sequencer", metadata=…, rng=…, settings=…, token=…)
await process.start(address, visitor, join, work)
await process.failed             # raises when something is wrong that waiting does not mend
await process.close(stop)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from boki_common.advertised import advertised
from boki_common.background_tasks import ended, ends_only_with_its_owner
from boki_common.cluster_token import ClusterToken
from boki_common.errors import MetadataError
from boki_common.logs import get_logger
from boki_common.metadata.membership import Membership
from boki_common.metadata.store import MetadataStore
from boki_common.net.connection import Address, FrameServer
from boki_common.net.messages import MessageHandler, serve_messages
from boki_common.runtime.ports import Random
from boki_metalog.settings import ControllerSettings, SequencerSettings
from boki_metalog.terms.metadata_tree import ensure_view
from boki_metalog.terms.view_feed import ViewFeed


class ListedProcess:
    """See the module. It follows the view in `feed`, which sets `wake` when it changes."""

    def __init__(
        self,
        role: str,
        *,
        metadata: MetadataStore,
        rng: Random,
        settings: SequencerSettings | ControllerSettings,
        token: ClusterToken,
    ) -> None:
        self.incarnation: Final = rng.token(16).hex()
        self.failed: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        """Gets the error that ended this incarnation; never a result."""
        self.wake: Final = asyncio.Event()
        self.feed: Final = ViewFeed(metadata, self.wake.set, settings.backoff())
        self._role = role
        self._advertise = settings.advertise
        self._token = token
        self._metadata = metadata
        self._server: FrameServer
        self._membership: Membership
        self._task: asyncio.Task[None] | None = None
        self._log = get_logger(role)

    async def start(
        self,
        address: Address,
        visitor: Callable[[], MessageHandler],
        join: Callable[[], Awaitable[Membership]],
        work: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Listens, lists itself and works in the background.

        Args:
            visitor: makes what handles a connection.
            join: lists this incarnation, at `advertised`.
            work: does not return; what it raises ends the incarnation.

        Raises:
            SettingsError: cannot listen. MetadataUnavailable: the store is away.
        """
        self._server = await serve_messages(address, lambda _: visitor())
        try:
            await ensure_view(self._metadata)
            self._membership = await join()
        except BaseException:
            await self._server.close()
            raise
        self.feed.start()
        self._task = asyncio.get_running_loop().create_task(work(), name=f"{self._role} works")
        ends_only_with_its_owner(self._task, self._fail)

    @property
    def address(self) -> Address:
        return self._server.address

    @property
    def advertised(self) -> Address:
        """Where others reach it, as it lists itself."""
        return advertised(self.address, self._advertise, key=f"{self._role}.advertise")

    def status(self) -> dict[str, Any]:
        """What the status of every role has."""
        return {
            "role": self._role,
            "incarnation": self.incarnation,
            "address": str(self.advertised),
            "asks_for_token": self._token.asks,
            "failed": str(self.failed.exception()) if self.failed.done() and not self.failed.cancelled() else None,
        }

    async def close(self, stop: Callable[[], Awaitable[None]]) -> None:
        """Ends the work, then calls `stop`, and is listed no more. Idempotent."""
        await ended(self._task)
        await self.feed.close()
        await stop()
        await self._server.close()
        try:
            await self._membership.leave()
        except MetadataError as error:
            self._log.info("still listed until the session ends", incarnation=self.incarnation, error=error)

    def _fail(self, error: BaseException) -> None:
        self._log.warning(f"{self._role} ends", incarnation=self.incarnation, error=error)
        self.failed.set_exception(error)
        self.failed.exception()  # kept for whoever asks; nobody is warned when no one does
