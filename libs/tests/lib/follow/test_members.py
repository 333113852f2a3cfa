"""Members that are alive, silent, or leaving."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import Unreachable
from bokilib.append.log import Log
from bokilib.follow.members import NAMES_BYTES, PICKER, Members
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event
from bokilib.testing import FaultyBook
from libs.tests.lib.conftest import until


async def test_members_see_each_other_and_old_heartbeats_are_trimmed(cluster: MemoryCluster) -> None:
    book = (await cluster.connect()).book("b")
    other = (await cluster.connect()).book("b")
    async with Members(Log(book), "g", "a") as a, Members(Log(other), "g", "b") as b:
        await a.beat()
        await until(lambda: a.alive() == b.alive() == ["a", "b"])
        assert a.may_act() and not a.dead("b")
        for _ in range(5):
            await a.beat()
        newest = await b.beat()
        await until(lambda: a._newest["b"] == newest)
        await a._trim()
        left = [item async for item in book.read(tags.member("g"))]
        assert len(left) == 2, "of each the newest"


async def test_the_heartbeat_of_a_member_not_heard_yet_is_kept_for_its_lease(cluster: MemoryCluster) -> None:
    """A third member learns the long lease from it."""
    book = (await cluster.connect()).book("b")
    long = Members(Log(book), "g", "long", lease_s=1e6)
    kept = await long.beat()
    async with Members(Log((await cluster.connect()).book("b")), "g", "short", lease_s=3.0) as short:
        newest = await short.beat()
        await until(lambda: short._newest.get("short", 0) >= newest)
        await short._trim()
        found = [item.seqnum async for item in book.read(tags.member("g")) if not isinstance(item, boki.Gap)]
        assert found[0] == kept


async def test_heartbeats_name_what_a_member_can_do_now_within_a_bound(cluster: MemoryCluster) -> None:
    log = Log((await cluster.connect()).book("b"))
    names: list[str] = []
    member, silent = Members(log, "g", "a", names=lambda: names), Members(log, "g", "b")

    async def named(one: Members) -> tuple[str, ...] | None:
        record = await log.book.read_prev(tags.member("g"), at_most=await one.beat())
        assert record is not None
        (event,) = PICKER.of(record.seqnum, await log.open(record))
        return event.names

    assert await named(member) == () and await named(silent) is None
    names += ["pay", "pack"]
    assert await named(member) == ("pack", "pay")
    names[:] = ["ü" * (NAMES_BYTES // 2)]
    assert await named(member) == tuple(names)
    names += ["x"]
    assert await named(member) is None


async def test_members_of_another_group_are_not_seen(cluster: MemoryCluster) -> None:
    log = Log((await cluster.connect()).book("b"))
    async with Members(log, "g", "a") as a, Members(log, "h", "b") as b:
        await until(lambda: a.alive() == ["a"] and b.alive() == ["b"])


async def test_a_record_of_a_later_version_among_heartbeats_is_skipped(cluster: MemoryCluster) -> None:
    class Later(Event, tag="lib.later", frozen=True):
        id: str = ""

    book = (await cluster.connect()).book("b")
    other = Log((await cluster.connect()).book("b"))
    async with Members(Log(book), "g", "a") as a:
        await other.append(Contribution((tags.member("g"),), {}, (Later(),)))
        async with Members(other, "g", "b"):
            await until(lambda: a.alive() == ["a", "b"])


async def test_who_is_silent_for_a_lease_is_dead_and_stops_by_itself(cluster: MemoryCluster) -> None:
    """With a lease of 0 s, a member without a heartbeat at this moment is dead."""
    book: boki.Book = (await cluster.connect()).book("b")
    members = Members(Log(book), "g", "a", lease_s=0.0)
    assert not members.may_act() and members.alive() == [] and not members.dead("b")
    async with members:
        await members.beat()
        await until(lambda: members.dead("b"))
        await until(lambda: not members.may_act())


async def test_a_member_with_a_shorter_lease_takes_no_other_for_dead(cluster: MemoryCluster) -> None:
    """The observer starts behind the other member's heartbeat, and its own lease of 0 s would make the other one dead at once."""
    book = (await cluster.connect()).book("b")
    async with Members(Log(book), "g", "long", lease_s=1e6) as long:
        await long.beat()
        async with Members(Log((await cluster.connect()).book("b")), "g", "short", lease_s=0.0) as short:
            await until(lambda: "long" in short._leases and short.dead("stranger"))
            assert not short.dead("long")
            await long.beat()
            await until(lambda: short.alive() == ["long"])


async def test_a_lease_counts_from_when_the_heartbeat_was_sent(cluster: MemoryCluster) -> None:
    """An answer took longer than a lease: others may have taken the member for dead before it arrived."""
    loop = asyncio.get_running_loop()

    async def slowly(number: int) -> None:
        end = loop.time() + 0.02
        while loop.time() < end:
            await asyncio.sleep(0)

    members = Members(Log(FaultyBook((await cluster.connect()).book("b"), pause=slowly)), "g", "a", lease_s=0.01)
    await members.beat()
    assert not members.may_act()


async def test_a_client_that_is_closed_under_a_member_leaves_no_unretrieved_exception(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    unretrieved: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unretrieved.append(context))

    async def begin_and_close() -> None:
        client = await cluster.connect()
        members = await Members(Log(client.book("b")), "g", "a").__aenter__()
        await until(lambda: members.alive() == ["a"])
        await client.close()
        await until(lambda: members._tasks[0].done())
        members._tasks.pop().cancel()
        await asyncio.sleep(0)

    await begin_and_close()
    gc.collect()
    assert not unretrieved and "member stopped" in capsys.readouterr().err


class BreaksOnce(FaultyBook):
    """A book whose first cursor ends with a retryable error."""

    broke = False

    def read(self, *arguments: Any, **options: Any) -> Any:
        if self.broke:
            return super().read(*arguments, **options)
        self.broke = True
        return self._broken()

    @staticmethod
    async def _broken() -> AsyncIterator[boki.Record]:
        raise Unreachable("no engine could be reached")
        yield


async def test_a_member_whose_cursor_broke_listens_again_and_takes_nobody_for_dead(cluster: MemoryCluster) -> None:
    book = BreaksOnce((await cluster.connect()).book("b"))
    other = Log((await cluster.connect()).book("b"))
    both = asyncio.Event()

    def changed() -> None:
        if a.alive() == ["a", "b"]:
            both.set()

    a = Members(Log(book), "g", "a", changed=changed)
    async with a, Members(other, "g", "b"), asyncio.timeout(30):
        await both.wait()
        assert book.broke and not a.dead("b")


async def test_namesakes_are_alive_while_heartbeats_of_their_processes_are_read(cluster: MemoryCluster) -> None:
    one, two = [Log((await cluster.connect()).book("b")) for _ in range(2)]
    async with Members(one, "g", "a", lease_s=0.0) as first:
        await until(lambda: first.namesake_dead(two.by))
    async with Members(one, "g", "a", lease_s=600.0) as first, Members(two, "g", "a", lease_s=600.0) as second:
        await until(lambda: two.by in namesakes_of(first) and one.by in namesakes_of(second))
        assert one.by not in namesakes_of(first) and first.alive() == second.alive() == ["a"]
        assert not first.namesake_dead(two.by) and first.silent_in() is not None


def namesakes_of(member: Members) -> list[str]:
    assert member._namesakes is not None
    return member._namesakes.alive(asyncio.get_running_loop().time())


async def test_a_member_that_cannot_hear_heartbeats_stops_its_own(cluster: MemoryCluster) -> None:
    """It would take each other member for dead, and its work from it, while all others take it for alive."""
    told: list[Exception | None] = []

    class Unreadable(Log):
        async def open(self, record: boki.Record) -> Any:
            raise ZeroDivisionError("a mistake")

    log = Unreadable((await cluster.connect()).book("b"))
    async with Members(log, "g", "a", lease_s=0.1, changed=lambda: told.append(member.failed)) as member:
        await until(lambda: member.failed is not None)
        assert isinstance(member.failed, ZeroDivisionError) and told[-1] is member.failed
        assert all(task.done() or task.cancelling() for task in member._tasks)


async def test_a_member_that_stopped_sends_nothing_if_its_leaving_is_cut_off(cluster: MemoryCluster) -> None:
    book = (await cluster.connect()).book("b")
    member = Members(Log(book), "g", "a", lease_s=0.003)
    await member.__aenter__()
    await until(member.may_act)
    member.stop()
    leaving = asyncio.create_task(member.__aexit__(None, None, None))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    await until(lambda: all(task.done() for task in member._tasks))


async def test_a_member_whose_error_cannot_be_shown_is_known_to_have_failed(
    cluster: MemoryCluster,
) -> None:
    """The error comes from user code, as a payload hook; the log line raised it instead of its member's end."""

    class Unshowable(Exception):
        def __repr__(self) -> str:
            raise RuntimeError("not shown")

    changed: list[bool] = []
    member = Members(Log((await cluster.connect()).book("b")), "g", "a", changed=lambda: changed.append(True))
    async with member:
        changed.clear()
        member.fail(Unshowable())
        assert changed and isinstance(member.failed, Unshowable)
