"""Histories of what lives become shorter: by a restart, by a checkpoint. Whoever takes it over then delivers what was delivered."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from bokiflow import App, Worker
from bokiflow.history import inspection
from bokiflow.model.flow_events import PICKER, Checkpointed, Restarted
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.testing import UNKNOWNS, FaultKind, crash_everywhere, start_anywhere
from libs.tests.flow.conftest import Inline, started, until, working
from libs.tests.flow.execute.test_executor import FEATURES, Feature
from libs.tests.flow.shop import Shop


async def rows(log: Log, tag: str) -> list[int]:
    return [item.seqnum async for item in log.book.read(tag) if isinstance(item, boki.Record)]


async def settled(worker: Worker, id: str) -> None:
    await until(lambda: id in worker._executors and worker._executors[id].idle)


async def test_what_is_begun_again_has_a_history_of_one_run(cluster: MemoryCluster) -> None:
    shop = Shop()
    async with working(cluster, shop.app) as worker:
        before = worker.log.appends
        handle = await worker.start(shop.again.call(20, 0), id="x")
        assert await handle.result() == 210
        assert worker.log.appends - before == 1 + 20 + 1, "a start, and one record a run: its step, and how it went on"
        await asyncio.sleep(0)
        await until(lambda: "x" not in worker._executors)
    assert shop.ran.count("add 0 20") == 1 and len(shop.ran) == 21


async def test_a_restart_that_fits_no_record_is_an_error_where_it_is_asked_for(cluster: MemoryCluster) -> None:
    app = App("shop")

    @app.workflow
    async def flow(text: str) -> list[str]:
        await bokiflow.recv("go")
        found = []
        try:
            bokiflow.restart("x" * 600_000)
        except boki.BokiError as error:
            found.append(type(error).__name__)
        return found

    async with working(cluster, app) as worker:
        handle = await worker.start(flow.call("first"), id="x")
        for _ in range(3):  # signals count not: they are handed on in records of their own
            await handle.signal("nobody receives it", "x" * 200_000)
        await handle.signal("go")
        assert await handle.result() == ["AtomicTooLarge"]


async def test_old_runs_are_trimmed_while_it_lives(cluster: MemoryCluster) -> None:
    app = App("shop")

    @app.step
    async def note(number: int) -> int:
        return number

    @app.workflow
    async def forever(run: int) -> None:
        for _ in range(5):
            await note(run)
        if run == 9:
            await bokiflow.recv("stop")
            return
        bokiflow.restart(run + 1)

    async with working(cluster, app) as worker:
        handle = await worker.start(forever.call(0), id="x")
        await until(lambda: worker._executors["x"].instance.run == 9 and worker._executors["x"].idle)
        assert len(await rows(worker.log, tags.flow_history("x"))) <= 7, "the last restart, and what came after it"
        assert {one.key async for one in handle.steps()} == {f"r9/0:{number}" for number in range(1, 6)}
    async with working(cluster, app) as worker:
        await settled(worker, "x")
        await worker.handle("x").signal("stop")
        await worker.handle("x", forever).result()


async def test_what_was_sent_and_not_received_is_there_for_the_next_run(cluster: MemoryCluster) -> None:
    """What was delivered to the run, what comes while it begins anew, and what comes later; live, and taken over."""
    app = App("shop")

    @app.workflow
    async def collect(found: list[bokiflow.Json]) -> list[bokiflow.Json]:
        found = [*found, await bokiflow.recv("a")]
        if len(found) < 4:
            bokiflow.restart(found)
        return found

    async with working(cluster, app) as worker:
        await worker.start(collect.call([]), id="x")
        outside = bokiflow.Flow(Shop().app, (await cluster.connect()).book("shop"))
        async with outside:
            await asyncio.gather(*(outside.handle("x").signal("a", number) for number in range(3)))
            await until(lambda: worker._executors["x"].instance.run == 3 and worker._executors["x"].idle)
    async with working(cluster, app) as worker:
        await worker.handle("x").signal("a", 3)
        assert sorted(await worker.handle("x", collect).result()) == [0, 1, 2, 3]  # type: ignore[type-var]


async def test_a_restart_with_other_arguments_than_it_has_is_refused_where_it_is_called(cluster: MemoryCluster) -> None:
    app = App("shop")

    @app.workflow
    async def flow(count: int) -> str:
        with contextlib.suppress(boki.InvalidArgument):
            bokiflow.restart(count, 2, 3)
        return "refused"

    async with working(cluster, app) as worker:
        assert await (await worker.start(flow.call(1))).result() == "refused"
    with pytest.raises(bokiflow.NotInWorkflow):
        bokiflow.restart()


async def test_a_checkpoint_is_all_of_the_history_and_what_was_before_goes(cluster: MemoryCluster) -> None:
    shop = Shop()
    async with working(cluster, shop.app) as worker:
        handle = await worker.start(shop.wait.call(3), id="x", attributes={"kind": "long"})
        await handle.signal("go", 1)
        await until(lambda: shop.ran == ["add 1 0"])
        await settled(worker, "x")
        steps = [one async for one in handle.steps()]
        start = handle._start
        assert await worker._executors["x"].checkpoint()
        await settled(worker, "x")
        for tag in (tags.flow_own("x"), tags.flow_history("x"), tags.flow_output("x", "got")):
            (only,) = await rows(worker.log, tag)
            assert only > start
        assert [one async for one in handle.steps()] == steps
        known = await worker.flow.known("x")
        assert known is not None and (known.name, known.status, known.attributes) == (
            "wait",
            "running",
            {"kind": "long"},
        )
        assert (await worker.start(shop.wait.call(3), id="x"))._start == start, (
            "it is found by what it was started with"
        )
        with pytest.raises(bokiflow.IdReused):
            await worker.start(shop.wait.call(4), id="x")
        assert [one async for one in handle.events("got", follow=False)] == [1]
        await handle.signal("go", 2)
        await until(lambda: "add 2 0" in shop.ran)
        await settled(worker, "x")
    async with working(cluster, shop.app) as worker:
        again = worker.handle("x", shop.wait)
        await again.signal("go", 3)
        assert await again.result() == [1, 2, 3] and await handle.status() == "completed"
        assert shop.ran == ["add 1 0", "add 2 0", "add 3 0"]
        assert [one async for one in again.events("got", follow=False)] == [1, 2, 3]


async def test_a_history_that_no_record_takes_is_checkpointed_in_parts(cluster: MemoryCluster) -> None:
    app = App("shop")

    @app.step
    async def large(number: int) -> str:
        return str(number) * 300_000

    @app.workflow
    async def flow() -> int:
        size = 0
        for number in range(4):
            size += len(await large(number))
            bokiflow.emit(f"topic {number}", number)
        await bokiflow.recv()
        return size

    async with working(cluster, app) as worker:
        handle = await worker.start(flow.call(), id="x")
        await until(lambda: "x" in worker._executors and bool(worker._executors["x"].instance._signals.receivers))
        await settled(worker, "x")
        assert await worker._executors["x"].checkpoint()
        await settled(worker, "x")
        history = await rows(worker.log, tags.flow_history("x"))
        assert len(history) > 2
        assert [one async for one in handle.events("topic 3", follow=False)] == [3]
    async with working(cluster, app) as worker:
        await settled(worker, "x")
        await worker.handle("x").signal("")
        assert await worker.handle("x").result() == 1_200_000


class Carried(Feature):
    """A workflow that is begun anew, and checkpointed wherever it waits; by processes that are killed."""

    def __init__(self) -> None:
        super().__init__("signals")

    async def work(self, book: BookPort) -> None:
        async with Worker(self.shop.app, book, name="w", bodies=Inline()) as worker:
            handle = await started(worker, self.shop.wait.call(2))
            result = asyncio.ensure_future(handle.result())
            for number in (1, 2):
                await self.carry(worker)
                if not result.done():
                    await self.send(worker, number)
            assert await result == [1, 2]

    @staticmethod
    async def carry(worker: Worker) -> None:
        if "x" in worker._executors:
            await worker._executors["x"].checkpoint()

    @staticmethod
    async def send(worker: Worker, number: int) -> None:
        """Once, whoever did it before."""
        found = await inspection.whole_history(worker.log, "x")
        delivered = [event for one in found.records for event in one.incoming]
        if not any(getattr(event, "value", None) == number for event in delivered):
            try:
                await worker.handle("x").signal("go", number)
            except boki.OutcomeUnknown as unknown:
                await unknown.outcome()
                await Carried.send(worker, number)

    async def check(self, book: boki.Book) -> None:
        """It ended, and each step's body had an outcome that stayed."""
        log = Log(book)
        state = await inspection.newest(log, "x", consistency="linearizable")
        assert state is not None and state.ended is not None and state.ended.outcome.value == [1, 2]


@pytest.mark.parametrize("kinds", [("before", "after"), UNKNOWNS])
async def test_a_crash_anywhere_around_a_checkpoint_changes_nothing(kinds: tuple[FaultKind, ...]) -> None:
    feature = Carried()
    assert (await crash_everywhere(feature.program, feature.program, feature.check, kinds=kinds)).runs > 10


class CarriedOften(Feature):
    """Steps and children, checkpointed as often as it goes."""

    async def work(self, book: BookPort) -> None:
        call, expected = FEATURES[self.name]
        async with Worker(self.shop.app, book, name="w", bodies=Inline()) as worker:
            result = asyncio.ensure_future((await worker.start(call(self.shop), id="x")).result())
            while not result.done():
                await Carried.carry(worker)
                await asyncio.sleep(0)
            assert await result == expected


@pytest.mark.parametrize("name", ["steps", "restart", "children"])
async def test_a_second_worker_anywhere_around_a_checkpoint_changes_nothing(name: str) -> None:
    feature = CarriedOften(name)
    assert (await start_anywhere(feature.program, feature.program, feature.check)).runs > 10


async def test_events_of_a_checkpoint_are_for_who_reads_histories(shop: Shop, worker: Worker) -> None:
    await worker.start(shop.again.call(1, 0), id="x")
    await worker.handle("x").result()
    found = [
        event
        async for item in worker.log.book.read(tags.flow_history("x"))
        if isinstance(item, boki.Record)
        for event in PICKER.of(item.seqnum, await worker.log.open(item))
    ]
    assert any(isinstance(event, Restarted) for event in found)
    assert not any(isinstance(event, Checkpointed) for event in found)
