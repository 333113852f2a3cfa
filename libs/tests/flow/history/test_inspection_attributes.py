"""The newest workflow of a group with an attribute."""

from __future__ import annotations

from boki.testing import MemoryCluster
from bokiflow import App, Flow
from bokiflow.history.inspection import newest_start
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
