"""The machines of the bank: accounts, brokers that transfer money in steps, and an auditor that counts it meanwhile.

A transfer is a conversation of a broker with two accounts. The state of the broker says how far it is:

    idle ──Transfer──► withdrawing ──Withdrawn──► depositing ──Deposited──► idle: "done"
                            │                         │
                            │ TooLittle               │ Full: the money goes back
                            ▼                         ▼
                          idle: "too little"      returning ──Deposited──► idle: "full"

- A client has a broker of its own and numbers its transfers, so the broker knows a question that it gets again: it answers the newest
  number once more, and forgets older ones. What it stores does not grow.
- Money is in an account, or in a message: `Withdrawn`, `Deposit` or `Full`. Messages from one machine to another arrive in order. So
  the auditor counts all money without a pause of the bank (`Counted`).
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from bokirsm import App, Ask, Event, Machine, Ref, Register, State

Outcome: TypeAlias = Literal["done", "too little", "full"]

LIMIT = 2_000
"""The most cents of an account after a deposit; money that goes back to an account is never refused."""

E = TypeVar("E")


# -- events


class Transfer(Ask[Outcome]):
    """Transfer money from an account to another.

    Attributes:
        number: of the client's transfers, from 1. A question that is repeated keeps its number.
    """

    number: int
    source: Ref[Withdraw | Deposit]
    target: Ref[Withdraw | Deposit]
    cents: int


class Withdraw(Event):
    """Take money out of an account; it answers with `Withdrawn` or `TooLittle`."""

    broker: Ref[Withdrawn | TooLittle]
    cents: int


class Withdrawn(Event):
    """Money on its way from an account to a broker."""

    account: Ref[Any]
    cents: int


class TooLittle(Event):
    """The account has not that much."""


class Deposit(Event):
    """Money on its way from a broker to an account, which answers with `Deposited` or `Full`."""

    broker: Ref[Deposited | Full]
    cents: int
    goes_back: bool = False


class Deposited(Event):
    """The account has the money."""


class Full(Event):
    """Money on its way back to a broker: the account refuses it."""

    account: Ref[Any]
    cents: int


class Balance(Ask[int]):
    """A question for the cents of an account."""


# -- counting all money


class Peers(Event):
    """The machines that a machine exchanges money with, and the auditor."""

    peers: list[Ref[Mark]]
    auditor: Ref[Sum]


class Mark(Event):
    """A line between two events of one machine to another: what was sent before it belongs to an audit."""

    audit: int
    sender: Ref[Any]


class Sum(Event):
    """The money of one machine, and what was on its way to it."""

    cents: int


class Part(msgspec.Struct):
    """A machine's part of an audit.

    Attributes:
        audit: its number.
        cents: the money that it counted so far.
        unmarked: the machines whose mark has not come yet: what they send until then was on its way when this machine was counted.
    """

    audit: int = 0
    cents: int = 0
    unmarked: set[Ref[Any]] = msgspec.field(default_factory=set[Ref[Any]])


class Counted(Machine[E]):
    """A machine whose money is counted by the snapshot algorithm of Chandy and Lamport.

    At the first mark of an audit it counts its own money, and sends a mark to each peer. Then it counts what comes from a peer before the
    mark of that peer.
    """

    peers: Register[list[Ref[Mark]]] = Register([])
    auditor: Register[Ref[Sum]] = Register()
    part: Register[Part] = Register(Part())

    def join(self, e: Peers) -> None:
        self.peers, self.auditor = e.peers, e.auditor

    def mark(self, e: Mark, own: int) -> None:
        part = self.part
        if e.audit > part.audit:
            self.part = part = Part(e.audit, own, {self.auditor, *self.peers})
            for peer in self.peers:
                self.send(peer, Mark(e.audit, self.me))
        part.unmarked.discard(e.sender)
        if not part.unmarked:
            self.send(self.auditor, Sum(part.cents))

    def received(self, sender: Ref[Any], cents: int) -> None:
        if sender in self.part.unmarked:
            self.part.cents += cents


class Audit(Ask[int]):
    """A question for all cents, in accounts and on their way."""


class Members(Event):
    """All machines that have money or send some."""

    members: list[Ref[Mark]]


class Auditor(Machine[Members | Audit | Sum]):
    """Counts all money; one audit after the other."""

    members: Register[list[Ref[Mark]]] = Register([])
    number: Register[int] = Register(0)
    asked: Register[Audit] = Register()
    sums: Register[list[int]] = Register([])
    idle, counting = State(start=True), State(defer=(Audit,))

    @idle.on(Members)
    def meet(self, e: Members) -> None:
        self.members = e.members

    @idle.on(Audit)
    def begin(self, e: Audit) -> None:
        self.number += 1
        self.asked, self.sums = e, []
        for member in self.members:
            self.send(member, Mark(self.number, self.me))
        self.jump(self.counting)

    @counting.on(Sum)
    def add(self, e: Sum) -> None:
        self.sums.append(e.cents)
        if len(self.sums) == len(self.members):
            self.reply(self.asked, sum(self.sums))
            self.jump(self.idle)


# -- accounts and brokers


class Open(Event):
    """The first event of an account."""

    cents: int


AccountEvents: TypeAlias = Open | Withdraw | Deposit | Balance | Peers | Mark


class Account(Counted[AccountEvents]):
    """An account."""

    balance: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Open)
    def open(self, e: Open) -> None:
        self.balance = e.cents

    @run.on(Withdraw)
    def withdraw(self, e: Withdraw) -> None:
        if self.balance < e.cents:
            self.send(e.broker, TooLittle())
            return
        self.balance -= e.cents
        self.send(e.broker, Withdrawn(self.me, e.cents))

    @run.on(Deposit)
    def deposit(self, e: Deposit) -> None:
        self.received(e.broker, e.cents)
        if self.balance + e.cents > LIMIT and not e.goes_back:
            self.send(e.broker, Full(self.me, e.cents))
            return
        self.balance += e.cents
        self.send(e.broker, Deposited())

    @run.on(Balance)
    def tell(self, e: Balance) -> None:
        self.reply(e, self.balance)

    @run.on(Peers)
    def meet(self, e: Peers) -> None:
        self.join(e)

    @run.on(Mark)
    def pass_mark(self, e: Mark) -> None:
        self.mark(e, self.balance)


BrokerEvents: TypeAlias = Transfer | Withdrawn | TooLittle | Deposited | Full | Peers | Mark


class Broker(Counted[BrokerEvents]):
    """Does the transfers of one client, one after the other."""

    newest: Register[Transfer] = Register()
    number: Register[int] = Register(0)
    outcome: Register[Outcome] = Register()
    idle = State(start=True)
    withdrawing, depositing, returning = State(defer=(Transfer,)), State(defer=(Transfer,)), State(defer=(Transfer,))

    @idle.on(Transfer)
    def begin(self, e: Transfer) -> None:
        if e.number == self.number:
            self.reply(e, self.outcome)
        elif e.number > self.number:
            self.newest, self.number = e, e.number
            self.send(e.source, Withdraw(self.me, e.cents))
            self.jump(self.withdrawing)

    @withdrawing.on(Withdrawn)
    def go_on(self, e: Withdrawn) -> None:
        self.received(e.account, e.cents)
        self.send(self.newest.target, Deposit(self.me, e.cents))
        self.jump(self.depositing)

    @withdrawing.on(TooLittle)
    def refuse(self, e: TooLittle) -> None:
        self.end("too little")

    @depositing.on(Full)
    def give_back(self, e: Full) -> None:
        self.received(e.account, e.cents)
        self.send(self.newest.source, Deposit(self.me, e.cents, goes_back=True))
        self.jump(self.returning)

    @depositing.on(Deposited)
    def succeed(self, e: Deposited) -> None:
        self.end("done")

    @returning.on(Deposited)
    def fail(self, e: Deposited) -> None:
        self.end("full")

    def end(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.reply(self.newest, outcome)
        self.jump(self.idle)

    @idle.on(Peers)
    def meet(self, e: Peers) -> None:
        self.join(e)

    @idle.on(Mark)
    @withdrawing.on(Mark)
    @depositing.on(Mark)
    @returning.on(Mark)
    def pass_mark(self, e: Mark) -> None:
        self.mark(e, 0)


BANK = App("bank", [Account, Broker, Auditor])
BOOK = "bank"
