"""Fairness between transactions on the same objects: turns within a process, pauses among processes. Pure.

- A transaction that lost `LOSSES` times has the turn for the streams that it expects: until it is decided, no other transaction of its
  process commits a write of them; those on other streams are not affected. Of several transactions with a turn the oldest waits for none,
  so each is decided after those before it. A turn ends when its transaction is decided, at its time-out at the latest; when it has lost
  `LOST_TURNS` times more, which only other processes can cause; or when it has waited for its owner for as long as a body may run.
- After a Conflict with another process, a process sends nothing that expects the same streams for a while, longer after each loss in a
  row. It then has to read before it sends while the winner does not, so a winner that never rests could win every time.
- A winner cannot see who loses to it. A process that lost `CLAIM_LOSSES` times in a row, or for `LOST_MOST_S`, therefore *claims* the
  streams after its pause: it appends a record that joins them and changes nothing (`events`). The winner's record in flight fails, the
  winner pauses and has to read, and the claimer's transactions, which read behind the claim, commit first. If a claim did not help, the
  next one follows after half as many losses more: claims do not help against operations without a condition, which never lose.
- A claim names how long its sender needs: as long as its last run took, twice as long after each claim that did not help, `PAUSE_MOST_S`
  at most. A process that reads it *rests*: it sends nothing that expects the stream for that long. So a process whose round trip or body
  is many times as long as the winner's commits all the same, unless a run of it takes longer than `PAUSE_MOST_S`.
- A process that commits fewer than `STINT_WINS` times in a row after a claim is outrun: it claims after `OUTRUN_LOSSES`, and pauses
  briefly, because pauses help neither itself nor the faster process.
- After a rest a process has the stream for half as long as it rested: claims that it reads until then do not count, and a process that
  knows of the rest waits until then before it claims. So whatever others claim, a third of the time is its own, besides the losses
  before each claim. A process that dies behind its claim costs others one rest, and claims that come together cost no more than
  `REST_MOST_S`.
- A claim gives no right and is no lock. It is a write like any other, so nothing depends on whether it happened, or on who sent it, or on
  whether others rest: programs of earlier versions neither say for how long they need a stream, nor rest.
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
LOST_MOST_S: Final = 1.0
"""Time lost in a row, pauses included, before a process claims streams earlier: two losses at least."""
REST_MOST_S: Final = 2.0
"""Longest rest for claims that come together."""
STINT_WINS: Final = 4
"""Commits in a row by which a process that claimed shows that it is as fast as others."""
OUTRUN_LOSSES: Final = 3
"""Losses in a row before an outrun process claims streams: the faster one commits during three of its runs, and leaves it the fourth."""
OUTRUN_DOUBLINGS: Final = 1
OWN_SHARE: Final = 0.5
"""Time that a process has a stream for itself after a rest, as a part of the rest."""
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
    """Losses in a row on a stream.

    Attributes:
        claim_at: with which loss in a row the stream is claimed next. left: commits until the stream is dropped.
        claims: so far, in this row of losses. outrun: whether others are faster (see the module), as far as is known.
        wins: commits in a row since the last loss. lost_s: time lost in this row, pauses included, since the last claim.
    """

    in_row: int = 0
    claim_at: int = CLAIM_LOSSES
    left: int = QUIET_WINS
    claims: int = 0
    outrun: bool = False
    wins: int = 0
    lost_s: float = 0.0


class Rest(NamedTuple):
    """Time for which a process leaves a stream to other processes that claimed it.

    Attributes:
        newest: seqnum of the newest claim that counted. since_s, until_s: when it began and ends.
    """

    newest: int = 0
    since_s: float = 0.0
    until_s: float = 0.0

    @property
    def open_s(self) -> float:
        """When other claims count again: until then the process has the stream for itself."""
        return self.until_s + (self.until_s - self.since_s) * OWN_SHARE


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
        self._rests: Final[dict[str, Rest]] = {}
        self._own: Final[dict[str, tuple[int, float]]] = {}
        """The newest claim of this process of a stream, and when its time ends."""

    def lost(
        self, streams: Collection[str], unit_s: float, *, run_s: float = 0.0, guessed: bool = False
    ) -> tuple[float, list[str]]:
        """Return for how many seconds to pause after a Conflict on these streams, and which of them to claim then.

        Args:
            unit_s: what a record takes. run_s: what the run took that lost.
            guessed: the record relied on what was known here, without a read. That counts only on a stream that is contended already.
        """
        most = 0
        wanted: list[str] = []
        for stream in streams:
            known = self._streams.pop(stream, None)
            if known is None and guessed:
                self._streams[stream] = Losses()
                continue
            losses = _one_more(known or Losses(), run_s)
            if losses.in_row >= losses.claim_at or (losses.in_row > 1 and losses.lost_s >= LOST_MOST_S):
                wanted.append(stream)
            self._streams[stream] = losses
            most = max(most, min(losses.in_row, OUTRUN_DOUBLINGS if losses.outrun else DOUBLINGS))
        while len(self._streams) > STREAMS:
            del self._streams[next(iter(self._streams))]
        if not most:
            return 0.0, []
        pause_s = min(PAUSE_MOST_S, _unit(unit_s) * 2.0**most) * (0.5 + 0.5 * self._draw())
        for stream in streams:
            after = self._streams.get(stream)
            if after is not None:
                self._streams[stream] = after._replace(lost_s=after.lost_s + pause_s)
        return pause_s, wanted

    def won(self, streams: Iterable[str]) -> None:
        """Note a commit that expected these streams: losses in a row begin again."""
        for stream in streams:
            known = self._streams.get(stream)
            if known is not None and known.left > 1:
                self._streams[stream] = _won(known)
            elif known is not None:
                del self._streams[stream]

    def wait_s(self, streams: Iterable[str], now_s: float) -> float:
        """Return how long to wait before streams are claimed: others rest for an earlier claim, or would not rest for this one."""
        return max((self._rests[stream].open_s - now_s for stream in streams if stream in self._rests), default=0.0)

    def claims(self, streams: Collection[str], run_s: float) -> float:
        """Return for how long to claim streams: as long as a run takes, twice as long for each claim in a row that did not help.

        Args:
            run_s: from a claim to the answer to the record behind it.
        """
        most = 0
        for stream in streams:
            known = self._streams.get(stream, Losses())
            claim_at = known.in_row + min(known.in_row // 2, CLAIM_STEP)
            if stream in self._streams:
                self._streams[stream] = known._replace(claim_at=claim_at, claims=known.claims + 1, lost_s=0.0)
            most = max(most, known.claims)
        return min(PAUSE_MOST_S, run_s * 2.0 ** min(most, DOUBLINGS))

    def claimed_here(self, streams: Iterable[str], seqnum: int, until_s: float) -> None:
        """Note a claim of this process: until its time ends, later claims of others do not count here."""
        for stream in streams:
            self._own[stream] = (seqnum, until_s)
        while len(self._own) > STREAMS:
            del self._own[next(iter(self._own))]

    def claimed(self, stream: str, seqnum: int, needs_s: float, now_s: float) -> float:
        """Return for how many seconds to leave a stream alone, because another process claimed it; 0.0: go on.

        Args:
            needs_s: what is left of the time that the claim named.
        """
        own, own_until_s = self._own.get(stream, (0, 0.0))
        if now_s >= own_until_s:
            self._own.pop(stream, None)
        elif seqnum > own:
            return 0.0
        rest = self._rests.get(stream, Rest())
        if seqnum <= rest.newest or needs_s <= 0 or rest.until_s < now_s < rest.open_s:
            return 0.0
        self._rests.pop(stream, None)
        while len(self._rests) >= STREAMS:
            del self._rests[next(iter(self._rests))]
        since_s = rest.since_s if now_s <= rest.until_s else now_s
        until_s = min(max(rest.until_s, now_s) + min(needs_s, PAUSE_MOST_S), since_s + REST_MOST_S)
        self._rests[stream] = Rest(seqnum, since_s, until_s)
        return until_s - now_s

    def _draw(self) -> float:
        """Return a number from 0 to 1."""
        self._drawn += 1
        return zlib.crc32(f"{self._seed}/{self._drawn}".encode()) / 0xFFFF_FFFF


def _one_more(known: Losses, run_s: float) -> Losses:
    """Return what is known of a stream after one more loss."""
    if known.in_row:
        return known._replace(in_row=known.in_row + 1, left=QUIET_WINS, lost_s=known.lost_s + run_s)
    outrun = known.outrun and known.wins < STINT_WINS
    return Losses(1, OUTRUN_LOSSES if outrun else CLAIM_LOSSES, outrun=outrun, lost_s=run_s)


def _won(known: Losses) -> Losses:
    """Return what is known of a stream after a commit."""
    outrun = known.claims > 0 or known.outrun
    return Losses(left=known.left - 1, outrun=outrun, wins=known.wins + 1)


def _unit(seconds: float) -> float:
    return min(UNIT_MOST_S, max(UNIT_LEAST_S, seconds))
