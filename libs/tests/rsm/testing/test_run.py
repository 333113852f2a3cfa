"""One run: the order of events, timers, programs, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bokirsm import App, Event, IdReused, Machine, NoSuchMachine, Ref, Refused, Register, State
from bokirsm.testing import Exhaustive, Limits, Monitor, Program, Run, TestRsm, run_tests
from bokirsm.testing.errors import Fault
from libs.tests.rsm.testing.subjects import APP, Cell, Clock, Get, Go, Put, Stop, Tick, reported, two_writers

found: set[tuple[int, ...]] = set()


class Finds(Monitor):
    def ended(self) -> None:
        (cell,) = self.machines(Cell)
        found.add(tuple(cell.numbers))


@pytest.fixture(autouse=True)
def _nothing_found() -> None:
    found.clear()


def test_dfs_finds_each_order_of_events_and_keeps_that_of_each_sender() -> None:
    report = run_tests(Program(APP, two_writers, [Finds]), Limits(100_000, 600), strategies=[Exhaustive()])
    assert report.complete and report.witness is None
    assert found == {(1, 2, 3, 4), (1, 3, 2, 4), (1, 3, 4, 2), (3, 1, 2, 4), (3, 1, 4, 2), (3, 4, 1, 2)}


def test_the_portfolio_finds_each_order_too() -> None:
    assert reported(two_writers, Finds).witness is None
    assert len(found) == 6


async def clock(rsm: TestRsm) -> None:
    cell = await rsm.create(Cell, key="cell")
    ticks = await rsm.create(Clock, Go(cell))
    await rsm.send(ticks, Stop())


def test_timers_fire_at_any_step_in_their_order_unless_they_are_cancelled() -> None:
    report = run_tests(Program(APP, clock, [Finds]), Limits(100_000, 600), strategies=[Exhaustive()])
    assert report.complete and report.witness is None
    assert {len(one) for one in found} == {1, 2}, "the early one was cancelled, or fired before"
    assert {one for one in found if len(one) == 2} == {(a, b) for a in range(2) for b in range(2)}


class Poller(Machine[Tick | Put]):
    """Looks each second, without end."""

    looks: Register[int] = Register(0)
    run = State(start=True)

    @run.entry
    def begin(self) -> None:
        self.after(1, Tick(), every=1)

    @run.on(Tick)
    def tick(self, e: Tick) -> None:
        self.looks = min(self.looks + 1, 3)

    @run.on(Put)
    def fail(self, e: Put) -> None:
        raise AssertionError(f"{e.number} is wrong")


def test_a_run_ends_when_timers_alone_are_left_and_change_nothing() -> None:
    async def main(rsm: TestRsm) -> None:
        await rsm.create(Poller)

    report = run_tests(Program(App("p", [Poller]), main), Limits(8, 600))
    assert report.witness is None and report.longest < 30


def test_an_error_in_a_handler_is_a_fault() -> None:
    async def main(rsm: TestRsm) -> None:
        poller: Ref[Tick | Put] = await rsm.create(Poller)
        await rsm.send(poller, Put(3))

    witness = run_tests(Program(App("p", [Poller]), main), Limits(8, 600)).witness
    assert witness is not None and witness.kind == "handler" and witness.place == "Poller run Put AssertionError"
    assert witness.fault == "Poller failed at Put in state 'run': AssertionError: 3 is wrong"


async def refused(rsm: TestRsm) -> None:
    cell = await rsm.create(Cell, key="cell")
    with pytest.raises(Refused, match="it is empty"):
        await rsm.ask(Get().to(cell))
    await rsm.send(cell, Stop())
    with pytest.raises(NoSuchMachine):
        await rsm.ask(Get().to(cell))


async def keyed(rsm: TestRsm) -> None:
    cell = await rsm.create(Cell, key="cell")
    assert await rsm.create(Cell, key="cell") == cell
    with pytest.raises(IdReused):
        await rsm.create(Cell, Put(1), key="cell")
    await rsm.send(cell, Put(1), dedup_id="a")
    await rsm.send(cell, Put(1), dedup_id="a")
    await rsm.send_many([(cell, Put(2)), (cell, Put(3))])
    assert await rsm.ask(Get().to(cell)) == [1, 2, 3]
    assert rsm.choose("ab") in "ab"


@pytest.mark.parametrize("main", [refused, keyed])
def test_calls_of_programs_do_what_those_of_rsm_do(main: Callable[..., object]) -> None:
    witness = reported(main, limits=Limits(40, 600)).witness  # type: ignore[arg-type]
    assert witness is None, witness.fault


async def refuses(rsm: TestRsm) -> None:
    cell: Ref[Get | Put | Stop] = await rsm.create(Cell, key="cell")
    await rsm.ask(Get().to(cell))


async def wrong(rsm: TestRsm) -> None:
    cell = await rsm.create(Cell, Put(1), key="cell")
    assert await rsm.ask(Get().to(cell)) == [2]


async def sleeps(rsm: TestRsm) -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("main", "kind", "text"),
    [
        (wrong, "client", "main raised AssertionError"),
        (sleeps, "client", "expected main to await calls of its TestRsm alone"),
        (refuses, "client", "main raised Refused: it is empty"),
    ],
)
def test_a_program_that_fails_is_a_fault(main: Callable[..., object], kind: str, text: str) -> None:
    witness = reported(main).witness  # type: ignore[arg-type]
    assert witness is not None and witness.kind == kind and text in witness.fault


class Mute(Machine[Get]):
    run = State(start=True, ignore=(Get,))


def test_a_question_that_is_never_answered_is_a_fault() -> None:
    async def main(rsm: TestRsm) -> None:
        await rsm.ask(Get().to(await rsm.create(Mute)))

    witness = run_tests(Program(App("p", [Mute]), main), Limits(8, 600)).witness
    assert witness is not None and witness.kind == "stuck"
    assert witness.fault == "main waits for the answer to Get to main-1, and nothing is left to handle"


class Endless(Machine[Tick]):
    run = State(start=True)

    @run.on(Tick)
    def tick(self, e: Tick) -> None:
        self.send(self.me, e)


def test_a_run_has_a_bound() -> None:
    async def main(rsm: TestRsm) -> None:
        await rsm.send(await rsm.create(Endless), Tick())

    report = run_tests(Program(App("p", [Endless]), main, steps=500), Limits(4, 600))
    assert report.witness is None and report.longest == 500


class Unknown(Machine[Tick]):
    run = State(start=True)


def test_a_class_of_no_app_cannot_be_created() -> None:
    async def main(rsm: TestRsm) -> None:
        await rsm.create(Unknown)

    witness = reported(main).witness
    assert witness is not None and "expected a class of app 'a'" in witness.fault


class Loud(Event):
    pass


def test_a_run_by_itself() -> None:
    strategy = Exhaustive()
    strategy.begin(0)
    run = Run(Program(APP, two_writers), strategy)
    run.go()
    assert run.quiet and run.steps == len([one for one in run.decisions if one.kind == "run"]) == 10
    with pytest.raises(Fault):
        Run(Program(APP, wrong), Exhaustive()).go()
