"""Forks whose history does not fit one record: all of it is there, or there is no fork."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from bokiflow import App, Worker
from bokiflow.model import history_fold, records
from bokiflow.model.flow_events import PICKER, Checkpointed, Ended
from bokiflow.retention.collect_rules import AGES
from bokiflow.retention.collector import Collector
from bokiflow.testing import in_virtual_time
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.testing import UNKNOWNS, FaultKind, crash_everywhere, start_anywhere, while_alive
from libs.tests.conftest import SetClock
from libs.tests.flow.conftest import Inline, working

LARGE = 200_000
SMALL = 2_000
BROKEN = [True]


@contextmanager
def parts_of(size: int) -> Iterator[None]:
    """So many bytes make a history too long for a record: all is as with long ones, and quicker."""
    before = history_fold.PART_DATA_BYTES
    history_fold.PART_DATA_BYTES = size  # type: ignore[misc]
    try:
        yield
    finally:
        history_fold.PART_DATA_BYTES = before  # type: ignore[misc]


class Shop:
    """Four steps with large results, and one that fails once."""

    def __init__(self, size: int = LARGE) -> None:
        self.app = App("shop")
        self.ran: list[int] = []

        @self.app.step
        async def large(number: int) -> str:
            self.ran.append(number)
            return str(number) * size

        @self.app.step
        async def pay(broken: bool) -> str:
            if BROKEN[0]:
                raise OSError("no money")
            return "paid"

        @self.app.workflow
        async def order(what: str) -> list[bokiflow.Json]:
            found = [len(await large(number)) for number in range(4)]
            bokiflow.emit("note", what[:3])
            return [*found, await pay(True), len(what)]

        self.order = order


EXPECTED = [LARGE] * 4 + ["paid"]


async def failed(book: BookPort, what: str = "x", size: int = LARGE) -> None:
    """The origin."""
    BROKEN[0] = True
    shop = Shop(size)
    async with Worker(shop.app, book, name="first", bodies=Inline()) as worker:
        with pytest.raises(OSError, match="no money"):
            await (await worker.start(shop.order.call(what), id="x")).result()
        await worker.drain()
    BROKEN[0] = False


async def failed_small(book: BookPort) -> None:
    await failed(book, size=SMALL)


async def test_a_history_of_any_length_can_be_forked(cluster: MemoryCluster) -> None:
    book = (await cluster.connect()).book("shop")
    await failed(book, "y" * 400_000)
    shop = Shop()
    async with working(cluster, shop.app) as worker:
        fork = await worker.handle("x").fork(id="y")
        assert await fork.result() == [*EXPECTED, 400_000] and shop.ran == []
        assert [one async for one in fork.events("note", follow=False)] == ["yyy"]
        again = await worker.handle("y").fork(id="z")
        assert await again.result() == [*EXPECTED, 400_000] and shop.ran == []


async def fork(book: BookPort) -> None:
    shop = Shop(SMALL)

    async def work() -> None:
        async with Worker(shop.app, book, name="w", bodies=Inline()) as worker:
            while True:
                try:
                    made = await worker.handle("x").fork(id="y")
                    break
                except boki.OutcomeUnknown:
                    pass
            assert await made.result() == [SMALL] * 4 + ["paid", 1]
            assert shop.ran == []

    await while_alive(book, work())


async def ended_once(book: boki.Book) -> None:
    log, ends = Log(book), 0
    async for item in book.read(tags.flow_own("y")):
        assert isinstance(item, boki.Record)
        ends += sum(isinstance(one, Ended) for one in PICKER.of(item.seqnum, await log.open(item)))
    assert ends == 1


@pytest.mark.parametrize("kinds", [("before", "after"), UNKNOWNS])
@in_virtual_time
async def test_a_crash_or_a_lost_answer_leaves_a_whole_fork_or_none(kinds: tuple[FaultKind, ...]) -> None:
    with parts_of(4_000):
        assert (await crash_everywhere(fork, fork, ended_once, kinds=kinds, before=failed_small)).runs > 5


@in_virtual_time
async def test_two_who_fork_at_any_time_have_one_whole_fork() -> None:
    with parts_of(4_000):
        assert (await start_anywhere(fork, fork, ended_once, before=failed_small)).runs > 5


async def test_what_is_left_of_a_fork_that_never_began_goes(cluster: MemoryCluster) -> None:
    clock = SetClock()
    async with MemoryCluster(clock=clock) as mine:
        book = (await mine.connect()).book("shop")
        await failed(book)
        log = Log(book)
        part = Checkpointed("y", 1, 0, 2, b"half")
        place = records.InstanceStreams("y", "shop")
        await log.append(Contribution((place.history, place.to_workers), {}, (part,)))
        async with working(mine, Shop().app) as worker:
            assert await worker.flow.known("y") is None, "nobody sees half of one"
            claims = dict(worker._partitions.mine)
            collector = Collector(log, "shop", AGES)
            for _ in range(3):
                clock.ms += AGES.carry_ms + AGES.forget_ms
                await log.append(Contribution(("tick",), {}, (part,)))
                await collector.checkpoint(claims)
        assert [item async for item in book.read(place.history)] == []
