"""Decisions whose records are answered late: callers get what the log has, or that it is unknown, and always get something."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import OutcomeUnknown
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.errors import Fenced
from bokilib.ports import BookPort, Expect, Tag, TicketPort
from bokilib.testing import FaultyBook
from bokiqueue import Message, Queue

LEASE_S = 6.0


class LateAnswers(FaultyBook):
    """A book whose appends are not answered while it is `late`; they get into the log at once."""

    def __init__(self, book: BookPort) -> None:
        super().__init__(book)
        self.late = False

    def submit(self, data: bytes, *, tags: Sequence[Tag] = (), expect: Expect | None = None) -> TicketPort:
        return _LateTicket(self, super().submit(data, tags=tags, expect=expect))

    async def answered(self) -> None:
        while self.late:
            await let_pass(0.1)


class _LateTicket:
    def __init__(self, book: LateAnswers, ticket: TicketPort) -> None:
        self._book = book
        self._ticket = ticket

    def __await__(self) -> Generator[object, None, int]:
        return self._wait().__await__()

    async def _wait(self) -> int:
        seqnum = await self._ticket
        await self._book.answered()
        return seqnum

    async def outcome(self, *, settle: bool = False) -> boki.Outcome:
        found = await self._ticket.outcome(settle=settle)
        await self._book.answered()
        return found


async def late(cluster: MemoryCluster) -> tuple[Queue[object], LateAnswers]:
    book = LateAnswers((await cluster.connect()).book("b"))
    return await Queue.open(book, "jobs", object, shards=1, dead_letter="dead", max_deliveries=1), book


DECISIONS: dict[str, Callable[[Message[object]], asyncio.Future[None]]] = {
    "ack": lambda message: message.ack(),
    "nack": lambda message: message.nack(),
    "give up": lambda message: message.give_up("bad"),
}


@pytest.mark.parametrize("how", DECISIONS)
@in_virtual_time
async def test_a_decision_in_the_log_is_told_though_its_shard_was_taken_meanwhile(how: str) -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        queue, book = await late(cluster)
        other = await Queue.open((await cluster.connect()).book("b"), "jobs", object)
        await queue.push("order")
        async with (
            queue.consume(who="a", member_lease_s=LEASE_S) as first,
            other.consume(who="b", member_lease_s=LEASE_S) as second,
        ):
            message = await anext(first)
            await let_pass(1)
            book.late = True
            told = DECISIONS[how](message)
            await second.has(1)
            assert first.shards == []
            book.late = False
            await told
        assert (await other.stats()).depth == 0


@pytest.mark.parametrize("how", DECISIONS)
@in_virtual_time
async def test_a_caller_of_a_member_that_leaves_gets_an_answer_when_the_log_gives_none(how: str) -> None:
    """Of the record on its way that its outcome is unknown, of what would have been in the next that it did not happen."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        queue, book = await late(cluster)
        await queue.push_many(["sent", "not sent"])
        async with queue.consume(member_lease_s=LEASE_S) as member:
            messages = {message.body: message for message in [await anext(member), await anext(member)]}
            await let_pass(1)
            book.late = True
            sent = DECISIONS[how](messages["sent"])
            await let_pass(0.1)
            not_sent = DECISIONS[how](messages["not sent"])
        async with asyncio.timeout(1):
            with pytest.raises(OutcomeUnknown, match="before the log said"):
                await sent
            with pytest.raises(Fenced):
                await not_sent
        book.late = False
        assert (await queue.stats()).depth == 1
