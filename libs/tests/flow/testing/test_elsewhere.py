"""Histories replayed in other processes, in which texts have other hashes."""

from __future__ import annotations

import pytest

from boki.testing import MemoryCluster
from boki_common.errors import UsageError
from bokiflow import NonDeterminism
from bokiflow.client.replayer import export
from bokiflow.testing import replays_elsewhere
from bokiflow.testing._elsewhere import replay_here
from libs.tests.flow.conftest import working
from libs.tests.flow.testing import planted

PROGRAM = "libs.tests.flow.testing.planted:app"
SKUS = [f"sku {number}" for number in range(12)]


@pytest.mark.processes
async def test_the_order_of_a_set_is_found_and_that_of_a_list_is_none(cluster: MemoryCluster) -> None:
    async with working(cluster, planted.app) as worker:
        for id, call in (("set", planted.in_order_of_a_set.call(SKUS)), ("list", planted.in_order.call(SKUS))):
            await (await worker.start(call, id=id)).result()
        of_a_set, of_a_list = [await export(worker.log, id) for id in ("set", "list")]
    await replays_elsewhere(PROGRAM, of_a_list, hash_seeds=[1])
    with pytest.raises(NonDeterminism, match="PYTHONHASHSEED=") as found:
        await replays_elsewhere(PROGRAM, of_a_set)
    assert found.value.facts["expected"] != found.value.facts["found"]
    with pytest.raises(UsageError, match="nowhere"):
        await replays_elsewhere("libs.tests.nowhere:app", of_a_list, hash_seeds=[1])


async def test_what_the_process_there_does(cluster: MemoryCluster) -> None:
    async with working(cluster, planted.app) as worker:
        await (await worker.start(planted.in_order.call(SKUS), id="x")).result()
        history = await export(worker.log, "x")
    assert await replay_here(PROGRAM, history) is None
    differs = await replay_here(PROGRAM, history.replace(b'"pack"', b'"wrap"'))
    assert differs is not None and b"pack" in differs and b"wrap" in differs
