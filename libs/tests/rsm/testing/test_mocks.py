"""Mock machines: they ask, choose, and are not checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokirsm import App, Delivery, Event, Machine, Plugin, Ref, Register, State, Volatile
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


class Mail(Event):
    text: str
    back: Ref[Sent]


class Sent(Event):
    text: str


class Go(Event):
    pass


class Mails(Plugin[Mail]):
    async def deliver(self, batch: Sequence[Delivery[Mail]]) -> None:
        raise AssertionError("a test has a mock machine in the place of a plugin")


class Writer(Machine[Go | Sent]):
    sent: Register[str] = Register("")
    run = State(start=True)

    @run.on(Go)
    def go(self, e: Go) -> None:
        self.emit(Mails, Mail("hello", self.me))
        self.send(self.me, Sent("loose"), at_most_once=True)

    @run.on(Sent)
    def heard(self, e: Sent) -> None:
        self.sent += e.text


class MailBox(Mock[Mail]):
    run = State(start=True)

    @run.on(Mail)
    def deliver(self, e: Mail) -> None:
        self.send(e.back, Sent(e.text))


ended: set[str] = set()


class Ends(Monitor):
    def ended(self) -> None:
        ended.add(self.machines(Writer)[0].sent)


async def writes(rsm: TestRsm) -> None:
    writer: Ref[Go | Sent] = await rsm.create(Writer)
    await rsm.send(writer, Go())


def test_a_mock_machine_gets_what_machines_emit_to_its_plugin() -> None:
    app = App("mails", [Writer], plugins=[Mails])
    ended.clear()
    report = run_tests(
        Program(app, writes, [Ends], {"Mails": MailBox}), Limits(100_000, 600), strategies=[Exhaustive()]
    )
    assert report.complete and report.witness is None
    assert ended == {"loosehello"}
