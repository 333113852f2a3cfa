"""Monitors: what they see, and which promises that are not kept they find."""

from __future__ import annotations

from typing import Any

import pytest

from bokirsm import App, Event, Machine, Ref, State, UndeclaredField
from bokirsm.testing import Delays, Exhaustive, Limits, Monitor, Program, SeenMachine, TestRsm, Uniform, run_tests
from libs.tests.rsm.testing.subjects import APP, Cell, Put, Stop, reported, two_writers

seen: list[Any] = []


class Sees(Monitor, observes=(Put,)):
    def sent(self, event: Put, to: Ref[Any]) -> None:
        seen.append(("sent", event.number, to.name))

    def taken(self, event: Put, by: Ref[Any]) -> None:
        seen.append(("taken", event.number, by.name))

    def announced(self, event: Put, by: Ref[Any]) -> None:
        seen.append(("announced", event.number, by.name))

    def committed(self, machine: SeenMachine) -> None:
        seen.append(("committed", machine.cls, machine.state, list(machine.numbers), dict(machine.by)))
        with pytest.raises(UndeclaredField):
            _ = machine.colour

    def ended(self) -> None:
        seen.append([one.state for one in self.machines()])


async def one_put(rsm: TestRsm) -> None:
    cell = await rsm.create(Cell, key="cell")
    await rsm.send(cell, Put(7))
    await rsm.send(cell, Stop())


def test_a_monitor_sees_what_is_sent_taken_announced_and_committed() -> None:
    seen.clear()
    assert reported(one_put, Sees, limits=Limits(1, 600), leaks=False).witness is None
    assert sorted(str(one) for one in seen) == sorted(
        str(one)
        for one in [
            ("sent", 7, "cell"),
            ("committed", Cell, "run", [], {}),
            ("taken", 7, "cell"),
            ("announced", 7, "cell"),
            ("committed", Cell, "run", [7], {7: 1}),
            ("committed", Cell, "", [], {}),
            [""],
        ]
    )


class InOrder(Monitor):
    def committed(self, machine: SeenMachine) -> None:
        numbers = machine.numbers
        assert numbers == sorted(numbers), "the numbers are in order"


def test_an_assertion_of_a_monitor_is_a_fault() -> None:
    witness = reported(two_writers, InOrder).witness
    assert witness is not None and witness.kind == "monitor" and witness.place == "InOrder.committed"
    assert witness.fault.startswith("InOrder.committed: AssertionError: the numbers are in order")
    assert witness.steps <= 7


class Ball(Event):
    pass


class Player(Machine[Ball]):
    run = State(start=True)

    @run.on(Ball)
    def play(self, e: Ball) -> None:
        self.send(self.me, e)


class Ends(Monitor, observes=(Ball, Stop)):
    def sent(self, event: Event, to: Ref[Any]) -> None:
        self.hot("the game does not end")


class Never(Monitor, observes=(Put,)):
    def sent(self, event: Put, to: Ref[Any]) -> None:
        if event.number == 1:
            self.hot("one is not followed by four")
        if event.number == 4:
            self.cold()


async def game(rsm: TestRsm) -> None:
    await rsm.send(await rsm.create(Player), Ball())


def test_a_promise_that_is_not_kept_is_a_fault_of_a_fair_run() -> None:
    program = Program(App("g", [Player]), game, [Ends], steps=400)
    report = run_tests(program, Limits(2, 600, shrink_s=0), strategies=[Uniform()])
    assert report.witness is not None and report.witness.kind == "liveness"
    assert report.witness.fault == "Ends is hot for 201 steps: the game does not end"


def test_a_run_that_is_not_fair_reports_no_promise() -> None:
    program = Program(App("g", [Player]), game, [Ends], steps=400)
    assert run_tests(program, Limits(2, 600, shrink_s=0), strategies=[Exhaustive()]).witness is None
    later = run_tests(program._replace(steps=20_010), Limits(2, 600, shrink_s=0), strategies=[Delays()]).witness
    assert later is not None and later.fair_from == 10_000 and later.steps > 20_000, "it is fair in the end"


def test_a_monitor_that_is_hot_at_the_end_is_a_fault_of_any_run() -> None:
    witness = run_tests(Program(APP, two_writers, [Never]), Limits(1_000, 600), strategies=[Exhaustive()]).witness
    assert witness is not None and witness.fault == "Never is hot at the end: one is not followed by four"
