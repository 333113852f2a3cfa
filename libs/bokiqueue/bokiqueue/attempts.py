"""Which ends of a handler are failed attempts of its message, and when the message comes again. Pure.

- An attempt fails if its handler raised, or gave the message back itself (`Message.nack`), or if its process died while it handled that
  message alone (`delivery_rules`). Only failed attempts lead to a dead letter.
- No attempt failed: others cancelled the handler or a person interrupted the program, the record of the message's ACK lost to another
  one, or the log could not be reached. Such a message comes again, as often as it takes.
- `SystemExit`, or a `CancelledError` that nobody asked for, is a failed attempt of a function of `queue.handler`, which turns it into
  `HandlerExited` before it is judged here. Raised within `async with message` it ends the program itself, and is judged as a stop.
- A handler whose own record loses for no progress of anybody (`OwnConflicts`) can never commit: from the third time on that is a failed
  attempt.
- After a failed attempt a message waits: a second at first, twice as long each time, a minute at most. So it does, a second, if a record
  lost that was to have no ACK of it: the handler's own may lose each time.
"""

from __future__ import annotations

from typing import Final

from boki_common.errors import BokiError, Conflict
from bokilib.errors import AppendUnknown, Fenced
from bokiqueue.errors import StaleReceipt

BACKOFF_S: Final = 1.0
BACKOFF_MOST_S: Final = 60.0
STUCK: Final = 3
"""Conflicts of a handler's own with the same records before they count."""
MESSAGES: Final = 1_024


def failed(error: BaseException) -> bool:
    """Return whether an error with which a handler ended is a failed attempt of its message."""
    if stopped(error) or lost(error):
        return False
    return not (isinstance(error, BokiError) and error.retryable)


def lost(error: BaseException) -> bool:
    """Return whether an error says that a record lost to another one, or may have: the message comes again, at once if that record had
    its ACK.
    """
    return isinstance(error, Conflict | Fenced | AppendUnknown | StaleReceipt)


def stopped(error: BaseException) -> bool:
    """Return whether an error says that the handler was stopped: the message comes again at once, elsewhere."""
    return not isinstance(error, Exception)


def backoff_s(attempt: int, first_s: float = BACKOFF_S) -> float:
    """Return the seconds until a message comes again of which so many attempts failed."""
    return min(BACKOFF_MOST_S, first_s * 2.0 ** min(max(attempt, 1) - 1, 30))


class OwnConflicts:
    """Messages whose handler lost a record of its own, and the records that it lost to. Invariant: at most `MESSAGES`, the newest ones."""

    def __init__(self) -> None:
        self._lost: dict[tuple[int, ...], tuple[list[tuple[str, object]], int]] = {}

    def stuck(self, id: tuple[int, ...], conflict: Conflict) -> bool:
        """Note a Conflict; return whether it was the same `STUCK` times in a row: nobody wrote what it expects meanwhile."""
        actual = sorted((str(tag), seqnum) for tag, seqnum in dict(conflict.facts.get("actual", {})).items())
        before, count = self._lost.pop(id, (actual, 0))
        count = count + 1 if before == actual else 1
        self._lost[id] = actual, count
        if len(self._lost) > MESSAGES:
            del self._lost[next(iter(self._lost))]
        return count >= STUCK

    def forget(self, id: tuple[int, ...]) -> None:
        """Forget a message that is handled."""
        self._lost.pop(id, None)
