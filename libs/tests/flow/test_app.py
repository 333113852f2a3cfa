"""Workflows and steps by name."""

from __future__ import annotations

import pytest

import boki
from bokiflow import App, NotRegistered, Retry, Step, SyncStep
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
