"""A dead letter goes back to the group that gave it up, and to no other, whatever happens to the groups of its queue meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import InvalidArgument
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib import Atomic, Log
from bokilib.ports import BookPort
from bokilib.records.events import open_record
from bokilib.testing import Died, FaultyBook, crash_everywhere
from bokiqueue import Queue
from bokiqueue import queue as queue_module
from bokiqueue.checkpoint import checkpointing
from bokiqueue.model.events import PICKER, Dead, Item, Old, Pushed, PushedToGroup, Source
from bokiqueue.model.items import GROUP, item_of
from bokiqueue.push.producer import Producer
from libs.tests.queue.conftest import DAY_MS, Another, book_of, queues_of, round_of


def in_a_book(test: Callable[[Another], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in virtual time, with what opens queues of one book as processes of their own do."""

    async def run() -> None:
        async with MemoryCluster(clock=LoopClock()) as cluster:
            await test(queues_of(cluster))

    run.__name__ = test.__name__
    return in_virtual_time(run)


NEW_KINDS = ("queue.push.group", "queue.old.group")


async def given_up(queue: Queue[object], group: str, count: int) -> None:
    """Give up messages in one group."""
    async with queue.consume(group=group, who=f"{group}-gives-up") as messages:
        for _ in range(count):  # one after the other: of a key only one is in flight
            await (await anext(messages)).give_up("broken")


async def handled(queue: Queue[object], group: str, count: int) -> list[object]:
    """Handle messages in one group, and return their bodies."""
    async with queue.consume(group=group, who=f"{group}-handles") as messages:
        found = []
        for _ in range(count):
            async with await anext(messages) as message:
                found.append(message.body)
    return found


async def depths(queue: Queue[object]) -> dict[str, int]:
    """The number of unfinished messages of each group."""
    await queue._newest()
    return {group: (await queue.stats(group)).depth for group in queue.groups}


async def letters_of_audit(
    another: Another, *bodies: object, key: str | None = None
) -> tuple[Queue[object], Queue[object]]:
    """Return a queue whose messages one of two groups handled and the other gave up, and its queue of letters."""
    queue = await another(shards=2, dead_letter="jobs.dead", max_deliveries=1)
    await queue.register("audit")
    for body in bodies:
        await queue.push(body, key=key)
    await handled(queue, GROUP, len(bodies))
    await given_up(queue, "audit", len(bodies))
    return queue, await another("jobs.dead")


async def old_letter(dead: Queue[object], body: object, queue: str = "jobs") -> None:
    """Push a letter as an older version did, which did not note the group."""
    found = await dead._newest()
    producer = Producer(dead.log, found.config, boki.SystemRandom(), found.seqnum)
    await producer.push([Item(item_of(body).body, source=Source(queue, 0, 1, int(str(body)), 1, "broken"))])


@in_a_book
async def test_a_letter_goes_back_to_the_group_that_gave_it_up_alone(another: Another) -> None:
    queue, dead = await letters_of_audit(another, 1, 2, 3, key="k")
    assert {letter.source.group for letter in await dead.peek() if letter.source} == {"audit"}
    moved = await dead.redrive()
    assert (moved, moved.left, moved.without_group) == (3, {}, {})
    assert await depths(queue) == {GROUP: 0, "audit": 3}
    assert (await queue.peek(), len(await queue.peek(group="audit"))) == ([], 3)
    await queue.push(4, key="k")
    assert await handled(queue, GROUP, 1) == [4]
    assert await handled(queue, "audit", 4) == [1, 2, 3, 4], "messages of a key keep their order"


@in_a_book
async def test_a_message_that_both_groups_gave_up_goes_back_once_to_each(another: Another) -> None:
    queue = await another(shards=1, dead_letter="jobs.dead")
    await queue.register("audit")
    await queue.push("job")
    for group in (GROUP, "audit"):
        await given_up(queue, group, 1)
    assert await (await another("jobs.dead")).redrive() == 2
    assert await depths(queue) == {GROUP: 1, "audit": 1}


@in_a_book
async def test_the_letter_of_an_only_group_goes_back_in_the_form_that_all_versions_know(another: Another) -> None:
    queue = await another(shards=1, dead_letter="jobs.dead")
    await queue.push("job")
    await given_up(queue, GROUP, 1)
    assert await (await another("jobs.dead")).redrive() == 1
    kinds = [
        type(event)
        async for record in book_of(queue).read()
        if isinstance(record, boki.Record)
        for event in PICKER.of(record.seqnum, open_record(record.seqnum, record.data))
    ]
    assert Pushed in kinds and PushedToGroup not in kinds
    assert await handled(queue, GROUP, 1) == ["job"]


@in_a_book
async def test_letters_of_a_group_that_was_dropped_are_left_and_counted(another: Another) -> None:
    queue, dead = await letters_of_audit(another, 1, 2)
    await queue.drop("audit")
    moved = await dead.redrive()
    assert (moved, moved.left, moved.without_group) == (0, {}, {"jobs": 2})
    assert repr(moved) == "Redriven(0, left={}, without_group={'jobs': 2})"
    assert await depths(queue) == {GROUP: 0}
    await queue.register("checks")
    assert (await dead.redrive(group="no such group")).without_group == {"jobs": 2}
    assert await dead.redrive(1, group="checks") == 1
    assert await depths(queue) == {GROUP: 0, "checks": 1}
    assert await dead.redrive(all_groups=True) == 1
    assert await depths(queue) == {GROUP: 1, "checks": 2}


@in_a_book
async def test_letters_of_older_versions_go_to_an_only_group_and_else_are_left(another: Another) -> None:
    queue = await another(shards=1, dead_letter="jobs.dead")
    dead = await another("jobs.dead")
    await old_letter(dead, 1)
    assert await dead.redrive() == 1
    assert await handled(queue, GROUP, 1) == [1]
    await queue.register("audit")
    await old_letter(dead, 2)
    await old_letter(dead, 3)
    moved = await dead.redrive()
    assert (moved, moved.without_group) == (0, {"jobs": 2})
    assert await dead.redrive(1, group="audit") == 1
    assert await depths(queue) == {GROUP: 0, "audit": 1}
    assert await dead.redrive(all_groups=True) == 1
    assert await depths(queue) == {GROUP: 1, "audit": 2}


@in_a_book
async def test_letters_of_a_queue_without_groups_are_left(another: Another) -> None:
    queue, dead = await letters_of_audit(another, 1)
    await old_letter(dead, 2)
    await queue.drop("audit")
    await queue.drop(GROUP)
    assert (await dead.redrive(all_groups=True)).without_group == {"jobs": 2}
    assert (await dead.stats()).depth == 2


@in_a_book
async def test_the_receivers_of_letters_are_one_group_or_all(another: Another) -> None:
    dead = await another("jobs.dead")
    for group in ("audit", ""):
        with pytest.raises(InvalidArgument):
            await dead.redrive(group=group, all_groups=bool(group))


def _meanwhile(patched: pytest.MonkeyPatch, change: Callable[[], Awaitable[None]]) -> None:
    """Make a change of the settings between the decision about the first letter and its record."""
    begun: list[bool] = []

    class Late(Atomic):
        async def commit(self) -> int:
            if not begun:
                begun.append(True)
                await change()
            return await super().commit()

    patched.setattr(queue_module, "Atomic", Late)


@in_a_book
async def test_a_group_that_registers_meanwhile_gets_no_letter_of_another(another: Another) -> None:
    queue = await another(shards=1, dead_letter="jobs.dead")
    await queue.push("job")
    await given_up(queue, GROUP, 1)
    with pytest.MonkeyPatch.context() as patched:
        _meanwhile(patched, lambda: queue.register("audit"))
        assert await (await another("jobs.dead")).redrive() == 1
    assert await depths(queue) == {GROUP: 1, "audit": 0}


@in_a_book
async def test_a_letter_of_a_group_that_is_dropped_meanwhile_is_left(another: Another) -> None:
    queue, dead = await letters_of_audit(another, 1)
    with pytest.MonkeyPatch.context() as patched:
        _meanwhile(patched, lambda: queue.drop("audit"))
        moved = await dead.redrive()
    assert (moved, moved.without_group) == (0, {"jobs": 1})
    (letter,) = await dead.peek()
    assert letter.attempts == 0, "no attempt of it failed"


@in_a_book
async def test_a_letter_of_a_queue_that_is_made_again_meanwhile_goes_to_its_shards(another: Another) -> None:
    queue = await another(shards=8, dead_letter="jobs.dead")
    for number in range(8):
        await queue.push(number)
    await given_up(queue, GROUP, 8)

    async def make_again() -> None:
        await queue.delete()
        await another(shards=1, dead_letter="jobs.dead")

    with pytest.MonkeyPatch.context() as patched:
        _meanwhile(patched, make_again)
        assert await (await another("jobs.dead")).redrive() == 8
    assert (await (await another()).stats()).depth == 8


@in_a_book
async def test_a_version_that_delivers_to_all_keeps_the_letter_for_one_that_does_not(another: Another) -> None:
    queue, dead = await letters_of_audit(another, 1)
    assert await dead.redrive() == 1
    await queue.push(2)
    await queue.push(2)
    with pytest.MonkeyPatch.context() as older:
        for kind in NEW_KINDS:
            older.delitem(PICKER._decoders, kind)
        assert await handled(await another(), GROUP, 2) == [2, 2]
        assert await handled(await another(), "audit", 2) == [2, 2]
        assert (await (await another()).stats("audit")).unopened == 1
    assert await depths(queue) == {GROUP: 0, "audit": 1}
    assert await handled(await another(), "audit", 1) == [1]


@in_a_book
async def test_letters_of_a_group_are_rewritten_for_that_group_alone(another: Another) -> None:
    queue, dead = await letters_of_audit(another, 1, 2, key="k")
    assert await dead.redrive() == 2
    await queue.push("for both", key="k")
    for _ in range(3):
        await let_pass(DAY_MS / 1_000)
        await round_of(queue)
    assert await depths(queue) == {GROUP: 1, "audit": 3}
    with pytest.MonkeyPatch.context() as older:
        for kind in NEW_KINDS:
            older.delitem(PICKER._decoders, kind)
        with pytest.raises(boki.BokiError, match="upgrade it"):
            await (await another()).stats()
    assert await handled(await another(), GROUP, 1) == ["for both"]
    assert await handled(await another(), "audit", 3) == [1, 2, "for both"]


@in_a_book
async def test_rewritten_messages_have_their_old_form_once_none_is_for_one_group(another: Another) -> None:
    queue, dead = await letters_of_audit(another, 1)
    assert await dead.redrive() == 1
    await queue.push("for both")
    await queue.push("for both")
    await let_pass(DAY_MS / 1_000)
    await round_of(queue)
    await queue.drop("audit")
    await let_pass(DAY_MS / 1_000)
    await round_of(queue)
    found = [
        type(event)
        async for record in book_of(queue).read()
        if isinstance(record, boki.Record)
        for event in PICKER.of(record.seqnum, open_record(record.seqnum, record.data))
        if isinstance(event, Old)
    ]
    assert found and set(found) == {Old}
    assert await handled(await another(), GROUP, 2) == ["for both"] * 2


@in_a_book
async def test_the_other_group_does_not_keep_the_storage_of_a_letter(another: Another) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(checkpointing, "RECORDS_BETWEEN", 1)
        queue, dead = await letters_of_audit(another, 1)
        assert await dead.redrive() == 1
        assert await handled(queue, "audit", 1) == [1]
        await queue.push_many(["a", "b"])
        for group in (GROUP, "audit"):
            assert await handled(await another(), group, 2) == ["a", "b"]
    assert await depths(queue) == {GROUP: 0, "audit": 0}


@in_a_book
async def test_a_letter_that_another_group_of_letters_gives_up_goes_back_to_it(another: Another) -> None:
    first = await another("first", shards=1, dead_letter="second")
    second = await another("second")
    await second.change(dead_letter="third")
    await second.register("watch")
    await first.push("job")
    await given_up(first, GROUP, 1)
    for group in (GROUP, "watch"):
        await given_up(second, group, 1)
    assert await (await another("third")).redrive() == 2
    assert await depths(first) == {GROUP: 1}
    assert await depths(second) == {GROUP: 0, "watch": 1}


@in_virtual_time
async def test_a_redrive_that_dies_at_any_operation_moves_each_letter_once_to_its_group() -> None:
    def one(book: BookPort) -> Another:
        async def make(name: str = "jobs", **given: Any) -> Queue[object]:
            return await Queue.open(Log(book), name, object, **given)

        return make

    async def before(book: boki.Book) -> None:
        await letters_of_audit(one(book), 1)

    async def redrive(book: BookPort) -> None:
        dead = await one(book)("jobs.dead")
        await _until_death(book, _redriven(dead))

    async def check(book: boki.Book) -> None:
        queue = await one(book)()
        assert await depths(queue) == {GROUP: 0, "audit": 1}
        dead: list[object] = []
        async for record in book.read():
            if isinstance(record, boki.Record):
                events = PICKER.of(record.seqnum, open_record(record.seqnum, record.data))
                dead += [event for event in events if isinstance(event, PushedToGroup)]
                assert not any(isinstance(event, Dead) and event.id.startswith("jobs.dead/") for event in events)
        assert len(dead) == 1

    await crash_everywhere(redrive, redrive, check, before=before, clock=LoopClock())


async def _redriven(dead: Queue[object]) -> None:
    """Redrive until nothing is left. The lease of a member that died ends at once."""
    while (await dead.stats()).depth:
        await dead.redrive(quiet_s=20)


async def _until_death(book: BookPort, program: Coroutine[Any, Any, None]) -> None:
    """Run a program until it ends or its process is dead."""
    assert isinstance(book, FaultyBook)
    task, death = asyncio.create_task(program), asyncio.create_task(book.death())
    await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)
    for one in (death, *([task] if book.dead else [])):
        one.cancel()
        await asyncio.gather(one, return_exceptions=True)
    if book.dead:
        raise Died
    await task


@in_a_book
async def test_exactly_once_in_each_group_of_handlers(another: Another) -> None:
    queue, dead = await letters_of_audit(another, *range(5))
    assert await dead.redrive() == 5
    assert sorted(map(str, await handled(queue, "audit", 5))) == list(map(str, range(5)))
    assert await depths(queue) == {GROUP: 0, "audit": 0}
