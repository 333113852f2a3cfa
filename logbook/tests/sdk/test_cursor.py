"""A cursor against engines of other versions, and what it asks for. The rest is in `itests/sdk/test_following_tags.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from boki.testing._engine import ModelEngine, Peer
from boki.testing._model import Model
from boki_common.engine import engine_protocol as wire
from boki_common.engine.read_reply import READ_TAKES_TAGS
from boki_common.runtime.ports import Buffer
from boki_common.runtime.process import SystemClock

FLAGS_AT = 2 + 16 + 8
"""Of the answer to a read: behind a token of one log, and the position."""


class PeerOfBefore:
    """What an engine of an earlier version says to it: nothing of reads of several tags."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.push, self.respond_error = peer.push, peer.respond_error

    def respond(self, request_id: int, opcode: int, *body: Buffer) -> None:
        answer = bytearray(b"".join(map(bytes, body)))
        if opcode == wire.OP_READ:
            answer[FLAGS_AT] &= ~READ_TAKES_TAGS
        self._peer.respond(request_id, opcode, bytes(answer))


class EngineOfBefore(ModelEngine):
    """One that ends the connection of who asks for several tags."""

    def message_received(self, peer: Peer, opcode: int, request_id: int, body: memoryview) -> None:
        assert opcode != wire.OP_READ_TAGS, "it does not know what this is"
        super().message_received(PeerOfBefore(peer), opcode, request_id, body)


async def test_an_engine_of_an_earlier_version_is_refused_by_name_and_the_client_goes_on(memory: MemoryCluster) -> None:
    memory._engine = EngineOfBefore(Model(), SystemClock())
    book = (await memory.connect()).book("b")
    await book.append(b"1", tags=["a"])
    with pytest.raises(boki.VersionMismatch, match="upgrade"):
        await anext(book.read(tags=["a", "b"], follow=True))
    found = await book.read_next("a")
    assert found is not None and found.data == b"1"


async def names_asked(work: Callable[[boki.Book], Awaitable[Any]]) -> list[str]:
    """What a program asked a cluster for, in order."""
    asked: list[str] = []
    async with MemoryCluster() as cluster:
        book = (await cluster.connect()).book("b")
        for number in range(3):
            await book.append(b"%d" % number, tags=["a"])
        cluster.before_each = asked.append
        await work(book)
    return asked


async def test_whether_the_engine_takes_such_reads_is_asked_once_a_connection() -> None:
    async def reads(book: boki.Book) -> None:
        for _ in range(3):
            assert len([item async for item in book.read(tags=["a", "b"])]) == 3

    assert await names_asked(reads) == ["read", "read_tags", "read_tags", "read_tags"]


async def test_it_waits_with_one_request_and_a_change_of_tags_ends_it() -> None:
    async def follow(book: boki.Book) -> None:
        cursor = book.read(tags=["never"], follow=True)
        waiting = asyncio.ensure_future(anext(cursor))
        for _ in range(3):
            await book.now()
        cursor.add("nor this")
        cursor.add("a")
        assert (await waiting).data == b"0"

    asked = [name for name in await names_asked(follow) if name == "read_tags"]
    assert len(asked) == 2, "one that waited, and one for all that was added in a turn"


@pytest.mark.parametrize("turns", range(40))
async def test_a_tag_that_is_added_while_an_answer_arrives_begins_with_its_oldest_record(turns: int) -> None:
    """The answer to what was asked before has a record of both tags; an older one of the added tag was not asked for."""
    async with MemoryCluster() as cluster:
        book = (await cluster.connect()).book("b")
        cursor = book.read(tags=["a"], follow=True)
        waiting = asyncio.ensure_future(anext(cursor))
        await book.append(b"b", tags=["b"])
        ticket = book.submit(b"both", tags=["a", "b"])
        for _ in range(turns):
            await asyncio.sleep(0)
        is_given = waiting.done() or cursor.ready
        cursor.add("b", 1)
        await ticket
        found = [(await waiting).data]
        while found[-1] != b"both" or len(found) < 2:
            found.append((await anext(cursor)).data)
        assert found == ([b"both", b"b", b"both"] if is_given else [b"b", b"both"])


async def test_an_engine_keeps_one_request_of_a_cursor(memory: MemoryCluster) -> None:
    book = (await memory.connect()).book("b")
    cursor = book.read(tags=["a"], follow=True)
    for number in range(5):
        waiting = asyncio.ensure_future(anext(cursor))
        for _ in range(3):
            await book.now()
        cursor.add(f"t{number}")
        for _ in range(3):
            await book.now()
        assert memory._engine is not None and len(memory._engine._parked) == 1
        waiting.cancel()
        await asyncio.wait({waiting})
