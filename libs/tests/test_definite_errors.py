"""Calls of programs, with a definite error or an unknown outcome at each operation on the log: "nothing was applied" has to be true.

A definite error of a later read or append must not reach the caller of an operation whose first record is in the log. A repetition would
apply it twice, and a program that does not repeat it would take for undone what was done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from boki_common.errors import BokiError
from bokiflow import App, Flow, Timing
from bokiflow.client import schedules
from bokiflow.testing import in_virtual_time
from bokilib import Log
from bokilib.ports import BookPort
from bokilib.testing import Fault, FaultKind, FaultyBook
from bokiqueue import Queue
from bokirsm import App as Machines
from bokirsm import Ask, Host, Machine, MachineFaulted, Ref, Rsm, State
from bokistore import BokiStore, Transaction

Operation = Callable[[BookPort], Awaitable[Any]]
"""Opens what it needs on a book, and returns the call whose errors are looked at."""


class Scenario(NamedTuple):
    """A call of a program.

    Attributes:
        before: prepares the book. opened: opens the library in the process under test. call: the call.
    """

    before: Callable[[BookPort], Awaitable[Any]]
    opened: Callable[[BookPort], Awaitable[Any]]
    call: Callable[[Any], Awaitable[Any]]


async def nothing(book: BookPort) -> None:
    pass


async def store_of(book: BookPort) -> BokiStore:
    return BokiStore(Log(book))


async def with_objects(book: BookPort) -> None:
    store = BokiStore(Log(book))
    for name in ("a", "b"):
        await store.object(name).set("n", 1)
    await store.expire("a", 1)


async def move(tx: Transaction) -> None:
    left = await tx["a"].get("n", 0)
    tx["b"].set("n", left)


async def queue_of(book: BookPort) -> Queue[Any]:
    return await Queue.open(book, "jobs", int, shards=2, dead_letter="dead")


async def popped_of(book: BookPort) -> Queue[Any]:
    return await Queue.open(book, "jobs", int, shards=1, mode="pop")


async def with_messages(book: BookPort) -> None:
    queue = await queue_of(book)
    await queue.register("audit")
    await queue.push(1, dedup_id="one")


async def with_popped(book: BookPort) -> None:
    queue = await popped_of(book)
    for number in range(3):
        await queue.push(number)


shop = App("shop")


@shop.workflow
async def order(number: int) -> None:
    await bokiflow.recv("go")


nightly = schedules.planned("nightly", order.call(1), Timing(every_s=60))


async def flow_of(book: BookPort) -> Flow:
    return Flow(shop, book)


async def with_orders(book: BookPort) -> None:
    await Flow(shop, book).start(order.call(1), id="one")


async def with_schedule(book: BookPort) -> None:
    await Flow(shop, book).schedules.set(nightly)


async def debounced(flow: Flow) -> None:
    await flow.debounce(order.call(1), id="doc", quiet_s=1)


class Half(Ask[float]):
    by: int


class Divider(Machine[Half]):
    run = State(start=True)

    @run.on(Half)
    def half(self, e: Half) -> None:
        self.reply(e, 1 / e.by)


maths = Machines("maths", [Divider])
ONE: Ref[Half] = Ref("maths", 3, "one")


async def rsm_of(book: BookPort) -> Rsm:
    return Rsm(maths, book)


async def host_of(book: BookPort) -> Host:
    return Host(maths, book, stuck_after_s=None)


async def with_machine(book: BookPort) -> None:
    await Rsm(maths, book).create(Divider, key="one", near=ONE)


async def with_fault(book: BookPort) -> None:
    async with Host(maths, book, stuck_after_s=None) as host:
        one = await host.create(Divider, key="one", near=ONE)
        with pytest.raises(MachineFaulted):
            await host.ask(Half(0).to(one))


async def asked(rsm: Rsm | Host) -> None:
    with contextlib.suppress(TimeoutError):  # no host runs
        await rsm.ask(Half(2).to(ONE), timeout_s=1.0)


SCENARIOS = {
    "machines: created": Scenario(nothing, rsm_of, lambda rsm: rsm.create(Divider)),
    "machines: created by key": Scenario(nothing, rsm_of, lambda rsm: rsm.create(Divider, key="one", near=ONE)),
    "machines: created again": Scenario(with_machine, rsm_of, lambda rsm: rsm.create(Divider, key="one")),
    "machines: sent": Scenario(with_machine, rsm_of, lambda rsm: rsm.send(ONE, Half(2), dedup_id="x")),
    "machines: many sent": Scenario(with_machine, rsm_of, lambda rsm: rsm.send_many([(ONE, Half(2)), (ONE, Half(3))])),
    "machines: asked": Scenario(with_machine, rsm_of, asked),
    "machines: resumed": Scenario(with_fault, rsm_of, lambda rsm: rsm.resume(ONE)),
    "machines: skipped": Scenario(with_fault, rsm_of, lambda rsm: rsm.skip(ONE)),
    "machines: created by a host": Scenario(nothing, host_of, lambda host: host.create(Divider, key="one")),
    "machines: sent by a host": Scenario(with_machine, host_of, lambda host: host.send(ONE, Half(2))),
    "machines: many sent by a host": Scenario(with_machine, host_of, lambda host: host.send_many([(ONE, Half(2))])),
    "machines: asked by a host": Scenario(with_machine, host_of, asked),
    "store: an operation": Scenario(with_objects, store_of, lambda store: store.object("a").inc("n")),
    "store: a transaction": Scenario(with_objects, store_of, lambda store: store.transact(move)),
    "store: a deletion": Scenario(with_objects, store_of, lambda store: store.delete("a")),
    "store: an expiry": Scenario(with_objects, store_of, lambda store: store.expire("b", 5)),
    "store: a sweep": Scenario(with_objects, store_of, lambda store: store.sweep(["a", "b"])),
    "queue: opened": Scenario(nothing, flow_of, lambda flow: queue_of(flow.log.book)),
    "queue: a group registered": Scenario(with_messages, queue_of, lambda queue: queue.register("other")),
    "queue: a group dropped": Scenario(with_messages, queue_of, lambda queue: queue.drop("audit")),
    "queue: deleted": Scenario(with_messages, queue_of, lambda queue: queue.delete()),
    "queue: paused": Scenario(with_messages, queue_of, lambda queue: queue.pause()),
    "queue: purged": Scenario(with_messages, queue_of, lambda queue: queue.purge()),
    "queue: a key limited": Scenario(with_messages, queue_of, lambda queue: queue.limit_key("k", 1.0)),
    "queue: a push": Scenario(with_messages, queue_of, lambda queue: queue.push(2, dedup_id="one")),
    "queue: pushes": Scenario(with_messages, queue_of, lambda queue: queue.push_many([2, 3])),
    "queue: a pop": Scenario(with_popped, popped_of, lambda queue: queue.pop(timeout=1)),
    "flow: a start": Scenario(nothing, flow_of, lambda flow: flow.start(order.call(1), id="one")),
    "flow: a start again": Scenario(with_orders, flow_of, lambda flow: flow.start(order.call(1), id="one")),
    "flow: a signal": Scenario(with_orders, flow_of, lambda flow: flow.handle("one").signal("go", 1)),
    "flow: a cancellation": Scenario(with_orders, flow_of, lambda flow: flow.handle("one").cancel()),
    "flow: a termination": Scenario(with_orders, flow_of, lambda flow: flow.handle("one").terminate("old")),
    "flow: a resumption": Scenario(with_orders, flow_of, lambda flow: flow.handle("one").resume()),
    "flow: a fork": Scenario(with_orders, flow_of, lambda flow: flow.handle("one").fork(id="two")),
    "flow: a debounced call": Scenario(nothing, flow_of, debounced),
    "flow: a schedule": Scenario(
        nothing,
        flow_of,
        lambda flow: flow.schedules.set(nightly),
    ),
    "flow: a schedule paused": Scenario(with_schedule, flow_of, lambda flow: flow.schedules.pause("nightly")),
    "flow: a schedule run": Scenario(with_schedule, flow_of, lambda flow: flow.schedules.run("nightly")),
}


async def seqnums(book: boki.Book) -> list[int]:
    """The records in a book."""
    return [item.seqnum async for item in book.read() if isinstance(item, boki.Record)]


async def tried(scenario: Scenario, at: int | None, kind: FaultKind = "refused") -> tuple[int, str]:
    """One run with a definite error at an operation of the call; returns the operations that it had, and what was wrong."""
    async with MemoryCluster() as cluster:
        inner = (await cluster.connect()).book("shop")
        await scenario.before((await cluster.connect()).book("shop"))
        book = FaultyBook(inner)
        opened = await scenario.opened(book)
        first, before = len(book.operations), await seqnums(inner)
        book._fault = None if at is None else Fault(first + at, kind)
        try:
            await scenario.call(opened)
        except BokiError as error:
            added = [seqnum for seqnum in await seqnums(inner) if seqnum not in before]
            if error.definite and added:
                failed = book.operations[first + (at or 0)]
                return 0, f"{type(error).__name__} is definite after {failed!r}, and records were added: {error}"
        return len(book.operations) - first, ""


@pytest.mark.parametrize("kind", ["refused", "lost", "never"])
@pytest.mark.parametrize("name", SCENARIOS)
@in_virtual_time
async def test_a_definite_error_is_true_wherever_the_log_refuses(name: str, kind: FaultKind) -> None:
    count, _ = await tried(SCENARIOS[name], None)
    assert count >= 1
    assert [wrong for at in range(count) if (wrong := (await tried(SCENARIOS[name], at, kind))[1])] == []
