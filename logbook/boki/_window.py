"""The numbers of one writer in one book: which are given, sent, decided. Pure: no loop, no clock, no IO.

    1 … low-1         decided; the caller was told
    low … sent        on the current connection, undecided (or decided ahead of a lower one)
    … next_number-1   queued: not on the current connection yet

Rules (DESIGN §6.1, §6.6):
- Numbers are dense and given in the order of the calls. At most `limits.WINDOW_RECORDS` lie between `low` and the end.
- What is undecided when a connection ends goes back to the queue and is sent again on the next one, in order, under the
  same numbers, marked RESENT. Verdicts of an earlier connection are never applied: who owns the connections sees to it.
- A number is decided once. Verdicts may come out of order: a record without expectations is answered at the cut, one with
  expectations only when an index has passed it, a conflict that is already certain at once.
- Verdicts given at the cut, before an index had passed it, do not count for numbers that were sent more than once.
- A gap verdict names the last number the log has decided. It may lie below `low - 1` by numbers that were answered as
  conflicts before they were ordered: these are filled. Below anything that was *ordered*, the writer was forgotten.

Invariant: `items` cover low … next_number-1 (and fillers below `low`) in order and without a hole; the first `sent_items` of
them are on the current connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, Protocol

from boki._arguments import NO_EXPECTATIONS, EncodedTags, Expectations, encode_tags
from boki._pending import Ticket
from boki_common import limits
from boki_common.batch_builder import BatchBuilder, batch_of_one
from boki_common.errors import BokiError, ProtocolError
from boki_common.record_batch import NO_NAMES, RUN_NAMED, RUN_RESENT
from boki_common.runtime.ports import Buffer

WINDOW_BYTES: Final = 16 * limits.MIB
"""Data of undecided records that one book keeps; one more record is taken while they are below it."""
FRAME_TARGET_BYTES: Final = 2 * limits.BATCH_FLUSH_BYTES
"""A frame of appends is closed at this size. Above the size at which the engine closes an entry, so that a call of
`append_many` of about that size stays in one piece."""
RUN_BYTES: Final = 64
"""Counted for the start of a run in a frame."""
FILLED_NUMBERS: Final = limits.BATCH_RECORDS
"""Holes that are filled before the writer is given up."""


class Pending(Protocol):
    """What a window keeps."""

    first: int

    @property
    def count(self) -> int:
        """How many numbers."""

    @property
    def size(self) -> int:
        """Bytes it takes in a frame, roughly."""

    @property
    def decided(self) -> bool:
        """Whether every number has its verdict."""

    def encode(self, builder: BatchBuilder) -> None:
        """Adds the records to the open run of a batch."""

    def contents(self) -> Sequence[tuple[EncodedTags, bytes, Expectations]]:
        """What each record says."""

    def checksums(self) -> Iterable[int]:
        """Of each record: tells two records under one number of a named writer apart."""

    def committed(self, first: int, end: int, first_seqnum: int) -> None:
        """Numbers first … end-1 have the seqnums first_seqnum …; some may lie outside of this item."""

    def failed(self, first: int, end: int, error: BokiError) -> None:
        """Numbers first … end-1 joined nothing, or will not be asked for any more."""


class Filler:
    """Fills a number that was answered before it was ordered, and whose record was lost on the way.

    An engine may answer a conflict at once and order the record later (DESIGN §6.6). If it dies in between, the number is
    a hole, and all later ones are refused. The filler takes the number with an expectation that must fail: a conflict
    proves that the book has records, and tag 0 outlives them.
    """

    __slots__ = ("first",)

    def __init__(self, number: int) -> None:
        self.first = number

    @property
    def count(self) -> int:
        return 1

    @property
    def size(self) -> int:
        return 64

    @property
    def decided(self) -> bool:
        return True

    def encode(self, builder: BatchBuilder) -> None:
        builder.add(b"", 0, NO_NAMES, b"")
        builder.expect(0, 0)

    def contents(self) -> Sequence[tuple[EncodedTags, bytes, Expectations]]:
        return [(encode_tags(()), b"", Expectations(((0, 0),), {}))]

    def checksums(self) -> Iterable[int]:
        return (0,)

    def committed(self, first: int, end: int, first_seqnum: int) -> None:
        raise AssertionError(f"number {self.first} was answered as a conflict and is ordered as a record now")

    def failed(self, first: int, end: int, error: BokiError) -> None: ...


_NOTHING: Final[list[Pending]] = []
"""The items of all windows that have none; nothing is ever added to it."""


class Window:
    """The undecided numbers of one writer in one book.

    A client may use 100,000 books, most of them for one record at a time: then what a window touches is what an append costs.
    So it has one list of items, and none while nothing is undecided; and who appends is a window (`Appender`) instead of having
    one. What leaves the front leaves once per verdict, not item by item.

    Args:
        first: its first number; the log has all below.
        flags: of all its runs, as `record_batch` has them.
    """

    __slots__ = (
        "bytes", "flags", "items", "low", "next_number", "ordered", "sent", "sent_again", "sent_items", "writer",
    )  # fmt: skip

    def __init__(self, writer: bytes, first: int = 1, flags: int = 0) -> None:
        self.begin(writer, first, flags)

    def begin(self, writer: bytes, first: int = 1, flags: int = 0) -> None:
        """Is about this writer from now on."""
        self.writer = writer
        self.flags = flags
        self.next_number = first
        self.low = first
        self.ordered = first - 1
        """Highest number that certainly is in the log; so are all below it."""
        self.sent = first - 1
        """Highest number that ever was sent."""
        self.sent_again = 0
        """Highest number that was, or will be, sent more than once."""
        self.bytes = 0
        self.items: list[Pending] = _NOTHING
        self.sent_items = 0

    @property
    def in_flight(self) -> list[Pending]:
        """Items on the current connection."""
        return self.items[: self.sent_items]

    @property
    def queued(self) -> list[Pending]:
        """Items that are not on the current connection."""
        return self.items[self.sent_items :]

    @property
    def undecided(self) -> int:
        return self.next_number - self.low

    @property
    def free(self) -> int:
        """Numbers that may be given now."""
        return limits.WINDOW_RECORDS - (self.next_number - self.low) if self.bytes < WINDOW_BYTES else 0

    def add(self, item: Pending) -> None:
        """Gives the next numbers to an item and queues it."""
        item.first = self.next_number
        self.next_number += item.count
        self.bytes += item.size
        if self.items:
            self.items.append(item)
        else:
            self.items = [item]

    def take_over(self, item: Pending, *, sent: bool) -> None:
        """Its first number is that of an item that was numbered, and perhaps sent, before there was a window."""
        assert self.next_number == item.first and not self.items
        self.add(item)
        if sent:
            self.sent = item.first + item.count - 1
            self.sent_items = 1

    def withdraw(self, item: Pending) -> bool:
        """Takes back an item that was never sent; later ones move up. False when it was sent or is decided."""
        if item.first <= self.sent or item.decided or item not in self.items:
            return False
        self.items.remove(item)
        self.bytes -= item.size
        self.next_number -= item.count
        for later in self.items:
            if later.first > item.first:
                later.first -= item.count
        return True

    # -- sending

    def alone(self, book: int, before: bytes) -> list[Buffer] | None:
        """The batch of what is queued, behind `before`, when that is one record that has nothing special, as most appends
        are; else None, for `fill`."""
        items, at = self.items, self.sent_items
        if at + 1 != len(items):
            return None
        ticket = items[at]
        if type(ticket) is not Ticket or self.flags or ticket.expectations is not NO_EXPECTATIONS:
            return None
        self.sent_items = at + 1
        first, low, tags, flags = ticket.first, self.low, ticket.tags, 0
        if first > self.sent:
            self.sent = first
        else:
            flags = RUN_RESENT
        return batch_of_one(
            book, self.writer, first, low if low < first else first, flags, tags.packed, tags.tag_count, tags.names,
            ticket.data, before,
        )  # fmt: skip

    def fill(self, builder: BatchBuilder, book: int, size: int = 0) -> int:
        """Moves queued items into a batch, as one run, until the batch has its size. At least one.

        Args:
            size: of the batch so far, roughly.

        Returns:
            Its size now.
        """
        items, at = self.items, self.sent_items
        assert at < len(items) and size < FRAME_TARGET_BYTES
        item = items[at]
        first, flags = item.first, self.flags
        low = min(self.low, first)
        builder.start_run(book, self.writer, first, low, flags | (RUN_RESENT if first <= self.sent else 0))
        size += RUN_BYTES
        for item in islice(items, at, None):
            if size >= FRAME_TARGET_BYTES:
                break
            item.encode(builder)
            if flags & RUN_NAMED:
                for crc in item.checksums():
                    builder.checksum(crc)
            size += item.size
            at += 1
        self.sent_items = at
        last = items[at - 1]
        self.sent = max(self.sent, last.first + last.count - 1)
        return size

    def connection_lost(self) -> None:
        """All that is undecided has to be sent again."""
        self.sent_again = self.sent
        self.sent_items = 0

    # -- verdicts

    def committed(self, first: int, count: int, first_seqnum: int) -> None:
        """Numbers first … first+count-1 are records with seqnums from `first_seqnum` on."""
        end = first + count
        if not 0 < first < end <= self.sent + 1:
            raise self._unsent(first, end)
        if end > self.ordered:
            self.ordered = end - 1
        items = self.items
        # The common cases: all of the only item, or of the oldest.
        if items and items[0].first == first and items[0].count == count:
            items[0].committed(first, end, first_seqnum)
            if len(items) == 1:
                self.items = _NOTHING
                self.sent_items = self.bytes = 0
                self.low = self.next_number
                return
        else:
            for item in items:
                number = item.first
                if number >= end:
                    break
                if number >= first or number + item.count > first:
                    item.committed(first, end, first_seqnum)
        self._advance()

    def failed(self, first: int, count: int, error: BokiError, *, ordered: bool) -> None:
        """Numbers first … first+count-1 joined nothing. `ordered`: the log has decided them, not only an engine."""
        end = first + count
        if not 0 < first < end <= self.sent + 1:
            raise self._unsent(first, end)
        if ordered:
            self.ordered = max(self.ordered, end - 1)
        for item in self.items:
            if item.first >= end:
                break
            if item.first + item.count > first:
                item.failed(first, end, error)
        self._advance()

    def find(self, number: int) -> Pending | None:
        """The undecided item that has a number."""
        for item in self.items:
            if item.first <= number < item.first + item.count:
                return None if item.decided else item
        return None

    def gap(self, last: int) -> bool:
        """The log refused a number, because the last one it has is `last`: all from there on is sent again.

        Returns:
            False when the log has forgotten this writer: it had decided numbers above `last`.
        """
        if last > self.sent:
            raise ProtocolError(f"expected the log to have numbers up to {self.sent}, it says {last}", found=last)
        if last < self.ordered or self.low - 1 - last > FILLED_NUMBERS:
            return False
        self.connection_lost()
        start = self.items[0].first if self.items else self.next_number
        self.items = [*(Filler(number) for number in range(last + 1, start)), *self.items]
        return True

    def abandon(self) -> list[tuple[Pending, bool]]:
        """Ends the window: all undecided items, each with whether any of it was ever sent."""
        items = [(item, item.first <= self.sent) for item in self.items if not item.decided]
        self.items = _NOTHING
        self.sent_items = 0
        self.low = self.next_number
        self.bytes = 0
        return items

    def _unsent(self, first: int, end: int) -> ProtocolError:
        return ProtocolError(f"expected verdicts of numbers 1 to {self.sent}, found {first} to {end - 1}", found=first)

    def _advance(self) -> None:
        """Lets go of the items at the front that are decided, but of fillers only once they are sent."""
        items, low = self.items, self.low
        done = 0
        for item in items:
            if not item.decided or (done >= self.sent_items and item.first < low):
                break
            done += 1
            if item.first >= low:  # no filler
                self.bytes -= item.size
        if done == len(items):
            self.items = _NOTHING
            self.sent_items = 0
            self.low = self.next_number
            return
        if done:
            del items[:done]
            self.sent_items = max(self.sent_items - done, 0)
        self.low = max(low, items[0].first)
