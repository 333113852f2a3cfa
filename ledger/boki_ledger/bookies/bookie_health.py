"""Which bookies new entries go to: those that are registered and writable, without those that keep failing.

    chooser = HealthyBookies(directory, settings)
    chooser.failed(bookie)                      # an add, a read or a connection failed
    chooser.writable(), chooser.quarantined()

`quarantine` decides. A bookie in quarantine gets no place in a new ensemble unless there are too few others, is asked for
reads last, and keeps the places that it has. When its time is over, callbacks of `on_change` run, as at any change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_ledger.rules.quarantine import Quarantine
from boki_ledger.settings import LedgerSettings
from boki_ledger.transport import BookieRegistry

_log = get_logger("ledger")


class HealthyBookies:
    """See the module; a `transport.BookieChooser`."""

    def __init__(self, registry: BookieRegistry, settings: LedgerSettings) -> None:
        self._registry = registry
        self._settings = settings
        self._quarantine = Quarantine(
            failures=settings.quarantine_failures,
            window_s=settings.quarantine_window_s,
            quarantine_s=settings.quarantine_s,
        )
        self._callbacks: dict[Callable[[], None], None] = {}
        self._timers: dict[asyncio.TimerHandle, None] = {}

    def writable(self) -> tuple[BookieId, ...]:
        registered = self._registry.writable()
        if self._quarantine.empty:
            return registered
        return tuple(bookie for bookie in registered if not self.is_quarantined(bookie))

    def quarantined(self) -> tuple[BookieId, ...]:
        if self._quarantine.empty:
            return ()
        return tuple(bookie for bookie in self._registry.writable() if self.is_quarantined(bookie))

    def is_quarantined(self, bookie: BookieId) -> bool:
        return not self._quarantine.empty and self._quarantine.holds(bookie, asyncio.get_running_loop().time())

    def failed(self, bookie: BookieId) -> None:
        loop = asyncio.get_running_loop()
        if not self._quarantine.failed(bookie, loop.time()):
            return
        _log.warning("bookie in quarantine", bookie_id=bookie, seconds=self._settings.quarantine_s)

        def over() -> None:
            del self._timers[timer]
            _log.info("bookie out of quarantine", bookie_id=bookie)
            for callback in tuple(self._callbacks):
                callback()

        timer = loop.call_later(self._settings.quarantine_s, over)
        self._timers[timer] = None

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back after each change; returns what ends that."""
        self._callbacks[callback] = None
        stop = self._registry.on_change(callback)

        def ended() -> None:
            self._callbacks.pop(callback, None)
            stop()

        return ended

    def close(self) -> None:
        """Calls no callback any more. Idempotent."""
        for timer in tuple(self._timers):
            timer.cancel()
        self._timers.clear()
        self._callbacks.clear()
