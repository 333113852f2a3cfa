"""A host or client that is left, however often its caller is cancelled meanwhile, holds up nobody."""

from __future__ import annotations

import asyncio

import pytest

from boki.testing import MemoryCluster
from boki_common.errors import ClosedError
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokirsm import Host, Rsm
from libs.tests.rsm.conftest import WORDS
from libs.tests.rsm.words import Best, Freq, Max

LEASE_S = 3.0
TURNS = 24


async def host_of(cluster: MemoryCluster) -> Host:
    return Host(WORDS, (await cluster.connect()).book("b"), lease_s=LEASE_S, stuck_after_s=None)


async def cancelled_after(turns: int, task: asyncio.Task[None], times: int) -> None:
    """Cancel a task after so many turns of the loop, and again after each of the next ones."""
    for _ in range(turns):
        await asyncio.sleep(0)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("times", [1, 3])
@in_virtual_time
async def test_a_host_that_is_cancelled_while_it_leaves_is_taken_over(times: int) -> None:
    for turns in range(1, TURNS):
        async with (
            MemoryCluster(clock=LoopClock()) as cluster,
            Rsm(WORDS, (await cluster.connect()).book("b")) as client,
        ):
            host = await host_of(cluster)
            await host.__aenter__()
            top = await client.create(Max, key="max")
            await client.ask(Best().to(top))
            await client.send(top, Freq("to", 3))
            leaving = asyncio.create_task(host.__aexit__(None, None, None))
            await cancelled_after(turns, leaving, times)
            async with await host_of(cluster):
                assert await client.ask(Best().to(top), timeout_s=5 * LEASE_S) == "to 3", turns
            await let_pass(1)
            left = [
                task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith(("bokilib", "bokirsm"))
            ]
            assert len(left) <= 2, (turns, left)  # the client follows its answers, and heartbeats


@in_virtual_time
async def test_a_question_that_waits_when_its_client_is_left_ends() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        client = Rsm(WORDS, (await cluster.connect()).book("b"))
        await client.__aenter__()
        top = await client.create(Max, key="max")
        asks = asyncio.create_task(client.ask(Best().to(top), timeout_s=1e6))
        await let_pass(1)
        await client.__aexit__(None, None, None)
        with pytest.raises(ClosedError, match="may be handled"):
            await asks
