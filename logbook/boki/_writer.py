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
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final, Protocol

from boki import _arguments as arguments
from boki._append import Within, append, append_in, encode, nothing_sent, submit
from boki._append_many import First, append_many
from boki._appends import Appends
from boki._arguments import Content, Data, EncodedTags, Expect, Tag
from boki._connection import Connection
from boki._numbers import Numbers
from boki._outcome import Why
from boki._pending import checksum
from boki._ticket import Duplicate, Ticket
from boki._verdicts import unknown
from boki_common.errors import InvalidArgument, NumberReused, WindowFull


class BookOfWriter(Protocol):
    """The book."""

    @property
    def name(self) -> str | int: ...

    async def refresh_view(self, timeout: float | None = None) -> None: ...

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

    def append(
        self, data: Data, *, tags: Sequence[Tag] = (), expect: Expect | None = None, timeout: float | None = None
    ) -> Coroutine[Any, Any, int]:
        """Appends one record under the next number. Arguments and errors as `Book.append`; also NumberReused, and WindowFull when
        the writer is given up while this waits for a place: nothing was sent, and the next call asks the log where it goes on."""
        return self._append(*arguments.taken(data, tags, expect), timeout)

    async def _append(self, data: Data, tags: Sequence[Tag], expect: Expect | None, timeout: float | None) -> int:
        left_s = await self._known(timeout)
        return await append(self._appends, self._numbers, self, data, tags, expect, left_s)

    def append_many(
        self, records: Iterable[tuple[Data, Sequence[Tag]]], *, first: int | None = None, timeout: float | None = None
    ) -> Coroutine[Any, Any, list[int]]:
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
        return self._append_many(
            arguments.encode_many(records), None if first is None else First(first, self.name), timeout
        )

    async def _append_many(
        self, encoded: list[tuple[EncodedTags, bytes]], begin: First | None, timeout: float | None
    ) -> list[int]:
        if begin is None:
            timeout = await self._known(timeout)
        else:
            begin.check(self._numbers)
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

    async def _known(self, timeout: float | None) -> float | None:
        """Ask the log for the last number after a failure. Return what is left of the time-out."""
        if not self._numbers.stale:
            return timeout
        within = Within.of(timeout, self._appends.connection)
        with nothing_sent():
            await self.refresh(within.timeout_s)
        return within.left_s()

    async def refresh(self, timeout: float | None = None) -> None:
        """Asks the log for the last number, unless something is undecided here, or was numbered meanwhile: the answer is older."""
        numbers = self._numbers
        asked = numbers.stale, numbers.next_number
        last = await self._book.writer_last(numbers.writer, timeout)
        if asked != (numbers.stale, numbers.next_number) or numbers.undecided:
            return
        if numbers.stale or numbers.low - 1 != last:
            numbers.renew(last + 1)

    def append_at(
        self,
        number: int,
        data: Data,
        *,
        tags: Sequence[Tag] = (),
        expect: Expect | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, int]:
        """Append one record under a number, or return what became of it when it was appended before. A number that is under way, in
        any session of this client, is waited for.

        Returns:
            Its seqnum; a `Duplicate`, which is an int, if the log had the number before: the record there is equal.

        Raises:
            InvalidArgument: numbers have no holes: it is above the next one. NumberReused: it is another record already.
            AnswerForgotten: it was decided more than 1,024 numbers ago. WindowFull: it cannot be taken yet. Else as `Book.append`.
        """
        return self._append_at(number, *arguments.taken(data, tags, expect), timeout)

    async def _append_at(
        self, number: int, data: Data, tags: Sequence[Tag], expect: Expect | None, timeout: float | None
    ) -> int:
        return await self.append_within(number, data, tags, expect, Within.of(timeout, self._appends.connection))

    async def append_within(
        self, number: int, data: Data, tags: Sequence[Tag], expect: Expect | None, within: Within
    ) -> int:
        """For the SDK: `append_at`, in what is left of a call's time."""
        if self.last_unknown(number):
            await self.refresh(within.left_s())
        numbers, appends = self._numbers, self._appends
        content = await encode(numbers, self, data, tags, expect, within)
        user = appends.user_of(numbers)
        if number > max(numbers.next_number, user.next_number):
            raise InvalidArgument(
                f"expected at most {numbers.next_number} as the next number of writer {self.name!r}, found {number}: its "
                "numbers have no holes",
                expected=numbers.next_number,
                found=number,
            )
        if user is numbers and number == numbers.next_number and appends.places.of(numbers):
            return await append_in(appends, numbers, Ticket(*content, self), within)
        pending = user.find(number)
        if isinstance(pending, Ticket):
            return await self._repeated(user, pending, content, within)
        if number >= user.low:
            raise WindowFull(f"number {number} of writer {self.name!r} cannot be taken yet; `await writer.ready()`")
        return await self._recall(number, Ticket(*content), within)

    def last_unknown(self, number: int) -> bool:
        """For the SDK: return whether the log is to be asked for the last number before this one is appended. Not where the number is
        under way in this client: then the record is waited for."""
        numbers = self._numbers
        if isinstance(self._appends.user_of(numbers).find(number), Ticket):
            return False
        return numbers.stale or number > numbers.next_number

    async def _repeated(self, user: Numbers, pending: Ticket, content: Content, within: Within) -> int:
        """Wait for a record that is under way under the same number, in this session or another one of this client."""
        number = pending.first
        if pending.checksums() != (checksum(*content),):
            raise NumberReused(f"number {number} of {self.name!r} is under way for another record", number=number)
        try:
            async with asyncio.timeout_at(within.deadline):
                seqnum = await pending
        except TimeoutError as error:
            raise unknown(f"no verdict within {within.timeout_s} s", number, user.writer, user.book) from error
        numbers = self._numbers
        if user is not numbers and numbers.special.view is not None:
            numbers.session.merge(user.session.positions)
            numbers.special.view.reached(seqnum)
        return seqnum

    async def _recall(self, number: int, ticket: Ticket, within: Within) -> int:
        """Send a record again under a number that the log has decided."""
        asking = self._appends.recall(self._numbers, number, ticket)
        try:
            async with asyncio.timeout_at(within.deadline):
                return Duplicate(await ticket)
        except TimeoutError as error:
            raise unknown(f"no verdict within {within.timeout_s} s", number, asking.writer, asking.book) from error

    async def refresh_view(self, timeout: float | None = None) -> None:
        """For the SDK: ask what the session may see of the book by now."""
        await self._book.refresh_view(timeout)

    @property
    def idle(self) -> bool:
        """For the SDK: whether no append of it is undecided."""
        return self._numbers.oldest is None

    @property
    def home(self) -> Connection:
        """For the SDK: where its tickets are decided."""
        return self._appends.connection

    async def why_undecided(self, ticket: Ticket) -> Why:
        """For the SDK: what a record of this writer waits for."""
        return await self._appends.why(self._numbers, ticket)

    def ask_outcome(self, ticket: Ticket, *, settle: bool) -> Ticket | None:
        """For the SDK: nothing of this ticket was given up."""
