"""Starts whose caller does not learn their outcome: the worker that they name runs them nevertheless, each once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from boki_common.errors import BokiError
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Flow, Worker, WorkflowCancelled
from bokiflow.history import inspection
from bokiflow.model.flow_events import PICKER, Attempted, Invoked, Started
from bokiflow.runtime import in_workflow
from bokiflow.testing import LoopClock, in_virtual_time
from bokiflow.worker.takeover import PASSED, PassedMessages
from bokilib.append.log import Log
from bokilib.errors import AppendUnknown
from bokilib.ports import BookPort, TicketPort
from bokilib.records import events as records
from bokistore import BokiStore, Transaction
from libs.tests.flow.conftest import Inline

LONG_S = 3_600.0
"""A lease that does not expire during a test: what the worker does not run, no other takes over."""


class LateBook:
    """A book over another one, whose answers to starts of workflows come late.

    Attributes:
        late: while it is not set, no answer comes to a record that starts a workflow.
        refusals: errors that are raised instead of answers, the first one by the append, the others by its outcome.
    """

    def __init__(self, book: boki.Book) -> None:
        self._book = book
        self.late = asyncio.Event()
        self.late.set()
        self.refusals: list[BokiError] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._book, name)

    def submit(self, data: bytes, **options: Any) -> TicketPort:
        ticket = self._book.submit(data, **options)
        events = PICKER.of(1, records.open_record(1, data))
        return LateTicket(self, ticket) if any(isinstance(one, Started) for one in events) else ticket


class LateTicket:
    """A ticket of a late book."""

    def __init__(self, book: LateBook, ticket: boki.Ticket) -> None:
        self._book = book
        self._ticket = ticket

    def __await__(self) -> Generator[Any, None, int]:
        return self._wait().__await__()

    async def _wait(self) -> int:
        await self._book.late.wait()
        if self._book.refusals:
            raise self._book.refusals.pop(0)
        return await self._ticket

    async def outcome(self, *, settle: bool = False) -> boki.Outcome:
        await self._book.late.wait()
        if self._book.refusals:
            raise self._book.refusals.pop(0)
        return await self._ticket.outcome(settle=settle)


class Orders:
    """Workflows, and the arguments with which they ran."""

    def __init__(self) -> None:
        self.app = App("shop")
        self.ran: list[int] = []

        @self.app.workflow
        async def order(number: int) -> int:
            self.ran.append(number)
            return number

        @self.app.workflow
        async def waits() -> bokiflow.Json:
            return await bokiflow.recv("go")

        @self.app.workflow
        async def calls() -> bokiflow.Json:
            return await waits()

        @self.app.workflow
        async def launches() -> None:
            in_workflow.launch(order.call(1), "launched")

        self.order, self.waits, self.calls, self.launches = order, waits, calls, launches


@asynccontextmanager
async def late_worker(orders: Orders) -> AsyncIterator[tuple[Worker, LateBook, Flow]]:
    """A worker over a late book, beside another one that takes over nothing, and a client of another process."""
    async with MemoryCluster(clock=LoopClock()) as cluster:

        async def book() -> boki.Book:
            return (await cluster.connect()).book("shop")

        late = LateBook(await book())
        async with (
            Worker(orders.app, cast(BookPort, late), name="a", bodies=Inline(), lease_s=LONG_S) as worker,
            Flow(orders.app, await book()) as outside,
        ):
            yield worker, late, outside


async def started_at(log: Log, id: str) -> int:
    """Wait until the start of a workflow is in the log; return its seqnum."""
    for _ in range(1_000):
        state = await inspection.newest(log, id, consistency="linearizable")
        if state is not None:
            return state.start
        await let_pass(0.01)
    raise AssertionError("it was not started")


async def cancelled(call: Coroutine[Any, Any, object], log: Log, id: str) -> None:
    """Make a call that starts a workflow; cancel it when the start is in the log."""
    calling = asyncio.create_task(call)
    await started_at(log, id)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


@in_virtual_time
async def test_a_workflow_whose_start_was_cancelled_runs_once() -> None:
    orders = Orders()
    async with late_worker(orders) as (worker, late, outside):
        late.late.clear()
        await cancelled(worker.start(orders.order.call(1), id="x"), outside.log, "x")
        late.late.set()
        again = await worker.start(orders.order.call(1), id="x")
        async with asyncio.timeout(60):
            assert await again.result() == await outside.handle("x").result() == 1
        assert orders.ran == [1]


@in_virtual_time
async def test_a_start_that_is_cancelled_before_it_is_sent_starts_nothing() -> None:
    orders = Orders()
    async with late_worker(orders) as (worker, _, outside):
        calling = asyncio.create_task(worker.start(orders.order.call(1), id="x"))
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        assert await inspection.newest(outside.log, "x", consistency="linearizable") is None
        assert await (await worker.start(orders.order.call(1), id="x")).result() == 1


@pytest.mark.parametrize(
    "refusals",
    [
        [boki.OutcomeUnknown("no answer")] * 4,
        [boki.OutcomeUnknown("no answer"), boki.WriterForgotten("too long ago")],
        [boki.OutcomeUnknown("no answer"), boki.Unreachable("no engine"), boki.OutcomeUnknown("no answer")],
    ],
    ids=["asked again", "forgotten", "unreachable"],
)
@in_virtual_time
async def test_a_workflow_whose_start_has_no_known_outcome_for_long_runs_once(refusals: list[BokiError]) -> None:
    orders = Orders()
    async with late_worker(orders) as (worker, late, outside):
        late.refusals.extend(refusals)
        with pytest.raises(AppendUnknown):
            await worker.start(orders.order.call(1), id="x")
        async with asyncio.timeout(60):
            assert await outside.handle("x").result() == 1
        assert orders.ran == [1] and not late.refusals


@in_virtual_time
async def test_a_round_of_debounced_calls_whose_first_call_was_cancelled_runs() -> None:
    orders = Orders()
    async with late_worker(orders) as (worker, late, outside):
        late.late.clear()
        call = worker.flow.debounce(orders.order.call(1), id="d", quiet_s=1)
        await cancelled(call, outside.log, "debounce/d/0")
        late.late.set()
        async with asyncio.timeout(60):
            assert await (await worker.flow.debounce(orders.order.call(2), id="d", quiet_s=1)).result() == 2


@in_virtual_time
async def test_a_schedule_whose_setting_was_cancelled_is_kept() -> None:
    orders = Orders()
    async with late_worker(orders) as (worker, late, outside):
        late.late.clear()
        orders.app.schedule("hourly", orders.order.call(1), cron="0 * * * *")
        plans = list(orders.app.plans.values())
        await cancelled(worker.flow.schedules.keep(plans, lambda _: True), outside.log, "schedule/hourly")
        late.late.set()
        await worker.flow.schedules.keep(plans, lambda _: True)
        await let_pass(2 * 3_600)
        assert orders.ran


@in_virtual_time
async def test_a_child_whose_parent_is_terminated_before_its_start_is_answered_ends() -> None:
    """The worker stops the parent while the record with the child's start is under way."""
    orders = Orders()
    async with late_worker(orders) as (worker, late, outside):
        await worker.start(orders.calls.call(), id="p")
        late.late.clear()
        child = await child_of(outside, "p")
        await outside.handle("p").terminate()
        await let_pass(1)
        late.late.set()
        async with asyncio.timeout(60):
            with pytest.raises(WorkflowCancelled):
                await outside.handle(child).result()


async def child_of(flow: Flow, id: str) -> str:
    """Wait until a workflow has called another one; return the id of that."""
    for _ in range(1_000):
        history = await inspection.whole_history(flow.log, id, consistency="linearizable")
        for one in history.records:
            for event in one.own:
                if isinstance(event, Invoked | Attempted):
                    return event.child
        await let_pass(0.01)
    raise AssertionError("it called none")


@in_virtual_time
async def test_a_launched_workflow_runs_although_its_launcher_is_terminated_meanwhile() -> None:
    orders = Orders()
    async with late_worker(orders) as (worker, late, outside):
        handle = await worker.start(orders.launches.call(), id="p")
        late.late.clear()
        await started_at(outside.log, "launched")
        await handle.terminate()
        await let_pass(1)
        late.late.set()
        async with asyncio.timeout(60):
            assert await outside.handle("launched").result() == 1


@in_virtual_time
async def test_a_part_of_a_transaction_ends_with_its_parent_before_its_start_is_answered() -> None:
    orders = Orders()
    async with late_worker(orders) as (worker, late, outside):
        store = BokiStore(worker.log)

        async def body(tx: Transaction) -> bokiflow.Json:
            return await orders.waits()

        @orders.app.workflow
        async def transacts() -> bokiflow.Json:
            return await bokiflow.transact(store, body)

        await worker.start(transacts.call(), id="p")
        late.late.clear()
        child = await child_of(outside, "p")
        await outside.handle("p").terminate()
        await let_pass(1)
        late.late.set()
        async with asyncio.timeout(60):
            with pytest.raises(WorkflowCancelled):
                await outside.handle(child).result()


@pytest.mark.parametrize("send", [lambda one: one.signal("go", 7), lambda one: one.cancel()], ids=["signal", "cancel"])
@in_virtual_time
async def test_a_message_that_is_read_before_the_answer_to_its_workflows_start_arrives(
    send: Callable[[bokiflow.Handle[Any]], Coroutine[Any, Any, None]],
) -> None:
    orders = Orders()
    async with late_worker(orders) as (worker, late, outside):
        late.late.clear()
        starting = asyncio.create_task(worker.start(orders.waits.call(), id="x"))
        await started_at(outside.log, "x")
        await send(outside.handle("x"))
        await let_pass(1)
        late.late.set()
        async with asyncio.timeout(60):
            try:
                assert await (await starting).result() == 7
            except WorkflowCancelled:
                assert await outside.handle("x").status() == "cancelled"


def test_passed_messages_are_bounded_and_forgotten_ones_have_a_bound() -> None:
    passed = PassedMessages()
    passed.note("x", 10)
    assert passed.may_be_after("x", 9) and not passed.may_be_after("x", 10) and not passed.may_be_after("y", 9)
    for number in range(PASSED):
        passed.note(f"other-{number}", 20 + number)
    assert len(passed._newest) == PASSED
    assert passed.may_be_after("x", 9) and passed.may_be_after("y", 9) and not passed.may_be_after("y", 10)
