"""Faults of machines while partitions move and answers of appends are late: each is decided, and says so to those who ask."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from boki.testing import MemoryCluster
from boki_common.errors import Conflict, Unreachable
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Log
from bokilib.records.contribution import Contribution
from bokilib.records.tags import rsm_replies
from bokirsm import App, Ask, Event, Host, Machine, MachineFaulted, Ref, Register, Rsm, State
from bokirsm.model.events import Faulted

FAIL = {"on": True}


@pytest.fixture(autouse=True)
def failing() -> None:
    FAIL["on"] = True


class Do(Event):
    text: str


class Story(Ask[list[str]]):
    pass


class Doer(Machine[Do | Story]):
    """A machine that fails at "bad", until a test mends it."""

    story: Register[list[str]] = Register([])
    run = State(start=True)

    @run.on(Do)
    def do(self, e: Do) -> None:
        if e.text == "bad" and FAIL["on"]:
            raise ValueError("bad")
        self.story.append(e.text)

    @run.on(Story)
    def tell(self, e: Story) -> None:
        self.reply(e, self.story)


class Open(Event):
    fails: bool = False


class Wait(Ask[int]):
    pass


class Gate(Machine[Open | Wait]):
    """A machine that answers all who wait at once."""

    waiting: Register[list[Wait]] = Register([])
    run = State(start=True)

    @run.on(Wait)
    def wait(self, e: Wait) -> None:
        self.waiting.append(e)

    @run.on(Open)
    def open(self, e: Open) -> None:
        assert not e.fails, "x" * 1_000_000
        for one in self.waiting:
            self.reply(one, 1)
        self.waiting = []


APP = App("doers", [Doer])
GATES = App("gates", [Gate])
MANY = 300
"""More processes than a record has tags."""


async def host_of(cluster: MemoryCluster, name: str, app: App = APP) -> Host:
    return Host(app, Log((await cluster.connect()).book("b")), name=name, stuck_after_s=None, lease_s=1.0)


async def rsm_of(cluster: MemoryCluster, app: App = APP) -> Rsm:
    return Rsm(app, (await cluster.connect()).book("b"))


async def until_faulted(rsm: Rsm, ref: Ref[Do | Story]) -> None:
    while True:
        try:
            await rsm.ask(Story().to(ref), timeout_s=1.0)
        except MachineFaulted:
            return
        except TimeoutError:
            pass


@in_virtual_time
async def test_a_resume_counts_that_is_read_before_the_answer_of_the_append() -> None:
    """The record of the fault is in the log, and read, while the answer of its append is late."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        rsm = await rsm_of(cluster)
        host = await host_of(cluster, "one")
        async with rsm, host:
            ref = await rsm.create(Doer, key="d")
            assert await rsm.ask(Story().to(ref)) == []
            append, late = host._log.append, asyncio.Event()

            async def slow(one: Contribution, *, seen: int = 0, settle: bool = False, **options: Any) -> int:
                seqnum = await append(one, seen=seen, settle=settle, **options)
                if any(isinstance(event, Faulted) for event in one.events):
                    await late.wait()
                return seqnum

            host._log.append = slow  # type: ignore[method-assign]
            await rsm.send(ref, Do("bad"))
            await let_pass(1.0)
            FAIL["on"] = False
            await rsm.resume(ref)
            await let_pass(1.0)
            late.set()
            assert await rsm.ask(Story().to(ref), timeout_s=60.0) == ["bad"]
            state = host.lane._states[ref.partition]
            assert not state.pending and not state.faults, "the memory is the state of the log"


@in_virtual_time
async def test_after_a_skipped_creation_the_next_host_drops_events() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        rsm = await rsm_of(cluster)
        async with rsm:
            async with await host_of(cluster, "one") as one:
                ref = await rsm.create(Doer, Do("bad"), key="d")
                await let_pass(1.0)
                await rsm.skip(ref)
                await let_pass(1.0)
                await one.lane.settled()
                assert not one.lane._states[ref.partition].faults
            async with await host_of(cluster, "two") as two:
                await rsm.send(ref, Do("good"))
                await let_pass(5.0)
                assert two.lane.dropped == 1


@in_virtual_time
async def test_a_machine_with_a_fault_says_so_after_it_moved() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster, await rsm_of(cluster) as rsm:
        async with await host_of(cluster, "one"):
            ref = await rsm.create(Doer, key="d")
            await rsm.send(ref, Do("bad"))
            await until_faulted(rsm, ref)
        asking = asyncio.create_task(rsm.ask(Story().to(ref), timeout_s=60.0))  # while no host runs
        await let_pass(1.0)
        async with await host_of(cluster, "two"):
            with pytest.raises(MachineFaulted):
                await asking


@pytest.mark.parametrize("released", [True, False])
@in_virtual_time
async def test_a_question_during_a_release_is_answered_by_the_owner(released: bool) -> None:
    """The machine has a fault, and the question comes while the release of its partition is in flight."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        rsm, host = await rsm_of(cluster), await host_of(cluster, "one")
        async with rsm, host:
            ref = await rsm.create(Doer, key="d")
            await rsm.send(ref, Do("bad"))
            await until_faulted(rsm, ref)
            release, begun, asked = host._owner.release, asyncio.Event(), asyncio.Event()

            async def slow(beside: Contribution, partitions: Collection[int] | None = None) -> int:
                begun.set()
                await asked.wait()
                if released:
                    return await release(beside, partitions)
                raise Unreachable("the test refused the release")

            host._owner.release = slow  # type: ignore[method-assign]
            giving = asyncio.create_task(host.lane.give([ref.partition], release=Contribution()))
            await begun.wait()
            asking = asyncio.create_task(rsm.ask(Story().to(ref), timeout_s=60.0))
            await let_pass(0.5)
            asked.set()
            host._owner.release = release  # type: ignore[method-assign]
            (given,) = await asyncio.gather(giving, return_exceptions=True)
            assert isinstance(given, bool) is released
            with pytest.raises(MachineFaulted):
                await asking
            assert host.failed is None


def waits_of_processes() -> list[Wait]:
    """Return questions, each of another process."""
    return [Wait(asker=f"{number:024x}/1") for number in range(MANY)]


@in_virtual_time
async def test_answers_to_too_many_processes_are_a_fault_of_their_machine_alone() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        rsm, host = await rsm_of(cluster, GATES), await host_of(cluster, "one", GATES)
        async with rsm, host:
            gate, other = await rsm.create(Gate, key="gate"), await rsm.create(Gate, key="other")
            await rsm.send_many([(gate, one) for one in waits_of_processes()])
            await rsm.send(gate, Open())
            with pytest.raises(MachineFaulted, match=r"CommitTooLarge.*at most 255, found 301"):
                while True:
                    await rsm.ask(Wait().to(gate), timeout_s=1.0)
            waiting = asyncio.create_task(rsm.ask(Wait().to(other)))
            await let_pass(1.0)
            await rsm.send(other, Open())
            assert await waiting == 1 and host.failed is None


@in_virtual_time
async def test_a_fault_answers_more_processes_than_a_record_has_tags() -> None:
    """The answers, and the text of the error, are bounded for each record: no host of the group stops."""
    async with MemoryCluster(clock=LoopClock()) as cluster, await rsm_of(cluster, GATES) as rsm:
        async with await host_of(cluster, "one", GATES) as one:
            gate = await rsm.create(Gate, key="gate")
            await rsm.send_many([(gate, Open(fails=True)), *((gate, wait) for wait in waits_of_processes())])
            with pytest.raises(MachineFaulted, match="xxx"):
                await rsm.ask(Wait().to(gate), timeout_s=60.0)
            await one.lane.settled()
            assert one.failed is None
        last = f"{MANY - 1:024x}"
        assert await rsm.log.book.read_prev(rsm_replies(last)) is not None
        async with await host_of(cluster, "two", GATES) as two:
            with pytest.raises(MachineFaulted, match="xxx"):
                await rsm.ask(Wait().to(gate), timeout_s=60.0)
            await two.lane.settled()
            assert two.failed is None


@in_virtual_time
async def test_only_a_fault_that_is_in_the_log_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """The record of the first fault is lost; the next attempts of the handler succeed."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        rsm, host = await rsm_of(cluster), await host_of(cluster, "one")
        async with rsm, host:
            ref = await rsm.create(Doer, key="d")
            assert await rsm.ask(Story().to(ref)) == []
            append = host._log.append

            async def losing(one: Contribution, *, seen: int = 0, settle: bool = False, **options: Any) -> int:
                if FAIL["on"] and any(isinstance(event, Faulted) for event in one.events):
                    FAIL["on"] = False
                    raise Conflict("another partition of the record has another owner")
                return await append(one, seen=seen, settle=settle, **options)

            host._log.append = losing  # type: ignore[method-assign]
            await rsm.send(ref, Do("bad"))
            assert await rsm.ask(Story().to(ref), timeout_s=60.0) == ["bad"] and not FAIL["on"]
            assert "handler failed repeatedly" not in capsys.readouterr().err
            FAIL["on"] = True
            host._log.append = append  # type: ignore[method-assign]
            await rsm.send(ref, Do("bad"))
            await until_faulted(rsm, ref)
            assert capsys.readouterr().err.count("handler failed repeatedly") == 1


@in_virtual_time
async def test_a_question_behind_a_skip_is_handled() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster, Host(APP, (await cluster.connect()).book("b")) as host:
        doer = await host.create(Doer, key="d")
        await host.send(doer, Do("bad"))
        with pytest.raises(MachineFaulted):
            await host.ask(Story().to(doer))
        lane = host.lane
        lane._paused = True  # the decision and the question come before the machine has its turn
        await host.rsm.skip(doer)
        asking = asyncio.create_task(host.ask(Story().to(doer)))
        while len(lane._machines[str(doer)].inbox) < 3:
            await asyncio.sleep(0)
        lane._paused = False
        lane._schedule()
        assert await asking == []
