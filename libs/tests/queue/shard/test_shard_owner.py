"""Appends of a shard's owner: how many there are, their order, and their contents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import Conflict
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib import Fence, Log
from bokilib.errors import Fenced
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.records.events import open_record
from bokiqueue import Queue
from bokiqueue.errors import NoSuchGroup
from bokiqueue.model.events import PICKER, Acked, AnyEvent, Dead, Delivered, Id, Item, Nacked, Pushed
from bokiqueue.shard.shard_owner import DEAD_BYTES, DeadLetter, Outbox
from bokiqueue.sharding import shard_of
from bokistore import BokiStore
from libs.tests.queue.conftest import Another, all_appended, book_of, take


async def written(queue: Queue[object], tag: str) -> list[list[AnyEvent]]:
    """The events of a stream's records."""
    found = []
    async for item in book_of(queue).read(tag):
        assert isinstance(item, boki.Record)
        found.append(list(PICKER.of(item.seqnum, open_record(item.seqnum, item.data))))
    return found


async def test_a_lone_message_costs_a_push_a_deliver_and_an_ack(another: Another) -> None:
    queue = await another(shards=1)
    async with queue.consume(member_lease_s=600) as messages:
        await messages.has(1)
        before = queue.log.appends
        await queue.push(1)
        message = await anext(messages)
        await all_appended(messages)
        await message.ack()
        assert queue.log.appends - before == 3


async def test_what_is_done_at_once_is_acked_with_its_deliver(another: Another) -> None:
    queue = await another(shards=1)
    async with queue.consume(member_lease_s=600) as messages:
        await messages.has(1)
        before = queue.log.appends
        await queue.push(1)
        await (await anext(messages)).ack()
        assert queue.log.appends - before == 2


async def test_a_batch_costs_one_deliver_and_one_ack(another: Another) -> None:
    queue = await another(shards=1)
    async with queue.consume(member_lease_s=600) as messages:
        await messages.has(1)
        before = queue.log.appends
        await queue.push_many(list(range(64)))
        batch = await take(messages, 64)
        await all_appended(messages)
        await asyncio.gather(*(message.ack() for message in batch))
        assert queue.log.appends - before == 3


async def test_busy_acks_and_the_next_deliver_are_one_record(another: Another) -> None:
    queue = await another(shards=1)
    await queue.push_many(list(range(256)))
    async with queue.consume(member_lease_s=600, prefetch=64) as messages:
        await messages.has(1)
        before = queue.log.appends
        last = None
        for _ in range(256):
            last = (await anext(messages)).ack()
        assert last is not None
        await last
        spent = queue.log.appends - before
        assert spent <= 256 / 64 + 1, "1/b and the first DELIVER"
    rows = await written(queue, tags.queue_consumer("jobs", 0, "default"))
    batcher = [row for row in rows if {type(event) for event in row} == {Delivered, Acked}]
    assert len(batcher) >= 2


async def test_a_dead_letter_and_its_push_are_one_record(another: Another) -> None:
    queue = await another(shards=1, max_deliveries=1, dead_letter="jobs.dead")
    await queue.push("bad", key="k")
    async with queue.consume() as messages:
        message = await anext(messages)
        await all_appended(messages)
        await message.nack()
        await queue.push("next", key="k")
        assert (await anext(messages)).body == "next"
    rows = await written(queue, tags.queue_messages("jobs.dead", 0))
    assert [[type(event) for event in row] for row in rows] == [[Dead, Pushed]]


async def test_records_of_the_owner_expect_its_claim_and_join_their_own_stream_only(another: Another) -> None:
    queue = await another(shards=1)
    await queue.push(1)
    async with queue.consume() as messages:
        message = await anext(messages)
        await message.nack()
        await (await anext(messages)).ack()
    rows = await written(queue, tags.queue_consumer("jobs", 0, "default"))
    kinds = [type(event) for row in rows for event in row]
    assert kinds == [Delivered, Nacked, Delivered, Acked]
    record = await book_of(queue).check_tail(tags.queue_consumer("jobs", 0, "default"))
    assert record is not None
    assert record.tags == (tags.queue_consumer("jobs", 0, "default"),)


async def test_reading_ahead_is_bounded_and_goes_on(another: Another, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bokiqueue.shard.arrivals.READ_AHEAD", 8)
    queue = await another(shards=1)
    for number in range(40):
        await queue.push(number)
    async with queue.consume(prefetch=4) as messages:
        await messages.has(1)
        got = []
        for _ in range(40):
            async with await anext(messages) as message:
                got.append(message.body)
            (owner,) = messages._owners.values()
            assert len(owner._owned()) <= 8
    assert got == list(range(40))


async def test_of_two_messages_whose_record_lost_only_the_owner_whose_shard_moved_ends(another: Another) -> None:
    store = BokiStore(book_of(await another("other")))
    queue = await Queue.open(store.log, "pairs", str, shards=2)
    for shard in range(2):
        key = next(name for name in "abcdefgh" if shard_of(2, name, None) == shard)
        await queue.push(f"of {shard}", key=key)
    async with queue.consume(member_lease_s=600) as messages:
        await messages.has(2)
        first, second = await take(messages, 2)
        owners = [messages._owners[message.id[0]] for message in (first, second)]
        await all_appended(messages)
        taken = owners[0].fence
        other = Fence(Log(book_of(queue)), taken.tag, taken.name, who="elsewhere")
        messages._follower.discard(taken.tag)
        await other.take(taken.held)
        with pytest.raises(Conflict):
            async with first, second, store.transaction() as tx:
                tx.add(first.acked())
                tx.add(second.acked())
        again = await anext(messages)
        assert (again.body, again.attempt) == (second.body, 1)
        await again.ack()
        assert [owner.owned for owner in owners] == [False, True]


async def test_a_record_of_which_nobody_knows_is_decided_by_the_log_and_others_stay(another: Another) -> None:
    """The owner claims its shard again: other handlers keep what they have."""
    store = BokiStore(book_of(await another("other")))
    queue = await Queue.open(store.log, "jobs", str, shards=1)
    await queue.push_many(["acked", "lost", "beside"])
    async with queue.consume(member_lease_s=600) as messages:
        acked, lost, beside = await take(messages, 3)
        claim = messages._owners[0].fence.claim
        await store.log.append(acked.acked())
        _ = lost.acked()
        for message in (acked, lost):
            await message.part_ended(None)
        again = await anext(messages)
        assert (again.body, again.attempt) == ("lost", 1)
        assert messages._owners[0].fence.claim > claim
        await beside.ack()
        await again.ack()
    assert (await queue.stats()).depth == 0


async def test_a_message_whose_ack_may_be_trimmed_does_not_come_again(another: Another) -> None:
    """Whoever drops a group trims what it did. The ACK that the owner looks for may be among that."""
    store = BokiStore(book_of(await another("other")))
    queue = await Queue.open(store.log, "jobs", str, shards=1)
    await queue.register("audit")
    await queue.push("acked")
    async with queue.consume(group="audit", member_lease_s=600) as messages:
        (acked,) = await take(messages, 1)
        owner = messages._owners[0]
        await store.log.append(acked.acked())
        messages._follower.discard(tags.queue_config("jobs"))  # this member hears late of the drop
        await (await another()).drop("audit")
        await acked.part_ended(None)
        with pytest.raises(NoSuchGroup):
            await anext(messages)
        assert not owner.owned


def test_all_goes_as_one_record_under_the_claim() -> None:
    box = Outbox()
    assert not box
    box.delivered.append(Delivered("s", Id(9, 0)))
    box.acks.append(Id(1, 0))
    box.nacks.append((Id(2, 0), 3, 77))
    push = Contribution(("p",), {}, (Pushed("d/0", ()),))
    box.letters.append(DeadLetter(Id(4, 0), Item(msgspec.Raw(b"\xc0")), push))
    assert box
    one = box.contribution("s", "c", {"own": 7})
    assert (one.tags, one.expect) == (("c", "p"), {"own": 7})
    assert one.events == (
        Delivered("s", Id(9, 0)),
        Acked("s", (Id(1, 0),)),
        Nacked("s", ((2, 0, 3, 77),)),
        Dead("s", (Id(4, 0),)),
        Pushed("d/0", ()),
    )


def test_large_letters_go_in_the_next_record() -> None:
    box = Outbox()
    body = msgspec.Raw(msgspec.msgpack.encode("x" * (DEAD_BYTES // 2)))
    for seqnum in range(3):
        box.letters.append(DeadLetter(Id(seqnum, 0), Item(body), None))
    rest = box.overflow()
    assert [letter.id.seqnum for letter in box.letters] == [0]
    assert [letter.id.seqnum for letter in rest.letters] == [1, 2]
    assert not Outbox().overflow()


async def test_a_large_letter_is_told_by_the_record_that_has_it(another: Another) -> None:
    """By the next one, or the one after: whatever made it a letter."""
    queue = await another(shards=1, dead_letter="jobs.dead", max_deliveries=1)
    for number in range(4):
        await queue.push([number, "x" * (DEAD_BYTES // 2)])
    async with queue.consume(member_lease_s=600) as messages:
        given = await take(messages, 4)
        await all_appended(messages)
        flights = messages._owners[0]._owned().flights
        sent = [given[0].give_up("bad"), given[1].nack(), given[2].give_up("bad"), given[3].nack()]
        left: list[int] = []
        for future in sent:
            future.add_done_callback(lambda _: left.append(len(flights)))
        await asyncio.gather(*sent)
        assert left == [3, 2, 1, 0]
    rows = await written(queue, tags.queue_consumer("jobs", 0, "default"))
    assert [len(event.ids) for row in rows for event in row if isinstance(event, Dead)] == [1, 1, 1, 1]


async def test_a_large_letter_of_an_owner_that_ends_is_told_so(another: Another) -> None:
    queue = await another(shards=1, dead_letter="jobs.dead")
    for number in range(2):
        await queue.push([number, "x" * (DEAD_BYTES // 2)])
    async with queue.consume(member_lease_s=600) as messages:
        given = await take(messages, 2)
        await all_appended(messages)
        owner = messages._owners[0]
        sent = [message.give_up("bad") for message in given]
        while len(owner._outbox.letters) > 1:
            await asyncio.sleep(0)
        owner.over()
        await sent[0]
        with pytest.raises(Fenced):
            await sent[1]
    rows = await written(queue, tags.queue_consumer("jobs", 0, "default"))
    assert [event.ids for row in rows for event in row if isinstance(event, Dead)] == [(given[0].receipt.id,)]


@asynccontextmanager
async def two_messages() -> AsyncIterator[Queue[object]]:
    """A queue of one shard with two messages, in virtual time: no lease runs out because the machine is slow."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        queue = await Queue.open((await cluster.connect()).book("shop"), "jobs", object, shards=1)
        await queue.push_many([1, 2])
        yield queue


@in_virtual_time
async def test_a_shard_is_given_back_when_the_last_lease_runs_out() -> None:
    async with two_messages() as queue:
        async with queue.consume(lease_s=60) as messages:
            taken = await take(messages, 2)  # their handlers hang
            (owner,) = messages._owners.values()
            await let_pass(60)
            async with asyncio.timeout(30):
                await owner.give_back()
            assert owner.released
        async with queue.consume() as messages:
            assert {message.body for message in await take(messages, 2)} == {message.body for message in taken}


@pytest.mark.parametrize("happened", [True, False])
@in_virtual_time
async def test_a_shard_is_given_back_when_the_record_of_an_ack_is_decided(happened: bool) -> None:
    """A message has no lease while its ACK is in flight in a record of another library."""
    async with two_messages() as queue, queue.consume(lease_s=60) as messages:
        message, _ = await take(messages, 2)
        (owner,) = messages._owners.values()
        part = message.acked()
        giving = asyncio.create_task(owner.give_back())
        await let_pass(90)
        assert not giving.done()
        if happened:
            await queue.log.append(part)
        await message.part_ended(happened)
        async with asyncio.timeout(30):
            await giving
        assert owner.released
