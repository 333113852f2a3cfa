"""Who owns which partition, from the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from bokiflow import Worker
from bokiflow.model.flow_events import Leaving, PartitionCheckpoint, Started
from bokiflow.model.records import start
from bokiflow.worker import partition_owner
from bokiflow.worker.partition_owner import PartitionOwner
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from libs.tests.flow.conftest import Inline
from libs.tests.flow.shop import Shop


async def owner_of(cluster: MemoryCluster, name: str, calls: list[str]) -> PartitionOwner:
    log = Log((await cluster.connect()).book("shop"))
    made = PartitionOwner(
        log, "g", name, lambda: calls.append("changed"), lambda one, _: calls.append(f"{one.worker} left")
    )
    await made.refresh()
    return made


async def test_the_first_of_two_claims_wins_and_the_other_sees_it(cluster: MemoryCluster) -> None:
    calls: list[str] = []
    a, b = await owner_of(cluster, "a", calls), await owner_of(cluster, "b", calls)
    first = await a.claim([1, 2])
    assert first and await b.claim([2, 3]) == 0 and not b.mine
    assert b.holders == {1: "a", 2: "a"}
    second = await b.claim([2])
    assert second > first and b.mine == {2: second} and not calls
    await a.refresh()
    assert a.mine == {1: first} and a.holders == {1: "a", 2: "b"} and calls == ["changed"]
    assert await b.leave([]) and not b.mine
    await a.refresh()
    assert calls[1:] == ["b left", "changed"] and 2 not in a.holders
    late: list[str] = []
    await owner_of(cluster, "c", late)
    assert "b left" in late, "a worker that begins later reads which one left, too: it need not wait for a lease"


class AnswersLate(Log):
    """A log that calls something between an append and its answer."""

    meanwhile: Callable[[], Awaitable[object]]

    async def append(self, one: Contribution, *, seen: int = 0, settle: bool = False) -> int:
        seqnum = await super().append(one, seen=seen, settle=settle)
        await self.meanwhile()
        return seqnum


async def test_a_claim_that_was_replaced_before_its_answer_is_no_longer_held(cluster: MemoryCluster) -> None:
    b = await owner_of(cluster, "b", [])
    log = AnswersLate((await cluster.connect()).book("shop"))
    a = PartitionOwner(log, "g", "a", lambda: None, lambda one, at: None)
    await a.refresh()

    async def replaced() -> None:
        await b.refresh()
        assert await b.claim([2])
        await a.refresh()

    log.meanwhile = replaced
    first = await a.claim([1, 2])
    assert first < b.mine[2] and a.mine == {1: first} and a.holders == {1: "a", 2: "b"}


async def test_one_record_gives_up_all_partitions_and_tells_which_ones_are_kept(
    cluster: MemoryCluster,
) -> None:
    a, b, told = await owner_of(cluster, "a", []), await owner_of(cluster, "b", []), []
    log = Log((await cluster.connect()).book("shop"))
    c = PartitionOwner(log, "g", "c", lambda: None, lambda one, at: told.append((one, at)))
    await a.claim([1, 2, 3])
    await b.refresh()
    second = await b.claim([2])
    assert second and not await a.leave([1]) and sorted(a.mine) == [1, 3], "one moved: it is to try again"
    assert await a.leave([1]) and not a.mine and a.holders == {2: "b"}
    await c.refresh()
    assert set(told) == {(Leaving("g", "a", (1,)), told[0][1])} and told[0][1] > second
    assert c.holders == {2: "b"} and await c.claim([1, 3])
    assert not await a.claim([1]), "it takes nothing that another one has by now"


async def test_what_is_unfinished_is_what_was_started_and_what_a_checkpoint_keeps(cluster: MemoryCluster) -> None:
    owner = await owner_of(cluster, "a", [])
    log = owner._log
    ids = [f"x{number}" for number in range(40)]
    part = tags.partition_of("x0")
    mine = [id for id in ids if tags.partition_of(id) == part]
    places = [await log.append(start(Started(id, "n", "d", [], 0, group="g"), 0)) for id in ids]
    everything = sorted({tags.partition_of(id) for id in ids})
    assert await owner.unfinished(everything, places[-1]) == ids
    assert await owner.unfinished([part], places[0]) == ["x0"]
    old = next(id for id in (f"old{number}" for number in range(1_000)) if tags.partition_of(id) == part)
    kept = PartitionCheckpoint("g", part, (old,), places[-2])
    last = await log.append(Contribution((tags.flow_part("g", part),), {}, (kept,)))
    found = await owner.unfinished(everything, last)
    assert not set(found) & (set(mine) - {ids[-1]})
    assert old in found


class TrimmedUnder:
    """A book whose partitions somebody claims anew, and trims what was before, whenever its reader has asked how far it goes."""

    def __init__(self, book: boki.Book, owner: PartitionOwner, times: int) -> None:
        self.left = times
        self._book, self._owner = book, owner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._book, name)

    async def now(self, **options: Any) -> int:
        position = await self._book.now(**options)
        if options and self.left:
            self.left -= 1
            claim = await self._owner.claim([3])
            await self._book.trim([(tags.flow_partition_owner("shop", 3), claim)])
        return position


async def under_trims(cluster: MemoryCluster, times: int) -> TrimmedUnder:
    log = Log((await cluster.connect()).book("shop"))
    owner = PartitionOwner(log, "shop", "a.1", lambda: None, lambda one, _: None)
    await owner.refresh()
    await owner.claim([3])
    return TrimmedUnder((await cluster.connect()).book("shop"), owner, times)


async def test_a_worker_begins_while_a_collector_trims_claims_under_it(cluster: MemoryCluster) -> None:
    book: Any = await under_trims(cluster, 2)
    async with Worker(Shop().app, book, name="b", bodies=Inline()) as worker:
        assert not book.left and worker._partitions.holders[3] == "a.1"
        assert len(worker._partitions.mine) == tags.PARTITIONS - 1


async def test_who_owns_what_is_not_looked_at_for_ever(cluster: MemoryCluster) -> None:
    book: Any = await under_trims(cluster, partition_owner.READ_ATTEMPTS + 1)
    owner = PartitionOwner(Log(book), "shop", "b", lambda: None, lambda one, _: None)
    with pytest.raises(boki.Trimmed):
        await owner.refresh()
    assert book.left == 1 and await owner.refresh()
