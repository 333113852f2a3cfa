"""Exported histories, replayed against the code as it is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import bokiflow
from boki.testing import MemoryCluster
from boki_common.errors import CorruptData
from bokiflow import App, Call, Json, NonDeterminism, NoSuchWorkflow, NotRegistered
from bokiflow.client.replayer import export, replay
from libs.tests.flow.conftest import working
from libs.tests.flow.shop import Shop

GOLDEN = Path(__file__).parents[1] / "golden"


async def test_each_history_of_the_shop_fits_its_code_in_whole_and_in_every_part(cluster: MemoryCluster) -> None:
    shop = Shop()
    async with working(cluster, shop.app) as worker:
        calls: list[Call[Any]] = [shop.steps.call(3), shop.parent.call(2), shop.patient.call(0.001)]
        for number, call in enumerate(calls):
            await (await worker.start(call, id=f"x{number}")).result()
            assert await replay(Shop().app, await export(worker.log, f"x{number}")) == []
        handle = await worker.start(shop.wait.call(2), id="waits")
        await handle.signal("go", 1)
        assert await anext(handle.events("got")) == 1
        assert await replay(Shop().app, await export(worker.log, "waits")) in (["signal 'go'"], ["step 'add' (0:2)"])
        with pytest.raises(NoSuchWorkflow):
            await export(worker.log, "nobody")


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
async def test_golden_histories_of_earlier_versions_fit_still(path: Path) -> None:
    assert await replay(Shop().app, path.read_bytes()) == []


async def without_parameters() -> None:
    pass


async def test_another_code_is_found(cluster: MemoryCluster) -> None:
    shop, other = Shop(), App("shop")

    @other.workflow
    async def steps(count: int) -> Json:
        return await bokiflow.recv(str(count))

    async with working(cluster, shop.app) as worker:
        await (await worker.start(shop.steps.call(1), id="x")).result()
        history = await export(worker.log, "x")
    with pytest.raises(NonDeterminism, match="add"):
        await replay(other, history)
    with pytest.raises(NotRegistered):
        await replay(App("shop"), history)
    begun = App("shop")
    begun.workflow(name="steps")(without_parameters)
    parts = json.loads(history)
    for kept in (history, json.dumps({**parts, "records": parts["records"][:1]}).encode()):
        with pytest.raises(NonDeterminism, match="the arguments in its history cannot be given to this code"):
            await replay(begun, kept)
    with pytest.raises(CorruptData):
        await replay(other, b"{}")


async def test_the_call_of_a_patch_stays_while_a_history_has_it_and_the_old_way_need_not(
    cluster: MemoryCluster,
) -> None:
    def of(code: str) -> App:
        app = App("shop")

        @app.workflow
        async def reserve() -> str:
            if code == "both":
                return "new" if bokiflow.patched("reserve first") else "old"
            if code == "the call":
                bokiflow.patched("reserve first")
            return "new"

        return app

    app = of("both")
    async with working(cluster, app) as worker:
        assert await (await worker.start(app.find("reserve").call(), id="x")).result() == "new"
        assert ("patch", "reserve first") in [(one.kind, one.detail) async for one in worker.handle("x").steps()]
        history = await export(worker.log, "x")
    assert await replay(of("the call"), history) == []
    with pytest.raises(NonDeterminism, match="reserve first"):
        await replay(of("neither"), history)


def reserving(code: str) -> App:
    """Return the app of one deploy: its workflow waits at first, and gives the ways that it took on both sides of a wait."""
    app = App("shop")

    @app.step
    async def take(way: str) -> str:
        return way

    @app.workflow
    async def reserve() -> list[str]:
        await bokiflow.recv("begin")
        way = "new"
        if code == "before":
            way = "old"
        elif code == "both":
            way = "new" if bokiflow.patched("reserve first") else "old"
        elif code == "deprecated":
            bokiflow.deprecate_patch("reserve first")
        taken = await take(way)
        await bokiflow.recv("end")
        return [taken, await take(way)]

    return app


@pytest.mark.parametrize(
    ("begun_by", "continued_by"),
    [
        ("both", "deprecated"),
        ("deprecated", "both"),
        ("deprecated", "after"),
        ("deprecated", "deprecated"),
        ("after", "deprecated"),
        ("before", "both"),
    ],
)
async def test_a_deprecated_patch_continues_what_took_the_new_way(
    cluster: MemoryCluster, begun_by: str, continued_by: str
) -> None:
    ways = ["old", "old"] if begun_by == "before" else ["new", "new"]
    app, later = reserving(begun_by), reserving(continued_by)
    async with working(cluster, app) as worker:
        handle = await worker.start(app.find("reserve").call(), id="x")
        await handle.signal("begin")
        await until_step(handle)
        await worker.drain()
    async with working(cluster, later, "later") as worker:
        handle = worker.handle("x", later.find("reserve"))
        await handle.signal("end")
        assert await handle.result() == ways
        assert await replay(later, await export(worker.log, "x")) == []


@pytest.mark.parametrize(("begun_by", "continued_by"), [("before", "deprecated"), ("both", "after"), ("after", "both")])
async def test_what_a_deprecated_patch_does_not_fit_is_blocked_in_words(
    cluster: MemoryCluster, begun_by: str, continued_by: str
) -> None:
    app = reserving(begun_by)
    async with working(cluster, app) as worker:
        handle = await worker.start(app.find("reserve").call(), id="x")
        await handle.signal("begin")
        await until_step(handle)
        await worker.drain()
    later = reserving(continued_by)
    words = "no longer has: bring back `if bokiflow.patched" if continued_by == "deprecated" else "patched"
    async with working(cluster, later, "later") as worker:
        with pytest.raises(NonDeterminism, match=words):
            await worker.handle("x").result(blocked="raise")
        await worker.drain()
    ways = {"before": ["old", "old"], "both": ["new", "new"], "after": ["new", "new"]}[begun_by]
    async with working(cluster, app, "again") as worker:
        await worker.handle("x").signal("end")
        assert await worker.handle("x").result() == ways


async def until_step(handle: bokiflow.Handle[Any]) -> None:
    while not [one async for one in handle.steps() if one.kind == "step"]:
        await asyncio.sleep(0)
