"""Apps: definitions of workflows and steps, and their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from bokiflow import App, NotRegistered, Retry, Step, SyncStep, Workflow
from libs.tests.flow.conftest import until, working
from libs.tests.flow.shop import Shop


def test_a_coroutine_function_is_a_step_and_another_one_a_step_in_a_thread() -> None:
    shop = Shop()
    assert isinstance(shop.add, Step) and isinstance(shop.double, SyncStep)
    assert shop.add.name == "add" and shop.app.find("steps") is shop.steps


def test_names_are_given_once() -> None:
    app = App("a")
    app.step(name="x")(lambda: None)
    with pytest.raises(boki.InvalidArgument, match="already"):
        app.step(name="x")(lambda: None)

    async def flow() -> None: ...

    app.workflow(flow)
    with pytest.raises(boki.InvalidArgument, match="already"):
        app.workflow(name="flow", version="2")(flow)


def test_what_is_not_there_is_named_beside_what_is() -> None:
    with pytest.raises(NotRegistered, match="import the module") as caught:
        Shop().app.find("nothing")
    assert "steps" in caught.value.expected


def test_what_makes_no_sense_is_refused() -> None:
    app = App("a")
    for wrong in ("", "a/b"):
        with pytest.raises(boki.InvalidArgument, match="name"):
            App(wrong)
    with pytest.raises(boki.InvalidArgument, match="timeout"):
        app.step(timeout_s=0)
    with pytest.raises(boki.InvalidArgument, match="at_most_once"):
        app.step(at_most_once=True, retry=Retry())
    with pytest.raises(boki.InvalidArgument, match="async def"):
        app.workflow(lambda: None)  # type: ignore[arg-type, return-value]
    definitions: list[Callable[[Any], object]] = [
        App,
        lambda text: app.workflow(name=text),
        lambda text: app.workflow(version=text),
        lambda text: app.step(name=text),
    ]
    for define in definitions:
        with pytest.raises(boki.InvalidArgument, match=r"that is text \(str\), found 2 \(int\)"):
            define(2)


async def test_a_cell_that_runs_again_replaces_what_it_defined(cluster: MemoryCluster) -> None:
    app = App("shop", replace=True)

    def cell(answer: int) -> Workflow[[], int]:
        @app.step
        async def ask() -> int:
            return answer

        @app.workflow
        async def flow() -> int:
            return await ask()

        app.schedule("yearly", flow.call(), cron=f"0 0 {answer} 1 *")
        return flow

    async with working(cluster, app, lease_s=3_600) as worker:
        for answer in (1, 2):
            assert await (await worker.start(cell(answer).call(), id=f"x{answer}")).result() == answer
        assert app.plans["yearly"].planned.timing.cron == "0 0 2 1 *"


async def test_what_was_blocked_for_lack_of_code_goes_on_once_it_is_defined(cluster: MemoryCluster) -> None:
    app, other = App("shop"), App("shop")

    @other.workflow(name="flow")
    async def elsewhere() -> int:
        return 0

    async with working(cluster, app, lease_s=0.2) as worker:
        handle = await worker.flow.start(elsewhere.call(), id="x")
        await until(lambda: "x" in worker._takeover.aside)

        @app.workflow
        async def flow() -> int:
            return 7

        assert await handle.result(blocked="wait") == 7
