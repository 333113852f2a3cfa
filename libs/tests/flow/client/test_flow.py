"""The client of workflows: ids, attributes, and refused calls."""

from __future__ import annotations

import pytest

import boki
from boki.testing import MemoryCluster
from bokiflow import Flow, IdReused
from bokilib import AppendUnknown
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
