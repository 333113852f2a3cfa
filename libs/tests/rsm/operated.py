"""Machines to look at and to repair: one that failed, one that halted, one that defers an event, one with a timer."""

from __future__ import annotations

import boki
from bokirsm import App, Ask, Event, Host, Machine, Register, Rsm, State, Table
from libs.tests.rsm.words import Counter, Init, Max, Word

EVIL = "a\x1b[31m\nb"


class Divide(Ask[float]):
    by: int


class Divider(Machine[Divide]):
    done: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Divide)
    def divide(self, e: Divide) -> None:
        result = 1 / e.by
        self.done += 1
        self.reply(e, result)


class Item(Event):
    text: str


class Ping(Ask[int]):
    pass


class Open(Event):
    pass


class Gate(Machine[Item | Ping | Open]):
    """A gate that defers items until it is opened."""

    pings: Register[int] = Register(0)
    items: Table[str, int] = Table()
    closed, opened = State(start=True, defer=(Item,)), State()

    @closed.on(Ping)
    def ping(self, e: Ping) -> None:
        self.pings += 1
        self.reply(e, self.pings)

    @closed.on(Open)
    def open(self, e: Open) -> None:
        self.jump(self.opened)

    @opened.on(Item)
    def item(self, e: Item) -> None:
        self.items[e.text] = len(e.text)


class Ring(Event):
    pass


class Stop(Event):
    pass


class Alarm(Machine[Ring | Stop]):
    """An alarm that rings in an hour, or halts."""

    run = State(start=True)

    @run.entry
    def begin(self) -> None:
        self.after(3_600, Ring(), name="wake", every=60)

    @run.on(Ring)
    def ring(self, e: Ring) -> None:
        self.halt()

    @run.on(Stop)
    def stop(self, e: Stop) -> None:
        self.halt()


APP = App("shop", [Divider, Gate, Alarm, Counter, Max])


async def fill(client: boki.Client, book: str = "shop", name: str = "host-1") -> None:
    """Run machines of each kind until all of them rest; their host leaves then."""
    rsm = Rsm(APP, client.book(book))
    divider = await rsm.create(Divider, key="divider")
    for number, by in enumerate((4, 0, 2)):
        await rsm.send(divider, Divide(by, asker=f"someone/{number}"))
    gate = await rsm.create(Gate, key="gate")
    for event in (Item(EVIL), Item("x"), Ping(), Ping()):
        await rsm.send(gate, event)
    await rsm.create(Alarm, key="alarm")
    ended = await rsm.create(Alarm, key="ended")
    await rsm.send_many([(ended, Stop()), (ended, Ring())])
    top = await rsm.create(Max, key="max")
    counter = await rsm.create(Counter, Init(top), key="counter")
    for number, text in enumerate(("to", "be", "to")):
        await rsm.send(counter, Word(text, asker=f"someone/{number}"))
    await run(client, book, name)


async def run(client: boki.Client, book: str = "shop", name: str = "host-1") -> None:
    """Run a host until it has handled what waits; it leaves then."""
    async with Host(APP, client.book(book), name=name, stuck_after_s=None) as host:
        await host.lane.settled()
