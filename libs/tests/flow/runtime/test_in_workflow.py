"""What code of workflows may call."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import boki
import boki.sync
import bokiflow
from boki.testing import MemoryCluster
from bokiflow import App, NotInWorkflow, Worker, replayer
from bokiflow.errors import OnlyInSteps
from bokiflow.runtime import in_workflow
from bokiflow.testing import LoopClock, in_virtual_time, replays_everywhere
from bokilib.append.log import Log
from bokiqueue import Queue
from bokistore import BokiStore, Transaction
from libs.tests.flow.conftest import Inline, until, working
from libs.tests.flow.shop import Shop


async def test_elsewhere_they_are_refused() -> None:
    calls: list[Any] = [
        bokiflow.now_ms,
        bokiflow.due_ms,
        bokiflow.unique,
        bokiflow.random,
        bokiflow.workflow_id,
        lambda: bokiflow.patched("a"),
        lambda: bokiflow.deprecate_patch("a"),
        lambda: bokiflow.emit("a", 1),
        lambda: bokiflow.send("x", "a", 1),
    ]
    for call in calls:
        with pytest.raises(NotInWorkflow):
            call()
    with pytest.raises(NotInWorkflow):
        await bokiflow.recv()


async def test_in_bodies_of_steps_they_are_refused_too(cluster: MemoryCluster) -> None:
    app = App("shop")

    @app.step
    async def body() -> str:
        try:
            return bokiflow.workflow_id()
        except NotInWorkflow:
            return "not in a body"

    @app.step
    async def nested() -> str:
        return await body()

    @app.workflow
    async def flow() -> list[str]:
        return [await nested(), bokiflow.workflow_id()]

    async with working(cluster, app) as worker:
        handle = await worker.start(flow.call(), id="x")
        assert await handle.result() == ["not in a body", "x"]
        assert [one.kind async for one in handle.steps()] == ["step", "end"], "a step inside of a step is a plain call"


async def test_calls_of_clients_stores_queues_and_workers_are_refused_at_once(
    cluster: MemoryCluster, book: boki.Book
) -> None:
    app = App("shop")
    uses: dict[str, Callable[[], Awaitable[object]]] = {}
    refused: list[str] = []
    log = Log(book)
    store, queue = BokiStore(log), await Queue.open(log, "q", int)
    await store.object("a").set("n", 1)

    @app.workflow
    async def flow() -> None:
        for name, use in uses.items():
            try:
                await use()
            except OnlyInSteps as error:
                refused.append(name if "Put it into a step" in str(error) else str(error))

    def now(call: Callable[[], object]) -> Callable[[], Awaitable[object]]:
        async def made() -> object:
            return call()

        return made

    async def pay(tx: Transaction) -> None:
        tx["a"].inc("n", 1)

    async with Worker(app, log, name="w", bodies=Inline()) as worker:
        ended = await worker.start(flow.call(), id="nothing yet")
        await ended.result()
        uses |= {
            "connect": now(lambda: boki.connect(cluster.url)),
            "connect to memory": cluster.connect,
            "connect and block": now(lambda: boki.sync.connect(cluster.url)),
            "append": lambda: book.append(b"x"),
            "submit": now(lambda: book.submit(b"x")),
            "get": lambda: store.object("a").get("n"),
            "set": lambda: store.object("a").set("n", 2),
            "transact": lambda: store.transact(pay),
            "push": lambda: queue.push(1),
            "start": lambda: worker.start(flow.call(), id="another"),
            "a result that is known here": ended.result,
            "signal": lambda: ended.signal("x"),
        }
        # At once with others': what they have under way must not take a refused call along.
        handle = await worker.start(flow.call(), id="x")
        others = await asyncio.gather(book.append(b"mine"), queue.push(2), store.transact(pay), handle.result())
        assert refused == list(uses) and others[3] is None
        assert await store.object("a").get("n") == 2 and (await queue.stats()).depth == 1
        assert b"x" not in [one.data async for one in book.read() if isinstance(one, boki.Record)]


async def test_one_workflow_signals_another(shop: Shop, worker: Worker) -> None:
    waits = await worker.start(shop.wait.call(1), id="waits")
    greets = await worker.start(shop.greet.call("waits"), id="greets")
    assert await waits.result() == ["greets"] and await greets.result() == "3 True True"


async def test_results_come_in_the_order_in_which_they_ended(cluster: MemoryCluster) -> None:
    app = App("shop")
    gates = [asyncio.Event() for _ in range(3)]
    began: list[int] = []

    @app.step
    async def wait(number: int) -> int:
        began.append(number)
        await gates[number].wait()
        return number

    @app.workflow
    async def flow(first: bool) -> list[int]:
        found = []
        async for one in bokiflow.as_completed([wait(number) for number in range(3)]):
            found.append(one)
            if first:
                break
        return found

    async with working(cluster, app) as worker:
        handle = await worker.start(flow.call(False), id="x")
        await until(lambda: len(began) == 3)
        for number in (2, 0, 1):
            gates[number].set()
            await asyncio.sleep(0)
        assert await handle.result() == [2, 0, 1]
        gates[0].clear()
        assert await (await worker.start(flow.call(True), id="y")).result() == [1]


@in_virtual_time
async def test_a_wait_for_the_next_result_that_is_cut_cancels_nothing_else() -> None:
    """A replay does the same: leaving the loop cancels the rest before the code continues."""
    app = App("shop")
    ended: list[int] = []

    async def one(seconds: int) -> int:
        try:
            async with asyncio.timeout(seconds):
                await bokiflow.recv("never")
        except TimeoutError:
            pass
        finally:
            ended.append(seconds)
        return seconds

    @app.step
    async def note(number: int) -> int:
        return number

    @app.workflow
    async def flow() -> list[int]:
        found, cuts = list[int](), 0
        results = bokiflow.as_completed([one(seconds) for seconds in (9, 3, 20, 30)])
        while len(found) < 2:
            try:
                found.append(await asyncio.wait_for(anext(results), 2))
            except TimeoutError:
                cuts += 1
        ended.clear()
        del results
        await asyncio.sleep(0)
        return [*found, cuts, *sorted(ended), await note(1)]

    async with MemoryCluster(clock=LoopClock()) as cluster, working(cluster, app) as worker:
        handle = await worker.start(flow.call(), id="x")
        assert await handle.result() == [3, 9, 3, 20, 30, 1]
        history = await replayer.export(worker.flow.log, "x")
        assert await replays_everywhere(app, history)


async def test_a_result_that_is_an_error_ends_the_iteration_and_cancels_the_rest(cluster: MemoryCluster) -> None:
    app = App("shop")
    cancelled: list[int] = []

    async def fails() -> int:
        raise ValueError("no")

    async def waits() -> int:
        try:
            await bokiflow.recv("never")
        except asyncio.CancelledError:
            cancelled.append(1)
            raise
        return 0

    @app.workflow
    async def flow() -> tuple[str, int | None, int]:
        results = bokiflow.as_completed([waits(), fails()])
        try:
            await anext(results)
        except ValueError as error:
            await asyncio.sleep(0)
            return str(error), await anext(results, None), len(cancelled)
        return "", 0, 0

    async with working(cluster, app) as worker:
        assert await (await worker.start(flow.call(), id="x")).result() == ("no", None, 1)


async def _child(number: int, /) -> int:
    return number


_refused_app = App("refused")
_child_of_int = _refused_app.workflow(name="child")(_child)

WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: bokiflow.emit(7, 1), r"expected a topic that is text \(str\), found 7 \(int\)"),  # type: ignore[arg-type]
    (lambda: bokiflow.emit(None, 1), "found None"),  # type: ignore[arg-type]
    (lambda: bokiflow.emit("\ud800", 1), r"expected a topic that UTF-8 can encode, found '\\ud800'"),
    (lambda: bokiflow.emit("x" * 4_097, 1), "expected a topic of 0 to 4,096 characters, found 4,097"),
    (lambda: bokiflow.recv(7), "expected a topic that is text"),  # type: ignore[arg-type]
    (lambda: bokiflow.send("y", 7, 1), "expected a topic that is text"),  # type: ignore[arg-type]
    (lambda: bokiflow.send(7, "a", 1), "expected an id that is text"),  # type: ignore[arg-type]
    (lambda: bokiflow.send("", "a", 1), "expected an id of 1 to 4,096 characters, found 0"),
    (lambda: in_workflow.launch(_child_of_int.call(1), 7), "expected an id that is text"),  # type: ignore[arg-type]
    (lambda: in_workflow.launch(_child_of_int.call(1), "y", due_ms="8"), "expected due_ms in whole"),  # type: ignore[arg-type]
    (lambda: in_workflow.launch(_child_of_int.call(1), "y", due_ms=1.5), "expected due_ms in whole"),  # type: ignore[arg-type]
    (lambda: in_workflow.launch(_child_of_int.call(1), "y", due_ms=-1), "expected due_ms in whole"),
    (lambda: in_workflow.launch(_child_of_int.call(1), "y", attributes={"a": 1}), "attributes of text"),  # type: ignore[dict-item]
    (lambda: in_workflow.launch(_child_of_int.call(1), "y", attributes=["a"]), "attributes as a dict"),  # type: ignore[arg-type]
    (lambda: in_workflow.launch(_child_of_int, "y"), "expected _child.call"),  # type: ignore[arg-type]
    (lambda: bokiflow.patched(7), "expected the name of a patch that is text"),  # type: ignore[arg-type]
    (lambda: bokiflow.deprecate_patch(7), "expected the name of a patch that is text"),  # type: ignore[arg-type]
    (lambda: bokiflow.lock(7), "expected a lock's name that is text"),  # type: ignore[arg-type]
    (lambda: bokiflow.lock("\udc80"), "expected a lock's name that UTF-8 can encode"),
    (lambda: bokiflow.lock("a", timeout_s="1"), "expected timeout_s of more than 0 s"),  # type: ignore[arg-type]
    (lambda: bokiflow.transact(7, _child), "expected a store"),  # type: ignore[arg-type,type-var]
    (lambda: bokiflow.transact(None, 7), "expected a function as the body"),  # type: ignore[arg-type]
    (lambda: _child_of_int("x"), "expected int as argument 'number', found 'x'"),  # type: ignore[arg-type]
    (lambda: bokiflow.restart("x"), "expected int as argument 'of', found 'x'"),
]


async def test_values_of_another_type_are_refused_in_words_where_they_are_given(cluster: MemoryCluster) -> None:
    app = App("shop")
    app.workflow(name="child")(_child)

    @app.step
    async def recorded() -> None:
        pass

    @app.workflow
    async def flow(of: int) -> list[str]:
        found = []
        for call, _ in WRONG:
            try:
                made = call()
                if isinstance(made, Awaitable):
                    await made
                found.append("taken")
            except boki.InvalidArgument as error:
                found.append(str(error))
        await recorded()
        return found

    async with working(cluster, app) as worker:
        handle = await worker.start(flow.call(1), id="x")
        found = await handle.result()
        assert [one.kind async for one in handle.steps()] == ["step", "end"], "what is refused is not in the history"
    assert len(found) == len(WRONG)
    for text, (_, words) in zip(found, WRONG, strict=True):
        assert re.search(words, text), (text, words)
