"""Proposes to forget writers that were not active for long, so that their state does not stay for ever (DESIGN §6.9, ADR 23).

An EXPIRE is void when the writer's last number moved meanwhile, and nothing when it is forgotten already. So every engine may
propose, and none is chosen for it; with several the log has a few commands more. A writer is old when its last append is, by the
time of its log and by the clock of the engine that proposes: a log whose time steps makes nobody old (watched_time.py). The same
is asked when a trim is to forget streams that are old.

What an expired session writer sends later is too old or a gap, which its SDK is answered: nothing is applied twice, whatever the
clocks say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

from boki_common.errors import BokiError
from boki_common.logs import get_logger
from boki_logbook.settings import EngineSettings
from boki_logbook.state.state import DecisionState
from boki_logbook.upkeep.watched_time import WatchedTime
from boki_metalog.entries.metalog_entry import Expire

EXPIRES_AT_ONCE: Final = 256
"""In one round, so that expiring never crowds the log."""

_log = get_logger("engine")

Order = Callable[[int, Expire], Awaitable[object]]


def due(
    state: DecisionState, before_ms: Mapping[int, int], log_of: Callable[[int], int], *, named: bool
) -> Iterator[Expire]:
    """The writers to forget now, at most `EXPIRES_AT_ONCE`. `before_ms`: by log, what was ordered earlier is old."""
    latest_ms = max(before_ms.values(), default=0)
    if latest_ms <= 0:
        return
    writers = state.verdicts.writers
    for idle in writers.idle(latest_ms, EXPIRES_AT_ONCE, named=named):
        known = writers.look(idle.book, idle.writer)
        if known is not None and known.time_ms < before_ms.get(log_of(idle.book), 0):
            yield Expire(idle.book, idle.writer, idle.last)


class Expiry:
    """See the module.

    Args:
        state: gives the state of now: an engine may begin anew from a snapshot.
        log_of: the log of a book.
        elapsed: a clock that never jumps, and runs on while the machine sleeps.
    """

    def __init__(
        self,
        state: Callable[[], DecisionState],
        order: Order,
        settings: EngineSettings,
        *,
        log_of: Callable[[int], int],
        elapsed: Callable[[], float],
    ) -> None:
        self._state = state
        self._order = order
        self._log_of = log_of
        self._elapsed = elapsed
        self._period_s = settings.expiry_period_s
        ages = ((False, settings.session_writer_age_s), (True, settings.writer_retention_s))
        self._writers = [(named, WatchedTime(age_s)) for named, age_s in ages if age_s]
        self._streams = WatchedTime(settings.forget_age_s)

    def forget_before_ms(self, book: int) -> int:
        """What was ordered before this time of the book's log is old enough to be forgotten; 0: nothing is known to be."""
        log = self._log_of(book)
        return max(self._streams.bound(self._elapsed(), log, self._state().log_times().get(log, 0)), 0)

    async def run(self) -> None:
        """Looks and proposes, round after round, until cancelled."""
        while True:
            await asyncio.sleep(self._period_s)
            for command in self.look():
                try:
                    await self._order(command.book, command)
                except BokiError as error:
                    _log.info("writer not expired", book=command.book, error=error)
                    break  # the next round finds it again

    def look(self) -> list[Expire]:
        """Takes note of the time of all logs; returns what to propose."""
        now_s, state = self._elapsed(), self._state()
        times = state.log_times()
        self._streams.look(now_s, times)
        found: list[Expire] = []
        for named, watched in self._writers:
            watched.look(now_s, times)
            before_ms = {log: watched.bound(now_s, log, time_ms) for log, time_ms in times.items()}
            found += due(state, before_ms, self._log_of, named=named)
        return found
