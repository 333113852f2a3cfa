"""Checkpoints of a running workflow's history, made on request so that older records can be trimmed (`history_checkpoint`)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from boki_common.errors import Conflict, Trimmed
from bokiflow.execute.record_builder import RecordBuilder
from bokiflow.execute.worker_host import WorkerHost
from bokiflow.history import history_checkpoint
from bokiflow.model.history_fold import History


class CheckpointRequests:
    """The requests of one workflow.

    Attributes:
        carried_ms: when the oldest record of the history was written, in milliseconds by the clock of the log.
    """

    def __init__(self, host: WorkerHost, builder: RecordBuilder, carried_ms: int) -> None:
        self.carried_ms = carried_ms
        self._host: Final = host
        self._builder: Final = builder
        self._requested: asyncio.Future[bool] | None = None
        self._trimming: asyncio.Future[bool] | None = None

    @property
    def pending(self) -> bool:
        """True while a checkpoint is requested and not appended."""
        return self._requested is not None

    def request(self) -> asyncio.Future[bool]:
        """Request a checkpoint; return a future that is True once older records are trimmed. Requests share the next checkpoint."""
        if self._requested is None:
            self._requested = asyncio.get_running_loop().create_future()
        return self._requested

    async def append(self) -> tuple[int, History] | None:
        """Append a checkpoint, while no other record of the workflow is under way.

        Returns:
            The claim that goes with it, and the history that it has; None if another worker runs the workflow.
        """
        builder = self._builder
        try:
            return await history_checkpoint.append_checkpoint(
                self._host.log, builder.place, builder.held, self._host.name
            )
        except (Conflict, Trimmed):
            return None

    def appended(self, claim: int, history: History) -> Coroutine[Any, Any, None]:
        """Note that the checkpoint is in the log; return the work that trims older records, on which nothing else depends."""
        place = self._builder.place
        self._builder.held[place.fence] = claim
        self.carried_ms = self._host.log.now_ms()
        trimming = self._trimming = self._requested
        self._requested = None

        async def trim() -> None:
            try:
                await history_checkpoint.trim_history_now(self._host.log, place, history, claim)
            finally:
                _resolve(trimming, done=True)

        return trim()

    def abandon(self) -> None:
        """Resolve all requests with False: the workflow stops here."""
        _resolve(self._requested, done=False)
        _resolve(self._trimming, done=False)
        self._requested = self._trimming = None


def _resolve(waiting: asyncio.Future[bool] | None, *, done: bool) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(done)
