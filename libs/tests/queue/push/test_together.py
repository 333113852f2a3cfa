"""What goes together is one record; who loses gets the error alone, and nobody waits where nothing is on its way."""

from __future__ import annotations

import asyncio

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import Conflict
from bokilib.append.log import Log
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event
from bokiqueue.push import together
from bokiqueue.push.together import Together


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
    several = Together(log)
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
    monkeypatch.setattr(together, "BYTES", 10)
    log = await log_of(cluster)
    several = Together(log)
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
    several = Together(log, settle=True)
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
    several = Together(log)
    large = [Contribution((tag,), {}, (Noted(tag + "x" * 300_000),)) for tag in "ab"]
    found = await asyncio.gather(*(several.append(one, size=1) for one in large))
    assert len(set(found)) == 2


async def test_who_gave_up_waiting_is_left_out_and_the_rest_goes(cluster: MemoryCluster) -> None:
    log = await log_of(cluster)
    several = Together(log)
    tasks = [asyncio.create_task(several.append(part(tag), size=1)) for tag in "ab"]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [len(await places(log, tag)) for tag in "ab"] == [0, 1]
