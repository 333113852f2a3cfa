"""Cursors over hours in which nothing comes for them: their position moves on, and what they missed meanwhile they get as gaps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki import Gap
from boki.testing import simulated

pytestmark = pytest.mark.blocking_allowed  # the simulator's guard stands in for it


@simulated(seeds=2, faults="calm", seconds=2)
async def test_the_position_of_an_idle_cursor_moves_on_every_minute(cluster: Any) -> None:
    async with await cluster.connect() as client, await cluster.connect() as other:
        cursor = client.book("b").read(tags=["a", "b"], start=1, follow=True)
        waiting = asyncio.ensure_future(anext(cursor))
        positions = []
        for number in range(4):
            foreign = await other.book("b").append(b"%d" % number, tags=["z"])
            await asyncio.sleep(61)
            assert cursor.position >= foreign and not waiting.done()
            positions.append(cursor.position)
        assert positions == sorted(positions)
        mine = await other.book("b").append(b"mine", tags=["b"])
        item = await waiting
        assert item.seqnum == mine and cursor.position >= mine


@simulated(seeds=6, faults="network", seconds=20)
async def test_a_cursor_gives_all_in_order_whatever_the_network_does(cluster: Any) -> None:
    async with await cluster.connect() as client, await cluster.connect() as other:
        cursor = client.book("b").read(tags=["a", "b"], start=1, follow=True)
        seen: list[bytes] = []
        positions = [cursor.position]

        async def follow() -> None:
            async for item in cursor:
                assert not isinstance(item, Gap)
                assert positions[-1] < item.seqnum <= cursor.position
                positions.append(cursor.position)
                seen.append(item.data)
                if len(seen) == 40:
                    return

        following = asyncio.ensure_future(follow())
        for number in range(40):
            await other.book("b").append(b"%d" % number, tags=["ab"[number % 2], "z"])
            await other.book("b").append(b"other", tags=["z"])
            await asyncio.sleep(0.4)
        await following
        assert seen == [b"%d" % number for number in range(40)]
