"""When the cores of a machine are kept from sleeping: while a process of ours has much to do. Pure: the use of processors is passed in.

A sleeping core delays answers, but one that never sleeps costs power, and on a shared host the time of others. So they stay
awake only while it pays: as long as requests keep this process busy, and a moment longer, since each change of the wish wakes
all cores.
"""

from __future__ import annotations

from typing import Final

BUSY: Final = 0.1
"""Processor time a second from which on a process counts as busy: a few hundred single requests a second."""
KEPT_S: Final = 1.0
"""How long after the last busy moment the wish is kept."""


class BusyCores:
    """See the module."""

    __slots__ = ("_busy_at", "_looked_at", "_used_s")

    def __init__(self, now: float, used_s: float) -> None:
        self._looked_at = now
        self._used_s = used_s
        self._busy_at: float | None = None

    def look(self, now: float, used_s: float) -> bool:
        """Whether the cores are to be awake until the next look.

        Args:
            now: seconds, monotonic.
            used_s: processor time of this process since it began.
        """
        if used_s - self._used_s >= BUSY * (now - self._looked_at):
            self._busy_at = now
        self._looked_at = now
        self._used_s = used_s
        return self._busy_at is not None and now - self._busy_at <= KEPT_S
