"""Whose turn it is to carry, what is left to owners, and what the carrier's own records leave."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import Conflict
from boki_common.metrics import Metrics
from bokilib import Carrier, Contribution, Event, Fence, Fenced, Log, Members
from bokilib.checkpoint_rules import CARRY_MS
from bokilib.conflict_rules import Expected
from bokilib.log import Read
from bokilib.tags import CARRY, member


class Wall:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


class Owned(Event, tag="queue.push", frozen=True):
    """Of a library that has owners."""

    id: str


class Noted(Event, tag="toy.note", frozen=True):
    """Of a library that has none."""

    id: str


class Toy:
    """Notes what it is given; carrying appends one record under the fence."""

    library = "toy"

    def __init__(self, log: Log) -> None:
        self.log = log
        self.noted: list[int] = []
        self.tended = 0

    def collect(self, read: Read) -> int:
        self.noted.append(read.record.seqnum)
        return len(self.noted)

    async def carry(self, now_ms: int, fence: Expected, *, carry_ms: int) -> tuple[int, int]:
        if self.noted:
            await self.log.append(Contribution(("toy",), fence, (Noted("carried"),)), settle=True)
        carried, self.noted = len(self.noted), []
        return carried, 0

    async def tend(self) -> None:
        self.tended += 1


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
async def logs(wall: Wall) -> AsyncIterator[list[Log]]:
    async with MemoryCluster(clock=wall) as cluster:
        yield [Log((await cluster.connect()).book("b")) for _ in range(2)]


async def test_old_records_are_handed_to_who_carries_them_and_those_of_owners_counted(
    logs: list[Log], wall: Wall
) -> None:
    log = logs[0]
    for event in (Noted("a"), Owned("b"), Owned("c")):
        await log.append(Contribution((event.id,), {}, (event,)))
    await log.append(Contribution(("both",), {}, (Noted("d"), Owned("e"))))
    wall.ms += CARRY_MS
    young = await log.append(Contribution(("young",), {}, (Noted("f"),)))
    metrics, toy = Metrics(), Toy(log)
    carrier = Carrier(log, [toy], who="a", metrics=metrics)
    done = await carrier.round()
    assert (done.read, done.carried, done.left) == (4, 2, {"queue": 3})
    assert toy.tended == 1 and young not in toy.noted
    page = metrics.render().decode()
    assert 'boki_carry_left_records{library="queue"} 3.0' in page
    assert 'boki_carry_states_total{library="toy"} 2.0' in page


async def test_old_claims_of_other_fences_are_counted_and_stop_nobody(logs: list[Log], wall: Wall) -> None:
    log = logs[0]
    await Fence(log, "queue/own/q/0/g", "a shard", who="b").take(None)
    await log.append(Contribution(("a",), {}, (Noted("a"),)))
    wall.ms += CARRY_MS
    done = await Carrier(log, [Toy(log)], who="a").round()
    assert (done.read, done.carried, done.left) == (2, 1, {"lib": 1})


async def test_nothing_is_carried_under_a_fence_that_is_over(logs: list[Log], wall: Wall) -> None:
    one, other = logs
    await one.append(Contribution(("a",), {}, (Noted("a"),)))
    wall.ms += CARRY_MS

    class Slow(Toy):
        async def carry(self, now_ms: int, fence: Expected, *, carry_ms: int) -> tuple[int, int]:
            await Carrier(other, [Toy(other)], who="faster").round()
            return await super().carry(now_ms, fence, carry_ms=carry_ms)

    before = one.appends
    with pytest.raises(Fenced) as told:
        await Carrier(one, [Slow(one)], who="slow").round()
    assert isinstance(told.value.__cause__, Conflict)
    assert one.appends - before == 2, "the claim, and what was refused"


async def test_of_claims_the_newest_is_kept_and_of_the_dead_no_heartbeat(logs: list[Log], wall: Wall) -> None:
    log = logs[0]
    await Members(log, "workers", "host-3").beat()
    carrier = Carrier(log, [], who="a")
    claims = []
    for _ in range(3):
        wall.ms += CARRY_MS
        claims.append((await carrier.round()).claim)
    live = [item async for item in log.book.read() if isinstance(item, boki.Record)]
    assert [item.seqnum for item in live] == claims[-1:]
    assert await log.book.read_prev(member("workers")) is None


async def test_a_claim_is_found_though_its_holder_trims_those_before(logs: list[Log]) -> None:
    """Who loses, or looks, while claims come and go is told of the newest, not of a hole."""
    one, other = logs
    slow, fast = Fence(one, CARRY, "the carrier", who="slow"), Fence(other, CARRY, "the carrier", who="fast")
    last = await slow.current()
    claims = []
    for _ in range(3):
        claims.append(await fast.take(await fast.current()))
        await other.book.trim([(CARRY, claims[-1])])
    with pytest.raises(Fenced, match="claimed by fast"):
        await slow.take(last)
    found = await slow.current()
    assert found is not None and found.seqnum == claims[-1]
