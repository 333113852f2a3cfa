"""Appends that never guess, and records as they are read, of one book.

- An append returns its place, raises a Conflict, or says that its outcome is unknown (`AppendUnknown`, which can be asked
  later). It is never sent again under another number: the SDK's numbers make it happen once.
- `settle=True` waits until the outcome is known: what is certainly not in the log and never will be is appended anew.
- From a Conflict nothing is concluded (`conflict_rules`): `moved` gives what to read.
- Each record carries the incarnation of its writer: one for each `Log`.
- The time is that of the log (`now_ms`), which never falls: a wall clock of one host is nobody else's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import boki
from boki_common.errors import BokiError, Conflict
from bokilib.errors import AppendUnknown, NoPayloadHook
from bokilib.ports import BookPort, PayloadHook, TicketPort
from bokilib.records import events as records
from bokilib.records.conflict_rules import Expected, Moved, moved
from bokilib.records.contribution import Contribution, check_fits
from bokilib.records.events import Envelope, Event

INCARNATION_BYTES: Final = 12
REMEMBERED: Final = 256
"""Appends whose places are remembered (`Log.wrote`)."""


class Tokens(Protocol):
    """Of the port `Random`, what is needed here."""

    def token(self, size: int) -> bytes: ...


class Read(NamedTuple):
    """One record, opened."""

    record: boki.Record
    envelope: Envelope


class Incarnations:
    """See the module. Only who runs is remembered: what was given and does not run has ended, or never began."""

    def __init__(self, by: str) -> None:
        """`by`: of the Log; nobody else's tokens begin like it."""
        self._by: Final = by
        self._given = 0
        self._fences = 0
        self._running: Final[set[str]] = set()

    def give(self) -> str:
        """A token that nobody had; the first is the Log's own."""
        self._given += 1
        return self._by if self._given == 1 else f"{self._by}-{self._given}"

    def fence(self, scope: str) -> str:
        """Return a token for one more fence object of a scope; no other object of this incarnation gets it."""
        self._fences += 1
        return f"{scope}/{self._fences}" if scope else str(self._fences)

    def began(self, token: str) -> None:
        """It runs from now on."""
        self._running.add(token)

    def ended(self, token: str) -> None:
        """It runs nothing any more."""
        self._running.discard(token)

    def runs(self, token: str) -> bool:
        """Whether it is one of these, and runs."""
        return token in self._running

    def over(self, token: str) -> bool:
        """Whether it is one of these, and runs nothing; of others nothing is known."""
        return token not in self._running and (token == self._by or token.startswith(f"{self._by}-"))


def scope_of(token: str) -> str:
    """Return the scope of a token that `Incarnations.fence` gave."""
    return token.rpartition("/")[0]


class LogClock:
    """See the module."""

    def __init__(self) -> None:
        self._ms = 0
        self._at_s = 0.0

    def observe(self, time_ms: int, now_s: float) -> None:
        """A record was read or appended, `now_s` by this process's clock."""
        if time_ms > self.now_ms(now_s):
            self._ms, self._at_s = time_ms, now_s

    def at_most(self, time_ms: int, sent_s: float) -> None:
        """A record that this process sent at `sent_s` was ordered at `time_ms`: so it was not later when it was sent."""
        if self._at_s <= sent_s and self.now_ms(sent_s) > time_ms:
            self._ms, self._at_s = time_ms, sent_s

    def now_ms(self, now_s: float) -> int:
        """The log's time; 0 before anything was observed."""
        return self._ms + int(max(0.0, now_s - self._at_s) * 1000) if self._ms else 0

    def when_s(self, due_ms: int, now_s: float) -> float:
        """When it will be `due_ms`, by this process's clock."""
        return now_s + max(0, due_ms - self.now_ms(now_s)) / 1000


class Log:
    """One book, as libraries use it. They share one, when they shall commit together.

    Attributes:
        book: the LogBook.
        by: this incarnation. incarnations: those of who runs under it.
    """

    def __init__(self, book: BookPort, *, hook: PayloadHook | None = None, random: Tokens | None = None) -> None:
        """
        Args:
            hook: may compress or encrypt what is appended, or keep it elsewhere. Its readers need it too.
            random: for the incarnation; by default the machine's.
        """
        self.book: Final = book
        self.by: Final = (random or boki.SystemRandom()).token(INCARNATION_BYTES).hex()
        self.incarnations: Final = Incarnations(self.by)
        self._hook = hook
        self._clock: Final = LogClock()
        self._written: Final[deque[int]] = deque(maxlen=REMEMBERED)
        self.appends = 0
        """Records that were sent so far."""
        self.always_replay: Final[bool] = getattr(book, "always_replay", False)
        """For tests (`bokilib.testing`): nothing is kept in memory or taken from aux data, all is computed from records."""

    def over(self, book: BookPort) -> Log:
        """Return a log of the same book over another connection, with the same payload hook and an incarnation of its own."""
        return Log(book, hook=self._hook)

    async def encode(self, events: Sequence[Event], seen: int = 0) -> bytes:
        """The data of a record. Raises what the hook raises."""
        if self._hook is None:
            return records.encode(self.by, seen, events)
        sealed = await self._hook.seal(records.encode_events(events))
        return records.encode_hooked(self.by, seen, self._hook.name, sealed)

    async def append(self, one: Contribution, *, seen: int = 0, settle: bool = False) -> int:
        """Appends one record; returns its place.

        Args:
            seen: up to where its writer had seen the stream that it writes for.
            settle: wait until the outcome is known, however long.

        Raises:
            AtomicTooLarge: nothing was sent. Conflict: an expectation fails, for ever. AppendUnknown: perhaps applied.
            Unreachable: it was not sent.
        """
        data = await self.encode(one.events, seen)
        check_fits(one, len(data))
        while True:
            ticket = await self._submit(data, one)
            try:
                seqnum = await ticket
                self._written.append(seqnum)
                return seqnum
            except Conflict:
                raise
            except BokiError as error:
                if error.definite:
                    raise
                if not settle:
                    raise AppendUnknown(
                        f"{error}; `await error.outcome()` gives its final outcome", ticket, **error.facts
                    ) from error
            known = await _final_outcome(ticket)
            if isinstance(known, Conflict):
                raise known
            if isinstance(known, boki.Committed):
                self._written.append(known.seqnum)
                return known.seqnum

    def wrote(self, seqnum: int) -> bool:
        """Return whether a record is one of the newest that were appended here. False does not say that it is not."""
        return seqnum in self._written

    async def _submit(self, data: bytes, one: Contribution) -> TicketPort:
        expect: dict[str | int, int | None] | None = dict(one.expect.items()) or None
        while True:
            try:
                ticket = self.book.submit(data, tags=one.tags, expect=expect)
            except boki.WindowFull:
                await self.book.ready()
                continue
            self.appends += 1
            return ticket

    def moved(self, expected: Expected, conflict: Conflict) -> dict[str, Moved]:
        """The streams that moved, to be read up to `conflict.position` before anything is decided."""
        actual: Mapping[str | int, int | None] = conflict.facts.get("actual", {})
        return {one.tag: one for one in moved(expected, actual, conflict.facts.get("forgotten", ()))}

    async def open(self, record: boki.Record) -> Envelope:
        """Opens a record.

        Raises:
            ForeignRecord: no library wrote it. UnknownEvent: a later version did. NoPayloadHook. What the hook raises.
        """
        self._clock.observe(record.time_ms, asyncio.get_running_loop().time())
        envelope = records.open_record(record.seqnum, record.data)
        hooked = envelope.hooked
        if hooked is None:
            return envelope
        if self._hook is None or self._hook.name != hooked.hook:
            found = None if self._hook is None else self._hook.name
            raise NoPayloadHook(
                f"record {record.seqnum} was written through the payload hook {hooked.hook!r}, found {found!r}: give it",
                seqnum=record.seqnum,
                expected=hooked.hook,
                found=found,
            )
        return records.with_events(record.seqnum, envelope, await self._hook.open(hooked.data))

    def now_ms(self) -> int:
        """What time it is by the clock of the log: that of the newest record that was opened here, and what passed since; 0: none was.

        Durable times are taken from here. It may be behind by as much as the fastest answer took, and never is ahead while the log's
        time goes on.
        """
        return self._clock.now_ms(asyncio.get_running_loop().time())

    def clock_at_most(self, time_ms: int, sent_s: float) -> None:
        """What was sent from here at `sent_s`, by the loop's clock, was ordered at `time_ms`: so `now_ms` is not ahead of that."""
        self._clock.at_most(time_ms, sent_s)

    async def newest_ms(self, *, at_most: int | None = None) -> int:
        """The time of the newest record that is there, of all or up to a place; 0: there is none. `now_ms` knows it from then on."""
        newest = await self.book.read_prev(at_most=at_most)
        if newest is None:
            return 0
        self._clock.observe(newest.time_ms, asyncio.get_running_loop().time())
        return newest.time_ms

    async def between(self, tag: str, start: int, last: int) -> AsyncIterator[Read]:
        """The records of a stream from `start` to `last`, both included; whole, or an error.

        Raises:
            Trimmed, Lost: some of them may be missing. A fold names its start: it is at least 1.
        """
        assert start >= 1, "a fold names its start: from 0 on a trim is not reported"
        if start > last:
            return
        async for item in self.book.read(tag, start=start, stop=last + 1):
            if isinstance(item, boki.Gap):
                raise item.error()
            yield Read(item, await self.open(item))


async def _final_outcome(ticket: TicketPort) -> boki.Outcome:
    """The final outcome; asked again for as long as it is unknown."""
    while True:
        try:
            return await ticket.outcome(settle=True)
        except boki.OutcomeUnknown as error:
            if not error.retryable:
                raise
