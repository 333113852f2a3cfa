"""What functions take and give; calls outside of workflows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import pytest

import boki
from bokiflow import App, Flow, Json, NotInWorkflow
from bokiflow.runtime.calls import Signature
from bokilib import JsonObject, NotEncodable
from libs.tests.flow.shop import Shop


@dataclass
class Order:
    id: str
    cents: int = 0


async def takes(order: Order, *more: Order, note: str = "", **others: int) -> tuple[Order, int]:
    raise AssertionError((order, more, note, others))


def test_arguments_and_results_come_back_as_their_types() -> None:
    signature = Signature(takes)
    stored = signature.encode((Order("a"), Order("b", 2)), {"note": "n", "x": 1})
    args, options = signature.decode(stored)
    assert args == [Order("a"), Order("b", 2)] and options == {"note": "n", "x": 1}
    assert signature.result([{"id": "a"}, 2]) == (Order("a"), 2)


def test_arguments_that_do_not_fit_are_refused_where_they_are_given() -> None:
    with pytest.raises(boki.InvalidArgument, match="takes"):
        Signature(takes).encode((), {})
    with pytest.raises(NotEncodable):
        Signature(takes).encode((object(),), {})


def test_arguments_of_an_older_signature_say_what_to_do() -> None:
    with pytest.raises(NotEncodable, match="keep its parameters"):
        Signature(takes).decode([[], {}])


def test_without_annotations_values_are_json() -> None:
    signature = Signature(lambda a: a)
    assert signature.decode([[{"x": 1}], {}]) == ([{"x": 1}], {}) and signature.result([1]) == [1]


async def test_outside_of_workflows_steps_and_workflows_are_their_functions() -> None:
    shop = Shop()
    assert await shop.add(1, 2) == 3 and shop.double(2) == 4 and await shop.steps(3) == 3
    with pytest.raises(NotInWorkflow, match="directly"):
        await shop.double.aio(2)
    assert "steps" in repr(shop.steps.call(3)) and shop.steps.call(3).args == [[3], {}]


async def json_kinds(a: list[Json], b: dict[str, Json], c: Json | Order) -> tuple[Json, JsonObject]:
    raise AssertionError((a, b, c))


def test_json_inside_of_types_is_anything() -> None:
    signature = Signature(json_kinds)
    args, _ = signature.decode(signature.encode(([{"a": 1}], {"b": [1]}, None), {}))
    assert args == [[{"a": 1}], {"b": [1]}, None] and signature.result([[1], {"a": None}]) == ([1], {"a": None})


Mode = Literal["fast", "slow"]


async def of_mode(mode: Mode) -> list[Mode]:
    raise AssertionError(mode)


def test_literals_are_not_names_of_types() -> None:
    signature = Signature(of_mode)
    assert signature.decode([["fast"], {}]) == (["fast"], {}) and signature.result(["slow"]) == ["slow"]


@dataclass
class Parcel:
    id: str


async def one_of_two() -> Order | Parcel:
    raise AssertionError


def takes_one_of_two(found: Order | Parcel) -> None:
    raise AssertionError(found)


def test_types_that_cannot_come_back_are_refused_where_the_function_is_decorated() -> None:
    app = App("refuses")
    with pytest.raises(boki.InvalidArgument, match="the result of one_of_two"):
        app.step(one_of_two)
    with pytest.raises(boki.InvalidArgument, match="the result of one_of_two"):
        app.workflow(one_of_two)
    app.step(takes_one_of_two)  # its argument is passed as it is


def test_a_result_is_shared_with_nobody() -> None:
    stored: Json = {"rows": [1]}
    Signature(lambda: None).result(stored)["rows"].append(2)
    assert stored == {"rows": [1]}


async def test_a_workflow_in_the_place_of_its_call_is_refused_with_what_to_write(book: boki.Book) -> None:
    app = App("shop")

    @app.workflow
    async def report(what: str) -> str:
        return what

    async with Flow(app, book) as flow:
        for wrong in (report, report("sales")):
            with pytest.raises(
                boki.InvalidArgument, match=r"expected report\.call\(\.\.\.\), found (<bokiflow|a coroutine)"
            ):
                app.schedule("nightly", wrong, every_s=60)  # type: ignore[arg-type]
        started: Any = flow.start
        for made in (started(report, id="x"), flow.debounce(cast(Any, report("sales")), id="x", quiet_s=1)):
            with pytest.raises(boki.InvalidArgument, match=r"report\.call"):
                await made
        with pytest.raises(boki.InvalidArgument, match=r"expected workflow\.call\(\.\.\.\), found 7"):
            await started(7, id="x")
    assert app.plans == {}


def test_workflows_and_steps_name_themselves() -> None:
    app = App("shop")

    @app.workflow(name="report")
    async def flow() -> None: ...

    @app.step
    async def charge() -> None: ...

    @app.step(name="pack it")
    def pack() -> None: ...

    assert repr(flow) == "<bokiflow.Workflow 'report'>" and repr(flow.call()) == "<bokiflow.Call report[[], {}]>"
    assert [repr(charge), repr(pack)] == ["<bokiflow.Step 'charge'>", "<bokiflow.SyncStep 'pack it'>"]
