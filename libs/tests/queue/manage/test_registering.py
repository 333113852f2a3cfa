"""Groups that are dropped and registered again, and queues that are deleted and made again: nothing of before is in them.

The former owner of a shard has the deduplication id "x" in its window. It may have missed all settings since, or be in the
middle of an append. A message that is pushed under "x" after the registration is the first of its id for the group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

import boki
from boki.testing import MemoryCluster
from boki_common.errors import Conflict
from bokilib import Carrier
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.testing import CRASHES, UNKNOWNS, FaultyBook, crash_everywhere
from bokiqueue import Consumer, Queue, carried, settings
from bokiqueue.errors import NoSuchGroup, NoSuchQueue
from bokiqueue.model.events import Checkpoint, consumer_id
from libs.tests.queue.conftest import DAY_MS, Another, SetClock, all_appended
from libs.tests.queue.consume.test_consumer import _die

GROUP = "audit"
MEMBER = "host-7"
"""The name of all members: each takes the shard at once."""


class FormerOwner(NamedTuple):
    """The last append of a former owner: a checkpoint with its window, which expects its claim. It may come at any time."""

    queue: Queue[object]
    append: Contribution
    start: int

    async def appends(self) -> bool:
        """Return whether the log took the append."""
        try:
            await self.queue.log.append(self.append)
        except Conflict:
            return False
        return True


async def opened(book: BookPort) -> Queue[object]:
    return await Queue.open(book, "jobs", object, shards=1)


async def handled(book: BookPort, group: str = GROUP) -> FormerOwner:
    """Return the owner that handled a message under "x", whose process stands still from now on."""
    queue = await opened(book)
    await queue.register(group)
    await queue.push("first", dedup_id="x")
    messages = queue.consume(group=group, who=MEMBER)
    await messages.__aenter__()
    await (await anext(messages)).ack()
    await all_appended(messages)
    owner, position = messages._owners[0], await book.now()
    event = Checkpoint(consumer_id("jobs", 0, group), position, 0, 1, owner.progress.encode())
    append = Contribution((tags.queue_consumer("jobs", 0, group),), dict(owner.fence.expect), (event,))
    await messages._follower.__aexit__(None, None, None)
    await _die(messages)
    return FormerOwner(queue, append, messages.found.config.groups[group])


async def next_of(queue: Queue[object], group: str = GROUP) -> object:
    """Return the next message of a group that a new member gets."""
    async with (
        queue.consume(group=group, who=MEMBER) as messages,
        asyncio.timeout(10),
        await anext(messages) as message,
    ):
        return message.body


async def last_handled(queue: Queue[object], group: str = GROUP) -> object:
    """Return the message that a group gets after a message under "x" and another one were pushed."""
    await queue.push("under x", dedup_id="x")
    await queue.push("behind it")
    return await next_of(queue, group)


async def test_an_owner_that_missed_a_drop_and_a_registration_keeps_nothing_of_before(another: Another) -> None:
    """Its settings come late. It has another claim by then, and gets what is the group's first of its id."""
    queue = await another(shards=1)
    await queue.register(GROUP)
    async with queue.consume(group=GROUP, who=MEMBER) as messages:
        await queue.push("first", dedup_id="x")
        await (await anext(messages)).ack()
        messages._follower.discard(tags.queue_config("jobs"))
        claim = messages._owners[0].claim
        await (await another()).drop(GROUP)
        await (await another()).register(GROUP)
        await queue.push("again", dedup_id="x")
        async with asyncio.timeout(10), await anext(messages) as message:
            assert message.body == "again"
        assert messages._owners[0].claim > claim
    await queue.push("copy", dedup_id="x")
    await queue.push("last")
    assert await next_of(await another()) == "last", "the new registration has a window of its own"


class AtOperation:
    """Does something at an operation of a book, counted from `begin` on."""

    def __init__(self, book: BookPort, at: int, does: Callable[[], Awaitable[None]]) -> None:
        self.book = FaultyBook(book, pause=self._pause)
        self._at = at
        self._does = does
        self._begun: int | None = None

    def begin(self) -> None:
        self._begun = len(self.book.operations)

    @property
    def operations(self) -> int:
        assert self._begun is not None
        return len(self.book.operations) - self._begun

    async def _pause(self, number: int) -> None:
        if self._begun is not None and number == self._begun + self._at:
            await self._does()


async def test_an_append_of_a_former_owner_at_any_operation_is_not_read_by_the_new_ones(cluster: MemoryCluster) -> None:
    """While its group is dropped and registered again. `seen`: whether the log took the append, at each operation."""
    seen: list[bool] = []
    operations = 1
    while len(seen) < operations:
        operations = await _dropped_and_registered(cluster, seen)
    assert seen == sorted(seen, reverse=True) and {True, False} <= set(seen)


async def _dropped_and_registered(cluster: MemoryCluster, seen: list[bool]) -> int:
    """Check one operation, and return how many there are."""
    name = f"b{len(seen)}"
    former = await handled((await cluster.connect()).book(name))

    async def append() -> None:
        seen.append(await former.appends())

    at = AtOperation((await cluster.connect()).book(name), len(seen), append)
    queue = await opened(at.book)
    at.begin()
    await queue.drop(GROUP)
    await queue.register(GROUP)
    operations = at.operations
    assert not await former.appends()
    assert await last_handled(queue) == "under x", f"the append was at operation {len(seen) - 1}"
    return operations


@pytest.mark.parametrize("kinds", [CRASHES, UNKNOWNS], ids=["crashes", "unknown outcomes"])
async def test_faults_at_any_operation_leave_a_group_as_it_was_or_new(kinds: Any) -> None:
    """The process that registers the group again may find it dropped, and nothing trimmed."""
    formers: list[FormerOwner] = []
    new: list[bool] = []

    async def before(book: boki.Book) -> None:
        formers.append(await handled(book))

    async def program(book: BookPort) -> None:
        queue = await opened(book)
        await queue.drop(GROUP)
        await queue.register(GROUP)

    async def recover(book: BookPort) -> None:
        await (await opened(book)).register(GROUP)

    async def check(book: boki.Book) -> None:
        former, queue = formers[-1], await opened(book)
        new.append((await settings.existing(queue.log, "jobs")).config.groups[GROUP] > former.start)
        assert await former.appends() == (not new[-1])
        assert await last_handled(queue) == ("under x" if new[-1] else "behind it")

    explored = await crash_everywhere(program, recover, check, kinds=kinds, before=before)
    assert explored.operations > 5 and explored.runs > 3
    assert new.count(True) > 3


async def test_owners_of_more_shards_than_a_record_has_streams_are_ended(another: Another) -> None:
    queue = await another(shards=600)
    await queue.register(GROUP)
    async with queue.consume(group=GROUP, who=MEMBER) as messages:
        await messages.has(600)
        expects = [owner.fence.expect for owner in messages._owners.values()]
        await _die(messages)
        await queue.drop(GROUP)
        await queue.register(GROUP)
        for expect in expects[::40]:
            with pytest.raises(Conflict):
                await queue.log.append(Contribution((), expect))
        for task in messages._tasks:
            task.cancel()


async def test_a_registration_that_is_too_late_ends_no_owner(cluster: MemoryCluster) -> None:
    """Another process registers the group, at any operation of a registration, and a member of it has the shard."""
    operations = at = 1
    while at < operations or at == 1:
        operations = await _registered_twice(cluster, at)
        at += 1
    assert at > 4


async def _registered_twice(cluster: MemoryCluster, place: int) -> int:
    """Check one operation, and return how many there are."""
    queue = await opened((await cluster.connect()).book(f"b{place}"))
    members: list[Consumer[object]] = []

    async def register() -> None:
        await queue.register(GROUP)
        members.append(await queue.consume(group=GROUP, who=MEMBER).__aenter__())
        await members[0].has(1)

    at = AtOperation((await cluster.connect()).book(f"b{place}"), place, register)
    late = await opened(at.book)
    at.begin()
    await late.register(GROUP)
    operations = at.operations
    found = await queue.log.book.read_prev(tags.queue_owner("jobs", 0, GROUP), consistency="linearizable")
    (owner,) = members[0]._owners.values()
    assert found is not None and (found.seqnum, owner.owned) == (owner.claim, True)
    await members[0].__aexit__(None, None, None)
    return operations


async def test_a_purge_keeps_the_window_of_a_group_that_was_registered_again(another: Another) -> None:
    queue = await another(shards=1)
    for _ in range(2):
        await queue.register(GROUP)
        async with queue.consume(group=GROUP, who=MEMBER) as messages:
            await queue.push("first", dedup_id="x")
            await (await anext(messages)).ack()
            await (await another()).purge(GROUP)
            while messages.found.config.groups[GROUP] == messages.found.config.registered[GROUP]:
                await asyncio.sleep(0)
        assert await last_handled(queue) == "behind it"
        await queue.drop(GROUP)


async def test_a_program_from_before_leaves_out_where_groups_were_registered(another: Another) -> None:
    """It keeps the settings that it knows; the group lives on, with what is not trimmed."""
    queue = await another(shards=1)
    await queue.register(GROUP)
    await queue.drop(GROUP)
    await queue.register(GROUP)
    found = await settings.existing(queue.log, "jobs")
    assert found.config.registered == {GROUP: found.config.groups[GROUP]}
    await settings.change_existing(queue.log, "jobs", lambda config: replace(config, registered={}))
    await queue.push("first", dedup_id="x")
    assert await next_of(queue) == "first"
    assert await last_handled(queue) == "behind it"


async def test_a_member_of_a_dropped_group_claims_in_vain(another: Another) -> None:
    """It does not know of the drop when it claims: the settings that it reads then are newer than the claim."""
    queue = await another(shards=1)
    await queue.register(GROUP)
    late = await another()
    await queue.drop(GROUP)
    async with late.consume(group=GROUP, who=MEMBER) as messages:
        messages._follower.discard(tags.queue_config("jobs"))
        with pytest.raises(NoSuchGroup):
            await messages.has(1)


# -- queues that are made again


@pytest.mark.parametrize("trimmed", [True, False])
async def test_an_owner_of_a_deleted_queue_is_none_of_the_queue_that_is_made_again(
    cluster: MemoryCluster, trimmed: bool
) -> None:
    """`trimmed`: whether the process that deleted it trimmed its streams."""
    former = await handled((await cluster.connect()).book("shop"), "default")
    queue = await opened((await cluster.connect()).book("shop"))
    if trimmed:
        await queue.delete()
    else:
        await settings.delete(queue.log, "jobs")
    assert not await former.appends()
    with pytest.raises(NoSuchQueue):
        await queue.stats()
    await queue.push("for the next one", dedup_id="x")
    made = await opened((await cluster.connect()).book("shop"))
    assert await next_of(made, "default") == "for the next one"
    assert await last_handled(made, "default") == "behind it"


async def test_a_queue_is_made_again_after_a_carrier_trimmed_its_deletion(another: Another, clock: SetClock) -> None:
    queue = await another(shards=1)
    await queue.push("old")
    assert await next_of(queue, "default") == "old"
    await queue.delete()
    await queue.push("for the next one")
    clock.ms += DAY_MS
    for _ in range(2):
        await Carrier(queue.log, [carried(queue.log)], who="host-7").round()
    rows = [item async for item in queue.log.book.read(start=1) if isinstance(item, boki.Record)]
    assert [tag for row in rows for tag in row.tags if str(tag).startswith("queue/own")] == []
    made = await another(shards=1)
    assert [await next_of(made, "default")] == ["for the next one"]


async def test_a_queue_of_dead_letters_that_was_deleted_is_made_again(another: Another) -> None:
    queue = await another(shards=1, dead_letter="jobs.dead", max_deliveries=1)
    letters = await another("jobs.dead")
    for body in ("first", "second"):
        await queue.push(body)
        async with queue.consume() as messages:
            await (await anext(messages)).nack()
            await all_appended(messages)
        assert await next_of(letters, "default") == body
        await letters.delete()
        queue = await another()
        letters = await another("jobs.dead")
