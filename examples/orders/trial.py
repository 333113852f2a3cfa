"""A trial of the shop: a cluster and workers whose processes are killed with kill -9, and the check of the orders at the end.

    result = await trial(directory, seconds=20, seed=7, say=print)
    result.faults                                   # sentences; [] if every promise held

The cluster has two engines, three bookies and two sequencers, one of them on standby. Customers push orders all the time, some of
which meet bad code (`examples.orders.wrong`), and repeat a push without an answer under the same id. Every second a worker or a role
is killed and restarted.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

import msgspec

import boki
from boki_cli.demo.local_cluster import LocalCluster
from boki_common.errors import BokiError
from bokiflow import Flow
from bokiflow.history.inspection import Known
from bokiqueue.model.events import Source
from examples.orders.app import BOOK, ITEMS, Order, Shop, workflow_of
from examples.orders.checks import OrderEnd, ShopState, check, ends, unfinished
from examples.orders.wrong import WRONG
from examples.supervisor import Supervisor, kill_at_random, module_command

ORDER_EVERY_S: Final = 0.04
WRONG_EVERY: Final = 10
"""Every tenth order is a bad one, until there was one of each kind."""
CLOCK: Final = boki.SystemClock()
TIMEOUT_S: Final = 10.0
SETTLE_S: Final = 90.0
"""Time within which all orders end after the last kill."""
READ_EVERY_S: Final = 0.3
READS_AT_ONCE: Final = 64


class TrialResult(NamedTuple):
    """Result of a trial.

    Attributes:
        orders: all orders that were pushed.
        acknowledged: number of acknowledged orders.
        killed: kills by kind of process.
        state: the shop at the end.
        faults: sentences; [] if every promise held.
        seconds: duration.
    """

    orders: list[Order]
    acknowledged: int
    killed: Counter[str]
    state: ShopState
    faults: list[str]
    seconds: float


class Customers:
    """Customers that push orders and repeat a push without an answer under the same id.

    Attributes:
        orders: orders so far.
        acknowledged: ids of orders whose push was acknowledged.
        pushed_ms: time of the first push by order.
    """

    def __init__(
        self, shop: Shop, seed: int, *, wrong: Sequence[str] = tuple(WRONG), clock: boki.Clock = CLOCK
    ) -> None:
        """Plan one bad order for each item of `wrong`; `seed` decides the others."""
        self.orders: Final[list[Order]] = []
        self.acknowledged: Final[list[str]] = []
        self.pushed_ms: Final[dict[str, int]] = {}
        self._wrong: Final = list(wrong)
        self._clock: Final = clock
        self._shop = shop
        self._chance = random.Random(f"customers {seed}")

    async def run(self, stop: asyncio.Event) -> None:
        """Push an order every ORDER_EVERY_S until `stop` is set, and wait until all are acknowledged."""
        async with asyncio.TaskGroup() as group:
            while not stop.is_set():
                order = self._next()
                self.orders.append(order)
                self.pushed_ms[order.id] = self._clock.now_ms()
                group.create_task(self._push(order))
                try:
                    async with asyncio.timeout(ORDER_EVERY_S):
                        await stop.wait()
                except TimeoutError:
                    pass

    def _next(self) -> Order:
        number = len(self.orders) + 1
        if self._wrong and number % WRONG_EVERY == 0:
            wrong = self._wrong.pop(0)
            return Order(wrong.replace(" ", "-"), ITEMS[0], 0, wrong)
        return Order(f"{number:05}", self._chance.choice(ITEMS), self._chance.randint(1, 3))

    async def _push(self, order: Order) -> None:
        while True:
            try:
                await self._shop.orders.push(order, dedup_id=order.id)
            except BokiError as error:
                if not error.retryable and error.definite:
                    raise
                continue
            self.acknowledged.append(order.id)
            return


async def trial(
    directory: Path,
    *,
    seconds: float = 20.0,
    seed: int = 1,
    workers: int = 2,
    say: Callable[[str], None] = lambda _: None,
    look: Callable[[str, Sequence[OrderEnd]], Awaitable[None]] | None = None,
) -> TrialResult:
    """Run a trial; see the module.

    Args:
        directory: directory for data and logs.
        seconds: duration of the kills.
        seed: seed of orders and kills.
        workers: number of worker processes.
        say: called with a line per kill.
        look: awaited with the cluster's address and the ends of bad orders, when all orders ended and the cluster still runs.
    """
    began = perf_counter()
    killed: Counter[str] = Counter()
    async with (
        LocalCluster(directory, bookies=3, engines=2, sequencers=2, unix_sockets=True) as cluster,
        boki.connect(cluster.url, timeout=TIMEOUT_S) as client,
    ):
        shop = await Shop.open(client.book(BOOK))
        await shop.fill()
        supervisor = Supervisor(directory / "processes.log")
        customers, closing, closed = Customers(shop, seed), asyncio.Event(), asyncio.Event()
        buying = asyncio.create_task(customers.run(closing))
        supervising = asyncio.create_task(supervisor.restart_ended(closed))
        try:
            for number in range(1, workers + 1):
                slot = f"worker{number}"
                await supervisor.start(slot, module_command("examples.orders.worker", cluster.url, "--slot", slot))
            while not customers.acknowledged:
                await asyncio.sleep(0.1)
            victims = supervisor.victims(cluster)
            await kill_at_random(victims, killed, seconds=seconds, chance=random.Random(seed), say=say)
            closing.set()
            await buying
            state = await settled(shop, customers)
            if look is not None:
                await look(cluster.url, ends(customers.orders, state))
            closed.set()
            await supervising
            await supervisor.end()
        finally:
            for task in (buying, supervising):
                task.cancel()
            await asyncio.gather(buying, supervising, return_exceptions=True)
            await supervisor.clear()
    faults = supervisor.faults + check(customers.orders, customers.acknowledged, state)
    return TrialResult(customers.orders, len(customers.acknowledged), killed, state, faults, perf_counter() - began)


async def settled(shop: Shop, customers: Customers) -> ShopState:
    """Return the shop once all orders ended, or after SETTLE_S."""
    deadline = perf_counter() + SETTLE_S
    known: dict[str, Known] = {}
    finished = False
    while True:
        try:
            state = await _state(shop, customers, known)
        except BokiError as error:
            if not error.retryable:
                raise
            continue
        if finished or perf_counter() > deadline:
            return state  # read as a whole after the last order ended
        finished = not state.waiting and not unfinished(customers.orders, state)
        await asyncio.sleep(0.0 if finished else READ_EVERY_S)


async def _state(shop: Shop, customers: Customers, known: dict[str, Known]) -> ShopState:
    """Read the shop.

    Args:
        shop: the shop.
        customers: its orders.
        known: workflows that ended, by order; they are not read again, and newly ended ones are added.
    """
    ids = [order.id for order in customers.orders]
    stock, sold = await shop.store.values(["stock", "sold"], consistency="linearizable")
    stored = await shop.store.values([f"result:{id}" for id in ids])
    await _add_ended(Flow(shop.app, shop.log), [id for id in ids if id not in known], known)
    outcomes = {id: one.outcome for id, one in known.items() if one.outcome is not None}
    results: dict[str, Any] = {id: outcome.value for id, outcome in outcomes.items()}
    errors = {id: outcome.error for id, outcome in outcomes.items() if outcome.error is not None}
    failed = {id: f"{error.type.rpartition(':')[2]}: {error.message}" for id, error in errors.items()}
    took_s = {id: ((one.ended_ms or 0) - customers.pushed_ms[id]) / 1_000 for id, one in known.items()}
    texts = {id: (str(one["text"]), int(str(one["times"]))) for id, one in zip(ids, stored, strict=True) if one}
    receipts = [str(one.body) for one in await shop.receipts.peek(10**6)]
    given_up = {msgspec.convert(one.body, Order).id: _why(one.source) for one in await shop.dead.peek(10**6)}
    waiting = (await shop.orders.stats()).depth
    counts = [{item: int(str(count)) for item, count in (one or {}).items()} for one in (stock, sold)]
    return ShopState(counts[0], counts[1], results, texts, receipts, waiting, given_up, failed, took_s)


async def _add_ended(flow: Flow, ids: list[str], known: dict[str, Known]) -> None:
    """Add the workflows of these orders that ended to `known`."""
    for at in range(0, len(ids), READS_AT_ONCE):
        some = ids[at : at + READS_AT_ONCE]
        found = await asyncio.gather(*(flow.known(workflow_of(id)) for id in some))
        known |= {id: one for id, one in zip(some, found, strict=True) if one is not None and one.outcome is not None}


def _why(source: Source | None) -> str:
    """Return why a message is a dead letter."""
    assert source is not None, "only the queue of orders pushes here"
    return f"{source.attempts} attempts, {source.error or source.reason}"
