"""A process that lists itself and works until it is closed or something ends it: what sequencers and controllers share.

    process = await Sequencer(…).start(address)
    await process.failed             # raises when something is wrong that waiting does not mend
    await process.close()

A subclass gives its connections (`_visitor`), its listing (`_join`), its work (`_work`) and the end of that (`_stop`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Self

from boki_common.advertised import advertised
from boki_common.background_tasks import ended
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


class ListedProcess(ABC):
    """See the module. Use `start`."""

    def __init__(
        self,
        role: str,
        *,
        metadata: MetadataStore,
        rng: Random,
        settings: SequencerSettings | ControllerSettings,
        token: ClusterToken,
    ) -> None:
        self.token = token
        self.incarnation = rng.token(16).hex()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Gets the error that ended this incarnation; never a result."""
        self._role = role
        self._advertise = settings.advertise
        self._metadata = metadata
        self._wake = asyncio.Event()
        self._feed = ViewFeed(metadata, self._wake.set, settings.backoff())
        self._server: FrameServer
        self._membership: Membership
        self._task: asyncio.Task[None] | None = None
        self._log = get_logger(role)

    async def start(self, address: Address) -> Self:
        """Listens, lists itself and works in the background. Raises SettingsError: cannot listen; MetadataUnavailable: the
        store is away."""
        self._server = await serve_messages(address, lambda _: self._visitor())
        try:
            await ensure_view(self._metadata)
            self._membership = await self._join()
        except BaseException:
            await self._server.close()
            raise
        self._feed.start()
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    @property
    def address(self) -> Address:
        return self._server.address

    @property
    def advertised(self) -> Address:
        """Where others reach it, as it lists itself."""
        return advertised(self.address, self._advertise, key=f"{self._role}.advertise")

    def status(self) -> dict[str, Any]:
        """For people."""
        return {
            "role": self._role,
            "incarnation": self.incarnation,
            "address": str(self.advertised),
            "asks_for_token": self.token.asks,
            "failed": str(self.failed.exception()) if self.failed.done() and not self.failed.cancelled() else None,
        }

    async def close(self) -> None:
        """Stops; another process takes over what this one did. Idempotent."""
        await ended(self._task)
        await self._feed.close()
        await self._stop()
        await self._server.close()
        try:
            await self._membership.leave()
        except MetadataError as error:
            self._log.info("still listed until the session ends", incarnation=self.incarnation, error=error)

    async def _run(self) -> None:
        try:
            await self._work()
        except Exception as error:  # noqa: BLE001 - raised by `failed`
            self._log.warning(f"{self._role} ends", incarnation=self.incarnation, error=error)
            self.failed.set_exception(error)
            self.failed.exception()  # kept for whoever asks; nobody is warned when no one does

    @abstractmethod
    def _visitor(self) -> MessageHandler:
        """Of a connection to this process."""

    @abstractmethod
    async def _join(self) -> Membership: ...

    @abstractmethod
    async def _work(self) -> None:
        """Does not return; what it raises ends the incarnation."""

    @abstractmethod
    async def _stop(self) -> None:
        """After the work has ended."""
