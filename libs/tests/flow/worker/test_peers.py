"""Who is taken for gone."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Worker
from bokiflow.model.flow_events import PICKER, Leaving, PartitionClaimed
from bokiflow.testing import LoopClock, in_virtual_time
from bokiflow.worker.partition_owner import PartitionOwner
from bokiflow.worker.peers import Peers
from bokilib.append.log import Log
from bokilib.follow.follower import Follower
from bokilib.records import tags
from bokilib.testing import FaultyBook
from libs.tests.flow.conftest import ids_of, until

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


async def test_silence_leaving_and_predecessors_are_over_and_namesakes_are_not(log: Log) -> None:
    peers = Peers(log, "g", "a", 15.0)
    peers.since = 5
    peers.saw_claim("a.1", 5)
    peers.saw_claim("a.2", 6)
    peers.saw_claim("a.b.3", 4)
    peers.saw_leaving(Leaving("g", "c.4"), 3)
    assert [peers.is_gone(name) for name in ("", "a.1", "c.4")] == [True] * 3
    assert [peers.is_gone(name) for name in (peers.name, "a.2", "a.b.3", "d.5")] == [False] * 4
    assert peers.alive() == []


async def test_a_worker_that_is_drained_gets_nothing_and_keeps_what_its_newest_word_says(log: Log) -> None:
    peers = Peers(log, "g", "a", 15.0)
    first, second, beside = [next(ids_of(partition)) for partition in (2, 3)] + [next(islice(ids_of(2), 1, None))]
    peers.saw_leaving(Leaving("g", "b.1", (2, 3), (first, second)), 7)
    assert [peers.is_gone("b.1", id) for id in (first, second, beside)] == [False, False, True]
    peers.saw_leaving(Leaving("g", "b.1", (2,), (first,)), 9)
    peers.saw_leaving(Leaving("g", "b.1", (2, 3), (first, second)), 8)  # read late, in another stream
    assert peers.is_leaving("b.1") and not peers.is_gone("b.1")
    assert [peers.is_gone("b.1", id) for id in (first, second, beside)] == [False, True, True]
    peers.saw_leaving(Leaving("g", "b.1"), 10)
    peers.saw_leaving(Leaving("g", "b.1", (2,), (first,)), 9)
    assert peers.is_gone("b.1") and peers.is_gone("b.1", first) and peers.is_leaving("b.1")
    peers.saw_leaving(Leaving("g", peers.name), 11)
    assert not peers.is_leaving(peers.name) and not peers.is_gone(peers.name, first), "of itself it knows better"


async def test_a_worker_that_names_partitions_alone_keeps_all_workflows_of_them(log: Log) -> None:
    peers = Peers(log, "g", "a", 15.0)
    peers.saw_leaving(Leaving("g", "b.1", (2,)), 7)
    assert [peers.is_gone("b.1", next(ids_of(partition))) for partition in (1, 2, 3)] == [True, False, True]


async def test_with_a_lease_of_no_time_everybody_else_is_dead_and_the_view_is_settled(log: Log) -> None:
    async with Peers(log, "g", "a", 0.0) as peers:
        await until(lambda: peers.is_gone("b.1"))
        assert peers.settled() and not peers.is_gone(peers.name)


async def test_of_those_on_one_log_who_ended_is_over_and_who_runs_is_a_peer(log: Log) -> None:
    async with Peers(log, "g", "a", 15.0) as later:
        async with Peers(log, "g", "a", 15.0) as earlier:
            later.since = 5
            later.saw_claim(earlier.name, 5)
            assert not later.is_gone(earlier.name) and earlier.name != later.name
        assert later.is_gone(earlier.name)
    names = [Peers(log, "g", None, 15.0).name.rpartition(".")[0] for _ in range(2)]
    assert names[0] != names[1], "without a name nobody is another's successor"


async def test_each_of_two_that_have_one_name_warns_once_of_the_other(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        Peers(log, "g", "a", 15.0) as one,
        Peers(log, "g", "a", 15.0) as two,
        Peers(log, "g", "b", 15.0) as three,
    ):
        await until(lambda: {*one.alive()} & {*two.alive()} >= {one.name, two.name, three.name})
        for peers in (one, two, three, one, two):
            peers.warn_of_namesakes()
        said = [line for line in capsys.readouterr().err.split("\n") if "two workers have one name" in line]
        assert [f"worker={one.name} other={two.name}" in said[0], f"worker={two.name} other={one.name}" in said[1]] == [
            True
        ] * 2
        assert len(said) == 2


async def test_a_predecessor_that_is_being_drained_is_no_namesake(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    async with Peers(log, "g", "a", 15.0) as old, Peers(log, "g", "a", 15.0) as new:
        await until(lambda: old.name in new.alive())
        new.saw_leaving(Leaving("g", old.name, (2,)), 9)
        new.warn_of_namesakes()
        new.saw_leaving(Leaving("g", old.name), 10)
        new.warn_of_namesakes()
    assert "two workers" not in capsys.readouterr().err


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

        rival = PartitionOwner(log, GROUP, "rival.1", take, lambda one, at: None)
        await rival.refresh()
        await rival.claim(list(range(tags.PARTITIONS)))
        async with Follower(log) as follower, Worker(App(GROUP), await slow_log(cluster), lease_s=3):
            for partition in range(tags.PARTITIONS):
                follower.add(tags.flow_partition_owner(GROUP, partition), 1, rival.saw)
            await let_pass(9)
            records = len(set(await claims(Log((await cluster.connect()).book("shop")))))
            assert 4 <= records <= 20, "the worker claims once a second, and the other one after it"
