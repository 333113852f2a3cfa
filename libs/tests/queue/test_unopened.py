"""A record of messages that an owner cannot open (its hook is missing) is passed, kept and told; who can open it handles it, once."""

from __future__ import annotations

import asyncio

import pytest

from boki.testing import MemoryCluster
from bokilib.log import Log
from bokiqueue import Queue, checkpointing
from libs.tests.queue.conftest import settled


class Turned:
    """A payload hook."""

    name = "turned"

    async def seal(self, events: bytes) -> bytes:
        return events[::-1]

    async def open(self, sealed: bytes) -> bytes:
        return sealed[::-1]


async def queue(cluster: MemoryCluster, *, hooked: bool = False) -> Queue[object]:
    log = Log((await cluster.connect()).book("shop"), hook=Turned() if hooked else None)
    return await Queue.open(log, "jobs", object, shards=1, max_deliveries=1)


async def test_it_is_passed_kept_and_told(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "RECORDS_BETWEEN", 3)
    plain, hooked = await queue(cluster), await queue(cluster, hooked=True)
    await plain.push("before")
    await hooked.push_many(["closed", "closed too"])
    for number in range(10):
        await plain.push(number)
    got = []
    async with plain.consume() as messages:
        for _ in range(11):
            async with await anext(messages) as message:
                got.append(message.body)
            await settled(messages)
    assert got == ["before", *range(10)]
    stats = await plain.stats()
    assert (stats.depth, stats.unopened, stats.in_flight) == (1, 1, 0)
    (told,) = await plain.peek()
    assert told.state == "unopened" and "turned" in str(told.body)
    assert [(one.state, one.attempts, one.body) for one in await hooked.peek()] == [
        ("waits", 0, "closed"),
        ("waits", 0, "closed too"),
    ]
    for expected in ("closed", "closed too"):  # a new owner each
        async with hooked.consume() as messages, asyncio.timeout(5), await anext(messages) as message:
            assert (message.body, message.attempt) == (expected, 1)
    assert (await hooked.stats()).depth == 0
    for _ in range(5):
        await hooked.push("more")
    async with hooked.consume() as messages:
        for _ in range(5):
            async with await anext(messages):
                pass
        await settled(messages)
        assert messages._owners[0].progress.floor.seqnum > told.seqnum
