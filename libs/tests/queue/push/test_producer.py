"""Pushes as parts of records."""

from __future__ import annotations

from bokilib import Atomic
from bokilib.records import tags
from bokiqueue.model.events import Pushed
from bokiqueue.model.items import item_of
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
