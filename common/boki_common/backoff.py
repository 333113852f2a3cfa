"""Pauses between attempts: the first as given, each further one twice as long, up to a limit. Pure: it waits for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from boki_common.runtime.ports import Random

JITTER_STEPS: Final = 512


class Backoff:
    """The pauses of one series of attempts; with `rng` each is a random half to the whole of what it would be."""

    __slots__ = ("_first_s", "_limit_s", "_next_s", "_rng")

    def __init__(self, first_s: float, limit_s: float, *, rng: Random | None = None) -> None:
        self._first_s = self._next_s = first_s
        self._limit_s = limit_s
        self._rng = rng

    def next(self) -> float:
        """The pause in seconds before the next attempt; the one after it will be longer."""
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, self._limit_s)
        if self._rng is None:
            return pause_s
        return pause_s * (JITTER_STEPS + self._rng.below(JITTER_STEPS + 1)) / (2 * JITTER_STEPS)

    def reset(self) -> None:
        """An attempt succeeded: the next pause is the first again."""
        self._next_s = self._first_s
