"""Inboxes that are full: the host reads no further there, programs hear of it, and nothing is lost or handled twice."""

from __future__ import annotations

import asyncio

import pytest

from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import in_virtual_time
from bokilib import Log
from bokilib.follow.members import Members
from bokilib.partitions.peers import Peers
from bokilib.records import tags
from bokirsm import App, Ask, Event, Host, IdReused, InboxFull, Machine, MachineFaulted, Ref, Register, Rsm, State
from bokirsm.lane.lane import Bounds
from bokirsm.model.partition_state import PartitionState, size_of
from libs.tests.rsm.conftest import NewHost, NewRsm
from libs.tests.rsm.model.test_partition_state import STORY, told
from libs.tests.rsm.two_hosts import hosts, take_over
from libs.tests.rsm.upkeep import checkpoint

BOUND = 64_000
SHARE = BOUND // tags.PARTITIONS


class Note(Event):
    number: int
    text: str = "x" * 500


class Bad(Event):
    pass


class Tell(Event):
    to: Ref[Note]
    number: int


class Story(Ask[list[int]]):
    pass


class Diary(Machine[Note | Bad | Tell | Story]):
    notes: Register[list[int]] = Register([])
    run = State(start=True)

    @run.on(Note)
    def write(self, e: Note) -> None:
        self.notes.append(e.number)

    @run.on(Bad)
    def fail(self, e: Bad) -> None:
        raise ValueError("bad")

    @run.on(Tell)
    def tell(self, e: Tell) -> None:
        self.send(e.to, Note(e.number))

    @run.on(Story)
    def answer(self, e: Story) -> None:
        self.reply(e, self.notes)


DIARIES = App("diaries", [Diary])
NEAR: Ref[Note] = Ref("diaries", 9, "near")
ELSEWHERE: Ref[Note] = Ref("diaries", 10, "near")


async def until_refused(rsm: Rsm, machine: Ref[Note], number: int) -> tuple[int, InboxFull]:
    """Send events until the client has heard that their partition is full. Return the number of the next one, and the error."""
    while True:
        try:
            await rsm.send(machine, Note(number))
        except InboxFull as full:
            return number, full
        number += 1
        await asyncio.sleep(0)


async def until_full(host: Host) -> None:
    while not host.lane.full:
        await asyncio.sleep(0)


async def filled(host: Host, rsm: Rsm) -> tuple[Ref[Note | Bad | Tell | Story], int]:
    """Return a machine with a fault, for which more events wait than a bound, and their number."""
    broken = await rsm.create(Diary, key="broken", near=NEAR)
    await rsm.send(broken, Bad())
    with pytest.raises(MachineFaulted):
        await rsm.ask(Story().to(broken))
    count = 0
    while not host.lane.full:
        try:
            await rsm.send_many([(broken, Note(count + one)) for one in range(10)])
        except InboxFull:
            break
        count += 10
        await asyncio.sleep(0)
    await until_full(host)
    return broken, count


async def test_a_machine_with_a_fault_fills_its_partition_and_no_other(new_host: NewHost, new_rsm: NewRsm) -> None:
    async with await new_host(DIARIES, name="h", inbox_bytes=BOUND) as host, await new_rsm(DIARIES) as rsm:
        broken, count = await filled(host, rsm)
        assert host.lane.full == [9]
        count, full = await until_refused(rsm, broken, count)
        assert full.definite and full.retryable and full.facts == {"machine": str(broken), "host": host.name}
        with pytest.raises(InboxFull):
            await rsm.ask(Story().to(broken))
        with pytest.raises(InboxFull):
            await rsm.create(Diary, near=NEAR)
        assert host.lane._states[9].waiting < 2 * BOUND < 600 * (count + 100)
        other = await rsm.create(Diary, Note(1), near=ELSEWHERE)
        assert await rsm.ask(Story().to(other)) == [1]
        await rsm.skip(broken)
        while True:
            try:
                assert await rsm.ask(Story().to(broken)) == list(range(count))
                break
            except InboxFull:
                await asyncio.sleep(0)
        assert not host.lane.full


async def test_a_machine_that_exists_is_found_by_its_key_in_a_full_partition(
    new_host: NewHost, new_rsm: NewRsm
) -> None:
    async with await new_host(DIARIES, name="h", inbox_bytes=BOUND) as host, await new_rsm(DIARIES) as rsm:
        broken, count = await filled(host, rsm)
        late = await new_rsm(DIARIES)
        late._inboxes.begin = lambda: None  # type: ignore[method-assign]
        quiet = await late.create(Diary, key="quiet", near=NEAR)  # no host has handled that
        await late.__aexit__(None, None, None)
        await until_refused(rsm, broken, count)
        assert await rsm.create(Diary, key="broken", near=NEAR) == broken
        assert await rsm.create(Diary, key="quiet", near=NEAR) == quiet
        with pytest.raises(IdReused):
            await rsm.create(Diary, Note(1), key="broken", near=NEAR)
        with pytest.raises(InboxFull):
            await rsm.create(Diary, key="another", near=NEAR)
        with pytest.raises(InboxFull):
            rsm.creating(Diary, key="broken", near=NEAR)


async def test_what_comes_to_a_full_partition_is_read_once_there_is_room(new_host: NewHost, new_rsm: NewRsm) -> None:
    async with await new_host(DIARIES, name="h", inbox_bytes=BOUND) as host, await new_rsm(DIARIES) as rsm:
        broken, count = await filled(host, rsm)
        late = await new_rsm(DIARIES)
        late._inboxes.begin = lambda: None  # type: ignore[method-assign]
        for number in range(count, count + 200):
            await late.send(broken, Note(number))
        await host.lane.settled()
        await checkpoint(host, 9)
        waiting = host.lane._states[9].waiting
        assert waiting < 2 * BOUND and len(host.lane._states[9].pending) < count + 20, "they are in no memory"
        await rsm.skip(broken)
        assert await late.ask(Story().to(broken)) == list(range(count + 200))
        await late.__aexit__(None, None, None)


async def test_the_next_owner_of_a_full_partition_reads_what_the_first_did_not(
    new_host: NewHost, new_rsm: NewRsm
) -> None:
    async with await new_rsm(DIARIES) as rsm:
        async with await new_host(DIARIES, name="h", inbox_bytes=BOUND) as host:
            broken, count = await filled(host, rsm)
            late = await new_rsm(DIARIES)
            late._inboxes.begin = lambda: None  # type: ignore[method-assign]
            await late.send_many([(broken, Note(count + one)) for one in range(50)])
            await host.lane.settled()
            await checkpoint(host, 9)
        async with await new_host(DIARIES, name="i", inbox_bytes=BOUND) as host:
            assert host.lane.full == [9]
            await rsm.skip(broken)
            assert await late.ask(Story().to(broken)) == list(range(count + 50))
            await late.__aexit__(None, None, None)


@in_virtual_time
async def test_a_full_partition_is_read_to_where_another_joins() -> None:
    """A machine of the one that joins sent there before: its next events come behind those."""
    async with hosts(DIARIES, 2) as (_, (one, other)):
        one.lane._bounds = Bounds(inbox_bytes=BOUND)  # type: ignore[misc]
        moving = await one.create(Diary, key="moving", near=ELSEWHERE)
        await take_over(other, 10)
        broken, count = await filled(one, one.rsm)
        for number in range(count, count + 5):
            await one.send(moving, Tell(broken, number))
        assert await one.ask(Story().to(moving)) == []
        assert one.lane.full == [9]
        await take_over(one, 10)
        for number in range(count + 5, count + 10):
            await one.send(moving, Tell(broken, number))
        assert await one.ask(Story().to(moving)) == []
        await one.rsm.skip(broken)
        one.rsm._inboxes._hosts.clear()
        assert await one.ask(Story().to(broken)) == list(range(count + 10))


@in_virtual_time
async def test_a_host_that_is_silent_for_its_lease_refuses_nothing() -> None:
    async with MemoryCluster() as cluster:
        log = Log((await cluster.connect()).book("b"))
        members = Members(log, tags.rsm_group("diaries"), "h", lease_s=6.0, full=lambda: [9])
        async with Rsm(DIARIES, (await cluster.connect()).book("b")) as rsm:
            async with members:
                await rsm.send(ELSEWHERE, Note(0))
                await let_pass(2.5)
                with pytest.raises(InboxFull):
                    await rsm.send(NEAR, Note(1))
                await rsm.send(ELSEWHERE, Note(1))
            await let_pass(6.0)
            await rsm.send(NEAR, Note(1))


async def test_a_member_tells_at_once_what_has_changed(cluster: MemoryCluster) -> None:
    log = Log((await cluster.connect()).book("b"))
    full: list[int] = []
    peers = Peers(log, "g", "h", 3_600.0, full=lambda: full)
    async with peers, Rsm(App("g", [Diary]), log) as rsm:
        rsm._inboxes._group, rsm._inboxes._tag = "g", tags.member("g")  # type: ignore[misc]
        rsm._inboxes.begin()
        for expected in ([3, 5], [], [5]):
            full[:] = expected
            peers.tell()
            while sorted(one for said in rsm._inboxes._hosts.values() for one in said.partitions) != expected:
                await asyncio.sleep(0)
    peers.tell()
    assert not peers._members._telling, "it has left"


def test_a_partition_knows_how_much_waits_in_it() -> None:
    state = told(STORY, PartitionState("g", 3))
    restored = PartitionState.restored("g", 3, 12, state.checkpoint(12))
    assert state.waiting == restored.waiting == sum(size_of(message) for message in state.pending.values()) > 0
