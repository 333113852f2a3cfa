"""Workflows in the simulator: `boki sim run --profile flow`.

Customers start orders, signal them and wait for their results; some call a debounced workflow, cancel an order, or set a schedule of their
own, fire it by hand and remove it. Workers start workflows too, and run an old program that lacks two
workflows and a schedule, and are upgraded host by host to a new one, so that both run side by side for a while. Some workers are drained
after a time, and their process begins a new worker. Most programs cancel calls while they are in flight, and workers and clients while
they are entered or left. Each customer and worker is a host of its own: hosts are killed, paused and cut off,
have wrong clocks, and time-outs short enough that outcomes stay unknown. All orders change one object; every second order calls a part of a
transaction and gives it up.

One of four orders does something odd on its way, as code of users does (`odd_users`): it changes in place what it got, its steps raise
or return what cannot be recorded, or it leaves a generator half-way. Workers whose spans raise are among the others.

After the faults every order has ended with its result, its sale happened once, no part of a transaction runs, and no firing of the
schedule is missing. A workflow whose start was cancelled runs to its end, or is not in the log. Of a worker or client that was left no
task runs on. Then days pass:
ended workflows are forgotten, objects are readable, and the schedule can be listed and changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import boki
import boki.sim
import bokiflow
from boki_common.errors import BokiError, InvalidArgument
from bokiflow import App, Flow, Worker, WorkflowCancelled
from bokiflow.client import schedules
from bokiflow.history import inspection
from bokiflow.model.cron import Timing
from bokiflow_tools.odd_users import OddUsers, RudeTracing, oddity_of, recorded, served
from bokilib import Log
from bokilib.testing import CallCancelled, Cancellations, all_ended, until
from bokistore import BokiStore, StoreSettings, Transaction

BOOK: Final = "office"
SECONDS: Final = 4.0
LEASE_S: Final = 2.0
DAYS: Final = 9
DAY_S: Final = 86_400.0
TIMEOUTS_S: Final = (1.0, 4.0, 20.0)
EVERY_S: Final = 1.0
HOT: Final = "total"
DRAIN_S: Final = 1.0
"""Seconds that the steps of a drained worker may run on."""
CANCELLED: Final = (0, 3, 6)
"""A host cancels one of so many calls; 0: none."""
LIVES: Final = (0, 1, 3)
"""A host cancels one of so many of its workers, at any point of their lives; 0: none."""
LAST: Final = 12
"""Workflows that the last worker starts."""
LAST_IN: Final = 4
"""One of so many seeds has a worker that stays to the end."""
OWN: Final = "own-"
"""Beginning of the names of schedules that customers set."""
PARTS: Final = ("bokiflow", "bokilib members", "bokilib follower")
"""Beginnings of the names of tasks that end with their worker or client."""
ENDED_S: Final = 120.0
"""Seconds after the faults within which workflows end that were started by workers."""
SETTLE_S: Final = 60.0
"""Seconds after the end of all orders in which parts of transactions are cancelled: parts of orders that the customer never learned of."""


class Program:
    """The code of one process; the new program has the workflows `audit` and `report` and the schedule, too."""

    def __init__(self, log: Log, *, new: bool) -> None:
        self.store: Final = BokiStore(log, settings=StoreSettings(checkpoint_records=20))
        self.app: Final = App("office")

        @self.app.workflow
        async def pack(order: str) -> str:
            await asyncio.sleep(0.1)
            return f"box {order}"

        self.pack: Final = pack
        self.odd: Final = OddUsers(self.app, self.store)
        self._add_gifts()
        self._add_deliveries()
        if new:
            self._add_new()

    def _add_gifts(self) -> None:
        """Add the transaction that wraps a gift: it calls a workflow that never ends, and gives it up."""

        @self.app.workflow
        async def ribbon() -> None:
            async with bokiflow.lock("ribbons", ordered=True):
                await bokiflow.recv("ribbon")  # never sent

        async def wrap(tx: Transaction, order: str) -> None:
            try:
                async with asyncio.timeout(patience_s(order)):
                    await ribbon()
            except TimeoutError:
                tx[f"plain/{order}"].inc("times")

        self._wrap = wrap

    def _add_deliveries(self) -> None:
        """Add the workflow of an order: it packs and sells a box, and waits for the address."""

        @self.app.step
        async def price(order: str) -> int:
            return len(order)

        async def sell(tx: Transaction, order: str, cents: int) -> None:
            tx[f"sale/{order}"].inc("times")
            sold = await tx[HOT].get("cents", 0)
            assert isinstance(sold, int)
            tx[HOT].set("cents", sold + cents)

        @self.app.workflow
        async def deliver(order: str) -> str:
            cents, box = await asyncio.gather(price(order), self.pack(order))
            await bokiflow.transact(self.store, sell, order, cents)
            if is_gift(order):
                await bokiflow.transact(self.store, self._wrap, order)
            odd = f" {await self.odd.serve(order)}" if oddity_of(order) else ""
            return f"{box} to {await bokiflow.recv('address')}{odd}"

        self.deliver = deliver

    def _add_new(self) -> None:
        async def count(tx: Transaction, name: str) -> None:
            tx[name].inc("times")

        @self.app.workflow
        async def audit(name: str) -> str:
            await bokiflow.transact(self.store, count, f"audit/{name}")
            return f"audited {name}"

        @self.app.workflow
        async def report() -> str:
            return "reported"

        self.audit = audit
        self.app.schedule("report", report.call(), every_s=EVERY_S)


def is_gift(order: str) -> bool:
    """Return whether an order calls a part of a transaction and gives it up."""
    return int(order.rpartition("/")[2]) % 2 == 0


def delivered(order: str, address: str) -> str:
    """Return the result of the workflow of an order."""
    return f"box {order} to {address}{f' {served(order)}' if oddity_of(order) else ''}"


def patience_s(order: str) -> float:
    """Return after how many seconds an order gives its part up: before, while or after the start of the part is appended."""
    return 0.001 * (1 << int(order.rpartition("/")[2]) % 7)


class Office:
    """A run of the simulation, and the answers that customers got."""

    def __init__(self, cluster: boki.sim.Cluster) -> None:
        self.started: Final[dict[str, str]] = {}
        """Expected result of each workflow whose start was acknowledged, by id."""
        self.results: Final[dict[str, object]] = {}
        """Results that customers received, by id."""
        self.debounced: Final[dict[str, str]] = {}
        """Name of each acknowledged debounced call, by the id of the workflow that it starts."""
        self.begun: Final[dict[str, str]] = {}
        """Expected result of each workflow whose start may have happened, by id."""
        self.cancelled: Final[dict[str, bool]] = {}
        """Orders that customers cancelled, and whether that was acknowledged."""
        self.deployed = 0
        """Workers up to this number run the new program from their next start on."""
        self.stop = False
        """No order is placed any more."""
        self.started_last = False
        """The worker that stays to the end has started its workflows."""
        self.over = False
        """All orders are served: workers are left."""
        self._cluster = cluster

    async def run(self) -> None:
        """Run customers and workers until the faults end and all orders are served; check, let days pass, and check again."""
        cluster = self._cluster
        customers = [cluster.host(f"customer-{number}", self.buy) for number in (1, 2)]
        workers = [cluster.host(f"worker-{number}", self.work) for number in (1, 2, 3)]
        await asyncio.sleep(SECONDS / 2)
        for number in (1, 2, 3):  # a deploy, host by host
            self.deployed = number
            workers[number - 1].kill()
            await asyncio.sleep(SECONDS / 8)
        await cluster.faults_over()
        self.stop = True
        for host in customers:
            await host.result()
        if cluster.seed % LAST_IN == 2:
            workers.append(cluster.host("last", self.start_last))
        while cluster.seed % LAST_IN == 2 and not self.started_last:  # noqa: ASYNC110 - virtual time costs no time
            await asyncio.sleep(0.1)
        async with await cluster.connect() as client:
            await self.check(client.book(BOOK))
        self.over = True
        for host in workers:
            await host.result()
        await self.days()

    def program(self, log: Log, worker: int = 3) -> Program:
        """Return the program that the host of a worker starts now."""
        return Program(log, new=self.deployed >= worker)

    async def work(self, env: boki.sim.Environment) -> None:
        """Run workers until all is served. Its incarnations share a name, or each has its own."""
        number = int(env.name[-1])
        async with await env.connect(timeout=TIMEOUTS_S[env.random.below(3)]) as client:
            log = Log(client.book(BOOK), random=env.random)
            name = env.name if env.random.below(2) else None
            lives = Cancellations(env.random, one_in=one_of(env, LIVES))
            while not self.over:
                program = self.program(log, number)
                worker = Worker(
                    program.app,
                    log,
                    name=name,
                    lease_s=LEASE_S,
                    collect_every_s=1.0,
                    random=env.random,
                    bodies=env.bodies,
                    tracing=RudeTracing() if number % 2 else None,
                )
                life = partial(until, lambda: self.over, partial(self._live, env, worker, program))
                try:
                    await lives.call(life, longest_s=SECONDS)
                except CallCancelled:
                    pass
                await all_ended(env.running_tasks, *PARTS)

    async def _live(self, env: boki.sim.Environment, worker: Worker, program: Program) -> None:
        """Enter a worker, start workflows, and drain it after a time or never."""
        cancels = Cancellations(env.random, one_in=one_of(env, CANCELLED))
        drained_s = None if env.random.below(2) else env.random.below(int(SECONDS * 1_000)) / 1_000
        async with worker:
            try:
                async with asyncio.timeout(drained_s):
                    await self._pack(env, worker, program, cancels)
            except TimeoutError:
                try:
                    await cancels.call(partial(worker.drain, finish_s=DRAIN_S), longest_s=2 * DRAIN_S)
                except CallCancelled:
                    await worker.drain()

    async def start_last(self, env: boki.sim.Environment) -> None:
        """Start workflows, most of which are cancelled, in a worker that stays: no other worker takes over what it does not begin."""
        async with await env.connect(timeout=TIMEOUTS_S[-1]) as client:
            log = Log(client.book(BOOK), random=env.random)
            program = Program(log, new=True)
            cancels = Cancellations(env.random, one_in=1)
            async with Worker(program.app, log, lease_s=LEASE_S, random=env.random, bodies=env.bodies) as worker:
                await asyncio.sleep(2 * LEASE_S)  # it owns partitions by now, and its starts name it
                for _ in range(LAST):
                    await self._start(env, worker, program, cancels)
                self.started_last = True
                while not self.over:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.5)

    async def _pack(self, env: boki.sim.Environment, worker: Worker, program: Program, cancels: Cancellations) -> None:
        """Start workflows, each once: what became of a start that was cancelled, or had no answer, is seen in the end."""
        while True:
            await asyncio.sleep(env.random.below(300) / 1000)
            if self.stop:
                await asyncio.Event().wait()
            await self._start(env, worker, program, cancels)

    async def _start(self, env: boki.sim.Environment, worker: Worker, program: Program, cancels: Cancellations) -> None:
        order = env.random.token(6).hex()
        id = f"pack/{order}"
        self.begun[id] = f"box {order}"
        try:
            await cancels.call(partial(worker.start, program.pack.call(order), id=id), longest_s=0.25)
        except BokiError as error:
            if error.definite:
                del self.begun[id]
        else:
            self.started[id] = self.begun[id]

    async def buy(self, env: boki.sim.Environment) -> None:
        """Place the orders of one life of a customer's host."""
        async with await env.connect(timeout=TIMEOUTS_S[env.random.below(3)]) as client:
            log = Log(client.book(BOOK), random=env.random)
            program = Program(log, new=True)
            cancels = Cancellations(env.random, one_in=one_of(env, CANCELLED))
            life, number = env.random.token(4).hex(), 0
            async with Flow(program.app, log, random=env.random) as flow, asyncio.TaskGroup() as group:
                at = Desk(flow, program, cancels)
                group.create_task(self._schedule(at, f"{OWN}{life}"))
                while not self.stop:
                    number += 1
                    order = f"{env.name}/{life}/{number}"
                    if env.random.below(8) == 0:
                        group.create_task(self._cancel(at, f"cancelled/{order}"))
                    elif env.random.below(4):
                        group.create_task(self._order(at, order, visits=env.random.below(4) == 0))
                    else:
                        group.create_task(self._audit(at, f"{life}/{env.random.below(2)}"))
                    await asyncio.sleep(env.random.below(400) / 1000)
            await all_ended(env.running_tasks, *PARTS)

    async def _order(self, at: Desk, order: str, *, visits: bool) -> None:
        """Place an order and wait for its result. `visits`: by a client of its own, which is left when a call is cancelled."""
        id = f"deliver/{order}"
        self.begun[id] = delivered(order, f"{order}'s address")

        async def visit() -> None:
            async with Flow(at.program.app, at.flow.log) as own:
                await own.start(at.program.deliver.call(order), id=id)

        await at.again(visit if visits else partial(at.flow.start, at.program.deliver.call(order), id=id))
        self.started[id] = self.begun[id]
        handle = at.flow.handle(id)
        await at.again(partial(handle.signal, "address", f"{order}'s address"))
        await at.again(handle.resume)
        self.results[id] = await at.again(partial(handle.result, blocked="wait"))

    async def _cancel(self, at: Desk, order: str) -> None:
        """Place an order and cancel it."""
        id = f"deliver/{order}"
        self.cancelled[id] = False
        handle = await at.again(partial(at.flow.start, at.program.deliver.call(order), id=id))
        await at.again(handle.cancel)
        self.cancelled[id] = True
        await cancelled_in_the_end(at.again, handle)

    async def _schedule(self, at: Desk, name: str) -> None:
        """Set a schedule, pause and resume it, fire it by hand, and remove it."""
        plan = schedules.planned(name, at.program.pack.call(name), Timing("", EVERY_S, "UTC", "last", 60.0), {})
        own = at.flow.schedules
        await at.again(partial(own.set, plan))
        await at.again(partial(own.pause, name))
        await at.again(partial(own.resume, name))
        try:
            fired = await at.cancels.call(partial(own.run, name))
        except BokiError as error:
            if error.definite and not error.retryable:
                raise
        else:
            found = await at.again(partial(at.flow.handle(fired).result, blocked="wait"))
            assert found == f"box {name}", f"the firing {fired} gave {found!r}"
        await removed(at.again, own, name)

    async def _audit(self, at: Desk, name: str) -> None:
        call = at.program.audit.call(name)
        handle = await at.again(lambda: at.flow.debounce(call, id=f"audit/{name}", quiet_s=0.3))
        self.debounced[handle.id] = name
        found = await at.again(lambda: handle.result(blocked="wait"))
        assert found == f"audited {name}", f"the debounced call of {name} gave {found!r}"

    # -- the checks

    async def check(self, book: boki.Book) -> None:
        """Check that each acknowledged order and debounced call has ended with its result, and that no sale is lost or doubled."""
        log = Log(book)
        program = Program(log, new=True)
        there = set(await again(partial(inspection.ids, log, "office")))
        self.started.update({id: wanted for id, wanted in self.begun.items() if id in there})
        async with Flow(program.app, log) as flow:
            await self._check_packs(flow)
            for id in (id for id in self.cancelled if id in there):  # the customer may have died before
                await again(flow.handle(id).cancel)
                await cancelled_in_the_end(again, flow.handle(id))
            for one in await again(flow.schedules.list):
                if one.name.startswith(OWN):
                    await removed(again, flow.schedules, one.name)
            for id, wanted in self.orders():
                if id not in self.results:  # the customer may have died before it sent the address
                    order = id.removeprefix("deliver/")
                    await again(partial(flow.handle(id).signal, "address", f"{order}'s address"))
                found = await again(partial(flow.handle(id).result, blocked="wait"))
                assert found == wanted, f"workflow {id} returned {found!r}, expected {wanted!r}"
                assert self.results.get(id, wanted) == wanted, f"a customer got {self.results[id]!r} from {id}"
                await check_recorded(flow, id)
            for id, name in self.debounced.items():  # the caller may have died while it waited for more calls
                found = await again(partial(flow.handle(id).result, blocked="wait", missing="wait"))
                assert found == f"audited {name}", f"the debounced call of {name} gave {found!r}"
        sold = 0
        for id, _ in self.orders():
            order = id.removeprefix("deliver/")
            times = await program.store.object(f"sale/{order}").get("times", 0, consistency="linearizable")
            assert times == 1, f"the sale of {order} happened {times} times"
            sold += len(order)
            if is_gift(order):
                times = await program.store.object(f"plain/{order}").get("times", 0, consistency="linearizable")
                assert times == 1, f"the gift of {order} was given up {times} times"
        cents: Any = await program.store.object(HOT).get("cents", 0, consistency="linearizable")
        assert cents >= sold, f"sales of {sold} cents were made, the total is {cents}: an update is lost"
        for name in set(self.debounced.values()):
            times = await program.store.object(f"audit/{name}").get("times", 0, consistency="linearizable")
            assert isinstance(times, int) and times >= 1, f"the debounced call of {name} never ran"

        await no_parts_left(log)

    def orders(self) -> list[tuple[str, str]]:
        """Return the orders of customers that were started, and the result of each."""
        return [(id, wanted) for id, wanted in self.started.items() if id.startswith("deliver/")]

    async def _check_packs(self, flow: Flow) -> None:
        """Check that workflows that workers started have ended, or end soon: each whose start was acknowledged or is in the log."""
        for id, wanted in self.started.items():
            if not id.startswith("pack/"):
                continue
            try:
                async with asyncio.timeout(ENDED_S):
                    found = await again(partial(flow.handle(id).result, blocked="wait"))
            except TimeoutError:
                raise AssertionError(f"workflow {id} was started, and runs nowhere") from None
            assert found == wanted, f"workflow {id} returned {found!r}, expected {wanted!r}"

    async def _tidy_up(self, log: Log, order: str) -> None:
        program = Program(log, new=True)
        async with Worker(program.app, log, lease_s=LEASE_S, collect_every_s=0.5) as worker:
            handle = await again(partial(worker.start, program.deliver.call(order)))
            await again(partial(handle.signal, "address", "there"))
            assert await handle.result() == delivered(order, "there")
            await worker.collect()
            for name, _ in self.orders():
                await program.store.tend(f"sale/{name.removeprefix('deliver/')}")

    async def days(self) -> None:
        """Let days pass and a worker collect; check that objects are readable and the schedule can be changed."""
        cluster = self._cluster
        for number in (1, 2):
            await cluster.rest(DAYS * DAY_S)
            async with await cluster.connect() as client:
                await self._tidy_up(Log(client.book(BOOK)), f"late/{number}")
        async with await cluster.connect() as client:
            log = Log(client.book(BOOK))
            store = BokiStore(log)
            assert await store.object(HOT).get("cents"), "the total is gone"
            for id, _ in self.orders():
                times = await store.object(f"sale/{id.removeprefix('deliver/')}").get("times", 0)
                assert times == 1, f"after days the sale of {id} is {times}"
            async with Flow(Program(log, new=True).app, log) as flow:
                names = [one.name for one in await flow.schedules.list()]
                assert names == ["report"], f"expected one schedule, found {names}"
                await flow.schedules.pause("report")
                await flow.schedules.resume("report")
                for id in list(self.started)[:3]:
                    try:
                        async with asyncio.timeout(60.0):
                            await flow.handle(id).result()
                    except BokiError:
                        pass  # the workflow is forgotten, and the error says so


async def check_recorded(flow: Flow, id: str) -> None:
    """Check that the history of an odd order has the results that its steps returned, each once."""
    order = id.removeprefix("deliver/")
    wanted = recorded(order) if oddity_of(order) else {}
    if not wanted:
        return

    async def results() -> list[tuple[str, object]]:
        return [(one.detail, one.outcome.value) async for one in flow.handle(id).steps() if one.outcome is not None]

    found = [one for one in await again(results) if one[0] in wanted]
    assert dict(found) == wanted and len(found) == len(wanted), f"the history of {id} has {found}, expected {wanted}"


async def no_parts_left(log: Log) -> None:
    """Check that soon no part of a transaction runs: all transactions have ended, and a part does not outlive its transaction."""
    left: list[str] = []
    for _ in range(int(SETTLE_S)):
        parts = [id for id in await inspection.ids(log, "office") if "~" in id]
        states = await inspection.newest_of(log, parts)
        left = [id for id, state in zip(parts, states, strict=True) if state is not None and state.ended is None]
        if not left:
            return
        await asyncio.sleep(1.0)
    raise AssertionError(f"expected no part of a transaction to run when all orders have ended, found {left}")


class Desk:
    """A client of a customer, its code, and the cancellations of its calls."""

    def __init__(self, flow: Flow, program: Program, cancels: Cancellations) -> None:
        self.flow: Final = flow
        self.program: Final = program
        self.cancels: Final = cancels

    async def again(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Repeat an idempotent call, which may be cancelled, until it is answered."""
        return await again(partial(self.cancels.call, call))


Again = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]


async def cancelled_in_the_end(again: Again, handle: bokiflow.Handle[Any]) -> None:
    """Check that an order that waits for its address ends because it was cancelled."""
    try:
        found = await again(lambda: handle.result(blocked="wait"))
    except WorkflowCancelled:
        return
    raise AssertionError(f"workflow {handle.id} was cancelled, and returned {found!r}")


async def removed(again: Again, own: schedules.Schedules, name: str) -> None:
    """Remove a schedule. It may be gone already: a removal whose outcome is unknown is repeated."""
    try:
        await again(partial(own.remove, name))
    except InvalidArgument:
        pass


def one_of(env: boki.sim.Environment, choices: tuple[int, ...]) -> int:
    """Draw one of some numbers."""
    return choices[env.random.below(len(choices))]


async def again(call: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat an idempotent call until it is answered; an error that is definite and not retryable is raised."""
    while True:
        try:
            return await call()
        except boki.OutcomeUnknown:
            pass
        except BokiError as error:
            if error.definite and not error.retryable:
                raise
        await asyncio.sleep(0.1)


async def program(cluster: boki.sim.Cluster) -> None:
    """Run the simulation once in a cluster."""
    await Office(cluster).run()


FLOW: Final = boki.sim.Subject(program, seconds=SECONDS, steady=True)
"""The subject of `boki sim run --profile flow`."""
