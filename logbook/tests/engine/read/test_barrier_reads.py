"""Linearizable reads that share a barrier: who shares, who does not, and what becomes of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from boki_common.engine.engine_protocol import Consistency, Query, Token
from boki_common.engine.read_reply import decode_read_reply
from boki_common.errors import BokiError, NoSequencer, Overloaded
from boki_common.ids import Position
from boki_common.runtime.ports import Buffer
from boki_logbook.read.barrier_reads import FIRST_SLICE_READS, SLICE_READS, TURN_READS, Answer, BarrierReads
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.cluster import RunSpec, committed, data_of, plain_records
from boki_logbook.testing.cluster import query as query_of

ALICE = bytes(15) + b"a"
LINEARIZABLE = Consistency.LINEARIZABLE
QUICK_AND_FEW = EngineSettings(retry_first_s=0.001, retry_limit_s=0.002, replicas=1, acks=1, parked_reads=2)


def view_of(book: int) -> tuple[Token, int]:
    """What a reply about a book shows."""
    return {0: Position(book, 0)}, book


class ScriptedLink:
    """A sequencer that is asked once, and answers what a test sets."""

    def __init__(self, log: int, views: ScriptedViews) -> None:
        self._log, self._views = log, views

    def ask_barrier(self, on_answer: Callable[[Position | BokiError], None]) -> None:
        self._views.barriers.append((self._log, on_answer))


class ScriptedViews:
    """Logs whose barriers are answered by hand. Books 1-9 are of log 0, others of log 1."""

    def __init__(self, *, linked: bool) -> None:
        """`linked`: there are sequencers that can be asked at once."""
        self.linked = linked
        self.barriers: list[tuple[int, Callable[[Position | BokiError], None]]] = []
        """Of which log, and what tells the answer."""
        self.applied = True
        self.moved: dict[int, int] = {}
        self.must_wait: set[int] = set()
        self.broken: set[int] = set()
        self.looked: list[Token] = []
        self.asked: list[Query] = []
        self.ahead: set[int] = set()
        """Books whose readers have seen more elsewhere."""

    def log_of(self, book: int) -> int:
        return self.moved.get(book, int(book >= 10))

    async def barrier(self, book: int) -> tuple[int, Position]:
        future: asyncio.Future[Position | BokiError] = asyncio.get_running_loop().create_future()
        self.barriers.append((self.log_of(book), lambda said: None if future.done() else future.set_result(said)))
        said = await future
        if isinstance(said, BokiError):
            raise said
        return self.log_of(book), said

    def link_of(self, log: int) -> Any:
        return ScriptedLink(log, self) if self.linked else None

    def view_after(self, token: Token, book: int) -> tuple[Token, int] | None:
        self.looked.append(dict(token))
        return view_of(book) if self.applied and book not in self.ahead else None

    async def reach(self, token: Token, book: int) -> None:
        self.looked.append(dict(token))
        self.applied = True

    def answer_here(self, query: Query, seen: Token, covered: int) -> list[Buffer] | None:
        assert (seen, covered) == view_of(query.book)
        self.asked.append(query)
        if query.book in self.broken:
            raise RuntimeError("inside")
        return None if query.book in self.must_wait else [str(query.book).encode()]

    async def answer(self, at: int, log: int, position: Position | BokiError) -> None:
        assert self.barriers[at][0] == log
        self.barriers[at][1](position)
        await turns()


class Connection:
    def __init__(self) -> None:
        self.closed = False
        self.replies: dict[int, bytes] = {}
        self.slices: list[tuple[int, bool]] = []
        """How many replies came together, and whether another one was to follow at once."""
        self.later: dict[int, tuple[Token, Query]] = {}
        self.errors: dict[int, BaseException] = {}

    def respond_reads(self, answers: Sequence[Answer], *, more: bool) -> None:
        for request_id, reply in answers:
            self.replies[request_id] = b"".join(reply)
        self.slices.append((len(answers), more))

    def read_later(self, request_id: int, token: Token, query: Query) -> None:
        self.later[request_id] = token, query

    def read_failed(self, request_id: int, error: BaseException) -> None:
        self.errors[request_id] = error


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture(params=[True, False], ids=["linked", "no sequencer"])
def views(request: pytest.FixtureRequest) -> ScriptedViews:
    return ScriptedViews(linked=request.param)


@pytest.fixture
async def reads(views: ScriptedViews) -> AsyncIterator[BarrierReads]:
    made = BarrierReads(views)
    yield made
    await made.close()


def of_book(book: int) -> Query:
    return query_of(book=book, consistency=LINEARIZABLE)


async def test_reads_of_one_turn_share_a_barrier_for_each_log(views: ScriptedViews, reads: BarrierReads) -> None:
    connection, token = Connection(), {0: Position(3, 9), 5: Position(1, 1)}
    for book in (1, 2, 10, 3):
        reads.add(connection, token, [(book, of_book(book))])
    await turns()
    assert [log for log, _ in views.barriers] == [0, 1]
    assert reads.waiting == 4
    await views.answer(0, 0, Position(3, 7))
    assert connection.replies == {1: b"1", 2: b"2", 3: b"3"}
    assert views.looked == [{0: Position(3, 7)}, *[token] * 3], "the session may have seen more than the barrier"
    assert views.asked == [of_book(book) for book in (1, 2, 3)]
    await views.answer(1, 1, Position(2, 1))
    assert connection.replies[10] == b"10"
    assert reads.waiting == 0


async def test_slices_but_the_last_of_a_connection_say_that_another_follows(
    views: ScriptedViews, reads: BarrierReads
) -> None:
    first, second = Connection(), Connection()
    views.must_wait.add(5)
    views.broken.add(6)
    for number in range(3 * FIRST_SLICE_READS):
        reads.add(first, {}, [(number, of_book(1))])
    for connection, book in ((second, 3), (first, 4), (first, 5), (first, 6)):
        reads.add(connection, {}, [(100 + book, of_book(book))])
    await turns()
    await views.answer(0, 0, Position(1, 1))
    assert list(first.replies) == [*range(3 * FIRST_SLICE_READS), 104]
    assert first.slices == [(FIRST_SLICE_READS, True), (2 * FIRST_SLICE_READS, True), (0, False), (1, False)], (
        "before another connection, and before who has to wait or fails, it is over"
    )
    assert second.slices == [(1, False)]


async def test_the_first_answers_leave_soon_and_slices_grow(views: ScriptedViews, reads: BarrierReads) -> None:
    connection = Connection()
    reads.add(connection, {}, [(number, of_book(1)) for number in range(TURN_READS)])
    await turns()
    await views.answer(0, 0, Position(1, 1))
    sizes = [size for size, _ in connection.slices]
    assert sizes[0] == FIRST_SLICE_READS
    assert all(after == min(2 * before, SLICE_READS) for before, after in pairwise(sizes[:-1]))
    assert [more for _, more in connection.slices] == [*[True] * (len(sizes) - 1), False]
    assert list(connection.replies) == [*range(TURN_READS)]


async def test_what_neighbours_have_in_common_is_looked_at_once_and_nothing_else(
    views: ScriptedViews, reads: BarrierReads
) -> None:
    connection, other = Connection(), Connection()
    old, new = {0: Position(1, 1)}, {0: Position(9, 9)}
    views.ahead.add(2)
    asked = ((connection, 1, old), (connection, 1, dict(old)), (connection, 1, new), (other, 1, new), (other, 2, new))
    for number, (requester, book, token) in enumerate(asked):
        reads.add(requester, token, [(number, of_book(book))])
    await turns()
    await views.answer(0, 0, Position(2, 1))
    assert views.looked == [{0: Position(2, 1)}, old, new, new, new]
    assert list(connection.replies) == [0, 1, 2]
    assert list(other.replies) == [3]
    assert list(other.later) == [4], "its session has seen more than is applied here"


async def test_who_asks_when_the_barrier_has_left_needs_another_one(views: ScriptedViews, reads: BarrierReads) -> None:
    connection = Connection()
    reads.add(connection, {}, [(1, of_book(1))])
    await turns()
    reads.add(connection, {}, [(2, of_book(1))])
    await turns()
    assert len(views.barriers) == 2
    await views.answer(0, 0, Position(1, 1))
    assert list(connection.replies) == [1]


async def test_a_book_that_moved_meanwhile_asks_by_itself(views: ScriptedViews, reads: BarrierReads) -> None:
    connection = Connection()
    for book in (1, 2):
        reads.add(connection, {}, [(book, of_book(book))])
    await turns()
    views.moved[2] = 1
    await views.answer(0, 0, Position(2, 1))
    assert connection.replies == {1: b"1"}
    assert connection.later == {2: ({}, of_book(2))}, "linearizable still"


async def test_what_has_to_wait_goes_on_from_the_position(views: ScriptedViews, reads: BarrierReads) -> None:
    connection = Connection()
    views.must_wait.add(1)
    reads.add(connection, {}, [(1, of_book(1))])
    await turns()
    await views.answer(0, 0, Position(2, 1))
    assert connection.later == {1: ({0: Position(2, 1)}, of_book(1)._replace(consistency=Consistency.SESSION))}


async def test_a_barrier_that_fails_fails_all_who_share_it_and_no_other(
    views: ScriptedViews, reads: BarrierReads
) -> None:
    connection = Connection()
    for book in (1, 2, 10):
        reads.add(connection, {}, [(book, of_book(book))])
    await turns()
    error = NoSequencer("none")
    await views.answer(0, 0, error)
    if views.linked:
        assert not connection.errors, "another one may answer"
        assert [log for log, _ in views.barriers] == [0, 1, 0]
        await views.answer(2, 0, error)
    assert connection.errors == {1: error, 2: error}
    await views.answer(1, 1, Position(1, 1))
    assert connection.replies == {10: b"10"}
    assert reads.waiting == 0


async def test_a_position_that_is_not_applied_yet_is_waited_for(views: ScriptedViews, reads: BarrierReads) -> None:
    connection = Connection()
    views.applied = False
    reads.add(connection, {}, [(1, of_book(1))])
    await turns()
    await views.answer(0, 0, Position(2, 1))
    assert connection.replies == {1: b"1"}
    assert views.looked == [{0: Position(2, 1)}] * (1 + views.linked) + [{}], "and then what the session has seen"
    assert reads.waiting == 0


async def test_nobody_is_answered_after_the_end(views: ScriptedViews, reads: BarrierReads) -> None:
    connection = Connection()
    reads.add(connection, {}, [(1, of_book(1))])
    await turns()
    reads.add(connection, {}, [(2, of_book(2))])
    await reads.close()
    views.barriers[0][1](Position(2, 1))
    await turns()
    assert not connection.replies
    assert len(views.barriers) == 1


async def test_one_that_breaks_and_one_that_is_gone_leave_the_others_alone(
    views: ScriptedViews, reads: BarrierReads
) -> None:
    connection, gone = Connection(), Connection()
    views.broken.add(1)
    reads.add(connection, {}, [(1, of_book(1))])
    reads.add(gone, {}, [(2, of_book(2))])
    reads.add(connection, {}, [(3, of_book(3))])
    await turns()
    gone.closed = True
    await views.answer(0, 0, Position(1, 1))
    assert isinstance(connection.errors.pop(1), RuntimeError)
    assert connection.replies == {3: b"3"}
    assert not (gone.replies or gone.later or gone.errors)


async def test_many_are_answered_in_several_turns(views: ScriptedViews, reads: BarrierReads) -> None:
    connection = Connection()
    for number in range(TURN_READS + 1):
        reads.add(connection, {}, [(number, of_book(1))])
    await turns()
    views.barriers[0][1](Position(1, 1))
    while not connection.replies:
        await asyncio.sleep(0)
    assert len(connection.replies) == TURN_READS
    await turns()
    assert len(connection.replies) == TURN_READS + 1
    assert reads.waiting == 0


async def test_reads_that_came_together_are_answered_as_if_each_had_come_by_itself(
    views: ScriptedViews, reads: BarrierReads
) -> None:
    connection, token = Connection(), {0: Position(1, 1)}
    reads.add(connection, token, [(book, of_book(book)) for book in (1, 1, 10, 2, 11)])
    assert reads.waiting == 5
    await turns()
    assert [log for log, _ in views.barriers] == [0, 1]
    await views.answer(1, 1, Position(2, 1))
    assert connection.replies == {10: b"10", 11: b"11"}
    await views.answer(0, 0, Position(2, 1))
    assert connection.replies == {1: b"1", 2: b"2", 10: b"10", 11: b"11"}
    assert connection.slices == [(2, False), (3, False)]
    assert reads.waiting == 0


async def test_reads_of_an_engine_see_what_was_ordered_before_them(cluster: Any, core: Any) -> None:
    await committed(core, RunSpec(1, ALICE, 1, plain_records("x", "y")))
    connection = Connection()
    entries = len(cluster.log.history[cluster.log.term])
    for number in range(64):
        core.reader.linearizable(connection, {}, [(number, query_of(start=number % 2, consistency=LINEARIZABLE))])
    await cluster.until(lambda: len(connection.replies) == 64)
    assert len(cluster.log.history[cluster.log.term]) == entries + 1, "one metalog entry for all of them"
    for reply in connection.replies.values():
        assert data_of(decode_read_reply(memoryview(reply))) == [b"x", b"y"]
    assert core.reader.parked == 0


async def test_how_many_may_wait_is_bounded(cluster: Any) -> None:
    core = await cluster.engine(settings=QUICK_AND_FEW)
    connection = Connection()
    core.reader.linearizable(connection, {}, [(1, query_of(consistency=LINEARIZABLE))])
    core.reader.linearizable(connection, {}, [(2, query_of(consistency=LINEARIZABLE))])
    with pytest.raises(Overloaded, match="2 reads wait"):
        core.reader.linearizable(connection, {}, [(3, query_of(consistency=LINEARIZABLE))])
    await cluster.until(lambda: len(connection.replies) == 2)
