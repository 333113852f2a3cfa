"""Proof, without a new entry, that a ledger was not fenced when its writer was asked.

    asked ─ the last complete entry goes to its write set again ─ Qa bookies answered something that was sent after ─ proven

A bookie refuses every add of a fenced ledger, also of an entry that it stores, and takes the repeat of one that it stores with
nothing to flush. A recovery has fenced Qw - Qa + 1 bookies of every write set before it learns anything, so while
Qa of one of them are not fenced, nobody has recovered it. An acknowledged entry would prove the same, but takes a flush.

Rules:
- What counts is the number of answers: a bookie that has acknowledged more adds than were sent to it before the question
  has acknowledged one that was sent after, whichever it was and in whatever order answers come.
- A proof of a moment is one of all moments before, so all that asked before are answered.
- Repeats are in flight for at most `limits.LEDGER_FENCE_CHECKS` questions; later questions share the next one, which leaves later than
  all asked.
- An answer on another connection proves nothing about what was sent on the last. Whenever a bookie connects, disconnects or is
  replaced, and when a question is unanswered for `UNPROVEN_S`, it is answered "not proven": an entry has to be appended to know.

Counts and callbacks only: it knows neither entries nor the network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from boki_common import limits

UNPROVEN_S: Final = 0.1

OnAnswer: TypeAlias = Callable[[bool], None]
"""Called once, later, with whether it is proven."""


class Replica(Protocol):
    """A bookie that adds are sent to, as far as its present connection goes."""

    connection: int
    """Grows with each."""
    sent: int
    """Adds that were sent on it."""
    answered: int
    """Those that were acknowledged on it."""


class Mark(NamedTuple):
    """How far a replica was before the question left."""

    replica: Replica
    connection: int
    sent: int

    @property
    def passed(self) -> bool:
        return self.replica.connection == self.connection and self.replica.answered > self.sent


class _Check(NamedTuple):
    marks: Sequence[Mark]
    on_answer: list[OnAnswer]
    asked_s: float


class UnfencedChecks:
    """See the module. `ask_again` sends the repeat; None: nothing can be repeated, or to too few bookies."""

    __slots__ = ("_ask_again", "_checks", "_loop", "_quorum", "_timer", "_waiting")

    def __init__(self, ack_quorum: int, ask_again: Callable[[], Sequence[Mark] | None]) -> None:
        self._quorum = ack_quorum
        self._ask_again = ask_again
        self._checks: list[_Check] = []
        self._waiting: list[OnAnswer] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def open(self) -> bool:
        """Whether somebody waits."""
        return bool(self._checks)

    def ask(self, on_answer: OnAnswer) -> bool:
        """Calls back, unless it returns False: it cannot be asked now."""
        if len(self._checks) >= limits.LEDGER_FENCE_CHECKS:
            self._waiting.append(on_answer)
            return True
        return self._leave([on_answer])

    def answered(self) -> None:
        """Replicas answered; to be called while `open`."""
        checks = self._checks
        proven = 0
        for number, check in enumerate(checks, 1):
            if sum(mark.passed for mark in check.marks) >= self._quorum:
                proven = number
        if not proven:
            return
        self._checks = checks[proven:]
        waiting, self._waiting = self._waiting, []
        unproven = waiting if waiting and not self._leave(waiting) else []
        for check in checks[:proven]:
            for on_answer in check.on_answer:
                on_answer(True)
        for on_answer in unproven:
            on_answer(False)

    def interrupted(self) -> None:
        """What is asked may never be answered any more: answers False, in the next turn of the loop."""
        if self._checks:
            self._loop.call_soon(self._give_up)

    def close(self) -> None:
        """Drops all questions; none is answered any more."""
        self._checks, self._waiting = [], []
        if self._timer is not None:
            self._timer.cancel()

    def _leave(self, on_answer: list[OnAnswer]) -> bool:
        marks = self._ask_again()
        if marks is None:
            return False
        self._checks.append(_Check(marks, on_answer, self._loop.time()))
        if self._timer is None:
            self._timer = self._loop.call_later(UNPROVEN_S, self._look)
        return True

    def _look(self) -> None:
        self._timer = None
        if not self._checks:
            return
        left_s = self._checks[0].asked_s + UNPROVEN_S - self._loop.time()
        if left_s <= 0:
            self._give_up()
        else:
            self._timer = self._loop.call_later(left_s, self._look)

    def _give_up(self) -> None:
        checks, waiting = self._checks, self._waiting
        self._checks, self._waiting = [], []
        for on_answer in [*(on_answer for check in checks for on_answer in check.on_answer), *waiting]:
            on_answer(False)
