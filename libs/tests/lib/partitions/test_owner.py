"""The claims and releases of a member, from the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from boki.testing import MemoryCluster
from boki_common.errors import WriterForgotten
from bokilib.append.log import Log
from bokilib.partitions.assignment import NOBODY, moves
from bokilib.partitions.owner import PartitionOwner
from bokilib.records.contribution import Contribution
from libs.tests.lib.partitions.claims_of import PARTITIONS, log_of, owner_on


async def owner_of(cluster: MemoryCluster, who: str, said: list[str] | None = None) -> PartitionOwner[str]:
    made = owner_on(await log_of(cluster), who, (said if said is not None else []).append)
    await made.refresh()
    return made


async def test_the_first_of_two_claims_wins_and_the_other_sees_it(cluster: MemoryCluster) -> None:
    said: list[str] = []
    a, b = await owner_of(cluster, "a", said), await owner_of(cluster, "b", said)
    first = await a.claim([1, 2])
    assert first and await b.claim([2, 3]) == 0 and not b.mine
    assert b.holders == {1: "a", 2: "a"}
    second = await b.claim([2])
    assert second > first and b.mine == {2: second} and not said
    await a.refresh()
    assert a.mine == {1: first} and a.holders == {1: "a", 2: "b"} and a.lost == {2} and said == ["changed"]
    assert await b.release(Contribution()) and not b.mine and b.holders == {1: "a"}
    await a.refresh()
    assert said[1:] == ["b left", "changed"] and 2 not in a.holders
    late: list[str] = []
    await owner_of(cluster, "c", late)
    assert "b left" in late, "a member that begins later reads which one left, too: it need not wait for a lease"


class AnswersLate(Log):
    """A log that calls something between an append and its answer."""

    meanwhile: Callable[[], Awaitable[object]]

    async def append(self, one: Contribution, *, seen: int = 0, settle: bool = False, **options: Any) -> int:
        seqnum = await super().append(one, seen=seen, settle=settle, **options)
        await self.meanwhile()
        return seqnum


async def answers_late(cluster: MemoryCluster) -> tuple[AnswersLate, PartitionOwner[str]]:
    log = AnswersLate((await cluster.connect()).book("b"))
    owner = owner_on(log, "a")
    await owner.refresh()
    return log, owner


async def test_a_claim_that_was_replaced_before_its_answer_is_no_longer_held(cluster: MemoryCluster) -> None:
    b = await owner_of(cluster, "b")
    log, a = await answers_late(cluster)

    async def replaced() -> None:
        await b.refresh()
        assert await b.claim([2])
        await a.refresh()

    log.meanwhile = replaced
    first = await a.claim([1, 2])
    assert first < b.mine[2] and a.mine == {1: first} and a.holders == {1: "a", 2: "b"}


async def test_a_partition_whose_claim_stays_unknown_is_claimed_again(cluster: MemoryCluster) -> None:
    """The claim is in the log. Other members see a living holder, and this one took it for its own: it had no owner any more."""
    log, a = await answers_late(cluster)

    async def forgotten() -> None:
        raise WriterForgotten("the answer is not known")

    log.meanwhile = forgotten
    try:
        await a.claim([1])
    except WriterForgotten:
        await a.refresh()
    assert a.holders == {1: "a"} and not a.mine
    assigned = [NOBODY, "a", NOBODY, NOBODY]
    assert moves("a", assigned, a.standings(lambda holder: False)).take == [1]

    async def nothing() -> None:
        pass

    log.meanwhile = nothing
    taken = await a.take(lambda: moves("a", assigned, a.standings(lambda holder: False)).take)
    assert list(taken) == [1] and a.mine == taken


async def test_a_release_is_one_record_and_of_all_partitions_or_of_none(cluster: MemoryCluster) -> None:
    a, b = await owner_of(cluster, "a"), await owner_of(cluster, "b")
    await a.claim([1, 2, 3])
    await b.refresh()
    assert await b.claim([2])
    assert not await a.release(Contribution(("beside",))) and sorted(a.mine) == [1, 3], "one moved: it is to try again"
    assert await a.release(Contribution(("beside",))) and not a.mine and a.holders == {2: "b"}
    record = await a._log.book.read_prev("beside")
    assert record is not None and set(record.tags) == {"beside", a.fences[1], a.fences[3]}
    assert not await a.claim([2]) or a.holders[2] == "a"


async def test_a_member_gives_some_of_its_partitions(cluster: MemoryCluster) -> None:
    a = await owner_of(cluster, "a")
    claim = await a.claim([1, 2, 3])
    seqnum = await a.release(Contribution(), [2, 0])
    assert seqnum > claim and a.mine == {1: claim, 3: claim} and a.holders == {1: "a", 3: "a"}
    record = await a._log.book.read_prev(a.fences[2])
    assert record is not None and (record.seqnum, record.tags) == (seqnum, (a.fences[2],))


async def test_partitions_that_another_member_took_rest_until_the_next_round(cluster: MemoryCluster) -> None:
    a, b = await owner_of(cluster, "a"), await owner_of(cluster, "b")
    await a.claim(range(PARTITIONS))
    await b.refresh()
    await b.claim([0, 1])
    await a.refresh()
    assigned = ["a"] * PARTITIONS
    assert moves("a", assigned, a.standings(lambda holder: True)).take == []
    a.lost.clear()
    assert moves("a", assigned, a.standings(lambda holder: True)).take == [0, 1]
    assert moves("a", assigned, a.standings(lambda holder: False)).take == []


async def test_old_claims_are_those_that_were_read_long_ago(cluster: MemoryCluster) -> None:
    a = await owner_of(cluster, "a")
    await a.claim([1, 2])
    now_ms = await a._log.newest_ms()
    assert a.older_than(now_ms) == [], "not read yet"
    await a.refresh()
    assert a.older_than(now_ms) == [1, 2] and a.older_than(now_ms - 1) == []


async def test_a_lost_claim_is_forgotten_once(cluster: MemoryCluster) -> None:
    a = await owner_of(cluster, "a")
    claim = await a.claim([1])
    assert not a.forget(1, claim + 1) and a.forget(1, claim) and not a.forget(1, claim) and not a.mine
