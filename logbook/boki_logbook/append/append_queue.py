"""Appended batches that wait for a shard, oldest first; what waits too long is dropped, and refused to who sent it.

Batches come back to the front when their shard did not order them, unless they are too old by then. Their order is never changed:
it is the order of their writers' numbers. Ages are those of a clock that runs on while the machine sleeps; whoever sends what
waits here drops what is old before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from boki_common.errors import Overloaded
from boki_logbook.append.shard import Piece

_AGE_CHECKS: Final = 4
"""The age of the queue is looked at so many times within the longest age allowed; or else every:"""
_CHECK_S: Final = 15.0


def age_check_s(age_s: float) -> float:
    """How often it is to be looked for what is too old."""
    return min(age_s / _AGE_CHECKS, _CHECK_S)


class AppendQueue:
    """See the module. `pieces` is for taking from its left end; its bytes are bounded by the router."""

    def __init__(
        self, age_s: float, dropped: Callable[[Piece], None], elapsed: Callable[[], float] | None = None
    ) -> None:
        """`elapsed`: the clock of `arrived_s`; the event loop's without one."""
        self.pieces: deque[Piece] = deque()
        self._age_s = age_s
        self._dropped = dropped
        self._loop = asyncio.get_running_loop()
        self.elapsed: Final = self._loop.time if elapsed is None else elapsed
        self._check: asyncio.TimerHandle | None = None

    def add(self, piece: Piece) -> None:
        self.pieces.append(piece)
        if self._check is None:
            self._check = self._loop.call_later(age_check_s(self._age_s), self._drop_old)

    @property
    def oldest_s(self) -> float:
        """How long the oldest one waits; 0 when there is none."""
        return self.elapsed() - self.pieces[0].arrived_s if self.pieces else 0.0

    def put_back(self, pieces: Sequence[Piece]) -> None:
        """What was taken, and is not ordered: before everything else."""
        self.pieces.extendleft(reversed(pieces))
        if pieces and self.is_old(pieces[0].arrived_s):
            self._loop.call_soon(self.drop_old)  # whoever puts back is in the middle of something
        elif pieces and self._check is None:
            self._check = self._loop.call_later(age_check_s(self._age_s), self._drop_old)

    def take_all(self) -> list[Piece]:
        self.drop_old()
        pieces = list(self.pieces)
        self.pieces.clear()
        return pieces

    def is_old(self, arrived_s: float) -> bool:
        """Whether what arrived then may not be sent any more."""
        return self.elapsed() - arrived_s >= self._age_s

    def drop_old(self) -> None:
        """What waits for too long is refused now."""
        oldest_s = self.elapsed() - self._age_s
        while self.pieces and self.pieces[0].arrived_s <= oldest_s:
            piece = self.pieces.popleft()
            self._dropped(piece)
            piece.source.refused(
                piece.request_id,
                Overloaded(
                    f"no sequencer and bookies took this append within {self._age_s} s; it was dropped: send it again"
                ),
            )
        if self.pieces and self._check is None:
            self._check = self._loop.call_later(age_check_s(self._age_s), self._drop_old)

    def _drop_old(self) -> None:
        self._check = None
        self.drop_old()

    def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
