"""Mock machines: they ask, choose, and are not checked."""

from __future__ import annotations

from typing import Any

from bokirsm import Event, Ref, Register, State, Volatile
from bokirsm.testing import Answer, Exhaustive, Limits, Mock, Monitor, Program, TestRsm, run_tests
from libs.tests.rsm.testing.subjects import APP, Cell, Get, Put, Stop

asked: set[Any] = set()


class Begin(Event):
    cell: Ref[Get | Put]


class Client(Mock[Begin | Answer]):
    asked: Volatile[int] = Volatile(int)
    number: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Begin)
    def begin(self, e: Begin) -> None:
        self.asked += 1
        self.number = self.asked + id(e)  # a mock machine is outside: it is not checked
        if self.choose([True, False]):
            self.send(e.cell, Put(1))
        self.ask(e.cell, Get(), 7)

    @run.on(Answer)
    def answered(self, e: Answer) -> None:
        asked.add((e.number, e.outcome, str(e.value)))


class Sees(Monitor):
    def ended(self) -> None:
        assert self.machines(Client)[0].number != 0


async def main(rsm: TestRsm) -> None:
    cell = await rsm.create(Cell, key="cell")
    client = await rsm.create(Client, Begin(cell))
    await rsm.send(cell, Stop())
    assert client.name == "main-1"


def test_a_mock_machine_gets_each_answer() -> None:
    asked.clear()
    report = run_tests(Program(APP, main, [Sees]), Limits(100_000, 600), strategies=[Exhaustive()])
    assert report.complete and report.witness is None
    missing = (7, "missing", str(Ref("a", 61, "cell")))
    assert asked == {(7, "answer", "[1]"), (7, "refused", "it is empty"), missing}
    assert not [one for one in report.missed if one.kind == "Client"]


class Provider(Mock[Begin | Answer]):
    run = State(start=True)

    @run.on(Begin)
    def begin(self, e: Begin) -> None:
        self.send(e.cell, Put(3))

    @run.on(Answer)
    def answered(self, e: Answer) -> None:
        pass


async def with_provider(rsm: TestRsm) -> None:
    cell = await rsm.create(Cell, key="cell")
    provider = await rsm.create(Provider, key="provider")
    await rsm.send(provider, Begin(cell))


class Put3(Monitor):
    def ended(self) -> None:
        assert self.machines(Cell)[0].numbers == [3] and len(self.machines(Provider)) == 1


def test_named_mock_machines_exist_before_the_program_begins() -> None:
    program = Program(APP, with_provider, [Put3], {"provider": Provider})
    assert run_tests(program, Limits(20, 600)).witness is None
