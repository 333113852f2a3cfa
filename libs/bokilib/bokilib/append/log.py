"""The log of one book, as libraries use it: appends with a known or explicitly unknown outcome, decoded records, and the log's clock.

- An append returns the seqnum of its record, raises Conflict, or raises `AppendUnknown`, which can be asked for the outcome
  later. It is never sent again under another number, so the SDK's writer numbers keep it from being applied twice.
- With `settle=True` an append waits until its outcome is known. A record that is not in the log and never will be is then appended again.
- A Conflict does not say which writer won (`conflict_rules`). `Log.moved` returns the streams to read before a decision.
- Each record names the incarnation of its writer. Every `Log` object is one incarnation.
- A program may stop a worker and start another on the same `Log`. Each worker gets a token of its own from `Incarnations`, so a later
  worker knows at once which earlier ones have stopped, and need not wait for their leases to expire.
- Times come from the log, and not from the wall clock of a host (`log_clock`).

`Incarnations` is pure.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import boki
from boki_common.errors import BokiError, Conflict
from boki_common.runtime.bodies import from_outside
from boki_common.unpickled import Unpickled
from bokilib.append.log_clock import LogClock
from bokilib.errors import AppendUnknown, NoPayloadHook, PayloadHookFailed, PayloadHookUnavailable
from bokilib.ports import BookPort, PayloadHook, TicketPort
from bokilib.records import events as records
from bokilib.records.conflict_rules import Expected, Moved, moved
from bokilib.records.contribution import Contribution, Origin, addressed, check_fits, check_part, identity_of
from bokilib.records.events import Envelope, Event
from bokilib.stacks import text_of

INCARNATION_BYTES: Final = 12
REMEMBERED: Final = 256
"""The newest appends whose seqnums are remembered (`Log.wrote`)."""


class Tokens(Protocol):
    """The part of the port `Random` that a log needs."""

    def token(self, size: int) -> bytes: ...


class Read(NamedTuple):
    """A record with its decoded envelope."""

    record: boki.Record
    envelope: Envelope


class Incarnations:
    """Tokens of the workers that run under one `Log`, and which of them run now.

    Only the running ones are stored: a token that was given out and does not run has stopped, or was never started.
    """

    def __init__(self, by: str) -> None:
        """Create the tokens of a log.

        Args:
            by: the incarnation of the log. All tokens begin with it, and no token of another log does.
        """
        self._by: Final = by
        self._given = 0
        self._fences = 0
        self._running: Final[set[str]] = set()

    def new_token(self) -> str:
        """Return a token that was not given before. The first one is the incarnation of the log itself."""
        self._given += 1
        return self._by if self._given == 1 else f"{self._by}-{self._given}"

    def fence_token(self, scope: str) -> str:
        """Return a token for one more fence object of a scope; no other object of this incarnation gets it."""
        self._fences += 1
        return f"{scope}/{self._fences}" if scope else str(self._fences)

    def start(self, token: str) -> None:
        """Record that the worker with a token runs."""
        self._running.add(token)

    def stop(self, token: str) -> None:
        """Record that the worker with a token has stopped."""
        self._running.discard(token)

    def runs(self, token: str) -> bool:
        """Return whether the worker with a token runs under this log."""
        return token in self._running

    def stopped(self, token: str) -> bool:
        """Return whether a token is of this log and its worker does not run. False for tokens of other logs, whose state is unknown."""
        return token not in self._running and (token == self._by or token.startswith(f"{self._by}-"))


class Log(Unpickled):
    """The log of one book. Libraries whose effects commit together share one.

    Attributes:
        book: the LogBook.
        identity: the identity of the LogBook; None if the book does not tell it.
        by: the name of this incarnation, written into each record.
        incarnations: tokens of the workers under this log.
        appends: records sent so far.
        always_replay: for tests (`bokilib.testing`): libraries keep no state in memory or in aux data, and compute it from records.
    """

    def __init__(self, book: BookPort, *, hook: PayloadHook | None = None, random: Tokens | None = None) -> None:
        """Open the log of a book.

        Args:
            book: the LogBook.
            hook: compresses, encrypts or moves the events of records. All readers of the book need the same hook.
            random: the source of the incarnation's name, by default the machine's.
        """
        self.book: Final = book
        self.identity: Final = identity_of(book)
        self.by: Final = (random or boki.SystemRandom()).token(INCARNATION_BYTES).hex()
        self.incarnations: Final = Incarnations(self.by)
        self._hook = hook
        self._clock: Final = LogClock()
        self._written: Final[deque[int]] = deque(maxlen=REMEMBERED)
        self.appends = 0
        self.always_replay: Final[bool] = getattr(book, "always_replay", False)

    def over(self, book: BookPort) -> Log:
        """Return a log of the same book over another connection, with the same payload hook and an incarnation of its own."""
        return Log(book, hook=self._hook)

    def origin(self, maker: str) -> Origin:
        """Return the origin of contributions to records of this book. `maker`: words for the object that makes them."""
        return Origin(self.identity, maker)

    def check_part(self, part: object) -> None:
        """Check that a part may join a record of this book.

        Raises:
            InvalidArgument: it is no contribution.
            WrongBook: it is for another book.
        """
        check_part(part, self.identity)

    async def encode(self, events: Sequence[Event], seen: int = 0) -> bytes:
        """Return the data of a record with these events.

        Raises:
            PayloadHookFailed: the payload hook raised an error, or returned something else than bytes.
        """
        if self._hook is None:
            return records.encode(self.by, seen, events)
        encoded = records.encode_events(events)
        try:
            sealed = await self._hook.seal(encoded)
        except BaseException as error:
            if _passes(error):
                raise
            raise _hook_error(error, self._hook.name, "to seal a record") from error
        _check_bytes(sealed, self._hook.name, "to seal a record")
        return records.encode_hooked(self.by, seen, self._hook.name, sealed)

    async def append(
        self,
        one: Contribution,
        *,
        seen: int = 0,
        settle: bool = False,
        unanswered: Callable[[TicketPort], None] = lambda ticket: None,
    ) -> int:
        """Append one record.

        Args:
            one: the tags, expectations and events of the record.
            seen: the seqnum up to which the writer has seen the stream that it writes for.
            settle: wait until the outcome is known, without a limit of time.
            unanswered: called with the ticket of a record that was sent, if this call ends without its outcome: it was cancelled, or raises
                an error that is not definite.

        Returns:
            The seqnum of the record.

        Raises:
            AtomicTooLarge: the contribution does not fit one record; nothing was sent.
            WrongBook: the contribution is for another book; nothing was sent.
            Conflict: an expectation failed. The outcome is final.
            AppendUnknown: the record was sent and may be in the log; not with `settle`.
            Unreachable: nothing was sent.
        """
        check_part(one, self.identity)
        data = await self.encode(one.events, seen)
        check_fits(one, len(data))
        again = False
        while True:
            whole = addressed(one, await asyncio.gather(*(address.read(again) for address in one.addresses)))
            ticket = await self._submit(data, whole)
            try:
                seqnum = await self._answer(ticket, settle=settle)
            except asyncio.CancelledError:
                unanswered(ticket)
                raise
            except Conflict as conflict:
                moved = self.moved(whole.expect, conflict)
                if not moved or any(tag in one.expect for tag in moved):
                    raise
                again = True  # only what the addresses expect has changed since they were read
                continue
            except BokiError as error:
                if not error.definite:
                    unanswered(ticket)
                raise
            if seqnum is not None:
                self._written.append(seqnum)
                return seqnum

    @staticmethod
    async def _answer(ticket: TicketPort, *, settle: bool) -> int | None:
        """Return the seqnum of a record that was sent, or None if it is not in the log and never will be. Raises errors as `append`."""
        try:
            return await ticket
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
        return known.seqnum if isinstance(known, boki.Committed) else None

    def wrote(self, seqnum: int) -> bool:
        """Return whether a record is among the last `REMEMBERED` ones that this object appended. False proves nothing."""
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
        """Return the expected streams that moved, by tag. Read each up to the Conflict's position before a decision."""
        actual: Mapping[str, int | None] = conflict.facts.get("actual", {})
        return {one.tag: one for one in moved(expected, actual, conflict.facts.get("forgotten", ()))}

    async def open(self, record: boki.Record) -> Envelope:
        """Decode the envelope of a record, through the payload hook if one sealed it, and observe the record's time.

        Raises:
            ForeignRecord: no library wrote the record.
            UnknownEvent: a later version wrote it.
            NoPayloadHook: it was sealed by a hook that this log was not given.
            PayloadHookFailed: the payload hook raised an error, or returned something else than bytes.
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
        try:
            opened = await self._hook.open(hooked.data)
        except BaseException as error:
            if _passes(error):
                raise
            raise _hook_error(error, hooked.hook, f"to open record {record.seqnum}", seqnum=record.seqnum) from error
        _check_bytes(opened, hooked.hook, f"to open record {record.seqnum}", seqnum=record.seqnum)
        return records.with_events(record.seqnum, envelope, opened)

    def now_ms(self) -> int:
        """Return the log's time in milliseconds: that of the newest record opened here plus the time passed since, or 0 if none was.

        Durable times are taken from this clock. It is behind the log by at most the duration of the fastest answer, and is not ahead of
        it while the log's time advances.
        """
        return self._clock.now_ms(asyncio.get_running_loop().time())

    def clock_at_most(self, time_ms: int, sent_s: float) -> None:
        """Set `now_ms` back if it is ahead of a record sent at `sent_s`, by the loop's clock, and ordered at `time_ms`."""
        self._clock.at_most(time_ms, sent_s)

    async def newest_ms(self, *, at_most: int | None = None) -> int:
        """Read the newest record up to `at_most`, observe its time and return it; 0 if there is no record."""
        newest = await self.book.read_prev(at_most=at_most)
        if newest is None:
            return 0
        self._clock.observe(newest.time_ms, asyncio.get_running_loop().time())
        return newest.time_ms

    async def between(self, tag: str, start: int, last: int) -> AsyncIterator[Read]:
        """Yield all records of a stream from `start` to `last`, both included.

        Args:
            tag: of the stream.
            start: at least 1, since the log does not report what was trimmed to a read from 0.
            last: seqnum of the last record.

        Raises:
            Trimmed: some of the records were trimmed.
            Lost: some of the records were lost.
        """
        assert start >= 1, "a fold names its start: from 0 on a trim is not reported"
        if start > last:
            return
        async for item in self.book.read(tag, start=start, stop=last + 1):
            if isinstance(item, boki.Gap):
                raise item.error()
            yield Read(item, await self.open(item))


def _passes(error: BaseException) -> bool:
    """Return whether an error out of a payload hook is Boki's, or ends this task or program."""
    return isinstance(error, BokiError) or from_outside(error)


def _hook_error(error: BaseException, hook: str, call: str, **facts: int) -> PayloadHookFailed | PayloadHookUnavailable:
    kind = PayloadHookUnavailable if isinstance(error, OSError) else PayloadHookFailed
    text = f"payload hook {hook!r} was called {call} and raised {type(error).__name__}: {text_of(error)}"
    return kind(text, hook=hook, **facts)


def _check_bytes(made: object, hook: str, call: str, **facts: int) -> None:
    """Check what a payload hook returned. Raises PayloadHookFailed."""
    if not isinstance(made, (bytes, bytearray, memoryview)):
        found = type(made).__name__
        raise PayloadHookFailed(
            f"payload hook {hook!r} was called {call}: expected bytes, found {found}", hook=hook, **facts
        )


async def _final_outcome(ticket: TicketPort) -> boki.Outcome:
    """Return the final outcome of an append. Retry while the outcome is unknown."""
    while True:
        try:
            return await ticket.outcome(settle=True)
        except boki.OutcomeUnknown as error:
            if not error.retryable:
                raise
