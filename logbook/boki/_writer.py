"""A named writer: a program that numbers its appends to a book itself, or goes on numbering after a restart.

The log decides each number of a writer once, whoever sends it and however often. So a program that was killed between
sending a record and hearing of it asks for the last number, and knows; or sends the record again under the same number, and
gets the answer of the first. A named writer has one user at a time: two that number apart get `NumberReused`.

The appends themselves are those of a `Book` under another writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from boki import _arguments as arguments
from boki._arguments import Data, Expect, Expectations, Tag
from boki._pending import Ticket, checksum
from boki_common.errors import InvalidArgument, NumberReused, WindowFull
from boki_common.record_batch import RUN_NAMED

if TYPE_CHECKING:
    from boki._appender import Appender
    from boki._book import Book


class Writer:
    """Appends to one book under a name. Made by `await book.writer(name)`.

    Its numbers begin at 1 and have no holes; this object gives them in the order of the calls. Answers of the last 1,024
    numbers are kept by the log.
    """

    def __init__(self, book: Book, appender: Appender, name: str) -> None:
        self.name: Final = name
        self._book = book
        self._appender = appender

    def __repr__(self) -> str:
        return f"<boki.Writer {self.name!r} of {self._book.name!r}, last {self.last}>"

    @property
    def last(self) -> int:
        """The last number that certainly is decided; 0 before the first. What was lost on the way is numbered from here."""
        appender = self._appender
        return appender.ordered if appender.stale else max(appender.ordered, appender.low - 1)

    async def append(
        self, data: Data, *, tags: Sequence[Tag] = (), expect: Expect | None = None, timeout: float | None = None
    ) -> int:
        """Appends one record under the next number. Arguments and errors as `Book.append`; also NumberReused."""
        await self.ready()
        return await self._book.append(data, tags=tags, expect=expect, timeout=timeout)

    async def append_many(
        self, records: Iterable[tuple[Data, Sequence[Tag]]], *, timeout: float | None = None
    ) -> list[int]:
        """Appends many under the next numbers, as `Book.append_many`."""
        await self.ready()
        return await self._book.append_many(records, timeout=timeout)

    def submit(self, data: Data, *, tags: Sequence[Tag] = (), expect: Expect | None = None) -> Ticket:
        """Appends without waiting, as `Book.submit`. After a failure WindowFull, until `ready` has asked for `last`."""
        if self._appender.stale:
            raise WindowFull(
                f"writer {self.name!r} was given up; `await writer.ready()` asks the log for its last number"
            )
        return self._book.submit(data, tags=tags, expect=expect)

    async def ready(self) -> None:
        """Waits until `submit` finds a place; after a failure, asks the log for the last number first."""
        if self._appender.stale:
            await self.refresh()
        await self._book.ready()

    async def refresh(self, timeout: float | None = None) -> None:
        """Asks the log for the last number, unless something is undecided here."""
        appender = self._appender
        last = await self._book.writer_last(appender.writer, timeout)
        if not appender.undecided and (appender.stale or appender.low - 1 != last):
            appender.renew(last + 1)

    async def append_at(
        self,
        number: int,
        data: Data,
        *,
        tags: Sequence[Tag] = (),
        expect: Expect | None = None,
        timeout: float | None = None,
    ) -> int:
        """Appends one record under a number, or tells what became of it when it was appended before.

        Raises:
            InvalidArgument: numbers have no holes: it is above the next one. NumberReused: it is another record already.
            AnswerForgotten: it was decided more than 1,024 numbers ago. Else as `Book.append`.
        """
        if self._appender.stale or number > self._appender.next_number:
            await self.refresh(timeout)
        appender = self._appender
        if number > appender.next_number:
            raise InvalidArgument(
                f"expected at most {appender.next_number} as the next number of writer {self.name!r}, found {number}: its "
                "numbers have no holes",
                expected=appender.next_number,
                found=number,
            )
        if number == appender.next_number and appender.places:
            return await self._book.append(data, tags=tags, expect=expect, timeout=timeout)
        encoded, checked, expectations = await self._book.encoded(data, tags, expect)
        pending = appender.find(number)
        if isinstance(pending, Ticket):
            if pending.checksums() != (checksum(encoded, checked, expectations),):
                raise NumberReused(f"number {number} of {self.name!r} is under way for another record", number=number)
            return await pending
        if number >= appender.low:
            raise WindowFull(f"number {number} of writer {self.name!r} cannot be taken yet; `await writer.ready()`")
        return await self._recall(number, Ticket(encoded, checked, expectations), expectations, timeout)

    async def _recall(self, number: int, ticket: Ticket, expectations: Expectations, timeout: float | None) -> int:
        """Sends a record again under a number that the log has decided."""
        asking = self._appender.inquiry(self._appender.writer, number, RUN_NAMED)
        asking.sent = asking.ordered = asking.sent_again = number
        ticket.owner = asking
        asking.queue(ticket)
        try:
            async with asyncio.timeout(arguments.check_seconds(timeout, "timeout", asking.connection.give_up_s)):
                return await ticket
        except TimeoutError as error:
            raise asking.unknown(f"no verdict within {timeout} s", number) from error
