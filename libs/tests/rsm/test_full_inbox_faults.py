"""Inboxes that are full all the time: whatever dies, and whatever a machine defers, each machine does the same as without faults.

A box defers what it is to keep until another machine opens it, and each of its events is more than the bound. So the event that opens it is
never among those that its host keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.follow.members import Members
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.testing import UNANSWERED, UNKNOWNS, crash_everywhere, start_anywhere, while_alive
from bokirsm import App, Ask, Event, Host, Machine, Ref, Register, Rsm, State
from bokirsm.client.full_inboxes import FullInboxes
from bokirsm.lane import carrying, lane
from bokirsm.model.partition_state import PartitionState
from libs.tests.rsm.test_faults import surely, without_lease
from libs.tests.rsm.traces import ARCHIVE, archive_trims, traces_of
from libs.tests.rsm.two_hosts import hosts, take_over

pytestmark = pytest.mark.timeout(600)  # hundreds of runs each


class Open(Event):
    pass


class Put(Event):
    text: str
    pad: bytes = b""


class Go(Event):
    box: Ref[Open | Put]
    texts: list[str]


class Seen(Ask[list[str]]):
    pass


class Box(Machine[Open | Put | Seen]):
    """A box that defers what it is to keep until it is opened, and is shut by each text that ends with a point."""

    seen: Register[list[str]] = Register([])
    shut, opened = State(start=True, defer=(Put, Seen)), State(ignore=(Open,))

    @shut.on(Open)
    def begin(self, e: Open) -> None:
        self.jump(self.opened)

    @opened.on(Put)
    def put(self, e: Put) -> None:
        self.seen.append(e.text)
        if e.text.endswith("."):
            self.jump(self.shut)

    @opened.on(Seen)
    def tell(self, e: Seen) -> None:
        self.reply(e, self.seen)


class Porter(Machine[Go]):
    """A machine that puts something into a box, and opens it."""

    run = State(start=True)

    @run.on(Go)
    def go(self, e: Go) -> None:
        for text in e.texts:
            self.send(e.box, Put(text))
        self.send(e.box, Open())


BOXES = App("boxes", [Box, Porter])
BOX, PORTER = Ref[Open | Put]("boxes", 9, "near"), Ref[Go]("boxes", 10, "near")
ALL = ["a", "b.", "c", "d.", "e", "f"]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have hosts keep one event that waits, make a checkpoint after each second record, and keep no machine in memory."""
    defaults = Host.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "inbox_bytes", 1)
    monkeypatch.setitem(defaults, "memory_bytes", 0)
    monkeypatch.setattr(lane, "RECORDS_BETWEEN", 2)
    monkeypatch.setattr(carrying, "REPLIES", "none")
    archive_trims(monkeypatch)
    yield
    ARCHIVE.clear()


async def fill(book: boki.Book) -> None:
    """Send all before a host runs."""
    ARCHIVE.clear()
    async with Rsm(BOXES, book) as rsm:
        box = await rsm.create(Box, key="box", near=BOX)
        porter = await rsm.create(Porter, key="porter", near=PORTER)
        for text in ALL[:4]:
            await rsm.send(box, Put(text))
        await rsm.send(porter, Go(box, []))
        await rsm.send(porter, Go(box, ["e"]))
        await rsm.send(porter, Go(box, ["f"]))


async def empty(book: BookPort, name: str, lease_s: float) -> None:
    async with Host(BOXES, book, name=name, lease_s=lease_s, stuck_after_s=None) as host:
        box = Ref[Seen]("boxes", 9, "box")
        while await surely(partial(host.ask, Seen().to(box), timeout_s=3_600)) != ALL:
            await let_pass(0.02)


async def program(book: BookPort) -> None:
    await while_alive(book, empty(book, "host", 1.0))


async def another(book: BookPort) -> None:
    await while_alive(book, empty(book, "other", 0.05))


async def check(book: boki.Book) -> None:
    traces = await traces_of(book)
    assert traces["boxes/10/porter"] == ["", "Go", "Go", "Go"]
    box = [one for one in traces["boxes/9/box"] if one != "Seen"]
    assert box.count("Put") == len(ALL) and box.count("Open") == 3


@in_virtual_time
async def test_crashes_at_every_operation_change_no_trace(tiny: None) -> None:
    explored = await crash_everywhere(program, program, check, clock=LoopClock(), before=fill)
    assert explored.runs > 20


@in_virtual_time
async def test_lost_answers_and_late_appends_change_no_trace(tiny: None) -> None:
    await crash_everywhere(program, program, check, kinds=UNKNOWNS, clock=LoopClock(), before=fill)
    await crash_everywhere(program, another, check, kinds=UNANSWERED, later=(2,), clock=LoopClock(), before=fill)


@in_virtual_time
async def test_a_second_host_at_any_operation_changes_no_trace(tiny: None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Members, "_heartbeat", without_lease)
        explored = await start_anywhere(program, another, check, clock=LoopClock(), before=fill)
    assert explored.runs > 10


SIZE, COUNT = 64 * 1024, 512
"""32 MiB wait."""
BOUND = 2**20


class Most:
    """The most bytes of events that hosts keep."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        self._states: dict[int, PartitionState] = {}
        keep = PartitionState.keep

        def kept(state: PartitionState, *message: object) -> None:
            keep(state, *message)  # type: ignore[arg-type]
            self._states[id(state)] = state
            self.bytes = max(self.bytes, sum(one.waiting for one in self._states.values()))

        patch.setattr(PartitionState, "keep", kept)


@in_virtual_time
async def test_a_takeover_keeps_no_more_than_the_bound_of_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FullInboxes, "check", lambda *_: None)
    defaults = Host.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "inbox_bytes", BOUND)
    async with MemoryCluster(clock=LoopClock()) as cluster:
        rsm = Rsm(BOXES, (await cluster.connect()).book("b"))
        box = await rsm.create(Box, key="box", near=BOX)
        for number in range(COUNT):
            await rsm.send(box, Put(str(number), bytes(SIZE)))
        for name in ("one", "two"):
            most = Most(monkeypatch)
            async with Host(
                BOXES, (await cluster.connect()).book("b"), name=name, lease_s=60, stuck_after_s=None
            ) as host:
                await host.lane.settled()
                assert host.lane.full == [9]
                assert BOUND < most.bytes < 2 * BOUND
                if name == "two":
                    await rsm.send(await rsm.create(Porter, near=PORTER), Go(box, []))
                    assert await rsm.ask(Seen().to(box), timeout_s=3_600) == [str(one) for one in range(COUNT)]
                    assert most.bytes < 4 * BOUND, "beyond the bound is what a cursor reads at once"
                    assert not host.lane.full
                    assert not host.lane._behind and not host.lane._states[9].passed
        await rsm.__aexit__(None, None, None)


@in_virtual_time
async def test_what_a_machine_sent_before_it_moved_comes_before_what_it_sends_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The box and the porter move to another host, which does not keep what waits for the box."""
    monkeypatch.setattr(FullInboxes, "check", lambda *_: None)
    defaults = Host.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "inbox_bytes", tags.PARTITIONS)
    async with hosts(BOXES, 2) as (_, (one, two)):
        box = await one.create(Box, key="box", near=BOX)
        porter = await one.create(Porter, key="porter", near=PORTER)
        for text in ("a", "b", "c"):
            await one.send(porter, Go(box, [text]))
        await one.send(box, Put("end."))
        await one.lane.settled()
        for text in ("d", "e", "f"):
            await one.send(porter, Go(box, [text, text + "."]))
        await one.lane.settled()
        await take_over(two, 9, 10)
        for text in ("g", "h"):
            await two.send(porter, Go(box, [text]))
        found = []
        while "h" not in found:
            found = await two.ask(Seen().to(box), timeout_s=3_600)
        assert [text for text in found if text != "end."] == ["a", "b", "c", "d", "d.", "e", "e.", "f", "f.", "g", "h"]
