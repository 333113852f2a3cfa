"""Appended batches that wait for a shard, oldest first; what waits too long is dropped, and who sent it hears of it.

Batches come back to the front when their shard did not order them. Their order is never changed: it is the order of their
writers' numbers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from boki_common.errors import Overloaded
from boki_logbook.shard import Piece

_AGE_CHECKS: Final = 4
"""The age of the queue is looked at so many times within the longest age allowed."""


class AppendQueue:
    """See the module. `pieces` is for taking from its left end; its bytes are bounded by the router."""

    def __init__(self, age_s: float, dropped: Callable[[Piece], None]) -> None:
        self.pieces: deque[Piece] = deque()
        self._age_s = age_s
        self._dropped = dropped
        self._loop = asyncio.get_running_loop()
        self._check: asyncio.TimerHandle | None = None

    def add(self, piece: Piece) -> None:
        self.pieces.append(piece)
        if self._check is None:
            self._check = self._loop.call_later(self._age_s / _AGE_CHECKS, self._drop_old)

    @property
    def oldest_s(self) -> float:
        """How long the oldest one waits; 0 when there is none."""
        return self._loop.time() - self.pieces[0].arrived_s if self.pieces else 0.0

    def put_back(self, pieces: Sequence[Piece]) -> None:
        """What was taken, and is not ordered: before everything else."""
        self.pieces.extendleft(reversed(pieces))
        if self._check is None and pieces:
            self._check = self._loop.call_later(self._age_s / _AGE_CHECKS, self._drop_old)

    def take_all(self) -> list[Piece]:
        pieces = list(self.pieces)
        self.pieces.clear()
        return pieces

    def _drop_old(self) -> None:
        self._check = None
        oldest_s = self._loop.time() - self._age_s
        while self.pieces and self.pieces[0].arrived_s <= oldest_s:
            piece = self.pieces.popleft()
            self._dropped(piece)
            piece.source.refused(
                piece.request_id,
                Overloaded(
                    f"no sequencer and bookies took this append within {self._age_s} s; it was dropped: send it again"
                ),
            )
        if self.pieces:
            self._check = self._loop.call_later(self._age_s / _AGE_CHECKS, self._drop_old)

    def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
