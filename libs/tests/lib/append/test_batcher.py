"""Tasks that send what is queued, and appends of several callers that share records."""

from __future__ import annotations

import asyncio
import io

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import Conflict
from boki_common.logs import configured
from bokilib.append import batcher
from bokilib.append.batcher import AppendBatcher, Driver, Placed
from bokilib.append.log import Log
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event
from libs.tests.lib.conftest import until


class Noted(Event, tag="test.noted", frozen=True):
    """An event of this test."""

    id: str


def part(tag: str, **expect: int) -> Contribution:
    return Contribution((tag,), dict(expect), (Noted(tag),))


async def log_of(cluster: MemoryCluster) -> Log:
    return Log((await cluster.connect()).book("shop"))


async def places(log: Log, tag: str) -> list[int]:
    assert isinstance(log.book, boki.Book)
    return [item.seqnum async for item in log.book.read(tag) if isinstance(item, boki.Record)]


async def test_what_comes_while_one_is_on_its_way_is_one_record_in_order(cluster: MemoryCluster) -> None:
    log = await log_of(cluster)
    several = AppendBatcher(log, "batcher")
    first = several.append(part("a"), size=1)
    await asyncio.sleep(0)  # it is on its way
    rest = [several.append(part(tag), size=1) for tag in "bcd"]
    found = await asyncio.gather(first, *rest)
    assert found[1].seqnum == found[2].seqnum == found[3].seqnum > found[0].seqnum
    assert found[3].before == [part("b"), part("c")] and not found[1].before
    assert log.appends == 2
    record = await log.book.read_prev("d")
    assert record is not None and record.tags == ("b", "c", "d")


async def test_a_record_takes_so_many_bytes_and_tags(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher, "SHARED_BYTES", 10)
    log = await log_of(cluster)
    several = AppendBatcher(log, "batcher")
    found = await asyncio.gather(*(several.append(part(f"t{number}"), size=4) for number in range(6)))
    assert len({one.seqnum for one in found}) == log.appends == 3
    before = log.appends
    many = [Contribution(tuple(f"{number}/{tag}" for tag in range(100)), {}, ()) for number in range(4)]
    await asyncio.gather(*(several.append(one, size=0) for one in many))
    assert log.appends - before == 2


async def test_who_expected_in_vain_gets_a_conflict_and_the_others_are_in_the_log_once(cluster: MemoryCluster) -> None:
    log = await log_of(cluster)
    old = await log.append(part("fence"))
    await log.append(part("fence"))
    several = AppendBatcher(log, "batcher", settle=True)
    found = await asyncio.gather(
        several.append(part("a"), size=1),
        several.append(part("b", fence=old), size=1),
        several.append(part("c"), size=1),
        return_exceptions=True,
    )
    assert isinstance(found[0], Placed) and isinstance(found[1], Conflict) and isinstance(found[2], Placed)
    assert [await places(log, tag) for tag in "abc"] == [[found[0].seqnum], [], [found[2].seqnum]]


async def test_what_is_too_large_together_goes_apart(cluster: MemoryCluster) -> None:
    log = await log_of(cluster)
    several = AppendBatcher(log, "batcher")
    large = [Contribution((tag,), {}, (Noted(tag + "x" * 300_000),)) for tag in "ab"]
    found = await asyncio.gather(*(several.append(one, size=1) for one in large))
    assert len({one.seqnum for one in found}) == 2


async def test_who_gave_up_waiting_is_left_out_and_the_rest_goes(cluster: MemoryCluster) -> None:
    log = await log_of(cluster)
    several = AppendBatcher(log, "batcher")
    given = [several.append(part(tag), size=1) for tag in "ab"]
    given[0].cancel()
    await asyncio.gather(*given, return_exceptions=True)
    assert [len(await places(log, tag)) for tag in "ab"] == [0, 1]


class Work:
    """Items that tasks take, `in_flight` at a time, and work on until they are told that it is done."""

    def __init__(self, in_flight: int) -> None:
        self.queued: list[str] = []
        self.begun: list[str] = []
        self.done: dict[str, asyncio.Event] = {}
        self.driver = Driver(self._drive, "work", in_flight=in_flight)

    def add(self, *items: str) -> None:
        for item in items:
            self.queued.append(item)
            self.driver.wake()

    async def _drive(self) -> None:
        while self.queued:
            item = self.queued.pop(0)
            self.begun.append(item)
            self.done[item] = asyncio.Event()
            await self.done[item].wait()


async def test_no_more_tasks_run_than_may_and_each_takes_what_is_left() -> None:
    work = Work(2)
    work.add("a", "b", "c", "d")
    await asyncio.sleep(0)
    assert work.begun == ["a", "b"]
    work.done["b"].set()
    await until(lambda: "c" in work.begun)
    assert work.driver.busy and "d" not in work.begun
    work.done["a"].set()
    work.done["c"].set()
    await until(lambda: "d" in work.begun)
    work.done["d"].set()
    await work.driver.ended()
    assert not work.driver.busy and not work.queued


async def test_what_is_queued_as_the_last_task_ends_starts_one() -> None:
    """The task has looked for more and found nothing, and the loop has not yet said that it ended."""
    work = Work(1)
    work.add("a")
    await asyncio.sleep(0)
    (task,) = work.driver._running()
    task.add_done_callback(lambda _: work.add("b"))
    work.done["a"].set()
    await until(lambda: "b" in work.begun)
    await work.driver.close()
    assert not work.driver.busy


async def test_tasks_that_are_cancelled_before_they_began_leave_room_for_others() -> None:
    work = Work(1)
    work.add("a")
    await work.driver.close()
    assert (work.begun, work.driver.busy) == ([], False)
    work.add("b")
    await asyncio.sleep(0)
    assert work.begun == ["a"]
    await work.driver.close()


async def test_what_cannot_be_encoded_fails_its_caller_alone(cluster: MemoryCluster) -> None:
    log = await log_of(cluster)
    several = AppendBatcher(log, "batcher")
    first = several.append(part("a"), size=1)
    await asyncio.sleep(0)  # it is on its way
    odd = Contribution(("c",), {}, (Noted("\ud800"),))
    rest = [several.append(one, size=1) for one in (part("b"), odd, part("d"))]
    found = await asyncio.gather(first, *rest, return_exceptions=True)
    assert [type(one) for one in found] == [Placed, Placed, UnicodeEncodeError, Placed]
    assert [len(await places(log, tag)) for tag in "abcd"] == [1, 1, 0, 1]


async def test_a_defect_of_a_sender_fails_its_callers_and_is_logged(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = AppendBatcher(await log_of(cluster), "batcher")

    async def defect(_: object) -> None:
        raise RuntimeError("defect")

    stream = io.StringIO()
    with configured(stream=stream), monkeypatch.context() as patched:
        patched.setattr(several, "_send", defect)
        with pytest.raises(RuntimeError, match="defect"):
            await several.append(part("a"), size=1)
        await asyncio.sleep(0)
    assert "sender ended by an error" in stream.getvalue() and "batcher" in stream.getvalue()
    assert (await several.append(part("b"), size=1)).seqnum
