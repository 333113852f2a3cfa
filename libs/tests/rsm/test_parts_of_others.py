"""Parts of other libraries in the commit of a machine: they happen with it, once, or the handler is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import InvalidArgument
from boki_common.testing.virtual_time import let_pass
from bokiflow import App as FlowApp
from bokiflow import Flow, Worker, recv
from bokiflow.in_atomic import signalling, starting
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib import Contribution, Log, WrongBook
from bokilib.ports import BookPort
from bokilib.testing import UNKNOWNS, crash_everywhere, while_alive
from bokiqueue import Queue
from bokirsm import App, Ask, CommitTooLarge, Event, Host, Machine, MachineFaulted, Register, Rsm, State, WrongCall
from bokistore import BokiStore, Inc, Set
from libs.tests.rsm.test_faults import surely
from libs.tests.rsm.traces import traces_of

flows = FlowApp("flows")


@flows.workflow
async def waits() -> str:
    return str(await recv("paid"))


class Paid(Event):
    order: str


class Count(Ask[int]):
    pass


Makes = Callable[[str], list[Contribution]]


class Parts:
    """The maker of the parts, which a program has where its machines can see it."""

    make: Makes = staticmethod(lambda order: [])


class Order(Machine[Paid | Count]):
    """A machine that adds parts of other libraries to its commit."""

    paid: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Paid)
    def pay(self, e: Paid) -> None:
        self.paid += 1
        for part in Parts.make(e.order):
            self.also(part)

    @run.on(Count)
    def count(self, e: Count) -> None:
        self.reply(e, self.paid)


APP = App("shop", [Order])


def parts_of(queue: Queue[str], store: BokiStore, flow: Flow) -> Makes:
    return lambda order: [
        queue.pushed(order),
        store.object("orders").sending(Inc("paid", 1), Set(order, True)),
        signalling(flow, "w-1", "paid", order),
    ]


@pytest.mark.parametrize("app", ["flows", "another"])
@in_virtual_time
async def test_a_queue_a_store_and_a_workflow_change_with_the_commit_by_one_record(
    monkeypatch: pytest.MonkeyPatch, app: str
) -> None:
    """Whether the client of workflows is of their own app or of another one."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        log = Log((await cluster.connect()).book("b"))
        queue, store, flow = await Queue.open(log, "shipments", str, shards=1), BokiStore(log), Flow(flows, log)
        monkeypatch.setattr(Parts, "make", staticmethod(parts_of(queue, store, Flow(FlowApp(app), log))))
        async with (
            Host(APP, (await cluster.connect()).book("b"), stuck_after_s=None) as host,
            Worker(flows, (await cluster.connect()).book("b")),
            queue.consume() as messages,
        ):
            handle = await flow.start(waits.call(), id="w-1")
            order = await host.create(Order, key="o")
            before = host.rsm.log.appends
            await host.send_many([(order, Paid("a")), (order, Paid("b"))])
            assert await host.ask(Count().to(order)) == 2
            assert host.rsm.log.appends - before <= 5, "two events, a question, and what the lane did of both"
            assert [(await anext(messages)).body for _ in "ab"] == ["a", "b"]
            assert await store.object("orders").value(consistency="linearizable") == {"paid": 2, "a": True, "b": True}
            assert await handle.result() == "a"


async def pay(book: BookPort) -> None:
    """Pay an order, whose parts go to a queue and an object."""
    log = Log(book)
    queue, store = await Queue.open(log, "shipments", str, shards=1), BokiStore(log)
    Parts.make = staticmethod(lambda order: [queue.pushed(order), store.object("orders").sending(Inc("paid", 1))])
    async with Host(APP, book, name="host", lease_s=1.0, stuck_after_s=None) as host:
        order = await surely(partial(host.create, Order, key="o"))
        for number in range(2):
            await surely(partial(host.send, order, Paid(f"p-{number}"), dedup_id=f"pay-{number}"))
        while await surely(partial(host.ask, Count().to(order), timeout_s=3_600)) != 2:
            await let_pass(0.02)


async def program(book: BookPort) -> None:
    await while_alive(book, pay(book))


async def check(book: boki.Book) -> None:
    (events,) = (await traces_of(book)).values()
    assert events.count("Paid") == 2
    log = Log(book)
    assert await BokiStore(log).object("orders").value(consistency="linearizable") == {"paid": 2}
    queue = await Queue.open(log, "shipments", str, shards=1)
    assert sorted([str(one.body) for one in await queue.peek(10)]) == ["p-0", "p-1"]


@in_virtual_time
async def test_crashes_at_every_operation_make_parts_of_others_happen_once() -> None:
    explored = await crash_everywhere(program, program, check, clock=LoopClock())
    assert explored.operations > 15 and explored.runs > 30


@in_virtual_time
async def test_lost_answers_make_parts_of_others_happen_once() -> None:
    await crash_everywhere(program, program, check, kinds=UNKNOWNS, clock=LoopClock())


async def started(log: Log) -> Contribution:
    return await starting(Flow(flows, log), waits.call(), id="w-9")


async def acked(log: Log) -> Contribution:
    queue = await Queue.open(log, "q", str)
    await queue.push("x")
    async with queue.consume() as messages:
        return (await anext(messages)).acked()


async def sent(log: Log) -> Contribution:
    rsm = Rsm(APP, log)
    order = await rsm.create(Order)
    return rsm.sending(order, Paid("x"))


async def of_another_book(log: Log) -> Contribution:
    return BokiStore(Log(log.book)).object("x").sending(Inc("n", 1))


async def no_part(log: Log) -> Any:
    return "text"


async def too_many(log: Log) -> Contribution:
    return Contribution(
        tuple(f"store/o/{number}" for number in range(300)), {}, BokiStore(log).object("x").sending(Inc("n", 1)).events
    )


async def too_large(log: Log) -> Contribution:
    return BokiStore(log).object("x").sending(Set("t", "x" * 520_000))


@pytest.mark.parametrize(
    ("make", "error", "found"),
    [
        (started, WrongCall, "one of app 'flows' that expects something of the log"),
        (acked, WrongCall, "one of queue 'q' that expects something of the log"),
        (sent, WrongCall, "one of machines of 'shop': use self.send"),
        (of_another_book, WrongBook, "expected a part for book 'b'"),
        (no_part, InvalidArgument, "expected a contribution to the record"),
        (too_many, CommitTooLarge, "write to other libraries, together at most 255, found 301"),
        (too_large, CommitTooLarge, "at most 507904 bytes"),
    ],
)
@in_virtual_time
async def test_a_part_that_may_fail_is_a_fault_of_its_handler(
    make: Callable[[Log], Awaitable[Contribution]], error: type[Exception], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        client = await cluster.connect()
        log = Log(client.book("b"))
        part = (
            await make(log)
            if make is not of_another_book
            else BokiStore(client.book("other")).object("x").sending(Inc("n", 1))
        )
        monkeypatch.setattr(Parts, "make", staticmethod(lambda order: [part]))
        async with Host(APP, (await cluster.connect()).book("b"), stuck_after_s=None) as host:
            order = await host.create(Order, key="o")
            await host.send(order, Paid("a"))
            with pytest.raises(MachineFaulted) as caught:
                await host.ask(Count().to(order))
            assert caught.value.facts["error"].startswith(error.__name__) and found in caught.value.facts["error"]
            await host.rsm.skip(order)
            assert await host.ask(Count().to(order)) == 0, "nothing of the handler happened"


@in_virtual_time
async def test_a_part_without_events_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Parts, "make", staticmethod(lambda order: [Contribution()]))
    async with (
        MemoryCluster(clock=LoopClock()) as cluster,
        Host(APP, (await cluster.connect()).book("b"), stuck_after_s=None) as host,
    ):
        order = await host.create(Order, Paid("a"), key="o")
        assert await host.ask(Count().to(order)) == 1
