"""Engines that misbehave on purpose, behind real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

import boki
from boki._book import Book
from boki.testing import MemoryCluster
from boki.testing._engine import ModelEngine, Peer, appends_of
from boki.testing._model import Model
from boki_common.engine import engine_protocol as wire
from boki_common.engine.answers import AnswerRow, encode_answers
from boki_common.engine.engine_protocol import Query, Verdict
from boki_common.engine.reads_together import decode_reads
from boki_common.errors import BokiError
from boki_common.ids import Position
from boki_common.net.connection import Address, FrameServer
from boki_common.net.messages import MessagePeer, serve_messages
from boki_common.net.strangers import BEFORE_FIRST_FRAME
from boki_common.records.record_batch import RecordBatch, Run
from boki_common.runtime.process import SystemClock


class FaultyEngine(ModelEngine):
    """The model's engine, with faults that a test switches on.

    Attributes:
        refusals: raised for the next APPEND frames, one each.
        lost_frames: so many next APPEND frames vanish.
        early_conflicts: so many next APPEND frames are answered as conflicts, and vanish.
        silent: answers nothing at all.
        says_time: its answer to HELLO has its wall clock, which earlier versions did not say.
        runs: every run that came.
        tokens: of every APPEND frame that came.
        queries: every range read that came by itself.
        together: of every READS that came, its range reads.
        peers: connections, oldest first.
    """

    def __init__(self, model: Model | None = None) -> None:
        super().__init__(model or Model(), SystemClock())
        self.refusals: list[BokiError] = []
        self.lost_frames = 0
        self.early_conflicts = 0
        self.silent = False
        self.says_time = True
        self.runs: list[Run] = []
        self.tokens: list[dict[int, Position]] = []
        self.queries: list[Query] = []
        self.together: list[list[Query]] = []
        self.peers: list[MessagePeer] = []

    def message_received(self, peer: Peer, opcode: int, request_id: int, body: memoryview) -> None:
        if self.silent:
            return
        if opcode == wire.OP_HELLO and not self.says_time:
            hello = {"version": wire.PROTOCOL_VERSION, "features": [], "engine": "early"}
            peer.respond(request_id, opcode, msgspec.msgpack.encode(hello))
            return
        if opcode == wire.OP_READ:
            self.queries.append(wire.decode_read(body)[1])
        elif opcode == wire.OP_READS:
            self.together.append([query for _, query in decode_reads(body)[1]])
        elif opcode == wire.OP_APPEND:
            token, records = wire.decode_token(body)
            self.tokens.append(token)
            batch = RecordBatch.parse(records)
            self.runs.extend(batch.runs)
            if self.refusals:
                raise self.refusals.pop(0)
            if self.lost_frames:
                self.lost_frames -= 1
                return
            if self.early_conflicts:
                self.early_conflicts -= 1
                rows = [
                    AnswerRow(item.book, item.writer, item.number, 0, 0, 1, Verdict.CONFLICT)
                    for item in appends_of(batch)
                ]
                peer.push(wire.OP_ANSWERS, *encode_answers({}, rows))
                return
        super().message_received(peer, opcode, request_id, body)

    def ordered(self, book: int) -> list[bytes]:
        """Data of the book's records: payloads without the two bytes that say there are no names."""
        return [record.payload[2:] for record in self.model.upwards(book, 0, 0, 2**63, 10_000)]

    def made(self, peer: MessagePeer) -> FaultyEngine:
        self.peers.append(peer)
        return self


Serve = Callable[..., Awaitable[tuple[FaultyEngine, str, FrameServer]]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts an engine, on a model of its own unless it is given one; returns it, its URL and its server."""
    servers: list[FrameServer] = []

    async def start(model: Model | None = None) -> tuple[FaultyEngine, str, FrameServer]:
        engine = FaultyEngine(model)
        server = await serve_messages(
            Address.parse(f"unix://{tmp_path}/{len(servers)}"), engine.made, strangers=BEFORE_FIRST_FRAME
        )
        servers.append(server)
        return engine, str(server.address), server

    yield start
    for server in servers:
        await server.close()


@pytest.fixture
async def engine(serve: Serve) -> FaultyEngine:
    """One engine."""
    started, _, _ = await serve()
    return started


@pytest.fixture
async def client(engine: FaultyEngine, tmp_path: Path) -> AsyncIterator[boki.Client]:
    """A client of it."""
    async with boki.connect(f"unix://{tmp_path}/0") as connected:
        yield connected


@pytest.fixture
async def memory() -> AsyncIterator[MemoryCluster]:
    """A cluster in memory."""
    async with MemoryCluster() as cluster:
        yield cluster


@pytest.fixture
def book(client: boki.Client) -> Book:
    """One of its books."""
    return client.book(1)
