"""Members that end at any moment, beside any fault: others get their shards at once, and the process can always end."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence

import pytest

from boki.testing import MemoryCluster
from boki_common.errors import Unreachable
from boki_common.logs import configured
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib import Carrier
from bokilib.follow.lease_rules import LEAVE_S
from bokilib.ports import BookPort, Expect, Tag, TicketPort
from bokilib.records import tags
from bokilib.testing import Died, FaultyBook
from bokiqueue import Consumer, Queue, carried

LEASE_S = 600.0
SHARDS = [0, 1]


async def another(cluster: MemoryCluster) -> Queue[object]:
    return await Queue.open((await cluster.connect()).book("b"), "jobs", object, shards=len(SHARDS))


OPERATION_S = 0.01


async def slow(cluster: MemoryCluster) -> tuple[Queue[object], list[float]]:
    """A queue whose operations each wait a moment before they begin, and since when each waited."""
    begun: list[float] = []

    async def pause(_: int) -> None:
        begun.append(asyncio.get_running_loop().time())
        await let_pass(OPERATION_S)

    return await Queue.open(FaultyBook((await cluster.connect()).book("b"), pause=pause), "jobs", object), begun


async def end(member: Consumer[object], how: str) -> None:
    if how == "both":
        await asyncio.gather(member.drain(), member.__aexit__(None, None, None))
        return
    if how == "drain":
        assert await member.drain()
    await member.__aexit__(None, None, None)


@pytest.mark.parametrize(("how", "turns"), [("drain", 0), ("leave", 0), ("leave", 2), ("leave", 4), ("both", 0)])
@in_virtual_time
async def test_a_member_that_ends_while_it_takes_a_shard_leaves_it_to_the_others_at_once(how: str, turns: int) -> None:
    """At each operation of its beginning: with the claim on its way, or its answer, and while it reads. `turns`: of the loop, later."""
    at, taken = 0, False
    while not taken:
        async with MemoryCluster(clock=LoopClock()) as cluster:
            loop, stays = asyncio.get_running_loop(), await another(cluster)
            queue, begun = await slow(cluster)
            at = max(at, len(begun))
            member = queue.consume(who="leaves", member_lease_s=LEASE_S)
            await member.__aenter__()
            while len(begun) <= at and not taken:
                await let_pass(OPERATION_S / 10)
                taken = member.shards == SHARDS
            if not taken:
                await let_pass(max(0.0, begun[at] + OPERATION_S - loop.time()))
                for _ in range(turns):
                    await asyncio.sleep(0)
            await end(member, how)
            ended_s = loop.time()
            async with stays.consume(who="stays", member_lease_s=LEASE_S) as others, asyncio.timeout(2 * LEASE_S):
                await others.has(2)
                assert loop.time() - ended_s < 1, f"it was left at its operation {at}"
        at += 1
    assert at > 10, "claims and reads are operations"


@pytest.mark.parametrize("how", ["drain", "leave"])
@in_virtual_time
async def test_a_member_that_ends_after_a_carrier_claimed_its_shard_is_no_death(how: str) -> None:
    """At each operation of taking it again: what it had handed out by itself comes again elsewhere, and no attempt of it failed."""
    at, taken = 0, False
    while not taken:
        async with MemoryCluster(clock=LoopClock()) as cluster:
            stays = await another(cluster)
            await stays.push("waits", key="k")
            queue, begun = await slow(cluster)
            member = queue.consume(who="leaves", member_lease_s=LEASE_S)
            await member.__aenter__()
            held = await anext(member)
            await let_pass(1)
            before, owner = len(begun), member._owners[held.receipt.shard]
            log = (await another(cluster)).log
            await Carrier(log, [carried(log)], who="c", carry_ms=0).round()
            while len(begun) < before + at and not taken:
                await let_pass(OPERATION_S / 10)
                taken = member.shards == SHARDS and member._owners[held.receipt.shard] is not owner
            if how == "drain":
                await member.drain(finish_s=0)
            await member.__aexit__(None, None, None)
            async with stays.consume(who="stays", member_lease_s=LEASE_S) as others, asyncio.timeout(LEASE_S / 2):
                assert (await anext(others)).attempt == 1, f"it was left at operation {at}"
        at += 1
    assert at > 5, "claims and reads are operations"


class CutOff(FaultyBook):
    """A book whose appends are refused, or whose answers do not come, as a test says."""

    def __init__(self, book: BookPort) -> None:
        super().__init__(book, pause=self._while_silent)
        self.refuses = False
        self.silent = False

    async def _while_silent(self, _: int) -> None:
        while self.silent:
            await let_pass(0.5)

    def submit(self, data: bytes, *, tags: Sequence[Tag] = (), expect: Expect | None = None) -> TicketPort:
        if self.refuses:
            raise Unreachable("the test cut it off")
        return super().submit(data, tags=tags, expect=expect)


async def cut_off(cluster: MemoryCluster) -> tuple[Queue[object], CutOff]:
    book = CutOff((await cluster.connect()).book("b"))
    return await Queue.open(book, "jobs", object), book


@in_virtual_time
async def test_a_shard_whose_release_failed_is_not_stuck_when_the_plan_changes_back() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        whole = await another(cluster)
        queue, book = await cut_off(cluster)
        async with queue.consume(who="a", member_lease_s=LEASE_S) as member:
            await member.has(2)
            async with whole.consume(who="b", member_lease_s=LEASE_S):
                book.refuses = True
                await let_pass(5)
                assert member.shards == SHARDS and member._giving, "its release is refused again and again"
            book.refuses = False
            await whole.push_many(list(range(8)))
            for number in range(8):
                await whole.push(number)
            async with asyncio.timeout(60):
                for _ in range(16):
                    async with await anext(member):
                        pass


@in_virtual_time
async def test_a_drain_and_a_stop_end_though_the_log_does_not_answer() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        await another(cluster)
        loop, stream = asyncio.get_running_loop(), io.StringIO()
        queue, book = await cut_off(cluster)
        member = queue.consume(who="a", member_lease_s=LEASE_S)
        await member.__aenter__()
        await member.has(2)
        book.silent, began_s = True, loop.time()
        with configured(stream=stream):
            async with asyncio.timeout(60):
                assert await member.drain(finish_s=2), "no handler was late"
            assert loop.time() - began_s < 2 + LEAVE_S + 1
            began_s = loop.time()
            async with asyncio.timeout(60):
                await member.__aexit__(None, None, None)
            assert loop.time() - began_s < LEAVE_S + 1
        assert "shards not released, others take them after a lease" in stream.getvalue()
        assert 'shards="[0, 1]"' in stream.getvalue() and "who=a" in stream.getvalue()


@in_virtual_time
async def test_a_member_that_is_entered_again_gets_its_part_of_the_shards() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        queue = await another(cluster)
        member = queue.consume(who="a", member_lease_s=LEASE_S)
        async with (await another(cluster)).consume(who="b", member_lease_s=LEASE_S) as others:
            for drains in (True, False, False):
                async with member, asyncio.timeout(10):
                    await member.has(1)
                    await others.has(1)
                    for _ in SHARDS:
                        await queue.push("one of each shard")
                    for one in (member, others):
                        async with await anext(one):
                            pass
                    if drains:
                        assert await member.drain()


@in_virtual_time
async def test_a_member_whose_last_heartbeat_fails_ends() -> None:
    """Its owners were closed while they still released their shards: one waited without end for a task that never began."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        await another(cluster)
        book = FaultyBook((await cluster.connect()).book("b"))
        queue = await Queue.open(book, "jobs", object)
        await queue.push_many(["a", "b"])
        member = queue.consume(who="a", member_lease_s=LEASE_S)
        await member.__aenter__()
        await member.has(2)
        await anext(member)
        book.die()
        with pytest.raises(Died):
            async with asyncio.timeout(60):
                await member.__aexit__(None, None, None)
        await let_pass(60)
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("bokiqueue")]


@pytest.mark.parametrize("how", ["leaves", "dies", "on one log"])
@in_virtual_time
async def test_of_two_members_of_one_name_one_waits_until_the_other_ends(how: str) -> None:
    """After a lease each took the other for dead, and they took the shards from each other at the speed of the log."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        await another(cluster)
        (one, _), (two, _) = await slow(cluster), await slow(cluster)
        both = one if how == "on one log" else two
        third = (await another(cluster)).consume(who="b", member_lease_s=3)
        async with one.consume(who="a", member_lease_s=3) as first, third:
            await first.has(1)
            await let_pass(8)
            second = both.consume(who="a", member_lease_s=3)
            await second.__aenter__()
            await let_pass(20)
            assert (len(first.shards), len(second.shards), len(third.shards)) == (0, 1, 1)
            (shard,) = second.shards
            claims = [item async for item in third._log.book.read(tags.queue_owner("jobs", shard, "default"))]
            assert len(claims) <= 5, "of the first member, and of the second one"
            if how == "dies":
                assert isinstance(two.log.book, FaultyBook)
                two.log.book.die()
                with pytest.raises(Died):
                    await second.__aexit__(None, None, None)
                await let_pass(1.5)
                assert not first.shards
            else:
                await second.__aexit__(None, None, None)
            await let_pass(2)
            assert first.shards == [shard] and len(third.shards) == 1
