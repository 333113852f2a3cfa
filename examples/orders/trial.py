"""The shop on a cluster of processes while they are killed with kill -9, and what is true in the end.

    found = await trial(directory, seconds=20, seed=7, say=print)
    found.faults                                    # sentences; none

Two engines, three bookies, two sequencers (one stands by), and workers. Orders are pushed all the time; who gets no answer pushes again
under the same id. Every second a worker or a role is killed, and begins again.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

import boki
from boki_cli.demo.local_cluster import LocalCluster
from boki_common.errors import BokiError
from bokiflow import Flow
from examples.crew import Crew, kill_some
from examples.orders.app import ITEMS, Order, Shop, workflow_of
from examples.orders.checks import State, check
from examples.orders.worker import BOOK

ORDER_EVERY_S: Final = 0.04
TIMEOUT_S: Final = 10.0
SETTLE_S: Final = 90.0
"""All orders are done so long after the last kill."""


class Found(NamedTuple):
    """What became of a trial."""

    orders: int
    acknowledged: int
    killed: Counter[str]
    state: State
    faults: list[str]
    seconds: float


class Customers:
    """Push orders until they are stopped. An order without an answer is pushed again, under its id."""

    def __init__(self, shop: Shop, seed: int) -> None:
        self.orders: Final[list[Order]] = []
        self.acknowledged: Final[list[str]] = []
        self._shop = shop
        self._chance = random.Random(f"customers {seed}")

    async def run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            while not stop.is_set():
                id = f"{len(self.orders):05}"
                order = Order(id, self._chance.choice(ITEMS), self._chance.randint(1, 3))
                self.orders.append(order)
                group.create_task(self._push(order))
                try:
                    async with asyncio.timeout(ORDER_EVERY_S):
                        await stop.wait()
                except TimeoutError:
                    pass

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
) -> Found:
    """Runs one; see the module."""
    began = perf_counter()
    places = [f"worker{number}" for number in range(1, workers + 1)]
    killed: Counter[str] = Counter()
    async with (
        LocalCluster(directory, bookies=3, engines=2, sequencers=2, unix_sockets=True) as cluster,
        boki.connect(cluster.url, timeout=TIMEOUT_S) as client,
    ):
        shop = await Shop.open(client.book(BOOK))
        await shop.fill()
        crew = Crew("examples.orders.worker", cluster.url, directory)
        customers, stop = Customers(shop, seed), asyncio.Event()
        buying = asyncio.create_task(customers.run(stop))
        try:
            for place in places:
                await crew.start(place)
            while not customers.acknowledged:
                await asyncio.sleep(0.1)
            await kill_some(crew.victims(cluster), killed, seconds=seconds, chance=random.Random(seed), say=say)
            stop.set()
            await buying
            state = await _settled(shop, customers)
            faults = await crew.end()
        finally:
            buying.cancel()
            await asyncio.gather(buying, return_exceptions=True)
            await crew.clear()
    faults += check(customers.orders, customers.acknowledged, state)
    return Found(len(customers.orders), len(customers.acknowledged), killed, state, faults, perf_counter() - began)


async def _settled(shop: Shop, customers: Customers) -> State:
    """The shop when all is done, or as it is when that takes too long."""
    deadline = perf_counter() + SETTLE_S
    while True:
        try:
            state = await _state(shop, [order.id for order in customers.orders])
        except BokiError as error:
            if not error.retryable:
                raise
            continue
        if perf_counter() > deadline or not check(customers.orders, customers.acknowledged, state):
            return state
        await asyncio.sleep(0.3)


async def _state(shop: Shop, ids: list[str]) -> State:
    flow = Flow(shop.app, shop.log)
    stock, sold = await shop.store.values(["stock", "sold"], consistency="linearizable")
    stored = await shop.store.values([f"result:{id}" for id in ids])
    results: dict[str, str | None] = {}
    for id in ids:
        known = await flow.known(workflow_of(id))
        if known is not None:
            value: Any = known.outcome.value if known.outcome is not None else None
            results[id] = value
    texts = {id: (str(one["text"]), int(str(one["times"]))) for id, one in zip(ids, stored, strict=True) if one}
    receipts = [str(one.body) for one in await shop.receipts.peek(10**6)]
    waiting = (await shop.orders.stats()).depth
    counts = [{item: int(str(count)) for item, count in (one or {}).items()} for one in (stock, sold)]
    return State(counts[0], counts[1], results, texts, receipts, waiting)
