"""A named writer: a program that numbers its appends to a book itself, or goes on numbering after a restart.

The log decides each number of a writer once, whoever sends it and however often. So a program that was killed between
sending a record and getting its answer asks for the last number, and knows; or sends the record again under the same number, and
gets the answer of the first. A named writer has one user at a time: two that number apart get `NumberReused`,
as long as their records differ. Equal records merge: both get the seqnum of the one that is in the log, and who sent
the second gets it as a `Duplicate`.

The appends themselves are those of a `Book` under another writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from boki import _arguments as arguments
from boki._append import append, append_in, encode, submit
from boki._append_many import First, append_many
from boki._appends import Appends
from boki._arguments import Data, Expect, Expectations, Tag
from boki._numbers import Numbers
from boki._outcome import Why
from boki._pending import checksum
from boki._ticket import Duplicate, Ticket
from boki._verdicts import unknown
from boki_common import limits
from boki_common.errors import InvalidArgument, NumberReused, WindowFull


class BookOfWriter(Protocol):
    """The book."""

    @property
    def name(self) -> str | int: ...

    async def refresh_view(self) -> None: ...

    async def writer_last(self, writer: bytes, timeout: float | None) -> int: ...


class Writer:
    """Appends to one book under a name. Made by `await book.writer(name)`.

    Its numbers begin at 1 and have no holes; this object gives them in the order of the calls. Answers of the last 1,024
    numbers are kept by the log.
    """

    def __init__(self, book: BookOfWriter, appends: Appends, numbers: Numbers, name: str) -> None:
        self.name: Final = name
        self._book = book
        self._appends = appends
        self._numbers = numbers

    def __repr__(self) -> str:
        return f"<boki.Writer {self.name!r} of {self._book.name!r}, last {self.last}>"

    @property
    def last(self) -> int:
        """The last number that certainly is decided; 0 before the first. What was lost on the way is numbered from here."""
        numbers = self._numbers
        return numbers.ordered if numbers.stale else max(numbers.ordered, numbers.low - 1)

    async def append(
        self, data: Data, *, tags: Sequence[Tag] = (), expect: Expect | None = None, timeout: float | None = None
    ) -> int:
        """Appends one record under the next number. Arguments and errors as `Book.append`; also NumberReused, and WindowFull when
        the writer is given up while this waits for a place: nothing was sent, and the next call asks the log where it goes on."""
        await self._known(timeout)
        return await append(self._appends, self._numbers, self, data, tags, expect, timeout)

    async def append_many(
        self, records: Iterable[tuple[Data, Sequence[Tag]]], *, first: int | None = None, timeout: float | None = None
    ) -> list[int]:
        """Appends many under the next numbers, as `Book.append_many`.

        Args:
            records: as `Book.append_many`.
            first: the number that the first of them must get. A program that hands over batches while others are undecided
                says it, so that after a failure nothing goes on behind a hole.
            timeout: as `Book.append_many`.

        Raises:
            InvalidArgument: the next number is not `first`, or is not known since something was given up: nothing was sent.
            Else as `Book.append_many`; also NumberReused.
        """
        begin = None if first is None else First(first, self.name)
        if begin is None:
            await self._known(timeout)
        else:
            begin.check(self._numbers)
        encoded = arguments.encode_many(records)
        timeout_s = arguments.check_seconds(timeout, "timeout", self._appends.connection.give_up_s)
        return await append_many(self._appends, self._numbers, encoded, timeout_s, begin)

    def submit(self, data: Data, *, tags: Sequence[Tag] = (), expect: Expect | None = None) -> Ticket:
        """Appends without waiting, as `Book.submit`. After a failure WindowFull, until `ready` has asked for `last`."""
        return submit(self._appends, self._numbers, self, data, tags, expect)

    async def ready(self) -> None:
        """Waits until `submit` finds a place; after a failure, asks the log for the last number first. WindowFull: it failed
        meanwhile."""
        await self._known(None)
        await self._appends.ready(self._numbers)

    async def _known(self, timeout: float | None) -> None:
        """After a failure, asks the log for the last number."""
        if self._numbers.stale:
            await self.refresh(timeout)

    async def refresh(self, timeout: float | None = None) -> None:
        """Asks the log for the last number, unless something is undecided here, or was numbered meanwhile: the answer is older."""
        numbers = self._numbers
        asked = numbers.stale, numbers.next_number
        last = await self._book.writer_last(numbers.writer, timeout)
        if asked != (numbers.stale, numbers.next_number) or numbers.undecided:
            return
        if numbers.stale or numbers.low - 1 != last:
            numbers.renew(last + 1)

    async def append_at(
        self,
        number: int,
        data: Data,
        *,
        tags: Sequence[Tag] = (),
        expect: Expect | None = None,
        timeout: float | None = None,
    ) -> int:
        """Appends one record under a number, or returns what became of it when it was appended before.

        Returns:
            Its seqnum; a `Duplicate`, which is an int, if the log had the number before: the record there is equal.

        Raises:
            InvalidArgument: numbers have no holes: it is above the next one. NumberReused: it is another record already.
            AnswerForgotten: it was decided more than 1,024 numbers ago. Else as `Book.append`.
        """
        if self._numbers.stale or number > self._numbers.next_number:
            await self.refresh(timeout)
        numbers = self._numbers
        encoded, checked, expectations = await encode(numbers, self, data, tags, expect)
        if number > numbers.next_number:
            raise InvalidArgument(
                f"expected at most {numbers.next_number} as the next number of writer {self.name!r}, found {number}: its "
                "numbers have no holes",
                expected=numbers.next_number,
                found=number,
            )
        if number == numbers.next_number and self._appends.places.of(numbers):
            ticket = Ticket(encoded, checked, expectations, self)
            timeout_s = arguments.check_seconds(timeout, "timeout", limits.SDK_GIVE_UP_S)
            return await append_in(self._appends, numbers, ticket, timeout_s)
        pending = numbers.find(number)
        if isinstance(pending, Ticket):
            if pending.checksums() != (checksum(encoded, checked, expectations),):
                raise NumberReused(f"number {number} of {self.name!r} is under way for another record", number=number)
            return await pending
        if number >= numbers.low:
            raise WindowFull(f"number {number} of writer {self.name!r} cannot be taken yet; `await writer.ready()`")
        return await self._recall(number, Ticket(encoded, checked, expectations), expectations, timeout)

    async def _recall(self, number: int, ticket: Ticket, expectations: Expectations, timeout: float | None) -> int:
        """Sends a record again under a number that the log has decided."""
        asking = self._appends.recall(self._numbers, number, ticket)
        try:
            give_up_s = self._appends.connection.give_up_s
            async with asyncio.timeout(arguments.check_seconds(timeout, "timeout", give_up_s)):
                return Duplicate(await ticket)
        except TimeoutError as error:
            raise unknown(f"no verdict within {timeout} s", number, asking.writer, asking.book) from error

    async def refresh_view(self) -> None:
        """For the SDK: asks what the session may see of the book by now."""
        await self._book.refresh_view()

    async def why_undecided(self, ticket: Ticket) -> Why:
        """For the SDK: what a record of this writer waits for."""
        return await self._appends.why(self._numbers, ticket)

    def ask_outcome(self, ticket: Ticket, *, settle: bool) -> Ticket | None:
        """For the SDK: nothing of this ticket was given up."""
