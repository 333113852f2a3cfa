"""Compares this machine's clock with those of the sequencers, once a minute and log, and reports when they differ.

It asks over the connection that an engine has anyway. It warns in the log of the process when a difference begins, and reports
when it ends; the figures are in the engine's status and metrics. What differs, and by how much that counts, is in `clock_rules`.
A sequencer that cannot be asked is passed over until the next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from boki_common.errors import BokiError
from boki_common.logs import get_logger
from boki_common.metrics import Metrics
from boki_common.runtime.ports import Clock
from boki_logbook import metric_definitions as definitions
from boki_logbook.ports import ShardLink
from boki_logbook.settings import EngineSettings
from boki_logbook.upkeep.clock_rules import ClockReading, warning

_log = get_logger("engine")


class ClockWatch:
    """See the module.

    Args:
        links: log → the connection to its sequencer now.
    """

    def __init__(
        self, clock: Clock, links: Callable[[], Mapping[int, ShardLink]], settings: EngineSettings, metrics: Metrics
    ) -> None:
        self._clock = clock
        self._links = links
        self._period_s = settings.clock_check_s
        self._bound_ms = round(settings.clock_bound_s * 1000)
        self._ahead = metrics.gauge(definitions.CLOCK_AHEAD_SECONDS)
        self._readings: dict[int, ClockReading] = {}
        self._warned: dict[int, None] = {}

    async def run(self) -> None:
        """Asks, round after round, until cancelled."""
        while True:
            await asyncio.sleep(self._period_s)
            for log, link in sorted(self._links().items()):
                try:
                    await self._compare(log, link)
                except BokiError as error:
                    _log.debug("sequencer not asked for its clock", log=log, error=error)

    async def _compare(self, log: int, link: ShardLink) -> None:
        asked_ms = self._clock.now_ms()
        answer = await link.clock()
        if answer is None:
            return
        reading = self._readings[log] = ClockReading(asked_ms, self._clock.now_ms(), *answer)
        self._ahead.labels(str(log)).set(reading.ahead_ms / 1000)
        text = warning(reading, self._bound_ms)
        if text is not None and log not in self._warned:
            self._warned[log] = None
            _log.warning("clocks differ", log_number=log, problem=text)
        elif text is None and log in self._warned:
            del self._warned[log]
            _log.info("clocks agree again", log_number=log, ahead_ms=reading.ahead_ms)

    def status(self, log: int) -> dict[str, Any] | None:
        """What was found last, as plain values; None before the first answer."""
        reading = self._readings.get(log)
        return None if reading is None else reading.as_status(self._bound_ms)
