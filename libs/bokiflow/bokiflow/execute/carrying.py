"""Checkpoints of running workflows' histories on request, so that older records can be trimmed (`history_checkpoint`)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from bokiflow.execute.composing import Composer
from bokiflow.history import history_checkpoint
from bokiflow.model.history_fold import History
from bokilib.append.log import Log


class Holder(Protocol):
    """Who runs it: a worker."""

    @property
    def name(self) -> str: ...

    @property
    def log(self) -> Log: ...


class Carrying:
    """See the module.

    Attributes:
        carried_ms: when the oldest record of the history was written, by the clock of the log.
    """

    def __init__(self, host: Holder, composer: Composer, carried_ms: int) -> None:
        self.carried_ms = carried_ms
        self._host: Final = host
        self._composer: Final = composer
        self._asked: asyncio.Future[bool] | None = None
        self._done: asyncio.Future[bool] | None = None
        """Done when what was before is trimmed."""

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for it."""
        return self._asked is not None

    def ask(self) -> asyncio.Future[bool]:
        """Whether it was done, later; all who ask meanwhile get one answer."""
        if self._asked is None:
            self._asked = asyncio.get_running_loop().create_future()
        return self._asked

    async def append(self) -> tuple[int, History]:
        """Appends it, while nothing else of the workflow is under way; returns the claim that goes with it, and what it has."""
        composer = self._composer
        return await history_checkpoint.append_checkpoint(
            self._host.log, composer.place, composer.held, self._host.name
        )

    def appended(self, claim: int, history: History) -> Coroutine[Any, Any, None]:
        """It is in the log. What is returned trims what was before, and then resolves waiters; nothing else depends on it."""
        place = self._composer.place
        self._composer.held[place.fence] = claim
        self.carried_ms = self._host.log.now_ms()
        done = self._done = self._asked
        self._asked = None

        async def trim() -> None:
            try:
                await history_checkpoint.trim_history_now(self._host.log, place, history, claim)
            finally:
                _resolve(done, done=True)

        return trim()

    def not_done(self) -> None:
        """The workflow is over here before it was done; nobody is left waiting."""
        _resolve(self._asked, done=False)
        _resolve(self._done, done=False)
        self._asked = self._done = None


def _resolve(waiting: asyncio.Future[bool] | None, *, done: bool) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(done)
