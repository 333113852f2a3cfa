"""Fairness between transactions on the same objects: turns within a process, pauses among processes. Pure.

- A transaction that lost `LOSSES` times has the turn for what it expects: until it is decided no other transaction of its process
  commits a write of these streams; those on other streams go on. Of several that have a turn the oldest waits for none, so each one is
  decided after those before it. A turn ends when its transaction is decided, at its time-out at the latest; or has lost `LOST_TURNS` times
  more: only other processes can do that; or has waited for its owner for as long as a body may run.
- After a Conflict a process sends nothing that expects the same streams for a while, longer each time it loses in a row. A process that
  commits on such streams pauses as well, else it would win for as long as it has something to send.
- Pauses are drawn from the process's incarnation: they differ between processes, and are the same in each run of a simulation.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable
from typing import Final

LOSSES: Final = 3
"""Lost runs before a transaction has the turn."""
LOST_TURNS: Final = 8
"""Lost runs, to other processes, of a transaction that has the turn, before it ends."""
UNIT_LEAST_S: Final = 0.001
UNIT_MOST_S: Final = 0.05
PAUSE_MOST_S: Final = 1.0
QUIET_WINS: Final = 16
"""Records without a Conflict after which streams count as one's own again."""
STREAMS: Final = 1_024


class Turns:
    """The transactions of a process that have a turn, and their streams. A lower number is an older transaction."""

    def __init__(self, losses: int = LOSSES) -> None:
        """
        Args:
            losses: so many lost runs give a transaction the turn.
        """
        self._losses: Final = losses
        self._held: Final[dict[int, frozenset[str]]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def lost(self, number: int, losses: int, expects: Iterable[str]) -> bool:
        """Note that a transaction lost, so many times by now; return whether its turn is over.

        Args:
            expects: the streams that it expected this time.
        """
        if losses >= self._losses + LOST_TURNS:
            return self.ended(number)
        if losses >= self._losses:
            self._held[number] = self._held.get(number, frozenset()).union(expects)
        return False

    def has(self, number: int) -> bool:
        """Return whether a transaction has a turn."""
        return number in self._held

    def ended(self, number: int) -> bool:
        """End a transaction's turn; return whether it had one."""
        return self._held.pop(number, None) is not None

    def waits(self, number: int, joins: Collection[str], within: Collection[int] = ()) -> bool:
        """Return whether a transaction that joins these streams waits for another one's turn.

        Args:
            within: transactions whose bodies wait for this one: it waits for the turn of none of them.
        """
        mine = number in self._held
        return any(
            not held.isdisjoint(joins)
            for other, held in self._held.items()
            if other != number and other not in within and (other < number or not mine)
        )


class Contention:
    """Streams that other processes write too, and how long to pause before the next record that expects them.

    Invariant: it has at most `STREAMS` streams; those that were longest without a Conflict are dropped.
    """

    def __init__(self, seed: str) -> None:
        """
        Args:
            seed: of this process, unlike others'.
        """
        self._seed: Final = seed
        self._drawn = 0
        self._streams: Final[dict[str, tuple[int, int]]] = {}
        """By stream: losses in a row, and wins that are left until it is dropped."""

    def lost(self, streams: Iterable[str], unit_s: float) -> float:
        """Return for how many seconds to pause after a Conflict on these streams; `unit_s`: what a record takes."""
        most = 0
        for stream in streams:
            losses = self._streams.pop(stream, (0, 0))[0] + 1
            self._streams[stream] = losses, QUIET_WINS
            most = max(most, losses)
        while len(self._streams) > STREAMS:
            del self._streams[next(iter(self._streams))]
        if not most:
            return 0.0
        longest = min(PAUSE_MOST_S, _unit(unit_s) * 2.0 ** min(most, 16))
        return longest * (0.5 + 0.5 * self._draw())

    def won(self, streams: Iterable[str], unit_s: float) -> tuple[list[str], float]:
        """Note a commit on these streams; return those that are contended, and for how many seconds to leave them to others."""
        contended = []
        for stream in streams:
            if stream in self._streams:
                wins = self._streams[stream][1] - 1
                if wins:
                    self._streams[stream] = 0, wins
                    contended.append(stream)
                else:
                    del self._streams[stream]
        return contended, 2 * _unit(unit_s) * self._draw() if contended else 0.0

    def _draw(self) -> float:
        """Return a number from 0 to 1."""
        self._drawn += 1
        return zlib.crc32(f"{self._seed}/{self._drawn}".encode()) / 0xFFFF_FFFF


def _unit(seconds: float) -> float:
    return min(UNIT_MOST_S, max(UNIT_LEAST_S, seconds))
