"""A round finds what goes wrong: here, records that somebody else wrote and damaged."""

from __future__ import annotations

import asyncio
import random

from boki.testing import MemoryCluster
from boki_cli.trials.soak import Soak, failed


async def test_foreign_and_damaged_records_are_found() -> None:
    async with MemoryCluster() as cluster:
        client = await cluster.connect()
        soak = Soak(cluster.url, clients=2, timeout_s=5, rng=random.Random(1))
        task = asyncio.create_task(soak.round("b", 0.3))
        await client.book("b").append(b"c0/1\0damaged")
        done = await task
    assert failed(done)
    assert any("do not match" in line for line in done.corrupt)
    assert {finding.anomaly for finding in done.findings} & {"duplicated", "phantom"}


async def test_a_sound_round_reads_everything_at_its_end() -> None:
    async with MemoryCluster() as cluster:
        done = await Soak(cluster.url, clients=3, timeout_s=5, rng=random.Random(2)).round("b", 0.2)
    assert not failed(done)
    appended = sum(one.kind == "append" and one.outcome == "ok" for one in done.operations)
    assert len(done.operations[-1].rows) == appended
