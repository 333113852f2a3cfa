"""Checkpoints: an owner that begins from one reaches the same state, storage is trimmed, and no group is overlooked."""

from __future__ import annotations

import asyncio

import pytest

import boki
from bokilib.append.fence import Fence
from bokilib.errors import Fenced
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokiqueue import Queue, settings
from bokiqueue.checkpoint.checkpointing import Checkpointing
from bokiqueue.model.events import Acked, Id, consumer_id
from bokiqueue.model.shard_state import consumer_from, messages_from
from libs.tests.queue.conftest import Another, SetClock, all_appended, book_of


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bokiqueue.checkpoint.checkpointing.RECORDS_BETWEEN", 6)


async def places(queue: Queue[object], tag: str) -> list[int]:
    return [item.seqnum async for item in book_of(queue).read(tag) if isinstance(item, boki.Record)]


async def handle(queue: Queue[object], count: int, group: str = "default") -> list[object]:
    got = []
    async with queue.consume(group=group, member_lease_s=600) as messages:
        for _ in range(count):
            async with await anext(messages) as message:
                got.append(message.body)
    return got


async def test_messages_that_are_done_go_and_the_rest_is_as_before(another: Another) -> None:
    queue = await another(shards=1)
    for number in range(60):
        await queue.push(number)
    got = await handle(queue, 30)
    assert len(await places(queue, tags.queue_messages("jobs", 0))) < 60
    got += await handle(await another(), 30)
    assert got == list(range(60))
    await queue.push("last")
    assert await handle(await another(), 1) == ["last"]
    assert len(await places(queue, tags.queue_messages("jobs", 0))) < 15
    assert len(await places(queue, tags.queue_consumer("jobs", 0, "default"))) < 15


async def test_what_another_group_has_to_read_stays(another: Another) -> None:
    queue = await another(shards=1)
    await queue.register("audit")
    for number in range(30):
        await queue.push(number)
    assert await handle(queue, 30) == list(range(30))
    assert await handle(await another(), 30, "audit") == list(range(30))
    for number in range(8):
        await queue.push(number)
    await handle(queue, 8)
    assert len(await places(queue, tags.queue_messages("jobs", 0))) < 20


async def test_a_group_that_registers_meanwhile_voids_the_checkpoint_the_next_knows_it(
    another: Another,
) -> None:
    queue = await another(shards=1)
    async with queue.consume(member_lease_s=600) as messages:
        await messages.has(1)
        await (await another()).register("audit")
        for number in range(12):
            await queue.push(number)
            async with await anext(messages):
                pass
        await asyncio.sleep(0)
    assert await handle(await another(), 12, "audit") == list(range(12))


async def test_of_copies_around_a_purge_one_is_handled_whoever_has_the_shard(
    another: Another, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was purged counts as a first for who read it; who comes next has not read it."""
    monkeypatch.setattr("bokiqueue.checkpoint.checkpointing.RECORDS_BETWEEN", 1_000)
    queue = await another(shards=1, dedup_s=300)
    got = []
    async with queue.consume(member_lease_s=600) as messages:
        await queue.push("to fill", key="k")
        async with await anext(messages) as held:
            await queue.push("first", dedup_id="x")
            await queue.push("waits", key="k")
            while held.receipt.id.seqnum == messages._owners[0]._owned().reached:
                await asyncio.sleep(0)
            await (await another()).purge()
            begins = (await settings.existing(queue.log, "jobs")).config.groups["default"]
            while messages.found.config.groups["default"] < begins:
                await asyncio.sleep(0)
        for wait_ms in (60_000, 270_000):
            clock.ms += wait_ms
            await queue.push(f"after {wait_ms}", dedup_id="x")
        async with asyncio.timeout(30), await anext(messages) as message:
            got.append(message.body)
        await all_appended(messages)
    assert got == ["after 270000"], "the one before is a copy of what was purged"
    async with (await another()).consume(member_lease_s=600) as messages:
        await messages.has(1)
        await queue.push("last")
        async with asyncio.timeout(30), await anext(messages) as message:
            assert message.body == "last"


async def test_an_idle_queue_costs_nothing_and_pins_nothing_of_others(another: Another) -> None:
    idle, busy = await another("idle"), await another("busy", shards=1)
    await idle.push("waits")
    for number in range(40):
        await busy.push(number)
    await handle(busy, 40)
    assert len(await places(busy, tags.queue_messages("busy", 0))) < 12
    assert await handle(await another("idle"), 1) == ["waits"]


async def test_a_stream_whose_checkpoint_is_gone_is_refused(another: Another) -> None:
    queue = await another(shards=1)
    await queue.push(1)
    tag = tags.queue_consumer("jobs", 0, "default")
    event = Acked(consumer_id("jobs", 0, "default"), (Id(1, 0),))
    seqnum = await queue.log.append(Contribution((tag,), {}, (event,)))
    await book_of(queue).trim(before=seqnum + 1, tag=tag)
    with pytest.raises(boki.Trimmed, match="no checkpoint"):
        await Checkpointing(queue.log, "jobs", 0, "default").load(await book_of(queue).now())


async def test_who_is_overtaken_while_he_reads_is_fenced_and_no_error_ends_him(another: Another) -> None:
    queue = await another(shards=1)
    await queue.push(1)
    tag, owners = tags.queue_consumer("jobs", 0, "default"), tags.queue_owner("jobs", 0, "default")
    slow = Fence(queue.log, owners, "a shard", who="slow")
    claim = await slow.take(None)
    fast = Fence((await another()).log, owners, "a shard", who="fast")
    await fast.take(await fast.current())
    event = Acked(consumer_id("jobs", 0, "default"), (Id(1, 0),))
    seqnum = await queue.log.append(Contribution((tag,), {}, (event,)))
    await book_of(queue).trim([(tag, seqnum + 1), (owners, fast.claim)])
    with pytest.raises(Fenced, match="by another"):
        await Checkpointing(queue.log, "jobs", 0, "default").load(claim)


@pytest.mark.parametrize(
    ("own", "others", "starts", "expected"),
    [
        (Id(50, 3), {}, {"a": 1}, 50),
        (Id(50, 0), {"b": Id(40, 1)}, {"a": 1, "b": 30}, 40),
        (Id(50, 0), {"b": Id(60, 1)}, {"a": 1, "b": 30}, 50),
        (Id(50, 0), {"b": None}, {"a": 1, "b": 30}, 30),
        (Id(50, 0), {"gone": None}, {"a": 1}, 50),
    ],
)
def test_messages_go_below_the_lowest_floor(
    own: Id, others: dict[str, Id | None], starts: dict[str, int], expected: int
) -> None:
    assert messages_from(own, others, starts) == expected


def test_a_consumers_stream_goes_below_what_its_checkpoint_covers() -> None:
    assert consumer_from(9) == 10
