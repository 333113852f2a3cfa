"""The machines of the simulated program. They keep journals, and write down each law that they see broken.

An old program and a new one run side by side: the old one fails at each second `Break`, and has no class `Fresh`. A journal is a list of
lines in the order in which the machine handled events; a line that begins with `!` is a violation.

Numbers make the order of events visible: each machine numbers the events that it sends to each other one, and a machine that gets a number
which is not the next one of its sender says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import boki
from bokirsm import Answers, App, Ask, Delivery, Event, Machine, Plugin, Ref, Refused, Register, State, Table

GROUP: Final = "sim"
CHILD_S: Final = 0.2
"""Seconds until a child's timer fires, and between two of its beats."""
BEATS: Final = 3
EARLY_S: Final = 0.01
"""Timers are set and read in whole milliseconds of the log's clock."""
REOPENS_S: Final = 1.0
"""Seconds after which a closed node opens by itself."""
REMINDED_S: Final = 3 * 86_400.0
MONEY: Final = 100
BAD: Final = "!"
FAILS_SOMETIMES: Final = 6
"""One in so many attempts of some handlers fails, and is tried again."""


def true_time() -> float:
    """Return the simulation's own time, which no fault changes."""
    found: float = getattr(asyncio.get_running_loop(), "now", 0.0)
    return found


class Note(Event):
    text: str


class Numbered(Event):
    """Attributes: number: counts the events of a sender to this machine. hops: times that it is sent on, to and fro."""

    sender: Ref[Numbered]
    number: int
    hops: int = 0


class Spread(Event):
    text: str
    to: list[Ref[Numbered]]
    hops: int


class Open(Event):
    pass


class Close(Event):
    pass


class Journal(Ask[list[str]]):
    pass


class Node(Machine[Note | Numbered | Spread | Open | Close | Journal]):
    """A machine that notes, sends to others, and defers all but questions while it is closed."""

    journal: Register[list[str]] = Register([])
    sent: Table[str, int] = Table()
    came: Table[str, int] = Table()
    opened = State(start=True, ignore=(Open,))
    closed = State(defer=(Note, Numbered, Spread, Close))

    @opened.on(Note)
    def note(self, e: Note) -> None:
        if self.random.below(FAILS_SOMETIMES) == 0:
            raise ValueError("by chance")
        self.journal.append(e.text)

    @opened.on(Spread)
    def spread(self, e: Spread) -> None:
        self.journal.append(e.text)
        for one in e.to:
            self._send(one, e.hops)

    @opened.on(Numbered)
    def numbered(self, e: Numbered) -> None:
        expected = self.came.get(e.sender.name, 0) + 1
        if e.number != expected:
            self.journal.append(f"{BAD} {self.me.name} expected event {expected} of {e.sender.name}, found {e.number}")
        self.came[e.sender.name] = e.number
        if e.hops:
            self._send(e.sender, e.hops - 1)

    def _send(self, to: Ref[Numbered], hops: int) -> None:
        number = self.sent[to.name] = self.sent.get(to.name, 0) + 1
        self.send(to, Numbered(self.me, number, hops))

    @opened.on(Close)
    def close(self, e: Close) -> None:
        self.jump(self.closed)
        self.after(REOPENS_S, Open(), name="reopens")  # a host with full inboxes refuses those of programs

    @closed.on(Open)
    def reopen(self, e: Open) -> None:
        self.jump(self.opened)

    @opened.on(Journal)
    @closed.on(Journal)
    def tell(self, e: Journal) -> None:
        counts = [f"sent {name} {number}" for name, number in self.sent.items()]
        self.reply(e, [*self.journal, *counts, *(f"came {name} {number}" for name, number in self.came.items())])


class Pay(Ask[int]):
    text: str
    payee: Ref[Deposit]
    cents: int


class Deposit(Event):
    sender: str
    number: int
    cents: int


class Account(Machine[Pay | Deposit | Journal]):
    """An account that pays to others, and refuses what it does not have."""

    cents: Register[int] = Register(MONEY)
    paid: Table[str, int] = Table()
    got: Table[str, int] = Table()
    journal: Register[list[str]] = Register([])
    run = State(start=True)

    @run.on(Pay)
    def pay(self, e: Pay) -> None:
        number = self.paid[e.payee.name] = self.paid.get(e.payee.name, 0) + 1
        self.journal.append(e.text)
        if self.random.below(FAILS_SOMETIMES) == 0:
            raise ValueError("by chance")
        if self.cents < e.cents:
            raise Refused(f"{e.text} needs {e.cents}, there are {self.cents}")
        self.cents -= e.cents
        self.send(e.payee, Deposit(self.me.name, number, e.cents))
        self.reply(e, number)

    @run.on(Deposit)
    def deposit(self, e: Deposit) -> None:
        expected = self.got.get(e.sender, 0) + 1
        if e.number != expected:
            self.journal.append(f"{BAD} {self.me.name} expected deposit {expected} of {e.sender}, found {e.number}")
        self.got[e.sender] = e.number
        self.cents += e.cents

    @run.on(Journal)
    def tell(self, e: Journal) -> None:
        self.reply(e, [*self.journal, f"cents {self.cents}"])


class Born(Event):
    name: str


class Died(Event):
    name: str
    lines: list[str]


class Archive(Machine[Born | Died | Journal]):
    """Births and ends of the other machines."""

    journal: Register[list[str]] = Register([])
    run = State(start=True)

    @run.on(Born)
    def born(self, e: Born) -> None:
        self.journal.append(f"born {e.name}")

    @run.on(Died)
    def died(self, e: Died) -> None:
        self.journal.append(f"died {e.name}")
        self.journal.extend(e.lines)

    @run.on(Journal)
    def tell(self, e: Journal) -> None:
        self.reply(e, list(self.journal))


class Grow(Event):
    text: str
    depth: int
    near: bool


class Raised(Event):
    text: str
    archive: Ref[Born | Died]
    parent: Ref[Grown]
    depth: int


class Grown(Event):
    text: str


class Alarm(Event):
    """Attributes: set_s: the true time when its timer was set. set_ms: the machine's time then."""

    set_s: float
    set_ms: float


class Beat(Event):
    pass


class Child(Machine[Raised | Alarm | Beat | Grown | Note]):
    """A machine that lives until its timers have fired, and its own child has ended."""

    archive: Register[Ref[Born | Died]] = Register()
    parent: Register[Ref[Grown]] = Register()
    text: Register[str] = Register("")
    beats: Register[int] = Register(0)
    alarms: Register[int] = Register(0)
    waits: Register[int] = Register(2)
    beaten: Register[tuple[float, float]] = Register((0.0, 0.0))
    journal: Register[list[str]] = Register([])
    run = State(start=True)

    @run.on(Raised)
    def raised(self, e: Raised) -> None:
        self.archive, self.parent, self.text = e.archive, e.parent, e.text
        self.send(e.archive, Born(self.me.name))
        self.after(CHILD_S, Alarm(*self._clocks()), name="alarm")
        self.after(CHILD_S / 2, Beat(), name="beat", every=CHILD_S / 2)
        self.after(CHILD_S, Alarm(0.0, 0.0), name="never")
        self.cancel("never")
        self.beaten = self._clocks()
        if e.depth:
            self.waits += 1
            self.create(Child, Raised(e.text, e.archive, self.me, e.depth - 1))

    def _clocks(self) -> tuple[float, float]:
        return true_time(), self.now.timestamp()

    def _passed(self, since: tuple[float, float], seconds: float, what: str) -> None:
        """Check that a time has passed, by the true time or by the log's."""
        now = self._clocks()
        if max(now[0] - since[0], now[1] - since[1]) < seconds - EARLY_S:
            self.journal.append(
                f"{BAD} {what} of {self.me.name} fired early: set at {since}, now {now}, for {seconds} s"
            )

    @run.on(Alarm)
    def alarm(self, e: Alarm) -> None:
        self.alarms += 1
        if self.alarms > 1:
            self.journal.append(f"{BAD} alarm {self.alarms} of {self.me.name}")
        self._passed((e.set_s, e.set_ms), CHILD_S, "alarm")
        self._one_less()

    @run.on(Beat)
    def beat(self, e: Beat) -> None:
        self.beats += 1
        self._passed(self.beaten, CHILD_S / 2, f"beat {self.beats}")
        self.beaten = self._clocks()
        if self.beats == 1 and not self.alarms:  # replaces the one that was set
            self.after(CHILD_S, Alarm(*self.beaten), name="alarm")
        if self.beats == BEATS:
            self.cancel("beat")
            self._one_less()
        elif self.beats > BEATS:
            self.journal.append(f"{BAD} beat {self.beats} of {self.me.name}, after it was cancelled")

    @run.on(Grown)
    def grown(self, e: Grown) -> None:
        self._one_less()

    @run.on(Note)
    def note(self, e: Note) -> None:
        self.journal.append(f"{e.text} to child")

    def _one_less(self) -> None:
        self.waits -= 1
        if not self.waits:
            self.send(self.archive, Died(self.me.name, self.journal))
            self.send(self.parent, Grown(self.text))
            self.halt()


class Family(Event):
    archive: Ref[Born | Died]


class Parent(Machine[Family | Grow | Grown | Journal]):
    """A machine that creates children, and writes to them before and after their end."""

    archive: Register[Ref[Born | Died]] = Register()
    children: Table[str, Ref[Note]] = Table()
    journal: Register[list[str]] = Register([])
    run = State(start=True)

    @run.on(Family)
    def begin(self, e: Family) -> None:
        self.archive = e.archive

    @run.on(Grow)
    def grow(self, e: Grow) -> None:
        self.journal.append(e.text)
        near = self.me if e.near else None
        child = self.create(Child, Raised(e.text, self.archive, self.me, e.depth), near=near)
        self.children[e.text] = child
        self.send(child, Note(e.text))

    @run.on(Grown)
    def grown(self, e: Grown) -> None:
        self.journal.append(f"grown {e.text}")
        self.send(self.children[e.text], Note(f"{BAD} {e.text} to a child that has halted"))

    @run.on(Journal)
    def tell(self, e: Journal) -> None:
        self.reply(e, list(self.journal))


class Begin(Event):
    archive: Ref[Born | Died]


class End(Event):
    pass


class Once(Machine[Begin | End]):
    """A machine with a key, which is created once, and halts."""

    archive: Register[Ref[Born | Died]] = Register()
    run = State(start=True)

    @run.on(Begin)
    def begin(self, e: Begin) -> None:
        self.archive = e.archive
        self.send(e.archive, Born(self.me.name))

    @run.on(End)
    def end(self, e: End) -> None:
        self.send(self.archive, Died(self.me.name, []))
        self.halt()


class Break(Event):
    text: str
    number: int


class Fragile(Machine[Break | Journal]):
    """A machine whose old code fails, also while it is created."""

    journal: Register[list[str]] = Register([])
    run = State(start=True)

    @run.on(Break)
    def handle(self, e: Break) -> None:
        self.journal.append(e.text)

    @run.on(Journal)
    def tell(self, e: Journal) -> None:
        self.reply(e, list(self.journal))


class OldFragile(Machine[Break | Journal], name="Fragile"):
    """The same, before its code was mended."""

    journal: Register[list[str]] = Register([])
    run = State(start=True)

    @run.on(Break)
    def handle(self, e: Break) -> None:
        self.journal.append(e.text)
        if e.number % 2:
            raise ValueError(f"the old code fails at {e.text}")

    @run.on(Journal)
    def tell(self, e: Journal) -> None:
        self.reply(e, list(self.journal))


class Fresh(Machine[Begin | Note | Journal]):
    """A machine of a class that the old program does not have."""

    archive: Register[Ref[Born | Died]] = Register()
    journal: Register[list[str]] = Register([])
    run = State(start=True)

    @run.on(Begin)
    def begin(self, e: Begin) -> None:
        self.archive = e.archive
        self.send(e.archive, Born(self.me.name))

    @run.on(Note)
    def note(self, e: Note) -> None:
        self.journal.append(e.text)

    @run.on(Journal)
    def tell(self, e: Journal) -> None:
        self.reply(e, list(self.journal))


class Forget(Event):
    pass


class Reminder(Machine[Begin | Alarm | Forget | Journal]):
    """A machine with a timer of days, which one event cancels."""

    journal: Register[list[str]] = Register([])
    run = State(start=True)

    @run.on(Begin)
    def begin(self, e: Begin) -> None:
        self.after(REMINDED_S, Alarm(true_time(), self.now.timestamp()), name="days")

    @run.on(Forget)
    def forget(self, e: Forget) -> None:
        self.cancel("days")
        self.journal.append("forgotten")

    @run.on(Alarm)
    def alarm(self, e: Alarm) -> None:
        passed = max(true_time() - e.set_s, self.now.timestamp() - e.set_ms)
        self.journal.append("reminded" if passed >= REMINDED_S - EARLY_S else f"{BAD} reminded after {passed:g} s")

    @run.on(Journal)
    def tell(self, e: Journal) -> None:
        self.reply(e, list(self.journal))


class Mail(Event):
    """Attributes: number: counts the mails of a sender. mark: differs for each attempt of its handler."""

    sender: str
    number: int
    mark: int


class Posted(Event):
    number: int


class Outside:
    """The world outside, which gets mails. It outlives hosts.

    Attributes:
        mails: of each sender, in the order in which they came: number and mark.
    """

    def __init__(self) -> None:
        self.mails: Final[dict[str, list[tuple[int, int]]]] = {}


class Posts(Plugin[Mail], name="posts", timeout_s=2, most=4):
    """A plugin that fails by chance, also after it has delivered a part; without a source of chance it does not."""

    def __init__(self, outside: Outside, random: boki.Random | None) -> None:
        self._outside: Final = outside
        self._random: Final = random

    async def deliver(self, batch: Sequence[Delivery[Mail]]) -> Answers:
        for one in batch:
            self._outside.mails.setdefault(one.event.sender, []).append((one.event.number, one.event.mark))
            if self._random is not None and self._random.below(FAILS_SOMETIMES) == 0:
                raise ConnectionError("by chance")
        return [(one.machine, Posted(one.event.number)) for one in batch]


class Sender(Machine[Note | Posted | Journal]):
    """A machine that emits a mail for each note, and notes what became of it."""

    journal: Register[list[str]] = Register([])
    mails: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Note)
    def mail(self, e: Note) -> None:
        self.mails += 1
        mark = self.random.below(2**31)
        self.emit(Posts, Mail(self.me.name, self.mails, mark))
        self.journal += [e.text, f"mailed {self.mails} {mark}"]
        if self.random.below(FAILS_SOMETIMES) == 0:
            raise ValueError("by chance")

    @run.on(Posted)
    def posted(self, e: Posted) -> None:
        self.journal.append(f"posted {e.number}")

    @run.on(Journal)
    def tell(self, e: Journal) -> None:
        self.reply(e, list(self.journal))


_BOTH: Final = (Node, Account, Archive, Child, Parent, Once, Reminder, Sender)
NEW: Final = App(GROUP, [*_BOTH, Fragile, Fresh], plugins=[Posts])
OLD: Final = App(GROUP, [*_BOTH, OldFragile], plugins=[Posts])
