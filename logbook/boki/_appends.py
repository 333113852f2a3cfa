"""Appends of a client, all its sessions and books: what is numbered is sent, and verdicts go to whom they are about.

It knows no rule about numbers (`_numbers`, `_verdicts`, `_in_doubt`) and none about connections (`_connection`). Appends of one
turn of the event loop, over all books of a log, leave in one frame (or a few, when they are large): a book that has something to
send is noted in its outbox, and one callback at the end of the turn sends what the outboxes have. Verdicts come back as rows and
go to the numbers they are about, found by book and writer.

When a connection ends, every undecided append goes back to the queue, and leaves again with the next one. What is older than
`give_up_s` by then, or before any send, is given up instead, also if this machine slept meanwhile.

A session writer is replaced by a new one when its book was idle for 30 minutes (the log may forget an idle session writer after an
hour), when the log has forgotten it, and when an append was given up: its number stays undecided for ever, and no later number
of that writer could be decided. What was under way when the log forgot the writer goes on under the new one, unless some of it
was sent more than once: then it may be in the log, and fails as WriterForgotten (ADR 23). A named writer is not replaced: after
a failure it is *stale* until somebody has asked the log for its last number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import get_ident  # noqa: TID251  # it starts none: it asks which one this is
from typing import Final

from boki._connection import Connection
from boki._in_doubt import InDoubt, inquiry_of
from boki._numbers import Numbers
from boki._outbox import Outboxes
from boki._outcome import Why
from boki._places import Places, Take
from boki._queue import Frames
from boki._session import Session
from boki._special import Special
from boki._ticket import Chunk, Ticket
from boki._verdicts import Refusal, Stalled, answered, asked, forgotten_of, unknown
from boki_common import limits
from boki_common.engine import engine_protocol as wire
from boki_common.engine.admission import TAKEN, admission_of
from boki_common.engine.answers import FEW_ROWS_BYTES, AnswerRow, decode_answers, decode_committed
from boki_common.engine.engine_protocol import Token
from boki_common.errors import BokiError, DiskFull, InvalidArgument, Unreachable, WindowFull
from boki_common.records.run_column import RUN_KEY, RUN_NAMED
from boki_common.runtime import confined


class Appends:
    """See the module. Implements `AppendSide` of its connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection: Final = connection
        self.places: Final = Places()
        self._lines: Final = self.places.lines
        self._outboxes: Final = Outboxes()
        self._undecided: Final[dict[bytes, Numbers]] = {}
        """By book and writer, who has something undecided."""
        self._inquiries: Final[dict[Numbers, None]] = {}
        self._admission = TAKEN
        """What the engine says of new appends."""
        self._loop: Final = connection.loop
        self._flush_scheduled = False
        """Whether something is queued in this turn of the loop, which began appending at (`elapsed`), in this thread:"""
        self._turn_began = 0.0
        self._turn_thread = 0
        connection.serve(self)

    # -- numbering

    def numbers(self, session: Session, book: int) -> Numbers:
        """Those of a session in a book; its writer is born when it is used first."""
        return Numbers(session, book, self._outboxes.first)

    @staticmethod
    def named(view: Numbers, writer: bytes) -> Numbers:
        """Those of a named writer in a book; the log has to be asked where they go on."""
        special = Special(RUN_NAMED, view)
        special.renew(stale=True)
        return Numbers(view.session, view.book, view.outbox, writer, special=special)

    def submit(self, numbers: Numbers, ticket: Ticket) -> bool:
        """Numbers one record and queues it. False when no place is free: then nothing happened. Raises as `take`."""
        self._check_taken(numbers)
        if self._lines and numbers in self._lines:
            if not self.places.of(numbers):
                return False
        elif numbers.oldest is not None and not numbers.free:
            return False
        self.queue(numbers, ticket)
        return True

    async def submit_in(self, numbers: Numbers, ticket: Ticket, timeout: float | None) -> None:
        """`submit`, once there is a place. Raises as `take`."""
        await self.take(numbers, timeout, lambda _: self.queue(numbers, ticket))

    @property
    def refusal(self) -> DiskFull | None:
        """Why the engine takes no new appends; None: it does, as far as is known."""
        return None if self._admission is TAKEN else self._admission.error()

    def _check_taken(self, numbers: Numbers) -> None:
        """Raises ClosedError. DiskFull when the engine takes no new appends: better than a number that waits for a time-out.
        WindowFull: the writer is stale; it would go on behind numbers of which nobody knows whether the log has them."""
        if self.connection.closed:
            self.connection.check_open()
        if self._admission is not TAKEN:
            raise self._admission.error()
        if numbers.special.stale:
            raise WindowFull("this writer was given up; `await writer.ready()` asks the log for its last number")

    def queue(self, numbers: Numbers, item: Ticket | Chunk) -> None:
        """Number an item, and have it sent. There is a place, and the client is open. Raises InvalidArgument; WrongLoop before anything
        else: looked at once in a turn, since asking for the running loop costs a system call, and by the thread else."""
        if not self._flush_scheduled or confined.running:
            if asyncio._get_running_loop() is not self._loop:
                self.connection.check_here()
            if not self._flush_scheduled:
                self._schedule_flush()
        elif get_ident() != self._turn_thread:
            self.connection.check_here()
        begins = numbers.oldest is None
        now = self._turn_began  # one object for all books of a turn: an own one is cold later
        if not numbers.add(item, now):
            numbers.add(item, now, self.connection.new_writer())
        if begins:
            self._begin(numbers, item)
        outbox = numbers.outbox
        if outbox.put(numbers, item.size):
            self._send(outbox)

    def _begin(self, numbers: Numbers, item: Ticket | Chunk) -> None:
        """An item is the first of it that is undecided. Raises InvalidArgument when its writer is in use elsewhere."""
        if numbers.special.asking:
            self._inquiries[numbers] = None
        elif self._undecided.setdefault(numbers.key, numbers) is not numbers:
            numbers.withdraw(item)
            raise InvalidArgument(
                "another session of this client appends under the same writer now: a named writer has one user at a time"
            )
        if len(self._undecided) <= 1:
            self.connection.watch()

    def _end(self, numbers: Numbers) -> None:
        """Nothing of it is undecided any more."""
        if numbers.special.asking:
            self._inquiries.pop(numbers, None)
        else:
            self._undecided.pop(numbers.key, None)

    async def take(self, numbers: Numbers, timeout: float | None, take: Take) -> None:
        """Calls this when there is a place, with how many there are: at once or later, in the order of the calls. Raises what it
        raises; WindowFull: there was none in time, or the writer was given up meanwhile; ClosedError, DiskFull."""

        def take_if_taken(free: int) -> None:
            self._check_taken(numbers)
            take(free)

        self.connection.check_here()
        self._check_taken(numbers)
        await self.places.take(numbers, timeout, take_if_taken)

    async def ready(self, numbers: Numbers) -> None:
        """Wait until `submit` finds a place. Raises as `take`."""
        self.connection.check_here()
        while not self.places.of(numbers):
            self._check_taken(numbers)
            await self.places.ready(numbers)

    @staticmethod
    def full(numbers: Numbers) -> WindowFull:
        return WindowFull(
            f"{numbers.undecided} records of this book are undecided (at most {limits.WINDOW_RECORDS}); "
            "`await book.ready()`, or use `await book.append(...)`, which waits",
            expected=limits.WINDOW_RECORDS,
            found=numbers.undecided,
        )

    async def wait(self, numbers: Numbers, item: Ticket | Chunk, deadline: float, timeout_s: float) -> None:
        """Waits until an item is decided. When it is not in time, it is taken back if it was not sent. Raises Unreachable: it
        was taken back; OutcomeUnknown: it was sent."""
        try:
            async with asyncio.timeout_at(deadline):
                await item.wait()
        except TimeoutError as error:
            if item.decided:
                return
            unsent = self.connection.calls.unreachable(timeout_s)
            if self.take_back(numbers, item, unsent):
                raise unsent from error
            raise unknown(f"no verdict within {timeout_s} s", item.first, numbers.writer, numbers.book) from error

    def take_back(self, numbers: Numbers, item: Ticket | Chunk, error: BokiError) -> bool:
        """What was never sent ends with `error`. False when it was sent."""
        if not numbers.withdraw(item):
            return False
        item.failed(item.first, item.first + item.count, error)
        self._looked_at(numbers)
        return True

    # -- sending

    def _schedule_flush(self) -> None:
        """What is queued from now on leaves at the end of this turn of the loop."""
        self._turn_began = self.connection.elapsed()
        self._turn_thread = get_ident()
        self._flush_scheduled = True
        self.connection.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Sends what is queued, at once: nothing else of this turn is awaited."""
        self._flush_scheduled = False
        if self.connection.elapsed() - self._turn_began > self.connection.give_up_s:
            self.give_up_old()  # this process was stopped, just now
        self._send(self._outboxes)

    def _send(self, queued: Frames) -> None:
        """At once: the engine works on it while a thousand callers who were answered append again."""
        peer = self.connection.peer
        if peer is not None:
            for frame in queued.frames():
                peer.push_now(wire.OP_APPEND, *frame)
        else:
            queued.clear()  # whoever connects asks all

    def _wants_flush(self, numbers: Numbers) -> None:
        """What was queued before leaves at the end of this turn of the loop."""
        numbers.outbox.put(numbers, 0)
        if not self._flush_scheduled:
            self._schedule_flush()

    # -- what the connection says

    @property
    def owed(self) -> bool:
        """Whether anything is undecided."""
        return bool(self._undecided or self._inquiries)

    def connected(self) -> None:
        """All that is undecided leaves by this connection, but what is too old by now."""
        self.give_up_old()
        for numbers in self._all():
            self._wants_flush(numbers)

    def connection_lost(self) -> None:
        """What is undecided goes back to the queue; answers of this connection do not count any more."""
        self._admission = TAKEN  # the next engine says it again
        for numbers in self._all():
            numbers.connection_lost()

    def answers(self, body: memoryview) -> None:
        """Applies ANSWERS. Raises ProtocolError."""
        undecided, now = self._undecided, self.connection.elapsed()
        many = decode_committed(body) if len(body) > FEW_ROWS_BYTES and not self._inquiries else None
        if many is not None:
            token, position, committed = many
            outbox, lines = self._outboxes.of(token), self._lines
            for key, first, count, first_seqnum in committed:
                found = undecided.get(key)
                if found is not None:
                    found.committed_at(first, count, first_seqnum, token, position, now, outbox)
                    if found.oldest is None or lines:
                        self._looked_at(found)
            return
        token, rows = decode_answers(body)
        outbox = self._outboxes.of(token)
        for row in rows:
            book, writer, first, first_seqnum, position, count, verdict, _, flags = row
            found = undecided.get(RUN_KEY.pack(book, writer))
            if found is None:
                self._answered(row)
            elif not (verdict or flags):
                found.committed_at(first, count, first_seqnum, token, position, now, outbox)
                self._looked_at(found)
            else:
                found.leaves_from(outbox)
                self._refused(found, answered(found, row, token, now))
            if self._inquiries:
                self._asked(row, token, now)

    def _answered(self, row: AnswerRow) -> None:
        """A row about nobody here: perhaps about the engine."""
        admission = admission_of(row)
        if admission is not None:
            self._admission = TAKEN if admission.taken else admission
            if not admission.taken:
                self.places.refuse(admission.error())

    def _asked(self, row: AnswerRow, token: Token, now: float) -> None:
        key = RUN_KEY.pack(row.book, row.writer)
        for inquiry in [one for one in self._inquiries if one.key == key]:
            self._refused(inquiry, asked(inquiry, row, token, now))

    def _looked_at(self, numbers: Numbers) -> None:
        """Something may have been decided."""
        if numbers.oldest is None:
            self._end(numbers)
        if self._lines:
            self.places.invite(numbers)

    def _refused(self, numbers: Numbers, refusal: Refusal | None) -> None:
        """A row was applied, and this is what the log refused."""
        if refusal is None:
            self._looked_at(numbers)
        elif isinstance(refusal, Stalled):
            delay = self.connection.backoff_s(refusal.gaps)
            self.connection.loop.call_later(delay, self._resume, numbers, numbers.writer)
        else:
            self._forgotten(numbers, refusal.floor)

    def _resume(self, numbers: Numbers, writer: bytes) -> None:
        if numbers.resume(writer) and not self.connection.closed:
            self._wants_flush(numbers)

    def _forgotten(self, numbers: Numbers, floor: int) -> None:
        """The log knows this writer no more. A new one is to be born later than `floor`."""
        before = numbers.key
        if numbers.replaceable and numbers.pass_on(self.connection.new_writer(floor)):
            del self._undecided[before]
            self._undecided[numbers.key] = numbers
            self._wants_flush(numbers)
            return
        writer = numbers.writer
        self._fail(numbers, lambda number: forgotten_of(number, writer))

    # -- giving up

    def give_up_old(self) -> None:
        """Gives up what made no progress for as long as calls wait."""
        connection, now = self.connection, self.connection.elapsed()
        for numbers in self._all():
            if now - numbers.progressed_at > connection.give_up_s:
                self.give_up(
                    numbers, f"no verdict within {connection.give_up_s} s ({connection.attempts.fault or 'no error'})"
                )

    def give_up_all(self, reason: str, cause: BokiError | None) -> None:
        for numbers in self._all():
            self.give_up(numbers, reason, cause)

    def give_up(self, numbers: Numbers, reason: str, cause: BokiError | None = None) -> None:
        """Fails all that is undecided: OutcomeUnknown where it was sent, Unreachable where it was not."""
        writer, book = numbers.writer, numbers.book
        self._fail(numbers, lambda number: unknown(reason, number, writer, book), reason, cause)

    def _fail(
        self, numbers: Numbers, sent: Callable[[int], BokiError], reason: str = "", cause: BokiError | None = None
    ) -> None:
        in_doubt = _Inquirer(self, InDoubt(numbers, Ticket))
        self._end(numbers)
        for item, was_sent in numbers.end():
            error = sent(item.first) if was_sent or not reason else Unreachable(f"{reason}; nothing was sent")
            error.__cause__ = cause
            if was_sent and isinstance(item, Ticket):
                item.given_up(in_doubt)
            item.failed(item.first, item.first + item.count, error)
        self.places.invite(numbers)

    def _all(self) -> list[Numbers]:
        return [*self._undecided.values(), *self._inquiries]

    # -- asking

    def ask(self, in_doubt: InDoubt[Ticket], number: int, *, settle: bool) -> Ticket:
        """A ticket that is decided when a number is that was given up. Raises WriterForgotten, ClosedError."""
        known = in_doubt.answer(number)
        if known is not None:
            return known
        self.connection.check_open()
        self.connection.check_here()
        in_doubt.check_age(number, self.connection.elapsed())
        inquiry = in_doubt.inquiry()
        if settle and in_doubt.settle(inquiry, number):
            self._wants_flush(inquiry)
        for ticket in in_doubt.wanted(inquiry, number):
            self.queue(inquiry, ticket)
        return in_doubt.asked(number)

    def user_of(self, numbers: Numbers) -> Numbers:
        """Return the numbers that have something undecided under the same writer: these, or those of another session."""
        return self._undecided.get(numbers.key, numbers)

    def recall(self, numbers: Numbers, number: int, ticket: Ticket) -> Numbers:
        """Sends a record again under a number of a named writer that the log has decided. Returns who asks for it. Raises
        ClosedError."""
        self.connection.check_open()
        self.connection.check_here()
        inquiry = inquiry_of(numbers, numbers.writer, number, numbers.flags, number)
        inquiry.sent_before(number)
        self.queue(inquiry, ticket)
        return inquiry

    # -- why

    async def why(self, numbers: Numbers | None, ticket: Ticket) -> Why:
        """What a record waits for; of these numbers."""
        why = await self.connection.calls.why()
        if numbers is not None and numbers.low < ticket.first and why.waits_for == "order":
            ahead = ticket.first - numbers.low
            return Why("window", f"{ahead} earlier records of its writer are not decided yet; {why}", why.engine)
        return why


class _Inquirer:
    """Whom tickets ask that were given up together: `Owner`."""

    __slots__ = ("_appends", "_in_doubt")

    def __init__(self, appends: Appends, in_doubt: InDoubt[Ticket]) -> None:
        self._appends: Final = appends
        self._in_doubt: Final = in_doubt

    @property
    def home(self) -> Connection:
        return self._appends.connection

    async def why_undecided(self, ticket: Ticket) -> Why:
        return await self._appends.why(None, ticket)

    def ask_outcome(self, ticket: Ticket, *, settle: bool) -> Ticket:
        return self._appends.ask(self._in_doubt, ticket.first, settle=settle)
