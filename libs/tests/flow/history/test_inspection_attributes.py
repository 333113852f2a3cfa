"""The newest workflow of a group with an attribute."""

from __future__ import annotations

from itertools import islice

from boki.testing import MemoryCluster
from bokiflow import App, Flow
from bokiflow.history.inspection import newest_start
from libs.tests.flow.conftest import ids_of
from libs.tests.flow.shop import Shop


async def test_it_is_the_newest_of_the_group_and_of_the_value(cluster: MemoryCluster) -> None:
    shop = Shop()
    async with (
        Flow(shop.app, (await cluster.connect()).book("shop")) as flow,
        Flow(App("other"), (await cluster.connect()).book("shop")) as other,
    ):
        assert await newest_start(flow.log, "shop", "doc", "7") is None
        call = shop.wait.call(1)
        for id in ("a", "b", "c"):
            await flow.start(call, id=id, attributes={"doc": "7"})
        await flow.start(call, id="d", attributes={"doc": "8"})
        await other.start(call, id="e", attributes={"doc": "7"})
        found = await newest_start(flow.log, "shop", "doc", "7")
        assert found is not None and found[1] == "c"
        assert await newest_start(flow.log, "shop", "doc", "9") is None


async def test_records_of_other_groups_in_its_stream_hide_none(cluster: MemoryCluster) -> None:
    shop = Shop()
    async with (
        Flow(shop.app, (await cluster.connect()).book("shop")) as flow,
        Flow(App("other"), (await cluster.connect()).book("shop")) as other,
    ):
        ids = islice(ids_of(5), 6)  # all of one partition
        for one in (flow, flow, other, other):
            await one.start(shop.wait.call(1), id=next(ids), attributes={"doc": "7"})
        for log, group in ((flow.log, "shop"), (other.log, "other")):
            mine = await flow.find(doc="7") if group == "shop" else await other.find(doc="7")
            found = await newest_start(log, group, "doc", "7")
            assert found is not None and found[1] == mine[-1]
        elsewhere = await newest_start(other.log, "other", "doc", "7", others=True)
        assert elsewhere is not None and elsewhere[1] == (await flow.find(doc="7"))[-1]
