"""How much of the disk is left to the journal, and when a checkpoint begins by itself. Pure: sizes and durations are passed in.

What writes much in the background (a checkpoint, a journal segment that is filled with zeros) would fill the queue of the
device, and every flush of the journal would wait behind it: adds would stand still until it is done. So it rests after each
write, in proportion to how long that took:

    write cache          share of the time that a checkpoint writes
    up to 1/2            a quarter, and so does a segment that nobody waits for
    from 1/2 to 3/4      more, the fuller it is
    from 3/4             all: adds wait for the room

A fast disk is hardly rested; a slow one, or one that others use as well, is left to the journal most of the time.

What little a checkpoint would store waits for more, up to the interval; but when no more comes, it goes soon, so that an
idle bookie holds little in memory and has little to replay.
"""

from __future__ import annotations

from typing import Final

LEAST_SHARE: Final = 0.25
LEAST_REST_S: Final = 0.001
"""Shorter ones are not worth a timer: event loops count in milliseconds."""
MOST_REST_S: Final = 0.25
"""A stall of the disk is no reason to wait for as long again."""
IDLE_LOOK_S: Final = 1.0
"""When nothing came for so long, nothing more is waited for."""
IDLE_PARTS: Final = 16
"""An idle bookie stores by itself what fills this part of its write cache, or more."""


def rest_s(write_s: float, share: float = LEAST_SHARE) -> float:
    """How long to rest after a write that took so long, to take no more than this share of the time."""
    rest = write_s * (1 / share - 1)
    return 0.0 if rest < LEAST_REST_S else min(rest, MOST_REST_S)


class CheckpointPace:
    """See the module."""

    def __init__(self, write_cache_bytes: int) -> None:
        self.begins_at = write_cache_bytes // 2
        """Bytes that no checkpoint has taken yet, from which on one begins."""
        self.slows_at = write_cache_bytes * 3 // 4
        """Bytes in memory, from which on acknowledgements wait."""
        self._idle_least = write_cache_bytes // IDLE_PARTS
        self._fresh_before = 0

    def rest_s(self, write_s: float, cached_bytes: int) -> float:
        """How long a checkpoint rests after a write that took so long."""
        above = (cached_bytes - self.begins_at) / (self.slows_at - self.begins_at)
        return rest_s(write_s, LEAST_SHARE + (1 - LEAST_SHARE) * min(max(above, 0.0), 1.0))

    def is_idle(self, fresh_bytes: int) -> bool:
        """Whether to store now what is there; asked once in `IDLE_LOOK_S`."""
        before, self._fresh_before = self._fresh_before, fresh_bytes
        return fresh_bytes == before and fresh_bytes >= self._idle_least
