"""The machines of the bank: accounts, and brokers that transfer money in steps.

A transfer is a conversation of a broker with two accounts. The state of the broker says how far it is:

    idle ──Transfer──► withdrawing ──Withdrawn──► depositing ──Deposited──► idle: "done"
                            │                         │
                            │ TooLittle               │ Full: the money goes back
                            ▼                         ▼
                          idle: "too little"      returning ──Deposited──► idle: "full"

- A client has a broker of its own and numbers its transfers, so the broker knows a question that it gets again: it answers the newest
  number once more, and forgets older ones. What it stores does not grow.
- Money is in an account, or in an event on its way: `Withdrawn`, `Deposit` or `Full`. `audit` counts both.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from bokirsm import App, Ask, Event, Ref, Register, State
from examples.banking.audit import Auditor, Counted, Mark, Peers

Outcome: TypeAlias = Literal["done", "too little", "full"]

LIMIT: Final = 2_000
"""The most cents of an account after a deposit; money that goes back to an account is never refused."""


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


class Open(Event):
    """The first event of an account."""

    cents: int


class Balance(Ask[int]):
    """A question for the cents of an account."""


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


BANK: Final = App("bank", [Account, Broker, Auditor])
BOOK: Final = "bank"
