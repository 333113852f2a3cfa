"""Appends of one session to one book: places in the window, numbering, verdicts, giving up.

The window decides; this waits. Who finds the window full waits in line: a freed place is given to the longest waiting
call and to nobody else. An appender is known to its connection only while something is undecided.

A writer is replaced by a new random one when the book was idle for 30 minutes (the log may forget an idle
session writer after an hour), when the log has forgotten it, and when an append was given up: its number stays
undecided for ever, and no later number of that writer could be decided.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from boki._arguments import EncodedTags, Expectations
from boki._pending import Chunk, Ticket
from boki._session import Session
from boki._window import Window
from boki_common import limits
from boki_common.engine_protocol import AnswerRow, Token, Verdict
from boki_common.errors import (
    BokiError,
    Conflict,
    LogBookError,
    OutcomeUnknown,
    ProtocolError,
    Unreachable,
    WindowFull,
    WriterForgotten,
)

if TYPE_CHECKING:
    from boki._connection import Connection

WRITER_IDLE_S: Final = 1_800.0
"""A session writer that was idle for so long is not used again (DESIGN §6.9)."""
WRITER_BYTES: Final = 16
WAITING_APPENDS: Final = 65_536
"""Calls that may wait for a place in the window of one book."""


class Appender:
    """Appends of one session to one book.

    Attributes:
        position: highest seqnum that the session's view of the book's log covers; 0 before anything was seen.
    """

    def __init__(self, connection: Connection, session: Session, book: int) -> None:
        self.book: Final = book
        self.session: Final = session
        self.position = 0
        self.dirty = False
        self.stalled = False
        self.progressed_at = 0.0
        self._connection = connection
        self._window = Window(connection.new_writer())
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._promised = 0
        self._gaps = 0

    @property
    def window(self) -> Window:
        return self._window

    @property
    def free(self) -> int:
        """Places that nobody waits for."""
        if self._waiting:
            return 0
        return self._window.free if not self._promised else max(self._window.free - self._promised, 0)

    def saw(self, token: Token, position: int) -> None:
        """Takes note of what a reply has seen."""
        self.session.merge(token)
        if position > self.position:
            self.position = position

    # -- appending

    def submit(self, tags: EncodedTags, data: bytes, expectations: Expectations) -> Ticket:
        """Numbers one record and queues it; the caller has looked at `free` or has a place."""
        ticket = Ticket(tags, data, expectations)
        self._add(ticket)
        return ticket

    def submit_many(self, records: Sequence[tuple[EncodedTags, bytes]], size: int) -> Chunk:
        chunk = Chunk(records, size)
        self._add(chunk)
        return chunk

    def _add(self, item: Ticket | Chunk) -> None:
        connection = self._connection
        window = self._window
        if not window.undecided:
            connection.check_open()
            now = connection.now()
            if window.next_number > 1 and now - self.progressed_at > WRITER_IDLE_S:
                window = self._window = Window(connection.new_writer())
            self.progressed_at = now
            connection.register(self)
        window.add(item)
        if not self.stalled:
            connection.wants_flush(self, item.size)

    async def place(self, timeout: float | None) -> int:
        """Waits for a place, and takes it. Returns how many more are free.

        Raises:
            WindowFull: none became free within `timeout` seconds; nothing was numbered.
        """
        if not self.free:
            if len(self._waiting) >= WAITING_APPENDS:
                raise WindowFull(f"{len(self._waiting)} appends to this book wait for a place already")
            waiter = self._connection.loop.create_future()
            self._waiting.append(waiter)
            try:
                async with asyncio.timeout(timeout):
                    await waiter
            except TimeoutError as error:
                self._leave(waiter)
                raise WindowFull(
                    f"no place in the window of {limits.WINDOW_RECORDS} undecided records within {timeout} s; "
                    "nothing was sent"
                ) from error
            except asyncio.CancelledError:
                self._leave(waiter)
                raise
            self._promised -= 1
            self._connection.check_open()
        return max(self._window.free - self._promised, 1)

    async def ready(self) -> None:
        """Waits until `submit` finds a place."""
        while not self.free:
            await self.place(None)
            self._invite()

    def full(self) -> WindowFull:
        return WindowFull(
            f"{self._window.undecided} records of this book are undecided (at most {limits.WINDOW_RECORDS}); "
            "`await book.ready()`, or use `await book.append(...)`, which waits",
            expected=limits.WINDOW_RECORDS,
            found=self._window.undecided,
        )

    def _leave(self, waiter: asyncio.Future[None]) -> None:
        if waiter.done() and not waiter.cancelled():
            self._promised -= 1
            self._invite()
        else:
            self._waiting.remove(waiter)

    def _invite(self) -> None:
        """Gives free places to those who wait longest."""
        free = self._window.free - self._promised
        while free > 0 and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._promised += 1
                free -= 1

    def withdraw(self, item: Ticket | Chunk, error: BokiError) -> bool:
        """Takes back what was never sent; it ends with `error`. False when it was sent."""
        if not self._window.withdraw(item):
            return False
        item.failed(item.first, item.first + item.count, error)
        self._settled()
        return True

    # -- verdicts

    def answered(self, row: AnswerRow, token: Token, now: float) -> None:
        """Applies one row of ANSWERS. Raises ProtocolError when it cannot be about this window."""
        self.saw(token, row.position)
        window = self._window
        low = window.low
        verdict = row.verdict
        if verdict == Verdict.COMMITTED:
            self.position = max(self.position, row.first_seqnum + row.count - 1)
            window.committed(row.first, row.count, row.first_seqnum)
        elif verdict == Verdict.CONFLICT:
            window.failed(row.first, row.count, self._conflict(row), ordered=False)
        elif verdict == Verdict.GAP:
            self._gap(row)
        elif verdict == Verdict.NEVER:
            error: BokiError = LogBookError(f"append {row.first} was voided: it is not in the log and never will be")
            window.failed(row.first, row.count, error, ordered=True)
        elif verdict == Verdict.FORGOTTEN:
            error = self.unknown("the log no longer knows the answer", row.first)
            window.failed(row.first, row.count, error, ordered=True)
        else:
            raise ProtocolError(f"expected a verdict from 0 to {max(Verdict)}, found {verdict}", found=verdict)
        if window.low > low:
            self.progressed_at = now
            self._gaps = 0
            self._settled()

    def _conflict(self, row: AnswerRow) -> Conflict:
        item = self._window.find(row.first)
        keys = item.expectations.keys if isinstance(item, Ticket) else {}
        actual = {keys.get(tag, tag): newest or None for tag, newest in row.actual}
        found = ", ".join(f"{tag!r}: {newest}" for tag, newest in actual.items())
        return Conflict(
            f"an expectation does not hold, the record joined no stream; newest now: {{{found}}}. "
            "Read up to `position` to see what came first",
            actual=actual,
            position=self.position,
        )

    def _gap(self, row: AnswerRow) -> None:
        if self.stalled:
            return  # everything from there on will be sent again anyway
        if self._window.gap(row.first_seqnum):
            self.stalled = True
            delay = self._connection.backoff_s(self._gaps)
            self._gaps += 1
            self._connection.loop.call_later(delay, self._resume, self._window)
            return
        writer = self._window.writer
        self._give_up(
            lambda number: WriterForgotten(
                f"the log forgot the writer of append {number}: it knows numbers up to {row.first_seqnum}, "
                "fewer than were ordered; append again",
                writer=writer,
                number=number,
            )
        )

    def _resume(self, window: Window) -> None:
        if window is self._window:
            self.stalled = False
            if window.queued:
                self._connection.wants_flush(self, 0)

    def _settled(self) -> None:
        if self._waiting:
            self._invite()
        if not self._window.undecided:
            self._connection.unregister(self)

    # -- failing

    def connection_lost(self) -> None:
        """What is undecided goes back to the queue; answers of the old connection do not count any more."""
        self._window.connection_lost()
        self.stalled = False

    def give_up(self, reason: str, cause: BokiError | None = None) -> None:
        """Fails all that is undecided: OutcomeUnknown where it was sent, Unreachable where it was not."""
        writer = self._window.writer
        self._give_up(lambda number: self._unknown(reason, number, writer), reason, cause)

    def _give_up(self, sent: Callable[[int], BokiError], reason: str = "", cause: BokiError | None = None) -> None:
        connection, abandoned = self._connection, self._window
        items = abandoned.abandon()
        connection.unregister(self)
        self._window = Window(connection.new_writer())
        self.stalled = False
        for item, was_sent in items:
            error = sent(item.first) if was_sent or not reason else Unreachable(f"{reason}; nothing was sent")
            error.__cause__ = cause
            item.failed(item.first, item.first + item.count, error)
        self._invite()

    def unknown(self, reason: str, number: int) -> OutcomeUnknown:
        """The error of an append that was sent and has no verdict."""
        return self._unknown(reason, number, self._window.writer)

    def _unknown(self, reason: str, number: int, writer: bytes) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{reason}: append {number} may or may not be in the log; read the book to know",
            writer=writer,
            number=number,
            book=self.book,
        )
