"""When a sequencer that stands by takes a log over: whose turn it is, how long to wait, and how long after the last time.

    gone      it refuses, does not answer in time, or another process is there     taken at once, by the first in turn
    over      it answers, and its term is over or never began                      after a grace: a driver may be at work
    vacant    the log never had a term                                             as gone

Rules:
- Standbys take turns: of those that are free, each log has a first, a second, …; the n-th waits n staggers more, and finds
  the term replaced when it wakes. So a fail-over has one driver, and a dead standby costs one stagger.
- A process that changed a log's term on suspicion waits before it suspects that log again: 1 s, doubling to 30 s, with
  jitter, and back to the first after 30 s of quiet. Two that suspect each other wrongly slow down (F13).
- Being wrong costs a term, never a record.

Pure: times are arguments.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from boki_common.backoff import Backoff

BACKOFF_FIRST_S: Final = 1.0
BACKOFF_LIMIT_S: Final = 30.0
JITTER: Final = 0.5
"""At most this part of a pause is added to it."""


class Presence(enum.Enum):
    """What is known of the sequencer that the view names for a term."""

    UNKNOWN = "unknown"
    SERVES = "serves"
    OVER = "over"
    GONE = "gone"


class Vacancy(NamedTuple):
    """A log without a living sequencer."""

    log: int
    since_s: float
    """When it was first seen so."""
    grace_s: float = 0.0


class Step(NamedTuple):
    """What to do: take `log` now, or look again in `pause_s` (None: when something changes)."""

    log: int | None
    pause_s: float | None


def turns(logs: Iterable[int], free: Collection[str], me: str) -> dict[int, int]:
    """How many others come before `me` for each of the logs. The k-th log begins with the k-th free sequencer."""
    order = sorted({*free, me})
    mine = order.index(me)
    return {log: (mine - number) % len(order) for number, log in enumerate(sorted(logs))}


def next_step(
    vacancies: Sequence[Vacancy], places: dict[int, int], suspicions: Suspicions, *, stagger_s: float, now_s: float
) -> Step:
    """The vacancy that is due first."""
    if not vacancies:
        return Step(None, None)
    due_s, log = min(
        (max(one.since_s + one.grace_s + places[one.log] * stagger_s, suspicions.not_before_s(one.log)), one.log)
        for one in vacancies
    )
    return Step(log, 0.0) if due_s <= now_s else Step(None, due_s - now_s)


class Suspicions:
    """Pauses between suspicions of one log, by this process."""

    def __init__(self, *, first_s: float = BACKOFF_FIRST_S, limit_s: float = BACKOFF_LIMIT_S) -> None:
        self._first_s = first_s
        self._limit_s = limit_s
        self._last: dict[int, tuple[float, float, Backoff]] = {}
        """Log → when its term was changed, when it may be changed again, and the pauses from then on."""

    def not_before_s(self, log: int) -> float:
        return self._last[log][1] if log in self._last else float("-inf")

    def changed(self, log: int, now_s: float, *, chance: float) -> None:
        """This process changed the log's term on suspicion. `chance`: a random number from 0 to 1."""
        last_s, _, backoff = self._last.get(log, (now_s, 0.0, Backoff(self._first_s, self._limit_s)))
        if now_s - last_s >= self._limit_s:
            backoff.reset()
        self._last[log] = (now_s, now_s + backoff.next() * (1 + JITTER * chance), backoff)

    def keep(self, logs: Collection[int]) -> None:
        """Forgets logs that are no more."""
        self._last = {log: last for log, last in self._last.items() if log in logs}
