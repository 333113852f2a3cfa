"""Hosts beside others: living ones, workers of workflows of the same name, earlier objects of the same process."""

from __future__ import annotations

import asyncio
from functools import partial

import boki
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow import App as FlowApp
from bokiflow import Worker
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Log
from bokilib.follow.follower import Follower
from bokilib.partitions.claims import NewestClaims
from bokilib.partitions.owner import PartitionOwner
from bokilib.records import tags
from bokilib.testing import FaultyBook
from bokirsm import App, Ask, Event, Host, Machine, Ref, Register, Rsm, State
from bokirsm.host import _picked
from bokirsm.model.events import PICKER, Claimed, Commit
from libs.tests.conftest import unexpected
from libs.tests.rsm.traces import records_of, traces_of
from libs.tests.rsm.two_hosts import Held, of

EVERYTHING = range(tags.PARTITIONS)
OPERATION_S = 0.01
"""An operation of the log takes so long: without it, hosts that take partitions from each other would stop virtual time."""


class Add(Event):
    pass


class Sum(Ask[int]):
    pass


class Counter(Machine[Add | Sum]):
    count: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Add)
    def add(self, e: Add) -> None:
        self.count += 1

    @run.on(Sum)
    def sum(self, e: Sum) -> None:
        self.reply(e, self.count)


GROUP = "g"
APP = App(GROUP, [Counter])


async def slow_log(cluster: MemoryCluster) -> Log:
    async def pause(number: int) -> None:
        await let_pass(OPERATION_S)

    return Log(FaultyBook((await cluster.connect()).book("b"), pause=pause))


async def claims_of(cluster: MemoryCluster) -> list[tuple[int, Claimed]]:
    """Return the claims and releases of a book, with the seqnums of their records, in order."""
    book = (await cluster.connect()).book("b")
    return [
        (seqnum, event)
        async for seqnum, envelope in records_of(book)
        for event in PICKER.of(seqnum, envelope)
        if isinstance(event, Claimed)
    ]


@in_virtual_time
async def test_a_partition_of_a_living_host_is_claimed_after_its_release() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster, Rsm(APP, (await cluster.connect()).book("b")) as rsm:
        counters = [await rsm.create(Counter, near=Ref(GROUP, one, "near")) for one in EVERYTHING]
        hosts = []
        for number in range(3):
            host = Host(APP, (await cluster.connect()).book("b"), name=f"h{number}", lease_s=3.0, stuck_after_s=None)
            hosts.append(await host.__aenter__())
            for _ in range(5):
                await rsm.send_many([(one, Add()) for one in counters])
                await let_pass(1.0)
        assert sorted(one for host in hosts for one in host.partitions) == list(EVERYTHING)
        assert [await rsm.ask(Sum().to(one)) for one in counters] == [15] * len(counters)
        holders: dict[int, str] = {}
        for seqnum, claim in await claims_of(cluster):
            before = holders.get(claim.partition, "")
            assert not claim.host or before in ("", claim.host), f"record {seqnum}: {claim} over {before}, which lives"
            holders[claim.partition] = claim.host
        assert set(holders.values()) == {host.name for host in hosts}
        for host in hosts:
            await host.__aexit__(None, None, None)


@in_virtual_time
async def test_hosts_that_disagree_move_a_partition_once_a_round() -> None:
    """The other one sends no heartbeats, so it counts as dead after a lease, and takes each partition back at once."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        log = await slow_log(cluster)
        taking: set[asyncio.Task[int]] = set()

        def take() -> None:
            taking.add(asyncio.create_task(rival.claim(EVERYTHING)))

        fences = [tags.rsm_owner(GROUP, one) for one in EVERYTHING]
        rival: PartitionOwner[Claimed] = PartitionOwner(
            log,
            "rival.1",
            NewestClaims(log, fences, partial(_picked, GROUP)),
            lambda partition, who, left: Claimed(GROUP, partition, who, left),
            changed=take,
            released=lambda move: None,
        )
        await rival.refresh()
        await rival.claim(EVERYTHING)
        host = Host(APP, await slow_log(cluster), lease_s=3.0, stuck_after_s=None)
        async with Follower(log, unexpected) as follower, host:
            for fence in fences:
                follower.add(fence, 1, rival.saw)
            await let_pass(9.0)
            records = len({seqnum for seqnum, _ in await claims_of(cluster)})
            assert 4 <= records <= 20, "the host claims once a second, and the other one after it"
            for task in taking:
                task.cancel()
            await asyncio.gather(*taking, return_exceptions=True)


@in_virtual_time
async def test_workers_of_workflows_of_the_same_name_are_no_hosts() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster, Rsm(APP, (await cluster.connect()).book("b")) as rsm:
        flows = FlowApp(GROUP)
        async with (
            Worker(flows, (await cluster.connect()).book("b"), lease_s=3.0) as worker,
            Host(APP, (await cluster.connect()).book("b"), lease_s=3.0, stuck_after_s=None) as host,
        ):
            await let_pass(10.0)
            assert host.partitions == sorted(worker._partitions.mine) == list(EVERYTHING)
            counters = [await rsm.create(Counter, near=Ref(GROUP, one, "near")) for one in EVERYTHING]
            assert [await rsm.ask(Sum().to(one)) for one in counters] == [0] * len(counters)


@in_virtual_time
async def test_a_host_object_claims_what_an_earlier_one_of_its_name_and_log_had() -> None:
    """The earlier one ends while a record of it is on its way, which arrives once the later one runs."""
    async with MemoryCluster(clock=LoopClock()) as cluster, Rsm(APP, (await cluster.connect()).book("b")) as rsm:
        book = (await cluster.connect()).book("b")
        log = Log(book)
        counter = await rsm.create(Counter, key="c")
        async with Host(APP, log, name="h", lease_s=30.0, stuck_after_s=None) as earlier:
            assert await rsm.ask(Sum().to(counter)) == 0
            held = Held(log, lambda part: of(Commit)(part) and not held.waiting.is_set())
            await rsm.send(counter, Add())
            await held.waiting.wait()
        async with Host(APP, log, name="h", lease_s=30.0, stuck_after_s=None) as later:
            assert later.partitions == list(EVERYTHING) and earlier.partitions == []
            assert await rsm.ask(Sum().to(counter)) == 1
            held.go.set()
            await let_pass(1.0)
            assert await rsm.ask(Sum().to(counter)) == 1
        plain = (await cluster.connect()).book("b")
        assert isinstance(plain, boki.Book)
        assert (await traces_of(plain))[str(counter)] == ["", "Sum", "Add", "Sum", "Sum"]
