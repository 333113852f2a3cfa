"""Rules for failed attempts: which ends of a handler count, and how long the message waits then. Pure.

- An attempt fails if its handler raised or called `Message.nack`, or if its process died while it handled only that
  message (`delivery_rules`). Only failed attempts lead to a dead letter.
- An attempt does not fail if others cancelled the handler, a person interrupted the program, the record of the ACK lost
  to another, or the log could not be reached. The message is redelivered without limit then.
- `SystemExit`, and every other error that is no `Exception`, fails the attempt, also if it ends the program: code that
  catches it, and a thread that it ends, would get the message at once and without end otherwise. Only cancellations,
  `KeyboardInterrupt` and the `GeneratorExit` of a generator that is closed are stops. A `SystemExit` of a signal handler
  that interrupts the block looks like one that the block raises: both are raised in its frames.
- A `CancelledError` that no caller requested fails the attempt of a `queue.handler` function, which turns it into
  `HandlerExited` before it is judged here. Raised within `async with message` it counts as a stop.
- A handler whose own record keeps losing while no writer makes progress (`OwnConflicts`) can never commit, so from the
  third time on the attempt fails.
- After a failed attempt the message waits: first a second, then twice as long each time, at most a minute. It also
  waits a second after the loss of a record that did not have its ACK, since the handler's own record may lose each
  time.
"""

from __future__ import annotations

import asyncio
from typing import Final

from boki_common.errors import BokiError, Conflict
from bokilib.errors import AppendUnknown, Fenced
from bokiqueue.errors import StaleReceipt
from bokiqueue.model.delivery_rules import BACKOFF_MOST_S as BACKOFF_MOST_S
from bokiqueue.model.delivery_rules import BACKOFF_S as BACKOFF_S
from bokiqueue.model.delivery_rules import backoff_s as backoff_s

STOPS: Final = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)
STUCK: Final = 3
"""Conflicts of a handler's own record with the same records before they count as a failed attempt."""
MESSAGES: Final = 1_024


def failed(error: BaseException) -> bool:
    """Return True if a handler that ended with this error failed an attempt of its message."""
    if stopped(error) or lost(error):
        return False
    return not (isinstance(error, BokiError) and error.retryable)


def lost(error: BaseException) -> bool:
    """Return True if the error says that a record lost to another record, or may have lost.

    The message is redelivered then, at once if that record had its ACK.
    """
    return isinstance(error, Conflict | Fenced | AppendUnknown | StaleReceipt)


def stopped(error: BaseException) -> bool:
    """Return True if the error says that the handler was stopped. The message is then redelivered at once.

    A group of errors is a stop if all of them are.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(map(stopped, error.exceptions))
    return isinstance(error, STOPS)


class OwnConflicts:
    """Messages whose handler lost a record of its own, with the records that it lost to.

    Invariant: at most `MESSAGES` are kept, the newest ones.
    """

    def __init__(self) -> None:
        self._lost: dict[tuple[int, ...], tuple[list[tuple[str, object]], int]] = {}

    def stuck(self, id: tuple[int, ...], conflict: Conflict) -> bool:
        """Note a Conflict. Return True if the same one came `STUCK` times in a row, so no writer made progress meanwhile."""
        actual = sorted((str(tag), seqnum) for tag, seqnum in dict(conflict.facts.get("actual", {})).items())
        before, count = self._lost.pop(id, (actual, 0))
        count = count + 1 if before == actual else 1
        self._lost[id] = actual, count
        if len(self._lost) > MESSAGES:
            del self._lost[next(iter(self._lost))]
        return count >= STUCK

    def forget(self, id: tuple[int, ...]) -> None:
        """Forget a message whose transaction is committed."""
        self._lost.pop(id, None)
