"""The way of one session's appends to one book: its writer between appends, and the record that is *alone*.

A client may use 100,000 books, most of them for one record at a time. Then the memory that an append touches is what it costs.
So a book keeps one small object, its lane, and neither a window nor whoever fills it. A record is alone when it is the only
undecided one of its book, expects nothing and was sent once at most. Then there is nothing to decide: it has the writer's
last number, and a row that commits this number ends it. Whatever else comes, a second record, an expectation, another
verdict, a connection that ends, makes an appender of the lane, which lasts until nothing is undecided; one that was made to
expect something lasts as long as the lane, for who appends conditionally does it again.

Invariant: while `undecided` is an appender, that has the writer and its numbers; else the lane has them, and all numbers below
`next_number`, but that of the record that is alone, are decided and in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from boki._appender import WRITER_BYTES, WRITER_IDLE_S, Appender
from boki._arguments import NO_EXPECTATIONS, EncodedTags
from boki._outbox import EARLY_FLUSH_BYTES, Outbox
from boki._outcome import Why
from boki._pending import Ticket
from boki._session import Session, View
from boki_common.engine_protocol import AnswerRow, Token, Verdict
from boki_common.run_column import RUN_KEY

if TYPE_CHECKING:
    from boki._connection import Connection

_COMMITTED: Final = int(Verdict.COMMITTED)


class Lane(View):
    """See the module.

    Attributes:
        key: what finds it when a row of verdicts comes: book and writer.
        next_number: the number that the writer gives next.
        outbox: where its records leave from: with other books of its log, as far as is known.
        progressed_at: when a record was numbered while nothing was undecided, or a number was decided after that.
        undecided: None, the record that is alone, or who appends.
    """

    __slots__ = ("connection", "key", "next_number", "outbox", "progressed_at", "undecided")

    def __init__(self, connection: Connection, session: Session, book: int) -> None:
        super().__init__(session, book)
        self.connection: Final = connection
        self.key: bytes = RUN_KEY.pack(book, connection.new_writer())
        self.next_number = 1
        self.outbox: Outbox = connection.outboxes.first
        self.progressed_at = 0.0
        self.undecided: Ticket | Appender | None = None

    @property
    def idle(self) -> bool:
        """Whether no append is undecided."""
        found = self.undecided
        return found is None or (type(found) is Appender and not found.undecided)

    def append(self, tags: EncodedTags, data: bytes) -> Ticket:
        """Numbers a record that is alone, and queues it. Raises ClosedError."""
        assert self.undecided is None
        connection, outbox, number = self.connection, self.outbox, self.next_number
        if connection.closed:
            connection.check_open()
        if not connection.flush_scheduled:
            connection.schedule_flush()
        now = connection.turn_began  # one object for all books of a turn: an own one is cold when it is replaced
        if now - self.progressed_at > WRITER_IDLE_S and number > 1:
            self.key, number = RUN_KEY.pack(self.book, connection.new_writer()), 1
        self.progressed_at = now
        self.next_number = number + 1
        self.undecided = ticket = Ticket(tags, data, NO_EXPECTATIONS, self)
        ticket.first = number
        undecided = connection.undecided
        undecided[self.key] = self
        if len(undecided) == 1:
            connection.watch()
        outbox.alone.append(self)
        outbox.bytes += ticket.size
        if outbox.bytes >= EARLY_FLUSH_BYTES:
            connection.send(outbox)
        return ticket

    def appender(self) -> Appender:
        """Who appends, from now on until nothing is undecided."""
        found = self.undecided
        if type(found) is Appender:
            return found
        connection, number = self.connection, self.next_number
        ticket = found if type(found) is Ticket else None
        writer = self.key[-WRITER_BYTES:]
        appender = Appender(connection, self, writer, number if ticket is None else ticket.first, lane=self)
        appender.progressed_at = self.progressed_at
        appender.outbox = self.outbox
        self.undecided = appender
        if ticket is not None:
            connection.undecided[self.key] = appender
            ticket.owner = appender
            appender.take_over(ticket, sent=ticket.sent)
            if not ticket.sent:
                connection.wants_flush(appender)
        return appender

    def rest(self, appender: Appender) -> None:
        """Its appender has nothing undecided, and all of its numbers are in the log."""
        assert self.undecided is appender
        self.key = appender.key
        self.next_number = appender.next_number
        self.outbox = appender.outbox
        self.progressed_at = appender.progressed_at
        self.undecided = None

    # -- verdicts

    def committed_at(self, first: int, count: int, first_seqnum: int, token: Token, position: int, now: float) -> None:
        """Numbers were committed; it has a record that is alone."""
        ticket = self.undecided
        if type(ticket) is not Ticket or ticket.first != first or count != 1 or not ticket.sent:
            self.appender().committed_at(first, count, first_seqnum, token, position, now)
            return
        del self.connection.undecided[self.key]
        self.undecided = None
        session = self.session
        if token is not session.last_merged and token != session.positions:
            session.merge(token)
        if first_seqnum > position:
            position = first_seqnum
        if position > self.position:
            self.position = position
        ticket.committed(first, first + 1, first_seqnum)

    def answered(self, row: AnswerRow, token: Token, now: float) -> None:
        """Applies one row of ANSWERS. Raises ProtocolError when it cannot be about this record."""
        if row.verdict == _COMMITTED:
            self.committed_at(row.first, row.count, row.first_seqnum, token, row.position, now)
        else:
            self.appender().answered(row, token, now)

    def give_up(self, reason: str) -> None:
        """Its record fails: OutcomeUnknown if it was sent, Unreachable if it was not."""
        self.appender().give_up(reason)

    async def why(self, ticket: Ticket) -> Why:
        """What a record that is alone waits for."""
        return await self.connection.why()
