"""Proposes to forget writers that were not heard of for long, so that their state does not stay for ever (DESIGN §6.9).

An EXPIRE is void when the writer's last number moved meanwhile, and nothing when it is forgotten already. So every engine may
propose, and none is chosen for it; with several the log has a few commands more. Age is the cut time of the writer's last
append against the newest cut time, never a clock: who restarts, or lags, judges the same.

What an expired writer sends later begins at a number above 1 and is a gap, which its SDK is told: nothing is applied twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from boki_common.errors import BokiError
from boki_common.logs import get_logger
from boki_logbook.settings import EngineSettings
from boki_logbook.state import DecisionState
from boki_metalog.metalog_entry import Expire

EXPIRES_AT_ONCE: Final = 256
"""In one round, so that expiring never crowds the log."""

_log = get_logger("engine")

Order = Callable[[int, Expire], Awaitable[object]]


def due(state: DecisionState, settings: EngineSettings) -> Iterator[Expire]:
    """The writers to forget now, at most `EXPIRES_AT_ONCE` of each kind."""
    now_ms = state.places.last_time_ms
    for age_s, named in ((settings.session_writer_age_s, False), (settings.writer_retention_s, True)):
        before_ms = now_ms - round(age_s * 1000)
        if age_s and before_ms > 0:
            for idle in state.verdicts.idle_writers(before_ms, EXPIRES_AT_ONCE, named=named):
                yield Expire(idle.book, idle.writer, idle.last)


class Expiry:
    """See the module. `state` gives the state of now: an engine may begin anew from a snapshot."""

    def __init__(self, state: Callable[[], DecisionState], order: Order, settings: EngineSettings) -> None:
        self._state = state
        self._order = order
        self._settings = settings

    async def run(self) -> None:
        """Proposes, round after round, until cancelled."""
        while True:
            await asyncio.sleep(self._settings.expiry_period_s)
            for command in list(due(self._state(), self._settings)):
                try:
                    await self._order(command.book, command)
                except BokiError as error:
                    _log.info("writer not expired", book=command.book, error=error)
                    break  # the next round finds it again
