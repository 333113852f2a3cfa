"""Whether a durable write is made on the event loop or handed to a thread. Pure: durations of flushes are passed in.

Two thread switches cost more than a flush of a fast disk, so small writes are made in place there; on a slow one the loop
must not wait. Which of the two a disk is shows by all its flushes.
"""

from __future__ import annotations

from typing import Final

from boki_common import limits

INLINE_FLUSH_S: Final = 0.001
"""A flush on the event loop takes no longer, or the following ones are made in the thread."""
INLINE_AFTER: Final = 256
"""So many flushes in a row must have been fast."""
AGAIN_AFTER: Final = 16
"""The same after a slow flush that stood alone, as any disk has them."""
INLINE_BYTES: Final = 256 * limits.KIB
"""A larger write always goes to the thread."""
NONE_INLINE: Final = -1
"""Not even a write of nothing."""


class FlushPace:
    """Whether the next durable write is made on the event loop.

    Only after `INLINE_AFTER` flushes in a row were fast. A slow one on the loop sends the next to the thread: as many, or
    `AGAIN_AFTER` if as many were fast on the loop since the last slow one. So of `INLINE_AFTER` flushes in a row two slow ones are on
    the loop, at most: one that stood alone, and one soon after it. Fast flushes on the loop are counted, in `inline_flushes`, by
    who makes them.
    """

    __slots__ = ("_to_go", "inline_bytes", "inline_flushes")

    def __init__(self) -> None:
        self.inline_bytes = NONE_INLINE
        """A write of up to so many bytes is made on the loop."""
        self.inline_flushes = 0
        """Fast ones on the loop since the last slow one."""
        self._to_go = INLINE_AFTER

    def took(self, seconds: float) -> None:
        if seconds > INLINE_FLUSH_S:
            self._to_go = AGAIN_AFTER if self.inline_flushes >= INLINE_AFTER else INLINE_AFTER
            self.inline_flushes = 0
            self.inline_bytes = NONE_INLINE
        else:
            self._to_go = max(0, self._to_go - 1)  # also where two threads report a flush at once
            self.inline_bytes = NONE_INLINE if self._to_go else INLINE_BYTES
