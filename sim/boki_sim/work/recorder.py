"""Where one session of a simulated client writes down what it calls and how that ends; a call is noted before it is made.

Names are unique, so that the final log can be compared with what was answered. Tags, books and pauses are drawn here too: from
the client's own numbers, which all its sessions share.
"""

from __future__ import annotations

import random  # noqa: TID251 - the type; the generators come from the seed
from typing import Any

import boki
from boki_common.errors import BokiError, Conflict, Trimmed
from boki_sim.checkers.history import Consistency, Kind, Operation
from boki_sim.work.call_mix import CallMix
from boki_sim.work.operations import AT, CONFLICT, FILLING, NEVER, NEXT, OK, TAGS, TOKEN, UNKNOWN, History, data_of
from boki_sim.world.loop import SimLoop


class Recorder:
    """See the module.

    Attributes:
        session: its name.
        seen: book → a recent seqnum, for choosing bounds.
        times: book → the time of a recent record.
    """

    def __init__(self, loop: SimLoop, session: str, numbers: random.Random, mix: CallMix, history: History) -> None:
        self.session = session
        self.numbers = numbers
        self.mix = mix
        self.history = history
        self.seen: dict[str, int] = {}
        self.times: dict[str, int] = {}
        self._loop = loop
        self._named = 0

    def of_child(self, session: str) -> Recorder:
        """For a session that this one calls; it has seen the same."""
        made = Recorder(self._loop, session, self.numbers, self.mix, self.history)
        made.seen, made.times = dict(self.seen), dict(self.times)
        self.hand_over(self.session, session)
        return made

    def hand_over(self, giver: str, taker: str) -> None:
        """From now on `taker` has seen what `giver` has: it took the session token."""
        now = self._loop.now
        self.history.operations.append(Operation(taker, TOKEN, "", now, now, OK, of=giver))

    # -- calls

    def begin(self, book: boki.Book, kind: Kind, **facts: Any) -> Operation:
        operation = Operation(self.session, kind, str(book.name), self._loop.now, **facts)
        self.history.operations.append(operation)
        return operation

    def succeeded(self, operation: Operation) -> None:
        operation.outcome, operation.end = OK, self._loop.now

    def appended(self, operation: Operation, seqnum: int) -> None:
        """A record is in the log."""
        self.succeeded(operation)
        operation.seqnum = self.seen[operation.book] = seqnum

    def found(self, operation: Operation, book: boki.Book, record: boki.Record | None) -> None:
        """A read found this record, or none. `next` covers what is between its bound and what it found, `at` one place, others what
        is between what they found and their bound."""
        self.succeeded(operation)
        operation.position = book.position or 0
        if record is None:
            return
        operation.rows = ((record.seqnum, data_of(bytes(record.data))),)
        operation.aux = bytes(record.aux_data or b"")
        operation.time_ms = self.times[operation.book] = record.time_ms
        self.seen[operation.book] = record.seqnum
        if operation.how == NEXT:
            operation.high = record.seqnum + 1
        elif operation.how != AT:
            operation.low = record.seqnum

    def refused(self, operation: Operation, error: BokiError) -> None:
        """It failed, certainly or perhaps."""
        operation.end, operation.error = self._loop.now, f"{type(error).__name__}: {error}"
        if isinstance(error, Conflict):
            operation.outcome = CONFLICT
            operation.actual = {str(tag): newest for tag, newest in error.facts["actual"].items()}
        elif isinstance(error, Trimmed):
            self.succeeded(operation)
            operation.trimmed = error.facts["mark"]
            if operation.how == NEXT:
                operation.high = operation.trimmed or None  # nothing was seen at or above the mark
        else:
            operation.outcome = NEVER if error.definite else UNKNOWN

    def never(self, operation: Operation) -> None:
        """It is not applied, and never will be."""
        operation.outcome, operation.end, operation.error = NEVER, self._loop.now, "never"

    # -- draws

    def data(self) -> str:
        """The next record of this session."""
        self._named += 1
        return data_of(f"{self.session}/{self._named}/".encode().ljust(self.mix.payload_bytes, FILLING.encode()))

    def tags(self) -> tuple[str, ...]:
        return tuple(self.numbers.sample(TAGS, self.numbers.randrange(3)))

    def consistency(self) -> Consistency:
        return self.numbers.choice(self.mix.consistencies)

    async def pause(self) -> None:
        await self._loop.settled_after(self._loop.current, self.numbers.expovariate(1 / self.mix.pause_s))
