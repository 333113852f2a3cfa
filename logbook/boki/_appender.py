"""Appends of one session to one book: places in the window, numbering, verdicts, giving up.

The window, which an appender is, decides; the appender waits. Who finds the window full waits in line: a freed place is given to
the longest waiting call and to nobody else. An appender is known to its connection only while something is undecided. That of a
session writer lasts no longer than that: its lane (`_lane`) keeps what is left of it.

A writer is replaced by a new random one when the book was idle for 30 minutes (the log may forget an idle
session writer after an hour), when the log has forgotten it, and when an append was given up: its number stays
undecided for ever, and no later number of that writer could be decided. A named writer is not replaced: after a failure it is
*stale* until somebody has asked the log for its last number. What was given up can be asked for (`_abandoned`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from boki._abandoned import Abandoned
from boki._arguments import EncodedTags, Expectations
from boki._outbox import EARLY_FLUSH_BYTES
from boki._outcome import Why
from boki._pending import Chunk, Ticket
from boki._session import Session, View
from boki._window import WINDOW_BYTES, Window
from boki_common import limits
from boki_common.engine_protocol import NEWEST_FORGOTTEN, ROW_AT_CUT, AnswerRow, Token, Verdict
from boki_common.errors import (
    AnswerForgotten,
    BokiError,
    Conflict,
    LogBookError,
    NumberReused,
    OutcomeUnknown,
    ProtocolError,
    Unreachable,
    WindowFull,
    WriterForgotten,
)
from boki_common.run_column import RUN_KEY, RUN_NAMED

if TYPE_CHECKING:
    from boki._connection import Connection
    from boki._lane import Lane

WRITER_IDLE_S: Final = 1_800.0
"""A session writer that was idle for so long is not used again (DESIGN §6.9)."""
WRITER_BYTES: Final = 16
WAITING_APPENDS: Final = 65_536
"""Calls that may wait for a place in the window of one book."""
_COMMITTED: Final = int(Verdict.COMMITTED)
"""A plain int: comparing enum members costs more."""
_NOBODY: Final[deque[asyncio.Future[None]]] = deque(maxlen=0)
"""Who waits for a place of a book that never was full; nothing is ever added to it. A deque takes half a kilobyte."""


class Appender(Window):
    """Appends of one writer to one book: the numbers of that writer, and who waits for them.

    Args:
        view: of the book's session.
        writer: a named one, or the session writer of a lane.
        first: its first number; the log has all below.
        flags: of all its runs.
        asking: asks for numbers again that it, or another writer of the same name, has given before.
        lane: gives a session writer, which is replaced when it is needed, and gets back what is left of it.

    Attributes:
        outbox: where it leaves from: with other books of its log, as far as is known.
        lasting: its lane does not get back what is left of it: there will be more for an appender to do.
        stale: this writer takes nothing any more, until `renew`.
        progressed_at: when the first of its undecided records was numbered, or when a number was decided after that.
    """

    __slots__ = (
        "_gaps", "_lane", "_promised", "_waiting", "asking", "book", "connection", "dirty", "key", "lasting",
        "outbox", "progressed_at", "stale", "stalled", "view",
    )  # fmt: skip

    def __init__(
        self,
        connection: Connection,
        view: View,
        writer: bytes,
        first: int = 1,
        flags: int = 0,
        *,
        asking: bool = False,
        lane: Lane | None = None,
    ) -> None:
        super().__init__(writer, first, flags)
        self.book: Final = view.book
        self.connection: Final = connection
        self.asking: Final = asking
        self.view: Final = view
        self.dirty = False
        self.outbox = connection.outboxes.first
        self.stalled = False
        self.stale = False
        self.lasting = False
        self.progressed_at = 0.0
        self._lane: Final = lane
        self.key: bytes = RUN_KEY.pack(view.book, writer)
        """What finds it when a row of verdicts comes: book and writer."""
        self._waiting = _NOBODY
        self._promised = 0
        self._gaps = 0

    @property
    def session(self) -> Session:
        return self.view.session

    @property
    def position(self) -> int:
        """Highest seqnum that the session's view of the book's log covers; 0 before anything was seen."""
        return self.view.position

    def is_about(self, row: AnswerRow) -> bool:
        """Whether a row of verdicts is of its writer and book."""
        return row.writer == self.writer and row.book == self.book

    def inquiry(self, writer: bytes, first: int, flags: int) -> Appender:
        """Asks for numbers that were given up, from `first` on."""
        return Appender(self.connection, self.view, writer, first, flags, asking=True)

    def renew(self, first: int) -> None:
        """A stale named writer goes on from what the log has."""
        assert not self.undecided and self.flags & RUN_NAMED
        self.begin(self.writer, first, RUN_NAMED)
        self.stale = False

    def _replace(self) -> None:
        """A new session writer."""
        self.begin(self.connection.new_writer())
        self.key = RUN_KEY.pack(self.book, self.writer)

    @property
    def places(self) -> int:
        """Numbers that may be given, and that nobody waits for."""
        return 0 if self._waiting else max(self.free - self._promised, 0)

    # -- appending

    def submit(
        self, tags: EncodedTags, data: bytes, expectations: Expectations, *, promised: bool = False
    ) -> Ticket | None:
        """Numbers one record and queues it; None if there are no `places` and the caller has none `promised`."""
        if not promised:
            if self._waiting or self._promised:
                if not self.places:
                    return None
            elif self.next_number - self.low >= limits.WINDOW_RECORDS or self.bytes >= WINDOW_BYTES:
                return None
        ticket = Ticket(tags, data, expectations, self)
        self.queue(ticket)
        return ticket

    async def submit_in(
        self, tags: EncodedTags, data: bytes, expectations: Expectations, timeout: float | None
    ) -> Ticket:
        """`submit`, once there is a place. Raises WindowFull."""
        await self.place(timeout)
        ticket = self.submit(tags, data, expectations, promised=True)
        assert ticket is not None
        return ticket

    def submit_many(self, records: Sequence[tuple[EncodedTags, bytes]], size: int) -> Chunk:
        chunk = Chunk(records, size)
        self.queue(chunk)
        return chunk

    def queue(self, item: Ticket | Chunk) -> None:
        """Numbers an item, and has it sent."""
        connection, outbox = self.connection, self.outbox
        if not connection.flush_scheduled:
            connection.schedule_flush()
        if self.next_number == self.low:  # nothing is undecided
            if connection.closed:
                connection.check_open()
            now = connection.turn_began  # one object for all books of a turn: an own one is cold when it is replaced
            if self._lane is not None and self.next_number > 1 and now - self.progressed_at > WRITER_IDLE_S:
                self._replace()
            self.progressed_at = now
            connection.register(self)
        self.add(item)
        if not self.stalled:
            if not self.dirty:
                self.dirty = True
                outbox.dirty.append(self)
            outbox.bytes += item.size
            if outbox.bytes >= EARLY_FLUSH_BYTES:
                connection.send(outbox)

    async def place(self, timeout: float | None) -> int:
        """Waits for a place, and takes it. Returns how many more are free.

        Raises:
            WindowFull: none became free within `timeout` seconds; nothing was numbered.
        """
        if not self.places:
            if len(self._waiting) >= WAITING_APPENDS:
                raise WindowFull(f"{len(self._waiting)} appends to this book wait for a place already")
            waiter = self.connection.loop.create_future()
            if self._waiting is _NOBODY:
                self._waiting = deque()
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
            self.connection.check_open()
        return max(self.free - self._promised, 1)

    async def ready(self) -> None:
        """Waits until `submit` finds a place."""
        while not self.places:
            await self.place(None)
            self._invite()

    def full(self) -> WindowFull:
        return WindowFull(
            f"{self.undecided} records of this book are undecided (at most {limits.WINDOW_RECORDS}); "
            "`await book.ready()`, or use `await book.append(...)`, which waits",
            expected=limits.WINDOW_RECORDS,
            found=self.undecided,
        )

    def _leave(self, waiter: asyncio.Future[None]) -> None:
        if waiter.done() and not waiter.cancelled():
            self._promised -= 1
            self._invite()
        elif waiter in self._waiting:  # else it was passed over already, between its cancelling and now
            self._waiting.remove(waiter)

    def _invite(self) -> None:
        """Gives free places to those who wait longest."""
        free = self.free - self._promised
        while free > 0 and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._promised += 1
                free -= 1

    async def wait(self, item: Ticket | Chunk, deadline: float, timeout_s: float) -> None:
        """Waits until an item is decided. When it is not in time, it is taken back if it was not sent.

        Raises:
            Unreachable: it was taken back. OutcomeUnknown: it was sent.
        """
        try:
            async with asyncio.timeout_at(deadline):
                await item.wait()
        except TimeoutError as error:
            if item.decided:
                return
            unsent = self.connection.unreachable(timeout_s)
            if self.take_back(item, unsent):
                raise unsent from error
            raise self.unknown(f"no verdict within {timeout_s} s", item.first) from error

    def take_back(self, item: Ticket | Chunk, error: BokiError) -> bool:
        """What was never sent ends with `error`. False when it was sent."""
        if not self.withdraw(item):
            return False
        item.failed(item.first, item.first + item.count, error)
        self._invite()
        if not self.undecided:
            self._rest()
        return True

    # -- verdicts

    def answered(self, row: AnswerRow, token: Token, now: float) -> None:
        """Applies one row of ANSWERS. Raises ProtocolError when it cannot be about this window."""
        _, _, first, first_seqnum, position, count, verdict, _, flags = row
        early = flags & ROW_AT_CUT and first <= self.sent_again
        if verdict == _COMMITTED and not early:
            self.committed_at(first, count, first_seqnum, token, position, now)
            return
        self.view.saw(token, position)
        if early:
            return  # of the first of several attempts: the index will tell
        low = self.low
        if verdict == Verdict.CONFLICT:
            self.failed(row.first, row.count, self._conflict(row), ordered=False)
        elif verdict == Verdict.GAP:
            self._gap(row)
        else:
            self.failed(row.first, row.count, self._failure(row), ordered=True)
        if self.low > low:
            self._advanced(now)

    def committed_at(self, first: int, count: int, first_seqnum: int, token: Token, position: int, now: float) -> None:
        """`answered`, of a row that says that numbers were committed."""
        last_seqnum = first_seqnum + count - 1
        self.view.saw(token, last_seqnum if last_seqnum > position else position)
        low = self.low
        self.committed(first, count, first_seqnum)
        if self.low > low:
            self._advanced(now)

    def _advanced(self, now: float) -> None:
        """The oldest of what was undecided is not any more."""
        self._gaps = 0
        if self.low < self.next_number:
            self.progressed_at = now
            if self._waiting:
                self._invite()
        else:
            self._rest()

    def _rest(self) -> None:
        """Nothing is undecided. Its lane goes on from here, unless somebody waits for a place in this window, or a number that
        was answered as a conflict may not be ordered yet."""
        self.connection.unregister(self)
        if self._waiting:
            self._invite()
        lane = None if self.lasting else self._lane
        if lane is not None and self.ordered == self.low - 1 and not (self._waiting or self._promised or self.stalled):
            lane.rest(self)

    def asked(self, row: AnswerRow, token: Token, now: float) -> None:
        """As `answered`, of rows that may be about more than what is asked for."""
        first, end = max(row.first, self.low), min(row.first + row.count, self.next_number)
        if first < end:
            seqnum = row.first_seqnum + (first - row.first if row.verdict == Verdict.COMMITTED else 0)
            self.answered(row._replace(first=first, count=end - first, first_seqnum=seqnum), token, now)

    def _failure(self, row: AnswerRow) -> BokiError:
        number, writer = row.first, row.writer
        if row.verdict == Verdict.NEVER:
            return LogBookError(f"append {number} was voided: it is not in the log and never will be", never=True)
        if row.verdict == Verdict.REUSED:
            return NumberReused(
                f"number {number} of this writer is another record already: nothing was appended; number on from "
                "`writer.last`",
                book=self.book,
                writer=writer,
                number=number,
            )
        if row.verdict == Verdict.FORGOTTEN:
            return AnswerForgotten(
                f"the log has decided append {number}, but keeps its answer no longer: read the book to know",
                book=self.book,
                writer=writer,
                number=number,
            )
        raise ProtocolError(f"expected a verdict from 0 to {max(Verdict):d}, found {row.verdict}", found=row.verdict)

    def _conflict(self, row: AnswerRow) -> Conflict:
        item = self.find(row.first)
        keys = item.expectations.keys if isinstance(item, Ticket) else {}
        known = [(keys.get(tag, tag), newest) for tag, newest in row.actual]
        forgotten = [tag for tag, newest in known if newest == NEWEST_FORGOTTEN]
        actual = {tag: None if newest == NEWEST_FORGOTTEN else newest or None for tag, newest in known}
        found = ", ".join(f"{tag!r}: {newest}" for tag, newest in actual.items())
        gone = f" The log has forgotten what was newest of {forgotten}." if forgotten else ""
        return Conflict(
            f"an expectation does not hold, the record joined no stream; newest now: {{{found}}}.{gone} "
            "Read up to `position` to see what came first",
            actual=actual,
            position=self.position,
            forgotten=forgotten,
        )

    def _gap(self, row: AnswerRow) -> None:
        if self.stalled:
            return  # everything from there on will be sent again anyway
        if self.gap(row.first_seqnum):
            self.stalled = True
            delay = self.connection.backoff_s(self._gaps)
            self._gaps += 1
            self.connection.loop.call_later(delay, self._resume, self.writer)
            return
        writer = self.writer
        self._give_up(
            lambda number: WriterForgotten(
                f"the log forgot the writer of append {number}: it knows numbers up to {row.first_seqnum}, "
                "fewer than were ordered; append again",
                writer=writer,
                number=number,
            )
        )

    def _resume(self, writer: bytes) -> None:
        if writer is self.writer:
            self.stalled = False
            if self.sent_items < len(self.items):
                self.connection.wants_flush(self)

    # -- why

    async def why(self, ticket: Ticket) -> Why:
        """What a record of this writer waits for."""
        why = await self.connection.why()
        if self.low < ticket.first and why.waits_for == "order":
            ahead = ticket.first - self.low
            return Why("window", f"{ahead} earlier records of its writer are not decided yet; {why}", why.engine)
        return why

    # -- failing

    def connection_lost(self) -> None:
        """What is undecided goes back to the queue; answers of the old connection do not count any more."""
        super().connection_lost()
        self.stalled = False

    def send_again(self) -> None:
        """All that is undecided goes once more."""
        super().connection_lost()
        if self.items and not self.stalled:
            self.connection.wants_flush(self)

    def give_up(self, reason: str, cause: BokiError | None = None) -> None:
        """Fails all that is undecided: OutcomeUnknown where it was sent, Unreachable where it was not."""
        writer = self.writer
        self._give_up(lambda number: self._unknown(reason, number, writer), reason, cause)

    def _give_up(self, sent: Callable[[int], BokiError], reason: str = "", cause: BokiError | None = None) -> None:
        abandoned = Abandoned(self, list(self.items))
        items = self.abandon()
        self.connection.unregister(self)
        if self._lane is not None:
            self._replace()
        else:
            self.stale = True
        self.stalled = False
        for item, was_sent in items:
            error = sent(item.first) if was_sent or not reason else Unreachable(f"{reason}; nothing was sent")
            error.__cause__ = cause
            if was_sent and isinstance(item, Ticket):
                item.abandoned = abandoned
            item.failed(item.first, item.first + item.count, error)
        self._rest()

    def unknown(self, reason: str, number: int) -> OutcomeUnknown:
        """The error of an append that was sent and has no verdict."""
        return self._unknown(reason, number, self.writer)

    def _unknown(self, reason: str, number: int, writer: bytes) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{reason}: append {number} may or may not be in the log; read the book to know",
            writer=writer,
            number=number,
            book=self.book,
        )
