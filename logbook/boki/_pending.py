"""What was appended and is not decided yet: tickets (one record) and chunks (part of an `append_many`).

A pending item covers the numbers first … first+count-1 of its writer. It encodes itself into batches as often as they are
sent, and is told the verdict of each of its numbers once; later verdicts of the same numbers change nothing.

No future is made before somebody waits: most tickets of a pipeline are decided before anybody asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import crc32c as _crc32c

from boki._arguments import NO_EXPECTATIONS, EncodedTags, Expectations
from boki._outcome import Committed, Never, Outcome, Why
from boki_common.batch_builder import BatchBuilder
from boki_common.errors import BokiError, Conflict, OutcomeUnknown, Unreachable

if TYPE_CHECKING:
    from boki._abandoned import Abandoned
    from boki._appender import Appender
    from boki._lane import Lane

Content: TypeAlias = tuple[EncodedTags, bytes, Expectations]
"""What a record says, whatever its number."""

_PAIR: Final = Struct("<QQ")


def checksum(tags: EncodedTags, data: bytes, expectations: Expectations = NO_EXPECTATIONS) -> int:
    """crc32c of a record: its tags with their names, its data, its expectations."""
    crc = _crc32c.crc32c(tags.names, _crc32c.crc32c(tags.packed))
    crc = _crc32c.crc32c(data, crc)
    return _crc32c.crc32c(b"".join(_PAIR.pack(*pair) for pair in expectations.pairs), crc)


class Ticket:
    """One submitted record. `await ticket` gives its seqnum, or raises what became of it.

    Awaiting is possible any number of times and by several tasks. A ticket that nobody awaits tells nobody. Cancelling
    an await withdraws nothing: the record stays in the pipeline.
    """

    __slots__ = (
        "_others", "_outcome", "_waiter", "abandoned", "data", "decided", "expectations", "first", "owner", "sent", "size",
        "tags",
    )  # fmt: skip

    def __init__(
        self,
        tags: EncodedTags,
        data: bytes,
        expectations: Expectations = NO_EXPECTATIONS,
        owner: Appender | Lane | None = None,
    ) -> None:
        self.first = 0
        self.owner = owner
        """Who has its number: its appender, or its lane while it is alone. Then this tells whether it is under way:"""
        self.sent = False
        self.abandoned: Abandoned | None = None
        """What was sent and given up together with this record."""
        self.tags = tags
        self.data = data
        self.expectations = expectations
        self.size = len(data) + tags.overhead_bytes
        self.decided = False
        self._outcome: int | BokiError | None = None
        self._waiter: asyncio.Future[int | BokiError] | None = None
        self._others: list[asyncio.Future[int | BokiError]] | None = None
        """Who waits besides; most often nobody."""

    def done(self) -> bool:
        """Whether awaiting it would return or raise at once."""
        return self.decided

    def __await__(self) -> Generator[Any, None, int]:
        if not self.decided:
            yield from self.wait()
        return self.result()

    def result(self) -> int:
        """For the SDK: of a decided record, its seqnum; raises what became of it."""
        outcome = self._outcome
        if type(outcome) is int:
            return outcome
        assert isinstance(outcome, BokiError)
        raise outcome

    def __repr__(self) -> str:
        state = repr(self._outcome) if self.decided else "undecided"
        return f"<boki.Ticket number={self.first} {state}>"

    def wait(self) -> asyncio.Future[int | BokiError]:
        """A future that ends when the record is decided: with its seqnum, or with what `result` raises. Cancelling it disturbs
        no other."""
        owner = self.owner
        loop = asyncio.get_running_loop() if owner is None else owner.connection.loop
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
                or the log has forgotten its writer: nobody can know. AnswerForgotten, NumberReused: of a named writer.
            ClosedError: the client is closed.
        """
        if not self.decided:
            await self.wait()
        found = self._outcome
        if isinstance(found, OutcomeUnknown) and self.abandoned is not None:
            asked = self.abandoned.ask(self.first, settle=settle)
            if not asked.decided:
                await asked.wait()
            found = asked._outcome
        if type(found) is int:
            return Committed(found)
        if isinstance(found, Conflict):
            return found
        assert isinstance(found, BokiError)
        if isinstance(found, Unreachable) or found.facts.get("never"):
            return Never()
        raise found

    @property
    def settled(self) -> bool:
        """For the SDK: whether it is decided, and known how."""
        return self.decided and not isinstance(self._outcome, OutcomeUnknown)

    async def why(self) -> Why:
        """What the record waits for: `why.waits_for` is one word, `str(why)` says it to a person.

        Asks the engine how far it is; the answer is of the moment.
        """
        if self.decided or self.owner is None:
            return Why("nothing", repr(self))
        return await self.owner.why(self)

    # -- what the SDK calls: `Pending` of `_window`

    count: int = 1
    """For the SDK: one number."""

    def contents(self) -> list[Content]:
        """For the SDK: what would be sent again."""
        return [(self.tags, self.data, self.expectations)]

    def checksums(self) -> Iterable[int]:
        """For the SDK: told apart from other records under its number."""
        return (checksum(self.tags, self.data, self.expectations),)

    def become_void(self, tags: EncodedTags) -> None:
        """For the SDK: nothing of the record is sent any more."""
        self.tags, self.data, self.expectations = tags, b"", NO_EXPECTATIONS

    def encode(self, builder: BatchBuilder) -> None:
        """For the SDK: adds the record to a batch."""
        tags = self.tags
        builder.add(tags.packed, tags.tag_count, tags.names, self.data)
        for tag, seqnum in self.expectations.pairs:
            builder.expect(tag, seqnum)

    def committed(self, first: int, end: int, first_seqnum: int) -> None:
        """For the SDK: the verdict."""
        if not self.decided:
            self.decided = True
            self._outcome = seqnum = first_seqnum + self.first - first
            waiter = self._waiter
            if waiter is not None and not waiter.done():
                waiter.set_result(seqnum)
            if self._others is not None:
                self._wake_others(seqnum)

    def failed(self, first: int, end: int, error: BokiError) -> None:
        """For the SDK: the verdict."""
        if not self.decided:
            self.decided = True
            self._outcome = error
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(error)
            if self._others is not None:
                self._wake_others(error)

    def _wake_others(self, outcome: int | BokiError) -> None:
        for future in self._others or ():
            if not future.done():
                future.set_result(outcome)


class Chunk:
    """Consecutive records of one `append_many`, without expectations. Seqnum 0 means undecided, -1 failed."""

    __slots__ = ("_future", "_records", "_undecided", "count", "decided", "error", "first", "seqnums", "size")

    def __init__(self, records: Sequence[tuple[EncodedTags, bytes]], size: int) -> None:
        self.first = 0
        self.count = len(records)
        self.size = size
        self.decided = False
        self.seqnums = [0] * len(records)
        self.error: BokiError | None = None
        self._records = records
        self._undecided = len(records)
        self._future: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Waits until every record is decided. For one waiter."""
        if not self.decided:
            self._future = asyncio.get_running_loop().create_future()
            await self._future

    def encode(self, builder: BatchBuilder) -> None:
        tags = [one for one, _ in self._records]
        builder.add_many(
            [one.packed for one in tags],
            [one.tag_count for one in tags],
            [one.names for one in tags],
            [data for _, data in self._records],
        )

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
        else:  # part of it was known: what was told stays
            for index in range(start, stop):
                self.seqnums[index] = self.seqnums[index] or first_seqnum + index - start
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
        if not self._undecided:
            self.decided = True
            if self._future is not None and not self._future.done():
                self._future.set_result(None)
