"""Partitions of workers: their records, the holders that a worker claims from, and what a drained worker keeps."""

from __future__ import annotations

import asyncio
import io
from itertools import islice
from typing import Any

import boki
from boki.testing import MemoryCluster
from boki_common.logs import configured
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Worker
from bokiflow.model.flow_events import PICKER, Leaving, PartitionCheckpoint, PartitionClaimed, Started
from bokiflow.model.records import start
from bokiflow.testing import LoopClock, in_virtual_time
from bokiflow.worker.partitions import leave, partitions_of, still_runs, to_claim, unfinished
from bokilib.append.log import Log
from bokilib.follow.follower import Follower
from bokilib.partitions.owner import PartitionOwner
from bokilib.partitions.peers import Peers
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.testing import FaultyBook
from libs.tests.conftest import unexpected
from libs.tests.flow.conftest import Inline, ids_of
from libs.tests.flow.shop import Shop
from libs.tests.lib.partitions.claims_of import TrimmedUnder

GROUP = "shop"
OPERATION_S = 0.01
"""An operation of the log takes so long: without it, workers that take partitions from each other would stop virtual time."""


async def slow_log(cluster: MemoryCluster) -> Log:
    async def pause(number: int) -> None:
        await let_pass(OPERATION_S)

    return Log(FaultyBook((await cluster.connect()).book("shop"), pause=pause))


async def claims(log: Log) -> list[int]:
    """Return the seqnums of the claims of all partitions, a claim of each partition by itself."""
    found = []
    for partition in range(tags.PARTITIONS):
        async for item in log.book.read(tags.flow_partition_owner(GROUP, partition)):
            assert not isinstance(item, boki.Gap)
            events = PICKER.of(item.seqnum, await log.open(item))
            found += [item.seqnum for one in events if isinstance(one, PartitionClaimed) and one.partition == partition]
    return found


async def owner_of(cluster: MemoryCluster, name: str, told: list[Leaving] | None = None) -> PartitionOwner[Leaving]:
    log, said = Log((await cluster.connect()).book("shop")), told if told is not None else []
    made = partitions_of(log, GROUP, name, lambda: None, lambda one, _: said.append(one))
    await made.refresh()
    return made


def test_a_drained_worker_keeps_named_workflows_or_whole_partitions() -> None:
    first, second = islice(ids_of(2), 2)
    named, whole = still_runs(Leaving(GROUP, "b.1", (2,), (first,))), still_runs(Leaving(GROUP, "b.1", (2,)))
    assert named is not None and (named(first), named(second)) == (True, False)
    assert whole is not None and (whole(first), whole(second), whole(next(ids_of(3)))) == (True, True, False)
    assert still_runs(Leaving(GROUP, "b.1")) is None


@in_virtual_time
async def test_a_new_worker_claims_from_nobody_and_the_leaving_and_later_its_share() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        leaving, stays, joins = [await owner_of(cluster, name) for name in ("leaving.1", "stays.1", "joins.1")]
        await leaving.claim([1])
        await stays.refresh()
        await stays.claim(range(2, tags.PARTITIONS))
        await joins.refresh()
        async with Peers(joins._log, GROUP, "joins", 3.0) as peers:
            peers.saw_leaving("leaving.1", 1, lambda id: True)
            assert to_claim(joins, peers) == [0, 1]
            await let_pass(4)
            share = set(to_claim(joins, peers))
            assert {0, 1} != share and 0 < len(share - {0, 1}) < tags.PARTITIONS - 2, "now its share of a holder's, too"
            joins.lost.update(share)
            assert set(to_claim(joins, peers)) <= {0}


async def test_one_record_gives_up_all_partitions_and_tells_which_ones_are_kept(
    cluster: MemoryCluster,
) -> None:
    told: list[Leaving] = []
    a, b, c = [await owner_of(cluster, name, told) for name in ("a", "b", "c")]
    await a.claim([1, 2, 3])
    await b.refresh()
    second = await b.claim([2])
    assert second and not await leave(a, GROUP, [1]) and sorted(a.mine) == [1, 3], "one moved: it is to try again"
    assert await leave(a, GROUP, [1]) and not a.mine and a.holders == {2: "b"}
    await c.refresh()
    assert set(told) == {Leaving(GROUP, "a", (1,))}
    assert c.holders == {2: "b"} and await c.claim([1, 3])
    assert not await a.claim([1]), "it takes nothing that another one has by now"


async def test_what_is_unfinished_is_what_was_started_and_what_a_checkpoint_keeps(cluster: MemoryCluster) -> None:
    owner = await owner_of(cluster, "a")
    log = owner._log
    ids = [f"x{number}" for number in range(40)]
    part = tags.partition_of("x0")
    mine = [id for id in ids if tags.partition_of(id) == part]
    places = [await log.append(start(Started(id, "n", "d", [], 0, group=GROUP), 0)) for id in ids]
    everything = sorted({tags.partition_of(id) for id in ids})
    assert await unfinished(log, GROUP, everything, places[-1]) == (ids, {})
    assert await unfinished(log, GROUP, [part], places[0]) == (["x0"], {})
    old = next(id for id in (f"old{number}" for number in range(1_000)) if tags.partition_of(id) == part)
    kept = PartitionCheckpoint(GROUP, part, (old,), places[-2])
    last = await log.append(Contribution((tags.flow_part(GROUP, part),), {}, (kept,)))
    found, _ = await unfinished(log, GROUP, everything, last)
    assert not set(found) & (set(mine) - {ids[-1]})
    assert old in found


async def under_trims(cluster: MemoryCluster, times: int) -> TrimmedUnder:
    log = Log((await cluster.connect()).book("shop"))
    owner = partitions_of(log, GROUP, "a.1", lambda: None, lambda one, _: None)
    await owner.refresh()
    await owner.claim([3])
    return TrimmedUnder((await cluster.connect()).book("shop"), owner, tags.flow_partition_owner(GROUP, 3), times)


async def test_a_worker_begins_while_a_collector_trims_claims_under_it(cluster: MemoryCluster) -> None:
    book: Any = await under_trims(cluster, 2)
    async with Worker(Shop().app, book, name="b", bodies=Inline()) as worker:
        assert not book.left and worker._partitions.holders[3] == "a.1"
        assert len(worker._partitions.mine) == tags.PARTITIONS - 1


@in_virtual_time
async def test_a_holder_that_was_not_heard_yet_keeps_its_share() -> None:
    """The holder beats each 20 seconds, and a worker that joins is settled after 3: it claimed all, and each took them from the other."""
    async with (
        MemoryCluster(clock=LoopClock()) as cluster,
        Worker(App(GROUP), await slow_log(cluster), name="long", lease_s=60) as long,
    ):
        await let_pass(25)
        async with Worker(App(GROUP), await slow_log(cluster), name="short", lease_s=3) as short:
            await let_pass(10)
            shares = long._partitions.mine, short._partitions.mine
            assert long.name not in short._peers.alive() and all(shares), "settled, and not heard"
            assert sorted([*shares[0], *shares[1]]) == list(range(tags.PARTITIONS))
            moved = len(await claims(Log((await cluster.connect()).book("shop")))) - tags.PARTITIONS
            assert moved == len(short._partitions.mine)


@in_virtual_time
async def test_workers_that_disagree_move_a_partition_once_a_beat() -> None:
    """The other one sends no heartbeats, so it counts as dead after a lease, and takes each partition back at once."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        log = await slow_log(cluster)
        taking: set[asyncio.Task[Any]] = set()

        def take() -> None:
            taking.add(asyncio.create_task(rival.claim(list(range(tags.PARTITIONS)))))

        rival = partitions_of(log, GROUP, "rival.1", take, lambda one, at: None)
        await rival.refresh()
        await rival.claim(list(range(tags.PARTITIONS)))
        async with Follower(log, unexpected) as follower, Worker(App(GROUP), await slow_log(cluster), lease_s=3):
            for partition in range(tags.PARTITIONS):
                follower.add(tags.flow_partition_owner(GROUP, partition), 1, rival.saw)
            await let_pass(9)
            records = len(set(await claims(Log((await cluster.connect()).book("shop")))))
            assert 4 <= records <= 20, "the worker claims once a second, and the other one after it"


class Forgets(Log):
    """A log that has forgotten its writer when an answer comes, after it has the record."""

    forgets = False

    async def append(self, one: Contribution, *, seen: int = 0, settle: bool = False, **options: Any) -> int:
        seqnum = await super().append(one, seen=seen, settle=settle, **options)
        if self.forgets and any(isinstance(event, PartitionClaimed) for event in one.events):
            self.forgets = False
            raise boki.WriterForgotten("the answer is not known")
        return seqnum


@in_virtual_time
async def test_a_worker_owns_its_partitions_again_after_a_claim_that_stays_unknown() -> None:
    """The claim was in the log and the worker alive, so no worker owned these partitions for as long as it lived."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        log = Forgets((await cluster.connect()).book("shop"))
        async with Worker(App(GROUP), log, lease_s=3) as worker:
            await let_pass(4)
            rival = await owner_of(cluster, "rival.1")
            log.forgets = bool(await rival.claim(range(tags.PARTITIONS)))
            await let_pass(0.1)
            assert not worker._partitions.mine
            await let_pass(6)
            assert not log.forgets and len(worker._partitions.mine) == tags.PARTITIONS


@in_virtual_time
async def test_each_of_two_workers_of_one_name_logs_the_other_once() -> None:
    stream = io.StringIO()
    with configured(level="warning", stream=stream):
        async with MemoryCluster(clock=LoopClock()) as cluster:
            one, two = [Worker(App(GROUP), await slow_log(cluster), name="a", lease_s=3) for _ in range(2)]
            async with one, two:
                await let_pass(9)
    lines = [line for line in stream.getvalue().splitlines() if "two workers have one name" in line]
    for worker, other in ((one, two), (two, one)):
        (line,) = [line for line in lines if f"name=a worker={worker.name} other={other.name}" in line]
        assert "source=bokiflow." in line and "level=warning" in line
