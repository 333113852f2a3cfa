"""The messages that an owner reads ahead, also when they are rewritten meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from bokiqueue.checkpoint import old_messages
from libs.tests.queue.conftest import DAY_MS, Another, SetClock, all_appended, round_of


async def test_who_reads_on_finds_in_the_set_what_was_trimmed_beneath_him(
    another: Another, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bokiqueue.shard.arrivals.READ_AHEAD", 8)
    monkeypatch.setattr("bokiqueue.manage.carrying.PART_BYTES", 300)
    queue = await another(shards=1)
    for number in range(40):
        await queue.push(number)
    async with queue.consume(prefetch=4) as messages:
        first = await anext(messages)
        got = [first.body]
        await first.ack()
        clock.ms += DAY_MS * 3 // 5
        messages._owners[0]._clock.observe(clock.ms, asyncio.get_running_loop().time())
        messages._owners[0].tend()
        await all_appended(messages)
        clock.ms += DAY_MS * 3 // 5
        other = await another()
        await round_of(other)
        assert (await old_messages.newest(other.log, "jobs", 0, await other.log.book.now())).covers
        for _ in range(39):
            async with await anext(messages) as message:
                got.append(message.body)
        assert got == list(range(40))
