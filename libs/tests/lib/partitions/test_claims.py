"""The newest claims, from a read and from records that are followed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from bokilib.append.log import Log
from bokilib.follow.follower import Follower
from bokilib.partitions import claims as module
from bokilib.partitions.claims import ClaimMove
from bokilib.records.contribution import Contribution
from libs.tests.conftest import unexpected
from libs.tests.lib.partitions.claims_of import FENCES, TrimmedUnder, claims_of, log_of, owner_on


async def test_reads_and_followed_records_give_the_newest_claims_once(cluster: MemoryCluster) -> None:
    a, b = owner_on(log := await log_of(cluster), "a"), owner_on(other := await log_of(cluster), "b")
    await a.refresh()
    first = await a.claim([1, 2])
    claims = claims_of(await log_of(cluster))
    assert [(one.partition, one.before, one.now.who) for one in await claims.read()] == [(1, None, "a"), (2, None, "a")]
    assert await claims.read() == [] and claims.read_at >= first
    await b.refresh()
    second = await b.claim([2])
    seen: list[ClaimMove[str]] = []
    async with Follower(other, unexpected) as follower:
        for fence in FENCES:
            follower.add(fence, 1, lambda item: seen.extend(claims.saw(item)))
        while not seen:
            await asyncio.sleep(0)
    assert [(one.partition, one.before and one.before.seqnum, one.now.seqnum) for one in seen] == [(2, first, second)]
    assert [one and (one.who, one.by) for one in claims.newest] == [None, ("a", log.by), ("b", other.by), None]
    assert set(claims.times_ms) == {1, 2}


async def under_trims(cluster: MemoryCluster, times: int) -> TrimmedUnder:
    owner = owner_on(await log_of(cluster), "a")
    await owner.refresh()
    await owner.claim([3])
    return TrimmedUnder((await cluster.connect()).book("b"), owner, FENCES[3], times)


async def test_claims_are_read_though_some_are_trimmed_meanwhile(cluster: MemoryCluster) -> None:
    book: Any = await under_trims(cluster, 2)
    claims = claims_of(Log(book))
    assert [one.now.who for one in await claims.read()] == ["a"] and not book.left


async def test_a_record_that_no_library_wrote_is_passed_over(cluster: MemoryCluster) -> None:
    a, b = owner_on(await log_of(cluster), "a"), owner_on(await log_of(cluster), "b")
    await a.refresh()
    first = await a.claim([2])
    book = (await cluster.connect()).book("b")
    for fence in (FENCES[2], FENCES[3]):
        for _ in range(2):
            await book.append(b"junk", tags=[fence])
    await b.refresh()
    assert b.holders == {2: "a"} and await b.claim([2, 3]) > first
    assert not await a.release(Contribution(), [2]) and a.holders == {2: "b", 3: "b"}


async def test_reads_of_the_claims_are_bounded(cluster: MemoryCluster) -> None:
    book: Any = await under_trims(cluster, module.READ_ATTEMPTS + 1)
    claims = claims_of(Log(book))
    with pytest.raises(boki.Trimmed):
        await claims.read()
    assert book.left == 1 and await claims.read()
