"""Fairness between transactions on the same objects: turns within a process, pauses among processes. Pure.

- A transaction that lost `LOSSES` times has the turn for the streams that it expects: until it is decided, no other transaction of its
  process commits a write of them; those on other streams are not affected. Of several transactions with a turn the oldest waits for none,
  so each is decided after those before it. A turn ends when its transaction is decided, at its time-out at the latest; when it has lost
  `LOST_TURNS` times more, which only other processes can cause; or when it has waited for its owner for as long as a body may run.
- After a Conflict with another process, a process sends nothing that expects the same streams for a while, longer after each loss in a
  row. It then has to read before it sends while the winner does not, so a winner that never rests could win every time.
- A winner cannot see who loses to it. A process that lost `CLAIM_LOSSES` times in a row therefore *claims* the streams after its pause:
  it appends a record that joins them and changes nothing (`events`). The winner's record in flight fails, the winner pauses and has to
  read, and the claimer's transactions, which read behind the claim, commit first. If a claim did not help, the next one follows after
  half as many losses more: claims do not help against operations without a condition, which never lose.
- A claim gives no right and is no lock. It is a write like any other: nothing depends on whether it happened, or on who sent it.
- Pauses are drawn from the process's incarnation: they differ between processes, and are the same in each run of a simulation.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

LOSSES: Final = 3
"""Lost runs before a transaction has the turn."""
LOST_TURNS: Final = 8
"""Lost runs, to other processes, of a transaction that has the turn, before it ends."""
UNIT_LEAST_S: Final = 0.001
UNIT_MOST_S: Final = 0.05
PAUSE_MOST_S: Final = 1.0
DOUBLINGS: Final = 4
"""A pause is at most 2**4 times what a record takes: more only delays the claim (simulated with 2, 4 and 8 processes)."""
CLAIM_LOSSES: Final = 6
"""Losses in a row before a process claims streams. Earlier claims cost more throughput than they gain fairness (same simulation)."""
CLAIM_STEP: Final = 8
"""Losses between two claims, at most."""
QUIET_WINS: Final = 64
"""Commits without a Conflict after which a stream is not contended any more: a process that wins is claimed from more often."""
STREAMS: Final = 1_024


class Turns:
    """The transactions of a process that have a turn, and their streams. A lower number is an older transaction."""

    def __init__(self, losses: int = LOSSES) -> None:
        """Give no turn yet.

        Args:
            losses: after this many lost runs a transaction gets the turn.
        """
        self._losses: Final = losses
        self._held: Final[dict[int, frozenset[str]]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def lost(self, number: int, losses: int, expects: Iterable[str]) -> bool:
        """Note that a transaction lost again; return whether that ended its turn.

        Args:
            number: of the transaction.
            losses: how often it has lost by now.
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
        """Return whether a transaction that joins these streams waits for the turn of another transaction.

        Args:
            number: of the transaction.
            joins: the streams that it joins.
            within: transactions whose bodies wait for this one: it never waits for their turns.
        """
        mine = number in self._held
        return any(
            not held.isdisjoint(joins)
            for other, held in self._held.items()
            if other != number and other not in within and (other < number or not mine)
        )


class Losses(NamedTuple):
    """Losses in a row on a stream, with which one of them the stream is claimed, and commits that are left until it is dropped."""

    in_row: int = 0
    claim_at: int = CLAIM_LOSSES
    left: int = QUIET_WINS


class Contention:
    """Streams that other processes commit to as well, how long to pause before the next record that expects them, and which to claim.

    Invariant: it has at most `STREAMS` streams; those that were longest without a Conflict are dropped.
    """

    def __init__(self, seed: str) -> None:
        """Know of no contended stream.

        Args:
            seed: of this process, unlike that of others.
        """
        self._seed: Final = seed
        self._drawn = 0
        self._streams: Final[dict[str, Losses]] = {}

    def lost(self, streams: Iterable[str], unit_s: float, *, guessed: bool = False) -> tuple[float, list[str]]:
        """Return for how many seconds to pause after a Conflict on these streams, and which of them to claim then.

        Args:
            unit_s: what a record takes.
            guessed: the record relied on what was known here, without a read. That counts only on a stream that is contended already.
        """
        most = 0
        claims = []
        for stream in streams:
            known = self._streams.pop(stream, None)
            if known is None and guessed:
                self._streams[stream] = Losses()
                continue
            in_row, claim_at, _ = known or Losses()
            in_row += 1
            if in_row >= claim_at:
                claims.append(stream)
                claim_at = in_row + min(in_row // 2, CLAIM_STEP)
            self._streams[stream] = Losses(in_row, claim_at)
            most = max(most, in_row)
        while len(self._streams) > STREAMS:
            del self._streams[next(iter(self._streams))]
        if not most:
            return 0.0, []
        longest = min(PAUSE_MOST_S, _unit(unit_s) * 2.0 ** min(most, DOUBLINGS))
        return longest * (0.5 + 0.5 * self._draw()), claims

    def won(self, streams: Iterable[str]) -> None:
        """Note a commit that expected these streams: losses in a row begin again."""
        for stream in streams:
            known = self._streams.get(stream)
            if known is not None and known.left > 1:
                self._streams[stream] = Losses(left=known.left - 1)
            elif known is not None:
                del self._streams[stream]

    def _draw(self) -> float:
        """Return a number from 0 to 1."""
        self._drawn += 1
        return zlib.crc32(f"{self._seed}/{self._drawn}".encode()) / 0xFFFF_FFFF


def _unit(seconds: float) -> float:
    return min(UNIT_MOST_S, max(UNIT_LEAST_S, seconds))
