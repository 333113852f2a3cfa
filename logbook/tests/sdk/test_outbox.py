"""Books of one log leave together, and apart from those of others; what is guessed wrong is only split by the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.sdk.conftest import FaultyEngine

import boki
from boki._client import Client
from boki._outbox import OUTBOXES, Outboxes
from boki.testing._engine import Peer
from boki.testing._model import Answer, Append
from boki_common.engine import engine_protocol as wire
from boki_common.engine.answers import AnswerRow, encode_answers
from boki_common.ids import Position
from boki_common.net.connection import Address
from boki_common.net.messages import serve_messages
from boki_common.net.strangers import BEFORE_FIRST_FRAME
from boki_common.records.record_batch import RecordBatch


class TwoLogs(FaultyEngine):
    """Answers the appends of each log by themselves; books of odd numbers are on log 1, or all that are in `moved`."""

    def __init__(self) -> None:
        super().__init__()
        self.moved: set[int] = set()
        self.sent: list[list[int]] = []
        """The books of each frame."""
        self._log = 0

    def log_of(self, book: int) -> int:
        return 1 if book in self.moved else book % 2

    def _append(self, peer: Peer, body: memoryview) -> None:
        token, records = wire.decode_token(body)
        batch = RecordBatch.parse(records)
        self.sent.append(batch.books())
        for self._log in (0, 1):
            runs = [at for at, book in enumerate(batch.books()) if self.log_of(book) == self._log]
            if runs:
                part = b"".join((wire.encode_token(token), *batch.subset(runs).at(0, 0, 0)))
                super()._append(peer, memoryview(part))

    def _row(self, item: Append, answer: Answer) -> AnswerRow:
        return super()._row(item, answer)._replace(position=0)  # one for all rows, as engines have it

    def _token(self) -> dict[int, Position]:
        ((_, position),) = super()._token().items()
        return {self._log: position}


@pytest.fixture
async def engine(tmp_path: Path) -> TwoLogs:
    return TwoLogs()


@pytest.fixture
async def client(engine: TwoLogs, tmp_path: Path) -> AsyncIterator[Client]:
    server = await serve_messages(Address.parse(f"unix://{tmp_path}/engine"), engine.made, strangers=BEFORE_FIRST_FRAME)
    async with boki.connect(str(server.address)) as client:
        yield client
    await server.close()


async def append(client: Client, *books: int, size: int = 1) -> None:
    await asyncio.gather(*(client.book(book).append(bytes(size)) for book in books))


async def test_books_of_one_log_leave_in_a_frame_of_their_own(engine: TwoLogs, client: Client) -> None:
    await append(client, 1, 2, 3, 4)
    await append(client, 1, 2, 3, 4)
    await append(client, *range(1, 101))
    assert engine.sent[0] == [1, 2, 3, 4], "nothing is known before the first answers"
    assert engine.sent[1:3] == [[2, 4], [1, 3]]
    assert engine.sent[3] == [2, 4, *range(5, 101)], "new books leave with those of the log that was heard of first"
    assert engine.sent[4] == [1, 3]
    await append(client, *range(1, 101))
    assert engine.sent[5:] == [[*range(2, 101, 2)], [*range(1, 101, 2)]], "many rows teach as few do"
    assert all(len(engine.ordered(book)) == (4 if book < 5 else 2) for book in range(1, 101))


async def test_what_is_known_of_a_book_outlasts_what_is_undecided(engine: TwoLogs, client: Client) -> None:
    await append(client, 2, 1, 1)
    await append(client, 2, 1)
    assert engine.sent[1:] == [[2], [1]]


async def test_a_book_that_moved_leaves_with_its_new_log(engine: TwoLogs, client: Client) -> None:
    await append(client, 1, 2, 4)
    engine.moved = {4}
    await append(client, 1, 2, 4)
    await append(client, 1, 2, 4)
    assert engine.sent[1:] == [[2, 4], [1], [2], [1, 4]]


async def test_a_full_frame_leaves_early_and_what_follows_at_the_end_of_the_turn(
    engine: TwoLogs, client: Client
) -> None:
    await append(client, 1, 2)
    await append(client, 1, 2, 2, 2, 2, 1, size=100_000)
    assert engine.sent[1:] == [[2], [2], [1]]
    assert [run.count for run in engine.runs] == [1, 1, 3, 1, 2]


async def test_a_book_stays_in_its_outbox_until_that_was_sent(engine: TwoLogs, client: Client) -> None:
    """Answers may come between an append and the end of its turn; what is counted is what is sent."""
    await append(client, 1, 2)
    book = client.book(2)
    outbox = book._numbers.outbox
    engine.mute = True
    answered = book.submit(b"first")
    async with asyncio.timeout(5):
        while len(engine.sent) < 2:
            await asyncio.sleep(0)
    waiting = book.submit(b"second")
    row = AnswerRow(2, book._numbers.writer, 2, 99, 99, 1, wire.Verdict.COMMITTED)
    body = b"".join(encode_answers({1: Position(1, 1)}, [row]))
    connection = book.home
    assert connection.peer is not None
    connection.message_received(connection.peer, wire.OP_ANSWERS, 0, memoryview(body))
    assert answered.done() and not waiting.done()
    assert book._numbers.outbox is outbox and outbox.holds(book._numbers)
    engine.mute = False
    await waiting
    assert not list(book._appends._outboxes.frames())
    assert engine.ordered(2) == [b"\0", b"first", b"second"]


async def test_who_is_connected_again_sends_what_every_outbox_had(engine: TwoLogs, client: Client) -> None:
    await append(client, 1, 2)
    engine.lost_frames = 2
    tickets = [client.book(book).submit(b"again") for book in (1, 2)]
    async with asyncio.timeout(5):
        while engine.lost_frames:
            await asyncio.sleep(0)
    engine.peers[0].close()
    await asyncio.gather(*(ticket.wait() for ticket in tickets))
    assert engine.ordered(1) == engine.ordered(2) == [b"\0", b"again"]


def test_one_log_has_one_outbox() -> None:
    outboxes = Outboxes()
    assert outboxes.of({7: Position(1, 1)}) is outboxes.first
    assert outboxes.of({}) is outboxes.of({7: Position(1, 1), 8: Position(2, 1)}) is outboxes.first
    assert outboxes.of({8: Position(2, 1)}) is outboxes.of({8: Position(2, 9)}) is not outboxes.first


def test_logs_beyond_those_with_outboxes_share_the_first() -> None:
    outboxes = Outboxes()
    found = [outboxes.of({log: Position(1, 1)}) for log in range(OUTBOXES + 10)]
    assert found[0] is outboxes.first and len(set(map(id, found))) == OUTBOXES
    assert found[OUTBOXES:] == [outboxes.first] * 10
