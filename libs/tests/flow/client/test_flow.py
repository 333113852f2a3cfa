"""The client of workflows: ids, attributes, and refused calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from bokiflow import App, Flow, IdReused
from bokiflow.client.in_atomic import signalling, starting
from bokiflow.runtime.calls import named
from bokilib import AppendUnknown
from bokilib.append.log import Log
from bokilib.testing import Fault, FaultyBook
from libs.tests.flow.shop import Shop


async def test_an_id_is_one_call(shop: Shop, book: boki.Book) -> None:
    async with Flow(shop.app, book) as flow:
        first = await flow.start(shop.steps.call(2), id="x")
        again = await flow.start(shop.steps.call(2), id="x")
        assert first.id == again.id == "x" and flow.log.appends == 2, "the second is refused by the log, and attached"
        with pytest.raises(IdReused, match="other arguments"):
            await flow.start(shop.steps.call(3), id="x")
        with pytest.raises(IdReused, match="steps"):
            await flow.start(shop.sleep.call(2), id="x")


@dataclass
class Order:
    sku: str
    gift: bool = False


BOX = Order("box")


def of_version(number: int) -> tuple[App, bokiflow.Workflow[..., Any]]:
    """Return the app of a shop before and after a deploy that added parameters with defaults."""
    app = App("shop")

    async def old(order: Order, cents: float) -> str:
        raise AssertionError

    async def new(order: Order, cents: float, *, note: str = "", box: Order = BOX) -> str:
        raise AssertionError

    return app, app.workflow(name="a")((old, new)[number])


@pytest.mark.parametrize("ended", [False, True])
async def test_a_call_is_the_same_however_it_is_written(cluster: MemoryCluster, *, ended: bool) -> None:
    (old_app, old), (new_app, new) = of_version(0), of_version(1)
    log = Log((await cluster.connect()).book("shop"))
    first = await Flow(old_app, log).start(old.call(Order("pear"), 1.0), id="x")
    if ended:
        await first.terminate()
    flow = Flow(new_app, Log((await cluster.connect()).book("shop")))
    same = [
        new.call(Order("pear"), cents=1),
        new.call(cents=1.0, order=Order("pear", gift=False)),
        new.call(Order("pear"), 1, note="", box=Order("box")),
    ]
    for call in same:
        assert (await flow.start(call, id="x")).id == "x"
        assert not (await starting(flow, call, id="x")).events
    others = [new.call(Order("pear"), 2), new.call(Order("pear"), 1, note="n"), new.call(Order("pear", gift=True), 1)]
    for call in others:
        with pytest.raises(IdReused, match=r"with other arguments: take"):
            await flow.start(call, id="x")
        with pytest.raises(IdReused):
            await starting(flow, call, id="x")
    assert flow.log.appends == len(same) + len(others), "nothing but refused starts"


async def test_by_name_alone_only_the_form_of_a_call_is_known(cluster: MemoryCluster) -> None:
    app, workflow = of_version(0)
    log = Log((await cluster.connect()).book("shop"))
    await Flow(app, log).start(workflow.call(Order("pear"), 1.0), id="x")
    elsewhere = App("shop")
    flow = Flow(elsewhere, log)
    await flow.start(named(elsewhere, "a").call({"sku": "pear", "gift": False}, 1.0), id="x")
    with pytest.raises(IdReused):
        await flow.start(named(elsewhere, "a").call({"sku": "pear", "gift": False}, cents=1.0), id="x")


async def test_arguments_of_a_wrong_type_are_refused_before_anything_is_sent(shop: Shop, book: boki.Book) -> None:
    _, workflow = of_version(1)
    wrong: list[tuple[Callable[[], object], str]] = [
        (
            lambda: workflow.call({"sku": 7}, 1),
            "expected Order as argument 'order', found {'sku': 7}: Expected `str`, got `int`",
        ),
        (
            lambda: workflow.call(Order("a"), "1"),
            "expected float as argument 'cents', found '1': Expected `float`, got `str`",
        ),
        (lambda: workflow.call(Order("a"), cents=1, note=None), "argument 'note', found None"),
        (lambda: workflow.call("a", 1), "argument 'order'"),
    ]
    for call, words in wrong:
        with pytest.raises(boki.InvalidArgument) as caught:
            call()
        assert words in str(caught.value) and caught.value.facts["found"] in str(caught.value)
    assert await book.read_prev() is None


def test_arguments_of_types_that_are_not_imported_here_are_left_to_the_worker() -> None:
    async def ship(order: Order, cents: int) -> None:
        raise AssertionError

    ship.__annotations__["order"] = "OnlyForTypeCheckers"
    assert App("shop").workflow(ship).call(Order("a"), 7).args == [[{"sku": "a", "gift": False}, 7], {}]


async def test_an_id_that_is_too_long_is_told_with_its_length(shop: Shop, book: boki.Book) -> None:
    flow = Flow(shop.app, book)
    with pytest.raises(boki.InvalidArgument, match=r"of 1 to 512 characters, found 600, which begin with 'a{80}'$"):
        await flow.start(shop.steps.call(2), id="a" * 600)
    with pytest.raises(boki.InvalidArgument, match="of 1 to 512 characters, found an empty one"):
        await flow.start(shop.steps.call(2), id="")


async def test_attributes_of_the_first_start_of_an_id_stay(shop: Shop, book: boki.Book) -> None:
    """They are no part of the call: a repeated start finds the workflow, whatever attributes it gives."""
    flow = Flow(shop.app, book)
    first = await flow.start(shop.steps.call(2), id="x", attributes={"who": "ann"})
    again = await flow.start(shop.steps.call(2), id="x", attributes={"who": "bob"})
    assert (again.id, again._start) == (first.id, first._start)
    assert await flow.find(who="ann") == ["x"] and await flow.find(who="bob") == []


async def test_ids_topics_and_reasons_are_text(shop: Shop, book: boki.Book) -> None:
    flow = Flow(shop.app, book)
    handle = await flow.start(shop.steps.call(2), id="x")
    number: Any = 7
    sent = flow.log.appends
    words = r"that is text \(str\), found 7 \(int\)"
    for call in (
        lambda: flow.start(shop.steps.call(2), id=number),
        lambda: starting(flow, shop.steps.call(2), id=number),
        lambda: handle.fork(id=number),
        lambda: flow.debounce(shop.steps.call(2), id=number, quiet_s=1),
        lambda: handle.signal(number),
        lambda: handle.cancel(number),
        lambda: handle.terminate(number),
        lambda: handle.fork(before=number),
        lambda: anext(handle.events(number)),
        lambda: flow.start(shop.steps.call(2), id="y", traceparent=number),
    ):
        with pytest.raises(boki.InvalidArgument, match=words):
            await call()
    for wrong in (
        lambda: flow.handle(number),
        lambda: signalling(flow, "x", number),
        lambda: signalling(flow, number, "t"),
    ):
        with pytest.raises(boki.InvalidArgument, match=words):
            wrong()
    with pytest.raises(boki.InvalidArgument, match="expected due_ms in whole milliseconds"):
        await flow.start(shop.steps.call(2), id="y", due_ms=cast(Any, "8"))
    assert flow.log.appends == sent and await handle.status() == "running"


async def test_two_who_start_one_id_at_once_share_it(shop: Shop, cluster: MemoryCluster) -> None:
    flows = [Flow(shop.app, (await cluster.connect()).book("shop")) for _ in range(2)]
    handles = [await flow.start(shop.steps.call(2), id="x") for flow in flows]
    assert [await handle.status() for handle in handles] == ["running", "running"]
    assert await flows[0].find() == ["x"]


async def test_without_an_id_each_start_is_another(shop: Shop, book: boki.Book) -> None:
    flow = Flow(shop.app, book)
    assert (await flow.start(shop.steps.call(2))).id != (await flow.start(shop.steps.call(2))).id


async def test_workflows_are_found_by_attributes(shop: Shop, book: boki.Book) -> None:
    flow = Flow(shop.app, book)
    for number, who in enumerate(("ann", "bob", "ann")):
        await flow.start(shop.steps.call(number), id=f"x{number}", attributes={"customer": who, "kind": "a"})
    assert await flow.find(customer="ann") == ["x0", "x2"] and await flow.find(customer="eve") == []
    assert await flow.find() == ["x0", "x1", "x2"]
    with pytest.raises(boki.InvalidArgument, match="one attribute"):
        await flow.find(customer="ann", kind="a")


async def test_ids_and_attributes_have_bounds(shop: Shop, book: boki.Book) -> None:
    flow = Flow(shop.app, book)
    for wrong in ("", "a" * 513):
        with pytest.raises(boki.InvalidArgument, match="characters"):
            await flow.start(shop.steps.call(1), id=wrong)
    for attributes in ({f"a{number}": "" for number in range(9)}, {"a": 1}):
        with pytest.raises(boki.InvalidArgument, match="attributes"):
            await flow.start(shop.steps.call(1), attributes=attributes)  # type: ignore[arg-type]
    long = "ü" * 500
    assert await (await flow.start(shop.steps.call(1), id=long)).status() == "running"


@pytest.mark.parametrize("kind", ["lost", "never"])
async def test_a_start_whose_answer_was_lost_may_be_repeated(shop: Shop, book: boki.Book, kind: str) -> None:
    flow = Flow(shop.app, FaultyBook(book, Fault(0, kind)))  # type: ignore[arg-type]
    with pytest.raises(AppendUnknown):
        await flow.start(shop.steps.call(1), id="x")
    assert await (await flow.start(shop.steps.call(1), id="x")).status() == "running"


async def test_what_nobody_started_is_not_known(shop: Shop, book: boki.Book) -> None:
    assert await Flow(shop.app, book).known("x") is None
