"""What was appended and is not decided yet: tickets (one record) and chunks (part of an `append_many`).

Each covers the numbers first … first+count-1 of its writer (`_numbers`). It encodes itself into batches as often as they are
sent, and gets the verdict of each of its numbers once; later verdicts of the same numbers change nothing.

No future is made before somebody waits: most tickets of a pipeline are decided before anybody asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final, Protocol

from boki._arguments import NO_EXPECTATIONS, Content, EncodedTags, Expectations
from boki._outcome import Committed, Never, Outcome, Why
from boki._pending import Pending, checksum
from boki_common.errors import BokiError, Conflict, OutcomeUnknown, Unreachable
from boki_common.records.batch_builder import BatchBuilder


class Duplicate(int):
    """A seqnum, of a record that was in the log already when this one came under the same writer and number.

    Then the record that was sent is not in the log itself. That it was there is certain; a plain int of a named writer says
    that it was not, or that this program sent the record more than once, and cannot know which of them it was.
    """

    __slots__ = ()


class Home(Protocol):
    """Where tickets are decided: the connection of a client."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    def check_here(self) -> None:
        """Raise WrongLoop in another event loop."""


class Owner(Protocol):
    """Who a ticket asks about its record."""

    @property
    def home(self) -> Home: ...

    async def why_undecided(self, ticket: Ticket) -> Why:
        """What the record waits for."""

    def ask_outcome(self, ticket: Ticket, *, settle: bool) -> Ticket | None:
        """A ticket that is decided when what was given up is; None where nothing was. Raises WriterForgotten, ClosedError."""


class Ticket:
    """One submitted record. `await ticket` gives its seqnum, or raises what became of it.

    Awaiting is possible any number of times and by several tasks. A ticket that nobody awaits reports to nobody. Cancelling
    an await withdraws nothing: the record stays in the pipeline.
    """

    __slots__ = ("_others", "_outcome", "_owner", "_waiter", "data", "expectations", "first", "next", "size", "tags")

    def __init__(
        self,
        tags: EncodedTags,
        data: bytes,
        expectations: Expectations = NO_EXPECTATIONS,
        owner: Owner | None = None,
    ) -> None:
        self.first = 0
        self.next: Pending | None = None
        self.tags = tags
        self.data = data
        self.expectations = expectations
        size = len(data) + tags.overhead_bytes
        self.size: Final = size if expectations is NO_EXPECTATIONS else size + expectations.size
        self._owner = owner
        self._outcome: int | BokiError | None = None
        self._waiter: asyncio.Future[int | BokiError] | None = None
        self._others: list[asyncio.Future[int | BokiError]] | None = None
        """Who waits besides; most often nobody."""

    def done(self) -> bool:
        """Whether awaiting it would return or raise at once."""
        return self._outcome is not None

    def __await__(self) -> Generator[Any, None, int]:
        if self._outcome is None:
            yield from self.wait()
        return self.result()

    def result(self) -> int:
        """For the SDK: of a decided record, its seqnum; raises what became of it."""
        outcome = self._outcome
        if isinstance(outcome, int):
            return outcome
        assert isinstance(outcome, BokiError)
        raise outcome.again()  # of many who await it, each has an exception of its own

    def __repr__(self) -> str:
        state = "undecided" if self._outcome is None else repr(self._outcome)
        return f"<boki.Ticket number={self.first} {state}>"

    def wait(self, loop: asyncio.AbstractEventLoop | None = None) -> asyncio.Future[int | BokiError]:
        """A future that ends when the record is decided: with its seqnum, or with what `result` raises. Cancelling it disturbs
        no other.

        Args:
            loop: the running one, from who knows it: CPython 3.11 makes a system call to find it.
        """
        if loop is None:
            loop = asyncio.get_running_loop()
            if self._owner is not None and self._owner.home.loop is not loop:
                self._owner.home.check_here()
        future: asyncio.Future[int | BokiError] = loop.create_future()
        if self._waiter is None:
            self._waiter = future
        elif self._others is None:
            self._others = [future]
        else:
            self._others.append(future)
        return future

    async def outcome(self, *, settle: bool = False) -> Outcome:
        """What certainly became of the record, whatever failed: `Committed`, `Conflict` (the error itself) or `Never`.

        While the record is undecided this waits for it. If it was given up (its await raised OutcomeUnknown), it is asked
        for again, through whatever engine this client reaches by now: sent once more under its number, which applies it
        if it was not, and never twice. So are the given-up records before it, because their numbers come first.

        Args:
            settle: do not apply what was not applied: void its number, and those of given-up records before it. What is
                ordered first stands, the record or the void; so the answer is final either way.

        Raises:
            OutcomeUnknown: still no verdict; it may be asked again. WriterForgotten: it was given up over 30 minutes ago,
                or the log has forgotten its writer: nobody can know, read the book. AnswerForgotten, NumberReused: of a named writer.
            ClosedError: the client is closed.
        """
        if self._outcome is None:
            await self.wait()
        found = self._outcome
        if isinstance(found, OutcomeUnknown) and self._owner is not None:
            asked = self._owner.ask_outcome(self, settle=settle)
            if asked is not None:
                if not asked.done():
                    await asked.wait()
                found = asked._outcome
        if isinstance(found, int):
            return Committed(found)
        if isinstance(found, Conflict):
            return found
        assert isinstance(found, BokiError)
        if isinstance(found, Unreachable) or found.facts.get("never"):
            return Never()
        raise found.again()

    async def why(self) -> Why:
        """What the record waits for: `why.waits_for` is one word, `str(why)` says it to a person.

        Asks the engine how far it is; the answer is of the moment.
        """
        if self._outcome is not None or self._owner is None:
            return Why("nothing", repr(self))
        return await self._owner.why_undecided(self)

    # -- what the SDK calls: `Pending` of `_numbers`

    count: int = 1
    """For the SDK: one number."""

    partly_decided: bool = False

    @property
    def decided(self) -> bool:
        """For the SDK: as `done`."""
        return self._outcome is not None

    @property
    def settled(self) -> bool:
        """For the SDK: whether it is decided, and known how."""
        return self._outcome is not None and not isinstance(self._outcome, OutcomeUnknown)

    def numbered(self, first: int) -> None:
        """For the SDK: its number."""
        self.first = first

    def linked(self, after: Pending | None) -> None:
        """For the SDK: what has the next number."""
        self.next = after

    def given_up(self, owner: Owner) -> None:
        """For the SDK: who is asked for the outcome from now on."""
        self._owner = owner

    def contents(self) -> list[Content]:
        """For the SDK: what would be sent again."""
        return [(self.tags, self.data, self.expectations)]

    def checksums(self) -> Iterable[int]:
        """For the SDK: what distinguishes it from other records under its number."""
        return (checksum(self.tags, self.data, self.expectations),)

    def encode(self, builder: BatchBuilder) -> None:
        """For the SDK: adds the record to a batch."""
        builder.add_rows((self.tags,), (self.data,))
        for tag, seqnum in self.expectations.pairs:
            builder.expect(tag, seqnum)

    def committed(self, first: int, end: int, first_seqnum: int) -> None:
        """For the SDK: the verdict."""
        if self._outcome is None:  # as `_resolve`, of the verdict that nearly all get
            self._outcome = seqnum = first_seqnum + self.first - first
            waiter = self._waiter
            if waiter is not None and not waiter.done():
                waiter.set_result(seqnum)
            if self._others is not None:
                self._wake_others(seqnum)

    def was_there(self, first: int, end: int, first_seqnum: int) -> None:
        """For the SDK: the verdict, of a number that the log had before."""
        if self._outcome is None:
            self._resolve(Duplicate(first_seqnum + self.first - first))

    def failed(self, first: int, end: int, error: BokiError) -> None:
        """For the SDK: the verdict."""
        if self._outcome is None:
            self._resolve(error)

    def _resolve(self, outcome: int | BokiError) -> None:
        self._outcome = outcome
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(outcome)
        if self._others is not None:
            self._wake_others(outcome)

    def _wake_others(self, outcome: int | BokiError) -> None:
        for future in self._others or ():
            if not future.done():
                future.set_result(outcome)


class Chunk:
    """Consecutive records of one `append_many`, without expectations. Seqnum 0 means undecided, -1 failed."""

    __slots__ = ("_future", "_records", "_undecided", "count", "error", "first", "next", "seqnums", "size")

    expectations: Expectations = NO_EXPECTATIONS

    def __init__(self, records: Sequence[tuple[EncodedTags, bytes]], size: int) -> None:
        self.first = 0
        self.next: Pending | None = None
        self.count = len(records)
        self.size: Final = size
        self.seqnums = [0] * len(records)
        self.error: BokiError | None = None
        self._records = records
        self._undecided = len(records)
        self._future: asyncio.Future[None] | None = None

    @property
    def decided(self) -> bool:
        return not self._undecided

    @property
    def partly_decided(self) -> bool:
        return 0 < self._undecided < self.count

    async def wait(self) -> None:
        """Waits until every record is decided. For one waiter."""
        if self._undecided:
            self._future = asyncio.get_running_loop().create_future()
            await self._future

    def numbered(self, first: int) -> None:
        self.first = first

    def linked(self, after: Pending | None) -> None:
        self.next = after

    def given_up(self, owner: Owner) -> None: ...

    def encode(self, builder: BatchBuilder) -> None:
        builder.add_rows([tags for tags, _ in self._records], [data for _, data in self._records])

    def contents(self) -> list[Content]:
        return [(tags, data, NO_EXPECTATIONS) for tags, data in self._records]

    def checksums(self) -> Iterable[int]:
        return [checksum(tags, data) for tags, data in self._records]

    def committed(self, first: int, end: int, first_seqnum: int) -> None:
        start, stop = max(first - self.first, 0), min(end - self.first, self.count)
        first_seqnum += self.first + start - first
        new = self.seqnums[start:stop].count(0)
        if new == stop - start:
            self.seqnums[start:stop] = range(first_seqnum, first_seqnum + new)
        else:  # part of it was known, and stays
            for index in range(start, stop):
                self.seqnums[index] = self.seqnums[index] or first_seqnum + index - start
        self._decided(new)

    def was_there(self, first: int, end: int, first_seqnum: int) -> None:
        start, stop = max(first - self.first, 0), min(end - self.first, self.count)
        first_seqnum += self.first - first
        new = self.seqnums[start:stop].count(0)
        self.seqnums[start:stop] = [self.seqnums[at] or Duplicate(first_seqnum + at) for at in range(start, stop)]
        self._decided(new)

    def failed(self, first: int, end: int, error: BokiError) -> None:
        start, stop = max(first - self.first, 0), min(end - self.first, self.count)
        new = self.seqnums[start:stop].count(0)
        if new:
            self.error = self.error or error
            self.seqnums[start:stop] = [seqnum or -1 for seqnum in self.seqnums[start:stop]]
            self._decided(new)

    def _decided(self, count: int) -> None:
        self._undecided -= count
        if not self._undecided and self._future is not None and not self._future.done():
            self._future.set_result(None)
