"""Statistics and messages of a queue, read without consuming it."""

from __future__ import annotations

import pytest

import boki
from bokilib.append.log import Log
from bokilib.testing import FaultyBook
from bokiqueue import NoSuchGroup
from bokiqueue.manage import inspection
from libs.tests.queue.conftest import Another, SetClock, all_appended, book_of


async def test_stats_and_peek_see_what_waits_is_in_flight_and_comes_later(another: Another, clock: SetClock) -> None:
    queue = await another(shards=2)
    await queue.push({"n": 1}, key="k")
    clock.ms += 5_000
    await queue.push("late", delay_s=900)
    await queue.push("waits", key="k")
    async with queue.consume(who="me") as messages:
        await anext(messages)
        await all_appended(messages)
        before = queue.log.appends
        stats = await queue.stats()
        assert (stats.depth, stats.in_flight, stats.delayed, stats.age_ms) == (3, 1, 1, 5_000)
        assert {one.owner for one in stats.shards} == {"me"}
        peeked = await queue.peek()
        assert [(one.state, one.attempts, one.key, one.body) for one in peeked] == [
            ("in flight", 1, "k", {"n": 1}),
            ("delayed", 0, None, "late"),
            ("waits", 0, "k", "waits"),
        ]
        assert len(await queue.peek(1)) == 1
        assert queue.log.appends == before
    with pytest.raises(NoSuchGroup):
        await queue.stats("other")


@pytest.mark.timeout(30)
async def test_shards_that_are_claimed_anew_all_the_time_are_looked_at(another: Another) -> None:
    """Each look at a shard is overtaken once by a newer claim: four in a row never are of one place."""

    class Overtaken(FaultyBook):
        looks = 0

        async def read_prev(self, tag=None, **options):  # type: ignore[no-untyped-def]
            if tag is not None and tag.startswith("queue/own/"):
                self.looks += 1
                if self.looks % 2:
                    raise boki.Trimmed("a newer claim replaced it")
            return await super().read_prev(tag, **options)

    queue = await another(shards=4)
    await queue.push_many([1, 2, 3])
    looking = Log(Overtaken(book_of(queue)))
    stats, _ = await inspection.look(looking, queue._found.config, "default")
    assert stats.depth == 3 and len(stats.shards) == 4


async def test_a_queue_that_is_popped_is_looked_at_as_well(another: Another) -> None:
    queue = await another(mode="pop", shards=1)
    await queue.push_many([1, 2, 3])
    await queue.pop()
    assert (await queue.stats()).depth == 2
    assert [one.body for one in await queue.peek()] == [2, 3]


async def test_the_queues_of_a_book_are_found_beside_what_others_wrote(another: Another) -> None:
    queue = await another("b")
    await another("a", mode="pop")
    await book_of(queue).append(b"of another program", tags=["queue/cfg/x"])
    assert [(one.queue, one.mode) for one in await inspection.queues(queue.log)] == [("a", "pop"), ("b", "consume")]
