"""Which bookies fail so often that nothing new is put on them for a while. Pure.

A bookie that fails `failures` times within `window_s` is in quarantine for `quarantine_s`; then it starts with a clean slate.
One failure is no reason: connections break. Failures during a quarantine do not lengthen it, since everything that was on the bookie
before goes on trying.

Times are the caller's, in seconds, and never go back. At most `limits.LEDGER_BOOKIES_WATCHED` are remembered, those that failed last.
"""

from __future__ import annotations

from collections import deque

from boki_common import limits
from boki_common.ids import BookieId


class Quarantine:
    """Invariant: nobody has both counted failures and a quarantine."""

    def __init__(self, *, failures: int, window_s: float, quarantine_s: float) -> None:
        self._failures = failures
        self._window_s = window_s
        self._quarantine_s = quarantine_s
        self._recent: dict[BookieId, deque[float]] = {}
        self._until: dict[BookieId, float] = {}

    def failed(self, bookie: BookieId, now: float) -> bool:
        """Counts a failure; returns whether the bookie is in quarantine from now on and was not before."""
        if self.holds(bookie, now) or self._quarantine_s <= 0:
            return False
        recent = self._recent.pop(bookie, None) or deque(maxlen=self._failures)
        recent.append(now)
        if len(recent) == self._failures and now - recent[0] <= self._window_s:
            self._until[bookie] = now + self._quarantine_s
            self._drop_oldest(self._until)
            return True
        self._recent[bookie] = recent
        self._drop_oldest(self._recent)
        return False

    def holds(self, bookie: BookieId, now: float) -> bool:
        """Whether the bookie is in quarantine."""
        until = self._until.get(bookie)
        if until is None:
            return False
        if until > now:
            return True
        del self._until[bookie]
        return False

    @property
    def empty(self) -> bool:
        """Whether certainly nobody is in quarantine."""
        return not self._until

    @staticmethod
    def _drop_oldest(of: dict[BookieId, deque[float]] | dict[BookieId, float]) -> None:
        if len(of) > limits.LEDGER_BOOKIES_WATCHED:
            del of[next(iter(of))]
