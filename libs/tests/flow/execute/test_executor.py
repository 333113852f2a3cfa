"""Every crash, every lost answer, a second worker anywhere: each feature finishes once. And defects that are planted are found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Call, Worker, WorkflowBlocked
from bokiflow.execute import body, executor, running_tasks
from bokiflow.execute.running_tasks import RunningTasks
from bokiflow.model import records
from bokiflow.model.flow_events import PICKER, Ended, Signalled, Stepped
from bokiflow.runtime.commands import RunStep
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.testing import UNANSWERED, UNKNOWNS, crash_everywhere, start_anywhere, while_alive
from bokistore import BokiStore, Transaction
from libs.tests.flow.conftest import Inline, started
from libs.tests.flow.shop import Shop

FEATURES: dict[str, tuple[Callable[[Shop], Call[Any]], Any]] = {
    "steps": (lambda shop: shop.steps.call(2), 1),
    "at once": (lambda shop: shop.at_once.call(2), [1, 2, 4]),
    "compensate": (lambda shop: shop.compensate.call("no"), "no: 2"),
    "children": (lambda shop: shop.parent.call(2), 1),
    "signals": (lambda shop: shop.wait.call(2), [1, 2]),
    "timers": (lambda shop: shop.patient.call(0.001), "late 2"),
    "restart": (lambda shop: shop.again.call(2, 0), 3),
    "at most once": (lambda shop: shop.careful.call(3), None),
}


class Feature:
    """One feature, as programs that are killed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.shop = Shop()

    async def work(self, book: BookPort) -> None:
        call, expected = FEATURES[self.name]
        async with Worker(self.shop.app, book, name="w", bodies=Inline()) as worker:
            handle = await started(worker, call(self.shop))
            if self.name == "signals":
                for number in (1, 2):
                    await self.signal(worker, number)
            found = await handle.result()
            assert found == expected or (self.name == "at most once" and found in ("3", "interrupted"))

    @staticmethod
    async def signal(worker: Worker, number: int) -> None:
        """Once, whoever did it before."""
        async for item in worker.log.book.read(tags.flow_history("x")):
            assert not isinstance(item, boki.Gap)
            for event in PICKER.of(item.seqnum, await worker.log.open(item)):
                if isinstance(event, Signalled) and event.value == number:
                    return
        try:
            await worker.handle("x").signal("go", number)
        except boki.OutcomeUnknown as unknown:
            if not isinstance(await unknown.outcome(), boki.Committed):
                await Feature.signal(worker, number)

    async def program(self, book: BookPort) -> None:
        await while_alive(book, self.work(book))

    async def check(self, book: boki.Book) -> None:
        """Each workflow ended once; of each step there is one outcome."""
        log = Log(book)
        ends: dict[str, int] = {}
        steps: dict[tuple[str, str], int] = {}
        async for item in book.read():
            assert not isinstance(item, boki.Gap)
            for event in PICKER.of(item.seqnum, await log.open(item)):
                if isinstance(event, Ended):
                    ends[event.id] = ends.get(event.id, 0) + 1
                elif isinstance(event, Stepped):
                    steps[event.id, event.key] = steps.get((event.id, event.key), 0) + 1
        assert ends and set(ends.values()) == {1}
        assert set(steps.values()) <= {1}


@pytest.mark.parametrize("name", FEATURES)
async def test_a_crash_at_any_operation_changes_nothing(name: str) -> None:
    feature = Feature(name)
    explored = await crash_everywhere(feature.program, feature.program, feature.check)
    assert explored.operations > 5 and explored.runs > 10


@pytest.mark.parametrize("name", FEATURES)
async def test_a_lost_answer_at_any_append_changes_nothing(name: str) -> None:
    feature = Feature(name)
    assert (await crash_everywhere(feature.program, feature.program, feature.check, kinds=UNKNOWNS)).runs > 3
    if name == "at most once":
        assert feature.shop.ran


@pytest.mark.parametrize("name", FEATURES)
@in_virtual_time
async def test_a_death_after_an_append_is_unanswered_changes_nothing(name: str) -> None:
    feature = Feature(name)
    found = await crash_everywhere(feature.program, feature.program, feature.check, kinds=UNANSWERED, clock=LoopClock())
    assert found.runs > 5


@pytest.mark.nightly
@pytest.mark.parametrize("name", FEATURES)
@in_virtual_time
async def test_a_death_long_after_an_append_is_unanswered_changes_nothing(name: str) -> None:
    feature = Feature(name)
    found = await crash_everywhere(
        feature.program, feature.program, feature.check, kinds=UNANSWERED, later=(0, 2, 5, 8), clock=LoopClock()
    )
    assert found.runs > 10


@pytest.mark.parametrize("name", [name for name in FEATURES if name != "signals"])
async def test_a_second_worker_that_takes_over_anywhere_changes_nothing(name: str) -> None:
    feature = Feature(name)
    assert (await start_anywhere(feature.program, feature.program, feature.check)).runs > 3


@pytest.mark.nightly
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("name", FEATURES)
async def test_two_crashes_at_any_pair_of_operations_change_nothing(name: str) -> None:
    feature = Feature(name)
    assert (await crash_everywhere(feature.program, feature.program, feature.check, pairs=True)).runs > 100


async def test_a_missing_fence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted defect: records of an executor that do not expect its claim."""
    plain = records.worker_event

    def unfenced(place: Any, event: Any, held: Any) -> Contribution:
        one = plain(place, event, held)
        return Contribution(one.tags, {}, one.events)

    monkeypatch.setattr(records, "worker_event", unfenced)
    feature = Feature("steps")
    with pytest.raises((AssertionError, boki.BokiError, TimeoutError)):
        await asyncio.wait_for(start_anywhere(feature.program, feature.program, feature.check), 20)


async def test_bodies_that_do_not_wait_for_the_log_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted defect: a step that runs at most once is begun before the log has that it is."""
    feature = Feature("at most once")
    send = executor.Executor._begin_operation

    def eager(self: executor.Executor) -> None:
        for batch in self._batcher._batches:
            after, batch.after = batch.after, []
            for one in after:
                if isinstance(one, RunStep):
                    self._tasks.begin(one)
                else:
                    batch.after.append(one)
        send(self)

    monkeypatch.setattr(executor.Executor, "_begin_operation", eager)

    async def check(book: boki.Book) -> None:
        await feature.check(book)
        ran, feature.shop.ran = feature.shop.ran.count("once"), []
        assert ran <= 1

    with pytest.raises(AssertionError):
        await crash_everywhere(feature.program, feature.program, check)


@pytest.mark.parametrize("error", [RuntimeError("a defect"), SystemExit(3), boki.Unreachable("no engine")], ids=repr)
@in_virtual_time
async def test_an_error_that_is_no_outcome_of_a_step_holds_the_workflow_up_aloud(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """A defect blocks its workflow, which `boki flow ls` shows; an error of the log runs it again. It never waits in silence."""
    fails, run_body = [error], body.run_body

    async def failing(*args: Any) -> Any:
        if fails:
            raise fails.pop()
        return await run_body(*args)

    monkeypatch.setattr(running_tasks, "run_body", failing)
    shop = Shop()
    async with (
        MemoryCluster(clock=LoopClock()) as cluster,
        Worker(shop.app, (await cluster.connect()).book("b"), name="w", bodies=Inline()) as worker,
    ):
        handle = await started(worker, shop.steps.call(2))
        if not isinstance(error, boki.BokiError):
            with pytest.raises((WorkflowBlocked, RuntimeError)):
                await handle.result()
            await let_pass(1)
            (found,) = await worker.flow.blocked()
            assert (found.id, found.error) == (handle.id, "RuntimeError")
            await handle.resume()
        assert await handle.result() == 1


@in_virtual_time
async def test_what_code_changes_in_place_is_not_what_its_history_has() -> None:
    """Results of steps, children and transactions, arguments and signals: another worker gets them as the first one did."""
    app, ends, runs = App("changing"), list[list[str]](), list[list[str]]()

    @app.step
    async def load() -> dict:  # type: ignore[type-arg]
        return {"lines": ["apple"]}

    @app.step
    async def load_more() -> list[dict[str, Any]]:
        return [{"lines": ["pear"]}]

    @app.workflow
    async def child(order: dict[str, Any]) -> dict[str, Any]:
        order["lines"].append("child")
        return order

    @app.workflow
    async def change(order: dict[str, Any]) -> list[Any]:
        async def body(tx: Transaction, given: list[str], *, more: list[str]) -> dict[str, Any]:
            given.append("body")
            more.append("body")
            runs.append([*given, *more])
            tx["a"].set("given", await tx["a"].get("other"))
            if len(runs) == 1:
                await store.object("a").set("other", 1)  # the first run loses to this
            return {"lines": given}

        def got(*found: Any) -> None:
            """Change each at once, before it is recorded."""
            for one in found:
                one["lines"].append("gift")
            some.extend(found)

        some: list[Any] = []
        got(order, await load())
        got(*await load_more())
        got(await child({"lines": []}))
        got(await bokiflow.transact(store, body, ["plum"], more=["kiwi"]))
        got(await bokiflow.recv("go"))
        ends.append([line for one in some for line in one["lines"]])
        await bokiflow.recv("end")
        return some

    async with MemoryCluster(clock=LoopClock()) as cluster:
        log = Log((await cluster.connect()).book("b"))
        store, second = BokiStore(log), list[Any]()
        for life in range(3):
            async with Worker(app, log, name=f"w{life}", bodies=Inline()) as worker:
                handle = await worker.start(change.call({"lines": ["fig"]}), id="x")
                if not life:
                    await handle.signal("go", {"lines": ["signal"]})
                await let_pass(100)
                if life == 2:
                    await handle.signal("end")
                    first, second = await handle.result(), await handle.result()
                    first[0]["lines"].clear()
                    assert second == await handle.result()
    words = "fig gift apple gift pear gift child gift plum body gift signal gift"
    assert ends == [words.split()] * 3
    assert len(runs) == 2 and runs[0] == runs[1] == ["plum", "body", "kiwi", "body"]
    assert [line for one in second for line in one["lines"]] == words.split()


async def test_the_task_of_a_body_that_is_closed_after_its_loop_ended_ends() -> None:
    tasks = RunningTasks.__new__(RunningTasks)

    async def hangs(command: Any, staged: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    tasks._run = hangs  # type: ignore[method-assign]
    running = tasks._body(cast(Any, None), None)
    running.send(None)
    await asyncio.to_thread(running.close)  # no loop runs there
