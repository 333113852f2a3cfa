"""Upkeep that tests do now: checkpoints of a partition, a round of a carrier."""

from __future__ import annotations

import asyncio

from boki.testing import MemoryCluster
from bokilib.append.log import Log
from bokilib.retention.carrier import Carrier
from bokirsm import Host, carried
from bokirsm.model.partition_state import Fresh


async def idle(host: Host) -> None:
    """Wait until the lane makes no checkpoint."""
    await host.lane.settled()
    while (task := host.lane._checkpointing) is not None:
        await asyncio.wait([task])


async def checkpoint(host: Host, partition: int) -> None:
    """Make a checkpoint of a partition now."""
    host.lane._states[partition].fresh = Fresh(1_000)
    host.lane._begin_checkpoint()
    await idle(host)


async def carry(cluster: MemoryCluster) -> None:
    """Have old machines rewritten, and those that ended forgotten, by another process."""
    log = Log((await cluster.connect()).book("b"))
    await Carrier(log, [carried(log)], who="c").round()
