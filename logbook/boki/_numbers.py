"""The numbers of one writer in one book: which are given, sent, decided. Pure: no loop, no clock, no IO.

    1 … low-1         decided; the caller has the verdict
    low … sent        on the current connection, undecided (or decided ahead of a lower one)
    … next_number-1   queued: not on the current connection yet

Rules (DESIGN §6.1, §6.6):
- Numbers are dense and given in the order of the calls. At most `limits.WINDOW_RECORDS` lie between `low` and the end.
- What is undecided when a connection ends goes back to the queue and is sent again on the next one, in order, under the
  same numbers, marked RESENT. Verdicts of an earlier connection are never applied: who owns the connections sees to it.
- A number is decided once, and only when it was sent. Verdicts may come out of order: all are given when an index has passed the
  number's place, but for a conflict that is certain before.
- A gap verdict names the last number the log has decided. It may lie below `low - 1` by numbers that were answered as
  conflicts before they were ordered: these holes are filled (`_voids`). Below anything that was *ordered*, the writer was
  forgotten.
- Of a writer that the log has forgotten nothing is applied any more (ADR 23). So what is undecided and was sent once certainly
  is not in the log, and may be given to another writer; what was sent more often may have been applied before.

A client may use 100,000 books, most of them for one record at a time: then what the numbers of a book touch is what an append
costs. So they are one small object, which is also the session's view of the book; what is undecided is linked, oldest first, item
to item; and what hardly any writer ever needs is beside them (`_special`), shared while there is nothing to say.
"""

from __future__ import annotations

from typing import Final

from boki._bounds import (
    FILLED_NUMBERS,
    FRAME_TARGET_BYTES,
    NEVER_USED,
    RUN_BYTES,
    WINDOW_BYTES,
    WRITER_IDLE_S,
)
from boki._pending import Pending
from boki._queue import Queue
from boki._session import Session
from boki._special import NOTHING, Special
from boki._voids import fill_voids
from boki_common import limits
from boki_common.engine.engine_protocol import Token
from boki_common.errors import BokiError, ProtocolError
from boki_common.ids import Position
from boki_common.records.batch_builder import BatchBuilder
from boki_common.records.record_batch import RUN_NAMED, RUN_RESENT
from boki_common.records.run_column import RUN_KEY
from boki_common.writer_ids import WRITER_BYTES


class Numbers:
    """The numbers of one writer in one book, and what its session sees of the book.

    Invariants: the items from `oldest` on cover low … next_number-1 in order and without a hole; from `queued` on they are not on
    the current connection; `ordered` and all numbers below are in the log.

    Args:
        session: whose appends these are.
        outbox: where they leave from, until the log of the book is known.
        writer: a named one, or one that is asked for; b"": a session writer, which is born when it is used first.
        first: its first number; the log has all below.
        special: of a writer that is no session writer; it has the view of the book.

    Attributes:
        key: what finds it when a row of verdicts comes: book and writer.
        outbox: where it leaves from: with other books of its log, as far as is known.
        position: highest seqnum that the session's view of the book's log covers; 0 before anything was seen.
        progressed_at: when the first of its undecided records was numbered, or when a number was decided after that.
        special: what hardly any writer needs.
    """

    __slots__ = (
        "book", "bytes", "key", "newest", "next_number", "oldest", "ordered", "outbox", "position", "progressed_at", "queued",
        "session", "special",
    )  # fmt: skip

    def __init__(
        self,
        session: Session,
        book: int,
        outbox: Queue[Numbers],
        writer: bytes = b"",
        first: int = 1,
        special: Special = NOTHING,
    ) -> None:
        self.session: Final = session
        self.book: Final = book
        self.outbox = outbox
        self.position = 0
        self.progressed_at = NEVER_USED
        self.special = special
        self.key = RUN_KEY.pack(book, writer) if writer else b""
        self.next_number = first
        self.ordered = first - 1
        """Highest number that certainly is in the log; so are all below it."""
        self.bytes = 0
        self.oldest: Pending | None = None
        self.newest: Pending | None = None
        self.queued: Pending | None = None

    # -- what it is

    @property
    def writer(self) -> bytes:
        return self.key[-WRITER_BYTES:]

    @property
    def named(self) -> bool:
        return bool(self.special.flags & RUN_NAMED)

    @property
    def flags(self) -> int:
        """Of all its runs."""
        return self.special.flags

    @property
    def replaceable(self) -> bool:
        """Whether another writer may take its place: it is a session writer."""
        return self.special.view is None

    @property
    def stale(self) -> bool:
        return self.special.stale

    @property
    def stalled(self) -> bool:
        return self.special.stalled

    @property
    def sent_again(self) -> int:
        return self.special.sent_again

    @property
    def low(self) -> int:
        """The lowest number that is undecided, or the next one."""
        oldest = self.oldest
        return self.next_number if oldest is None else oldest.first

    @property
    def sent(self) -> int:
        """Highest number that ever was sent."""
        queued = self.queued
        on_the_way = (self.next_number if queued is None else queued.first) - 1
        again = self.special.sent_again
        return on_the_way if on_the_way > again else again

    @property
    def undecided(self) -> int:
        return self.next_number - self.low

    @property
    def free(self) -> int:
        """Numbers that may be given now."""
        return limits.WINDOW_RECORDS - self.undecided if self.bytes < WINDOW_BYTES else 0

    def items(self) -> list[Pending]:
        """All that is undecided, and what was decided ahead of it, in order."""
        found, item = [], self.oldest
        while item is not None:
            found.append(item)
            item = item.next
        return found

    def find(self, number: int) -> Pending | None:
        """The undecided item that has a number."""
        item = self.oldest
        while item is not None and item.first <= number:
            if number < item.first + item.count:
                return None if item.decided else item
            item = item.next
        return None

    # -- the view of the book

    def saw(self, token: Token, position: int) -> None:
        """Takes note of what a reply has seen."""
        session = self.session
        if token is not session.last_merged and token != session.positions:
            session.merge(token)
        view = self.special.view
        if view is not None:
            view.reached(position)
        elif position > self.position:
            self.position = position

    def saw_one(self, log: int, reached: Position, position: int) -> None:
        """`saw`, of a token of one log."""
        if self.session.positions.get(log) != reached:
            self.session.merge({log: reached})
        if position > self.position:
            self.position = position

    def reached(self, position: int) -> None:
        """The session has seen so much of the book."""
        if position > self.position:
            self.position = position

    @property
    def seen(self) -> int:
        """`position`, of the book's view."""
        view = self.special.view
        return self.position if view is None else view.position

    # -- writers

    def _begin(self, writer: bytes, first: int = 1) -> None:
        """Is about this writer from now on. Nothing is undecided."""
        assert self.oldest is None
        self.key = RUN_KEY.pack(self.book, writer)
        self.next_number = first
        self.ordered = first - 1
        if self.special is not NOTHING:
            self.special.begin()

    def renew(self, first: int) -> None:
        """A stale named writer goes on from what the log has."""
        assert self.named
        self._begin(self.writer, first)
        self.special.renew(stale=False)

    def pass_on(self, writer: bytes) -> bool:
        """Another writer takes what is undecided, under new numbers: the log has forgotten this one. Returns false when some of
        it may be in the log: then nothing changed."""
        items = [item for item in self.items() if not item.decided]
        if self.low <= self.sent_again or any(item.partly_decided for item in items):
            return False
        self._drop()
        self._begin(writer)
        for item in items:
            self.add(item, self.progressed_at)
        return True

    def end(self) -> list[tuple[Pending, bool]]:
        """Gives up all that is undecided, and this writer: another session writer is born when it is used next, any other is
        stale. Returns what is given up, each with whether it ever was sent."""
        sent = self.sent
        items = [(item, item.first <= sent) for item in self.items() if not item.decided]
        self._drop()
        if self.replaceable:
            self.key, self.special, self.progressed_at = b"", NOTHING, NEVER_USED
        else:
            self.special.renew(stale=True)
            self.special.resume()
        return items

    def _drop(self) -> None:
        for item in self.items():
            item.linked(None)
        self.oldest = self.newest = self.queued = None
        self.bytes = 0

    # -- numbering

    def add(self, item: Pending, now: float, writer: bytes = b"") -> bool:
        """Gives the next numbers to an item and queues it. False when nothing happened, since it is to be added with a new
        session `writer`: there was none, or the log may have forgotten it."""
        newest = self.newest
        if newest is not None:
            newest.linked(item)
        else:
            if writer:
                self._begin(writer)
            elif now - self.progressed_at > WRITER_IDLE_S and self.replaceable:
                return False
            self.progressed_at = now
            self.oldest = item
        self.newest = item
        first = self.next_number
        item.numbered(first)
        self.next_number = first + item.count
        self.bytes += item.size
        if self.queued is None:
            self.queued = item
        return True

    def withdraw(self, item: Pending) -> bool:
        """Take back an item that was never sent; later ones move up. False when it was sent or is decided; or when it is a named
        writer's and not the newest: callers know the numbers of those behind it, and repeat them under these."""
        if item.first <= self.sent or item.decided or (self.named and item is not self.newest):
            return False
        before, found = None, self.oldest
        while found is not None and found is not item:
            before, found = found, found.next
        if found is None:
            return False
        after = item.next
        self._unlink(before, item)
        self.bytes -= item.size
        self.next_number -= item.count
        while after is not None:
            after.numbered(after.first - item.count)
            after = after.next
        return True

    def _unlink(self, before: Pending | None, item: Pending) -> None:
        after = item.next
        item.linked(None)
        if before is None:
            self.oldest = after
        else:
            before.linked(after)
        if after is None:
            self.newest = before
        if self.queued is item:
            self.queued = after

    # -- sending

    def leaves_from(self, outbox: Queue[Numbers]) -> None:
        """It stays in an outbox until that was sent, so its records leave in their order."""
        if outbox is not self.outbox and not self.outbox.holds(self):
            self.outbox = outbox

    def fill(self, builder: BatchBuilder, size: int = 0) -> int:
        """Move queued items into a batch until the batch has its size: one run, behind one of voids where there are any. None
        while it is stalled.

        Args:
            size: of the batch so far, roughly.

        Returns:
            The size of the batch now. At `FRAME_TARGET_BYTES` or more there may be more to send.
        """
        item, oldest, special = self.queued, self.oldest, self.special
        assert size < FRAME_TARGET_BYTES
        if item is None or oldest is None or special.stalled:
            return size
        flags, named = 0, False
        if special is not NOTHING:
            if special.next_hole or item.first <= special.voided_to:
                size, item = fill_voids(builder, size, self.key, special, item, oldest.first)
                self.queued = item
                if item is None or size >= FRAME_TARGET_BYTES:
                    return size
            flags = special.flags | (RUN_RESENT if item.first <= special.sent_again else 0)
            named = bool(flags & RUN_NAMED)
        builder.start_run_of(self.key, item.first, oldest.first, flags)
        size += RUN_BYTES
        queued: Pending | None = item
        while queued is not None and size < FRAME_TARGET_BYTES:
            queued.encode(builder)
            if named:
                for crc in queued.checksums():
                    builder.checksum(crc)
            size += queued.size
            queued = queued.next
        self.queued = queued
        return size

    def connection_lost(self) -> None:
        """All that is undecided has to be sent again. That the log refused a number does not matter any more."""
        self._send_again()
        self.special.resume()

    def sent_before(self, number: int) -> None:
        """Numbers up to this one were sent before, by this writer or under its name: they are asked for again."""
        self._own().sent_before(number)

    def known(self, ordered: int) -> None:
        """The log has all numbers up to this one."""
        self.ordered = ordered

    def void(self, number: int) -> None:
        """Send what is not decided up to this number as voids from now on, and all that is undecided again."""
        self._own().void(number)
        self._send_again()

    def resume(self, writer: bytes) -> bool:
        """The time is over for which nothing was sent since a gap of this writer. Returns whether something is queued."""
        if writer != self.writer or self.special is NOTHING:
            return False
        self.special.resume()
        if self.oldest is None:
            self._forget_special()
        return self.queued is not None

    def _send_again(self) -> None:
        special = self._own()
        special.sent_before(self.sent)
        special.refill()
        self.queued = self.oldest

    def _own(self) -> Special:
        if self.special is NOTHING:
            self.special = Special()
        return self.special

    # -- verdicts

    def committed_at(
        self, first: int, count: int, first_seqnum: int, token: Token, position: int, now: float, outbox: Queue[Numbers]
    ) -> None:
        """A row says that numbers were committed, by the log whose outbox this is."""
        last_seqnum = first_seqnum + count - 1
        self.saw(token, last_seqnum if last_seqnum > position else position)
        if outbox is not self.outbox:
            self.leaves_from(outbox)
        before = self.oldest
        self.committed(first, count, first_seqnum)
        if self.oldest is not before:
            self.progressed(now)

    def committed(self, first: int, count: int, first_seqnum: int) -> None:
        """Numbers first … first+count-1 are records with seqnums from `first_seqnum` on."""
        end, queued, item = first + count, self.queued, self.oldest
        if not 0 < first < end <= (self.next_number if queued is None else queued.first):
            self._check_sent(first, end)
        if end > self.ordered:
            self.ordered = end - 1
        filled_from = self.special.filled_from
        assert not filled_from or end <= filled_from or first >= self.low, (
            f"numbers {first} to {end - 1} were answered as conflicts and are ordered as records now"
        )
        while item is not None and item.first < end:
            if item.first + item.count > first:
                item.committed(first, end, first_seqnum)
            item = item.next
        self._advance()

    def was_there(self, first: int, count: int, first_seqnum: int) -> None:
        """The log had these numbers before; `committed` is called next. Who sent one of them twice cannot know whose it was."""
        if first > self.sent_again:
            for item in self.items():
                if item.first < first + count and item.first + item.count > first:
                    item.was_there(first, first + count, first_seqnum)

    def failed(self, first: int, count: int, error: BokiError, *, ordered: bool) -> None:
        """Numbers first … first+count-1 joined nothing. `ordered`: the log has decided them, not only an engine."""
        end = first + count
        self._check_sent(first, end)
        if ordered:
            self.ordered = max(self.ordered, end - 1)
        for item in self.items():
            if item.first < end and item.first + item.count > first:
                item.failed(first, end, error)
        self._advance()

    def gap(self, last: int) -> bool:
        """The log refused a number, because the last one it has is `last`: all from there on is sent again. Returns false when
        the log has forgotten this writer: it had decided numbers above `last`."""
        if last > self.sent:
            raise ProtocolError(f"expected the log to have numbers up to {self.sent}, it says {last}", found=last)
        holes = self.low - 1 - last
        if last < self.ordered or holes > FILLED_NUMBERS:
            return False
        self._send_again()
        self._own().fill(last + 1 if holes > 0 else 0)
        return True

    def stall(self) -> int:
        """Nothing is sent for a while, since the log refused a number. Returns how many times in a row it did so before."""
        special = self._own()
        special.stall()
        return special.gaps - 1

    def progressed(self, now: float) -> None:
        """The oldest of what was undecided is not any more."""
        if self.oldest is not None:
            self.progressed_at = now
            if self.special is not NOTHING:
                self.special.progressed()

    def _check_sent(self, first: int, end: int) -> None:
        if not 0 < first < end <= self.sent + 1:
            raise ProtocolError(
                f"expected verdicts of numbers 1 to {self.sent}, found {first} to {end - 1}", found=first
            )

    def _advance(self) -> None:
        """Lets go of the items at the front that are decided; holes need to be filled no more, once that was sent or
        a number behind them is in the log."""
        item, special = self.oldest, self.special
        filled_from = special.filled_from
        if filled_from and item is not self.queued:
            special.fill(0)
        elif filled_from and filled_from <= self.ordered:
            special.fill(self.ordered + 1 if item is not None and self.ordered + 1 < item.first else 0)
        while item is not None and item.decided:
            after = item.next
            item.linked(None)
            if item is self.queued:
                self.queued = after
            self.bytes -= item.size
            item = after
        self.oldest = item
        if item is None:
            self.newest = None
            if special is not NOTHING:
                self._forget_special()

    def _forget_special(self) -> None:
        """Nothing is undecided. What is special of a session writer is forgotten, unless it waits after a gap."""
        special = self.special
        if special.view is None and not special.stalled and not special.filled_from:
            self.special = NOTHING
        else:
            special.progressed()
