"""Histories replayed from every place."""

from __future__ import annotations

import pytest

from boki.testing import MemoryCluster
from bokiflow import App, NonDeterminism, Worker
from bokiflow.client.replayer import export
from bokiflow.testing import replays_everywhere
from libs.tests.flow.conftest import working
from libs.tests.flow.shop import Shop


async def test_each_beginning_of_a_history_fits(shop: Shop, worker: Worker) -> None:
    await (await worker.start(shop.steps.call(3), id="x")).result()
    assert await replays_everywhere(shop.app, await export(worker.log, "x")) >= 9


async def test_what_depends_on_addresses_is_found(cluster: MemoryCluster) -> None:
    app = App("a")

    @app.step
    async def step(number: int) -> int:
        return number

    @app.workflow
    async def by_address() -> int:
        things = {object() for _ in range(64)}
        return await step(sum(hash(thing) % 7 * at for at, thing in enumerate(things)))

    @app.workflow
    async def counts() -> int:
        COUNTED.append(1)
        return await step(len(COUNTED))

    async with working(cluster, app) as worker:
        for number, call in enumerate((by_address.call(), counts.call())):
            await (await worker.start(call, id=f"x{number}")).result()
            with pytest.raises(NonDeterminism):
                await replays_everywhere(app, await export(worker.log, f"x{number}"))


COUNTED: list[int] = []
