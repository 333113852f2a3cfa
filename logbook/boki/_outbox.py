"""Appends on their way to the engine: what leaves together, one outbox for each physical log. Pure.

An engine cuts a frame into a part for each log, and of its part each log makes an entry of its own: entries of half the size
cost bookies and sequencers twice as much a record. So books of one log leave in frames of their own. Which log has a book is
learned from the answers to its appends, each of which names the log that ordered them. It is a guess that only costs when it
is wrong: of a book that is new here, or has moved, the engine finds the log, as it does of all.

Books that nothing is known of leave with those of the log that answered first: where there is one log, there is one outbox.
A book is in one outbox at a time, and stays until that was sent, so its records leave in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from boki._bounds import FRAME_TARGET_BYTES
from boki._numbers import Numbers
from boki_common import limits
from boki_common.engine import engine_protocol as wire
from boki_common.engine.engine_protocol import Token
from boki_common.ids import Position
from boki_common.records.batch_builder import BatchBuilder
from boki_common.runtime.ports import Buffer

EARLY_FLUSH_BYTES: Final = limits.BATCH_FLUSH_BYTES
"""A full frame leaves before the end of the turn; smaller ones cost the bookies more than the wait is worth."""
OUTBOXES: Final = 64
"""Logs with an outbox each; books of more leave with those of the first."""


class Outbox:
    """What a turn of the loop queues for the books of one log. `bytes`: how much, roughly."""

    __slots__ = ("_waiting", "bytes")

    def __init__(self) -> None:
        self._waiting: dict[Numbers, None] = {}
        """Whose records are queued, in the order in which they were first."""
        self.bytes = 0

    def put(self, numbers: Numbers, size: int) -> bool:
        """Takes note that a writer has something to send. Returns whether it is time to send it."""
        self._waiting[numbers] = None
        self.bytes += size
        return self.bytes >= EARLY_FLUSH_BYTES

    def holds(self, numbers: Numbers) -> bool:
        """Whether it took note, and has not sent since."""
        return numbers in self._waiting

    def clear(self) -> None:
        """Sends nothing: all stays queued where it is numbered, and whoever connects asks for it."""
        self._waiting.clear()
        self.bytes = 0

    def frames(self) -> Iterator[list[Buffer]]:
        """Empties it: bodies of APPEND, one, or a few when it is large."""
        waiting, self._waiting = self._waiting, {}
        self.bytes = 0
        builder, size = BatchBuilder(), 0
        for numbers in waiting:
            while (size := numbers.fill(builder, size)) >= FRAME_TARGET_BYTES:
                yield _finished(builder, waiting)
                builder, size = BatchBuilder(), 0
        if size:
            yield _finished(builder, waiting)


class Outboxes:
    """The outboxes of a client. Invariant: `first` is among them, and is the only one until a second log has answered."""

    __slots__ = ("_all", "_by_log", "first")

    def __init__(self) -> None:
        self.first: Final = Outbox()
        self._all: Final = [self.first]
        self._by_log: Final[dict[int, Outbox]] = {}

    def of(self, token: Token) -> Outbox:
        """Where the books leave that answers with this token are about."""
        if len(token) != 1:
            return self.first  # of conflicts that were answered early: of several logs, or of none
        (log,) = token
        found = self._by_log.get(log)
        return self._add(log) if found is None else found

    def _add(self, log: int) -> Outbox:
        if len(self._by_log) >= OUTBOXES:
            return self.first
        outbox = self.first
        if self._by_log:
            outbox = Outbox()
            self._all.append(outbox)
        self._by_log[log] = outbox
        return outbox

    def clear(self) -> None:
        """Empties all, and sends nothing."""
        for outbox in self._all:
            outbox.clear()

    def frames(self) -> Iterator[list[Buffer]]:
        """Empties all: bodies of APPEND."""
        for outbox in self._all:
            yield from outbox.frames()


def _finished(builder: BatchBuilder, senders: Iterable[Numbers]) -> list[Buffer]:
    """Who expects something says what its session has seen: a conflict is answered early only if its engine has as much."""
    token = wire.NO_TOKEN
    if builder.expects:
        seen: dict[int, Position] = {}
        for session in dict.fromkeys(numbers.session for numbers in senders):
            wire.merge_tokens(seen, session.positions)
        token = wire.encode_token(seen)
    return builder.finish(token)
