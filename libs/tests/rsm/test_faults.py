"""Crashes at every operation of a host, lost answers, and a second host at any operation: each machine does the same as without faults.

The word count of the paper: one counter, one maximum. The traces of both, and their states, are those of a run without faults.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import pytest

import boki
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.errors import AppendUnknown
from bokilib.follow.members import Heartbeat, Members
from bokilib.ports import BookPort
from bokilib.testing import UNANSWERED, UNKNOWNS, crash_everywhere, start_anywhere, while_alive
from bokirsm import App, Ask, Event, Host, InboxFull, Machine, Register, State
from bokirsm.model.events import PICKER, Commit
from libs.tests.rsm.traces import records_of, traces_of
from libs.tests.rsm.words import Best, Counter, Init, Max, Word

T = TypeVar("T")
WORDS = "aba"


async def surely(call: Callable[[], Awaitable[T]]) -> T:
    """Call again while it is not known whether it had an effect, or was refused: the call has a key or a deduplication id."""
    while True:
        try:
            return await call()
        except AppendUnknown:
            pass
        except InboxFull:
            await let_pass(0.02)


async def count(book: BookPort, who: str, lease_s: float) -> None:
    """Count the words, and wait until the maximum is known."""
    async with Host(App("words", [Counter, Max]), book, name=who, lease_s=lease_s, stuck_after_s=None) as host:
        top = await surely(partial(host.create, Max, key="max"))
        counter = await surely(partial(host.create, Counter, Init(top), key="c"))
        for number, text in enumerate(WORDS):
            await surely(partial(host.send, counter, Word(text), dedup_id=f"word-{number}"))
        while await surely(partial(host.ask, Best().to(top), timeout_s=3_600)) != "a 2":
            await let_pass(0.02)


async def program(book: BookPort) -> None:
    await while_alive(book, count(book, "host", 1.0))


async def another(book: BookPort) -> None:
    """Take the other host for dead soon, though it only waits."""
    await while_alive(book, count(book, "other", 0.05))


def without_lease(members: Members) -> Heartbeat:
    """Return a heartbeat as older programs append it: others judge its member by their own leases, and may take it for dead wrongly."""
    return Heartbeat(members._group, members.name, members._leaving)


async def check(book: boki.Book) -> None:
    traces = await traces_of(book)
    counter, top = sorted(traces, key=lambda one: "max" in one)
    assert traces[counter] == ["Init", "Word", "Word", "Word"]
    assert [event for event in traces[top] if event != "Best"] == ["", "Freq", "Freq"]


@in_virtual_time
async def test_crashes_at_every_operation_change_no_trace() -> None:
    explored = await crash_everywhere(program, program, check, clock=LoopClock())
    assert explored.operations > 15 and explored.runs > 30


@in_virtual_time
async def test_lost_answers_change_no_trace() -> None:
    explored = await crash_everywhere(program, program, check, kinds=UNKNOWNS, clock=LoopClock())
    assert explored.runs > 10


@in_virtual_time
async def test_late_appends_of_a_dead_host_change_no_trace() -> None:
    explored = await crash_everywhere(program, another, check, kinds=UNANSWERED, clock=LoopClock())
    assert explored.runs > 10


@in_virtual_time
async def test_a_second_host_at_any_operation_changes_no_trace() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Members, "_heartbeat", without_lease)
        await with_a_second_host()


async def with_a_second_host() -> None:
    explored = await start_anywhere(program, another, check, clock=LoopClock())
    assert explored.runs > 15


class Stop(Event):
    pass


class Hop(Event):
    left: int


class Visits(Ask[int]):
    pass


class Link(Machine[Hop | Stop | Visits]):
    """A machine that creates its successor, passes an event on after a timer, and halts."""

    visits: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Hop)
    def hop(self, e: Hop) -> None:
        self.visits += 1
        if e.left:
            following = self.create(Link)
            self.send(following, Hop(e.left - 1))
        self.after(0.05, Stop(), name="stop")

    @run.on(Stop)
    def stop(self, e: Stop) -> None:
        if "#" in self.me.name:
            self.halt()
        self.visits += 1

    @run.on(Visits)
    def answer(self, e: Visits) -> None:
        self.reply(e, self.visits)


async def pass_on(book: BookPort) -> None:
    async with Host(App("links", [Link]), book, name="host", lease_s=1.0, stuck_after_s=None) as host:
        first = await surely(partial(host.create, Link, Hop(3), key="first"))
        while await surely(partial(host.ask, Visits().to(first), timeout_s=3_600)) != 2:
            await let_pass(0.02)
        for _ in range(5):
            await let_pass(0.02)


async def links(book: BookPort) -> None:
    await while_alive(book, pass_on(book))


async def check_links(book: boki.Book) -> None:
    traces = await traces_of(book)
    assert len(traces) == 4
    for machine, events in traces.items():
        assert [event for event in events if event not in ("", "Visits")] == ["Hop"], machine
    halted, fired = [], []
    async for seqnum, envelope in records_of(book):
        for event in PICKER.of(seqnum, envelope):
            if isinstance(event, Commit):
                halted += [event.id] * event.halted
                fired += [event.id] * (not event.took)
    assert len(halted) == len(set(halted)) == 3 and len(fired) == len(set(fired)) == 4, "each timer fires once"


@in_virtual_time
async def test_crashes_between_creations_timers_and_halts_change_no_trace() -> None:
    explored = await crash_everywhere(links, links, check_links, clock=LoopClock())
    assert explored.operations > 15 and explored.runs > 30
    await crash_everywhere(links, links, check_links, kinds=UNANSWERED, later=(2,), clock=LoopClock())


@pytest.mark.nightly
@pytest.mark.timeout(1_800)
@in_virtual_time
async def test_pairs_of_crashes_change_no_trace() -> None:
    await crash_everywhere(program, program, check, pairs=True, clock=LoopClock())
