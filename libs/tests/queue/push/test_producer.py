"""Pushes as parts of records, and appends that share a record."""

from __future__ import annotations

import asyncio

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import Conflict
from bokilib import Atomic
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event
from bokiqueue.model.events import Pushed
from bokiqueue.model.items import item_of
from bokiqueue.push import producer
from bokiqueue.push.producer import AppendBatcher
from libs.tests.queue.conftest import Another, take


async def test_a_batch_without_keys_goes_to_one_shard_and_keys_to_theirs(another: Another) -> None:
    queue = await another(shards=4)
    one = queue._producer.part([item_of(number) for number in range(3)])
    two = queue._producer.part([item_of(number) for number in range(3)])
    assert (len(one.tags), len(two.tags)) == (1, 1)
    assert one.tags != two.tags
    keyed = queue._producer.part([item_of(number, key=f"k{number}") for number in range(40)])
    assert keyed.tags == tuple(dict.fromkeys(keyed.tags))
    assert sum(len(event.items) for event in keyed.events if isinstance(event, Pushed)) == 40
    assert one.tags[0].startswith(tags.queue_messages("jobs", 0)[:-1])


async def test_pushes_to_one_shard_in_one_record_are_numbered_through(another: Another) -> None:
    queue = await another(shards=1)
    async with Atomic(queue.log) as tx:
        tx.add(queue.pushed("a"))
        tx.add(queue.pushed("b"))
    async with queue.consume() as messages:
        got = await take(messages, 2)
        assert [(message.body, message.id[1:]) for message in got] == [("a", (tx.seqnum, 0)), ("b", (tx.seqnum, 1))]


class Noted(Event, tag="test.noted", frozen=True):
    """An event of this test."""

    id: str


def part(tag: str, **expect: int) -> Contribution:
    return Contribution((tag,), dict(expect), (Noted(tag),))


async def log_of(cluster: MemoryCluster) -> Log:
    return Log((await cluster.connect()).book("shop"))


async def places(log: Log, tag: str) -> list[int]:
    assert isinstance(log.book, boki.Book)
    return [item.seqnum async for item in log.book.read(tag) if isinstance(item, boki.Record)]


async def test_what_comes_while_one_is_on_its_way_is_one_record_in_order(cluster: MemoryCluster) -> None:
    log = await log_of(cluster)
    several = AppendBatcher(log)
    first = asyncio.create_task(several.append(part("a"), size=1))
    await asyncio.sleep(0)  # it is on its way
    await asyncio.sleep(0)
    rest = [asyncio.create_task(several.append(part(tag), size=1)) for tag in "bcd"]
    found = await asyncio.gather(first, *rest)
    assert found[1] == found[2] == found[3] > found[0]
    assert log.appends == 2
    record = await log.book.read_prev("d")
    assert record is not None and record.tags == ("b", "c", "d")


async def test_a_record_takes_so_many_bytes_and_tags(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "BYTES", 10)
    log = await log_of(cluster)
    several = AppendBatcher(log)
    found = await asyncio.gather(*(several.append(part(f"t{number}"), size=4) for number in range(6)))
    assert len(set(found)) == log.appends == 3
    before = log.appends
    many = [Contribution(tuple(f"{number}/{tag}" for tag in range(100)), {}, ()) for number in range(4)]
    await asyncio.gather(*(several.append(one, size=0) for one in many))
    assert log.appends - before == 2


async def test_who_expected_in_vain_gets_a_conflict_and_the_others_are_in_the_log_once(cluster: MemoryCluster) -> None:
    log = await log_of(cluster)
    old = await log.append(part("fence"))
    await log.append(part("fence"))
    several = AppendBatcher(log, settle=True)
    found = await asyncio.gather(
        several.append(part("a"), size=1),
        several.append(part("b", fence=old), size=1),
        several.append(part("c"), size=1),
        return_exceptions=True,
    )
    assert isinstance(found[1], Conflict)
    assert [await places(log, tag) for tag in "abc"] == [[found[0]], [], [found[2]]]


async def test_what_is_too_large_together_goes_apart(cluster: MemoryCluster) -> None:
    log = await log_of(cluster)
    several = AppendBatcher(log)
    large = [Contribution((tag,), {}, (Noted(tag + "x" * 300_000),)) for tag in "ab"]
    found = await asyncio.gather(*(several.append(one, size=1) for one in large))
    assert len(set(found)) == 2


async def test_who_gave_up_waiting_is_left_out_and_the_rest_goes(cluster: MemoryCluster) -> None:
    log = await log_of(cluster)
    several = AppendBatcher(log)
    tasks = [asyncio.create_task(several.append(part(tag), size=1)) for tag in "ab"]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [len(await places(log, tag)) for tag in "ab"] == [0, 1]
