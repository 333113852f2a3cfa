"""Views that a process keeps: brought up by one query, and read by one task for all that wait for them."""

from __future__ import annotations

import asyncio

import pytest

import boki
from boki.testing import MemoryCluster
from bokilib.testing import FaultyBook
from bokistore import BokiStore, Inc, StoreSettings
from bokistore.model.fold import gone
from bokistore.read.cached import RunningReads
from bokistore.read.view_cache import ViewCache
from libs.tests.store.conftest import Another

BARE = StoreSettings(checkpoints=False, cached_views=0, aux_data=False)


async def test_a_cached_object_is_one_question_and_nothing_is_folded(store: BokiStore) -> None:
    await asyncio.gather(*(store.object("x").send(Inc("n", 1)) for _ in range(20)))
    counted = FaultyBook(store.log.book)
    reader = BokiStore(counted, settings=StoreSettings(checkpoints=False, aux_data=False))
    assert await reader.object("x").get("n") == 20
    before, folded = len(counted.operations), reader.views.checkpoints.folded
    assert await reader.object("x").get("n") == 20
    assert (len(counted.operations) - before, reader.views.checkpoints.folded) == (1, folded)
    await store.object("x").inc("n")
    assert await reader.object("x").get("n") == 21
    assert reader.views.checkpoints.folded == folded + 1, "what is new, and no more"


async def test_what_was_lost_somewhere_is_nobodys_error_but_his_whose_records_it_was(cluster: MemoryCluster) -> None:
    """Of a record that is lost nobody knows the streams: whoever reads what is new gets the error, whatever the stream."""

    class Losing(FaultyBook):
        lost = 0

        async def read_since(self, seen, **options):  # type: ignore[no-untyped-def]  # the port's arguments
            if seen and min(seen.values()) < self.lost:
                raise boki.Lost("something is lost", first=self.lost, last=self.lost, tag=None)
            return await super().read_since(seen, **options)

    book = Losing((await cluster.connect()).book("shop"))
    store = BokiStore(book, settings=BARE)
    for name in ("x", "y"):
        await store.object(name).inc("n")
    book.lost = (book.position or 0) + 1
    await store.object("z").inc("n")
    found = await asyncio.gather(*(store.object(name).get("n") for name in "xyz"), store.values(["y", "x"]))
    assert found == [1, 1, 1, [{"n": 1}, {"n": 1}]]
    async with store.snapshot(of=["x"]) as then:
        assert await then.get("x", "n") == 1


async def test_who_reads_an_object_while_it_is_had_anew_does_not_have_it_anew_too(
    store: BokiStore, another: Another
) -> None:
    for number in range(5):
        await store.object("x").set("n", number)
    reader = await another()
    found = await asyncio.gather(*(reader.object("x").get("n") for _ in range(20)))
    assert (found, reader.views.checkpoints.folded) == ([4] * 20, 5)
    place = await reader.log.book.now()
    await store.object("y").set("n", 1)
    snapshots = [reader.values(["x", "y"], at=place), reader.values(["y"])]
    assert await asyncio.gather(*snapshots) == [[{"n": 4}, None], [{"n": 1}]]


async def test_who_waits_for_an_object_goes_on_when_the_other_gives_up(store: BokiStore, another: Another) -> None:
    await store.object("x").set("n", 1)
    reader = await another()
    first = asyncio.ensure_future(reader.object("x").get("n"))
    await asyncio.sleep(0)
    others = asyncio.gather(*(reader.object("x").get("n") for _ in range(3)))
    await asyncio.sleep(0)
    first.cancel()
    assert await others == [1, 1, 1]
    assert not reader.views.cached._running._ends


@pytest.mark.parametrize("later", range(0, 40, 3))
async def test_lists_that_overlap_are_had_anew_once_an_object(store: BokiStore, another: Another, later: int) -> None:
    """As timelines do: who waits for one of his list finds another of it under way by then."""
    for name in "abc":
        await store.object(name).set("", {"n": 1})
    reader = await another()
    place = await reader.log.book.now()
    first = [asyncio.ensure_future(reader.values(names, at=place)) for names in ("a", "ab")]
    for _ in range(later):
        await asyncio.sleep(0)
    found = await asyncio.gather(*first, reader.values("bc", at=place))
    assert found == [[{"n": 1}], [{"n": 1}] * 2, [{"n": 1}] * 2]
    assert reader.views.checkpoints.folded == 3


async def test_a_read_from_an_event_loop_that_stops_holds_up_nobody(store: BokiStore) -> None:
    """As a workflow's does, which is never run again: the next read of this process is answered."""
    await store.object("x").set("n", 1)

    def begin() -> tuple[asyncio.AbstractEventLoop, asyncio.Task[object]]:
        loop = asyncio.new_event_loop()
        task: asyncio.Task[object] = loop.create_task(store.object("x").value())
        loop.run_until_complete(asyncio.sleep(0))
        return loop, task

    loop, task = await asyncio.to_thread(begin)
    assert not task.done()
    async with asyncio.timeout(10):
        assert await store.object("x").value() == {"n": 1}
        assert await store.values(["x", "y"]) == [{"n": 1}, None]
    task.cancel()
    await asyncio.to_thread(loop.run_until_complete, asyncio.gather(task, return_exceptions=True))
    loop.close()


# -- running reads


async def _turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_one_waits_until_nobody_reads_any_of_them() -> None:
    running = RunningReads(ViewCache(10))
    first, second = running.reading(["a"]), running.reading(["b"])
    first.__enter__()
    waiting = asyncio.ensure_future(running.ended(["a", "b"]))
    await _turns()
    second.__enter__()  # of which nobody knew when the other began to wait
    first.__exit__(None, None, None)
    await _turns()
    assert not waiting.done()
    second.__exit__(None, None, None)
    await waiting


async def test_what_is_kept_or_read_by_nobody_is_not_waited_for() -> None:
    cache = ViewCache(10)
    running = RunningReads(cache)
    with running.reading(["a"]):
        await running.ended(["b"])
        cache.put(gone("a", 1))
        await running.ended(["a"])


async def test_who_fails_is_waited_for_no_longer() -> None:
    running = RunningReads(ViewCache(10))

    async def reads() -> None:
        with running.reading(["a"]):
            await _turns()
            raise ValueError("broken")

    reading = asyncio.ensure_future(reads())
    await asyncio.sleep(0)
    await running.ended(["a"])
    with pytest.raises(ValueError, match="broken"):
        await reading


async def test_two_who_read_the_same_do_not_end_each_others_reads() -> None:
    running = RunningReads(ViewCache(10))
    with running.reading(["a"]):
        with running.reading(["a", "b"]):
            pass
        waiting = asyncio.ensure_future(running.ended(["a", "b"]))
        await _turns()
        assert not waiting.done()
    await waiting


async def test_where_nothing_is_kept_nobody_waits() -> None:
    running = RunningReads(ViewCache(0))
    with running.reading(["a"]):
        await running.ended(["a"])
