"""Small machines that tests of the tester run."""

from __future__ import annotations

from typing import Any

from bokirsm import App, Ask, Event, Machine, Ref, Refused, Register, State, Table, Volatile
from bokirsm.testing import Limits, Monitor, Program, Report, TestRsm, run_tests
from bokirsm.testing.clients import Main


class Put(Event):
    number: int


class Get(Ask[list[int]]):
    pass


class Stop(Event):
    pass


class Cell(Machine[Put | Get | Stop]):
    """Keeps the numbers that it gets, in order."""

    numbers: Register[list[int]] = Register([])
    by: Table[int, int] = Table()
    run = State(start=True)

    @run.on(Put)
    def put(self, e: Put) -> None:
        self.numbers.append(e.number)
        self.by[e.number] = len(self.numbers)
        self.announce(e)

    @run.on(Get)
    def get(self, e: Get) -> None:
        if not self.numbers:
            raise Refused("it is empty")
        self.reply(e, self.numbers)

    @run.on(Stop)
    def stop(self, e: Stop) -> None:
        self.halt()


class Go(Event):
    to: Ref[Put]


class Tick(Event):
    pass


class Clock(Machine[Go | Tick | Stop]):
    """Sends 1 after a second and 2 after two; or picks a number at once."""

    target: Register[Ref[Put]] = Register()
    run = State(start=True)

    @run.on(Go)
    def go(self, e: Go) -> None:
        self.target = e.to
        self.after(2, Tick(), name="late")
        self.after(1, Tick(), name="early")

    @run.on(Tick)
    def tick(self, e: Tick) -> None:
        self.send(self.target, Put(self.random.below(2)))

    @run.on(Stop)
    def stop(self, e: Stop) -> None:
        self.cancel("early")


class Leaky(Machine[Put | Tick]):
    """Numbers what it gets, in memory."""

    seen: Volatile[int] = Volatile(int)
    harmless: Volatile[list[int]] = Volatile(list)
    last: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Put)
    def put(self, e: Put) -> None:
        self.seen += 1
        self.harmless.append(e.number)
        self.last = self.seen

    @run.on(Tick)
    def tick(self, e: Tick) -> None:
        self.harmless.append(0)


APP = App("a", [Cell, Clock, Leaky])


def reported(main: Main, *monitors: type[Monitor], limits: Limits | None = None, **options: Any) -> Report:
    """Test a program by the portfolio."""
    return run_tests(Program(APP, main, monitors, **options), limits or Limits(200, 600))


async def two_writers(rsm: TestRsm) -> None:
    """Two programs, each of which puts two numbers."""
    cell = await rsm.create(Cell, key="cell")

    async def write(first: int) -> None:
        for number in (first, first + 1):
            await rsm.send(cell, Put(number))

    rsm.start(write(1))
    rsm.start(write(3))
