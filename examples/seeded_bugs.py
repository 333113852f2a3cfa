"""Bugs that the tester has to find: machines of the word count and of the bank, each wrong in one place.

| bug | the machines |
|---|---|
| volatile map | a counter keeps its counts in memory |
| hash of a process | a router sends words by the builtin `hash` |
| early credit | a broker sends the credit before it knows that the debit is certain |
| unhandled event | a broker has no handler of `Full` |
| timer left | a broker with a patience does not cancel the timer of a transfer that is done |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bokirsm import App, Event, Machine, Ref, Register, State, Volatile
from bokirsm.testing import Program, TestRsm
from examples.banking.app import BrokerEvents, Deposit, Deposited, Full, TooLittle, Transfer, Withdraw, Withdrawn
from examples.banking.audit import Counted, Mark, Peers
from examples.banking.tested import bank
from examples.wordcount.app import Begin, Counter, CounterEvents, Counts, Freq, Max, Words
from examples.wordcount.tested import CountsAreRight, word_count


class VolatileCounter(Machine[CounterEvents]):
    """A counter that loses its counts."""

    counts: Volatile[dict[str, int]] = Volatile(dict)
    high: Register[int] = Register(0)
    top: Register[Ref[Freq]] = Register()
    run = State(start=True)

    @run.on(Begin)
    def begin(self, e: Begin) -> None:
        self.top = e.top

    @run.on(Words)
    def count(self, e: Words) -> None:
        for word in e.words:
            count = self.counts[word] = self.counts.get(word, 0) + 1
            if count >= self.high:
                self.high = count
                self.send(self.top, Freq(word, count))

    @run.on(Counts)
    def tell(self, e: Counts) -> None:
        self.reply(e, dict(self.counts))


class Counters(Event):
    """The machines that count."""

    counters: list[Ref[CounterEvents]]


class Router(Machine[Counters | Words]):
    """Sends each word to its counter, the paper's main machine: by a hash that differs in each process."""

    counters: Register[list[Ref[CounterEvents]]] = Register([])
    run = State(start=True)

    @run.on(Counters)
    def begin(self, e: Counters) -> None:
        self.counters = e.counters

    @run.on(Words)
    def route(self, e: Words) -> None:
        for word in e.words:
            self.send(self.counters[hash(word) % len(self.counters)], Words([word]))


def process_hash() -> Program:
    """Return a word count with a router."""

    async def main(rsm: TestRsm) -> None:
        top = await rsm.create(Max, key="max")
        counters = [await rsm.create(Counter, Begin(top), key=f"counter-{number}") for number in (1, 2)]
        router = await rsm.create(Router, Counters([*counters]), key="router")
        for batch in (["to", "be"], ["or", "to"], ["be", "to"]):
            await rsm.send(router, Words(batch))
            await rsm.send(router, Words(batch))

    return Program(App("words", [Counter, Max, Router]), main, [CountsAreRight])


class EarlyBroker(Counted[BrokerEvents]):
    """A broker that credits the target before it knows that the source has the money."""

    newest: Register[Transfer] = Register()
    number: Register[int] = Register(0)
    idle = State(start=True, ignore=(Withdrawn, TooLittle))
    busy = State(defer=(Transfer,), ignore=(TooLittle,))

    @idle.on(Transfer)
    def begin(self, e: Transfer) -> None:
        if e.number <= self.number:
            self.reply(e, "done")
            return
        self.newest, self.number = e, e.number
        self.send(e.source, Withdraw(self.me, e.cents))
        self.send(e.target, Deposit(self.me, e.cents, goes_back=True))
        self.jump(self.busy)

    @busy.on(Withdrawn)
    def count(self, e: Withdrawn) -> None:
        self.received(e.account, e.cents)

    @busy.on(Deposited)
    def end(self, e: Deposited) -> None:
        self.reply(self.newest, "done")
        self.jump(self.idle)

    @idle.on(Peers)
    def meet(self, e: Peers) -> None:
        self.join(e)

    @idle.on(Mark)
    @busy.on(Mark)
    def pass_mark(self, e: Mark) -> None:
        self.mark(e, 0)


class DeafBroker(Counted[BrokerEvents]):
    """A broker that expects each deposit to succeed."""

    newest: Register[Transfer] = Register()
    number: Register[int] = Register(0)
    idle = State(start=True)
    withdrawing, depositing = State(defer=(Transfer,)), State(defer=(Transfer,))

    @idle.on(Transfer)
    def begin(self, e: Transfer) -> None:
        if e.number <= self.number:
            self.reply(e, "done")
            return
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
        self.end()

    @depositing.on(Deposited)
    def succeed(self, e: Deposited) -> None:
        self.end()

    def end(self) -> None:
        self.reply(self.newest, "done")
        self.jump(self.idle)

    @idle.on(Peers)
    def meet(self, e: Peers) -> None:
        self.join(e)

    @idle.on(Mark)
    @withdrawing.on(Mark)
    @depositing.on(Mark)
    def pass_mark(self, e: Mark) -> None:
        self.mark(e, 0)


class Late(Event):
    """A transfer takes long."""


class PatientBroker(Machine[BrokerEvents | Late]):
    """A broker that counts transfers that take long, and forgets to cancel the timer of one that is done."""

    newest: Register[Transfer] = Register()
    number: Register[int] = Register(0)
    late: Register[int] = Register(0)
    cancels = False
    idle = State(start=True, ignore=(Peers, Mark))
    busy = State(defer=(Transfer,), ignore=(Peers, Mark))

    @idle.on(Transfer)
    def begin(self, e: Transfer) -> None:
        self.newest, self.number = e, e.number
        self.send(e.source, Withdraw(self.me, e.cents))
        self.after(5, Late())
        self.jump(self.busy)

    @busy.on(Withdrawn)
    def go_on(self, e: Withdrawn) -> None:
        self.send(self.newest.target, Deposit(self.me, e.cents))

    @busy.on(Full)
    def give_back(self, e: Full) -> None:
        self.send(self.newest.source, Deposit(self.me, e.cents, goes_back=True))

    @busy.on(Late)
    def count(self, e: Late) -> None:
        self.late += 1

    @busy.on(Deposited, TooLittle)
    def end(self, e: Deposited | TooLittle) -> None:
        self.reply(self.newest, "done")
        if self.cancels:
            self.cancel("Late")
        self.jump(self.idle)


class CarefulBroker(PatientBroker):
    """The same, without the bug."""

    cancels = True


def volatile_map() -> Program:
    """Return the word count with counters that lose their counts."""
    return word_count(VolatileCounter)


def early_credit() -> Program:
    """Return the bank with brokers that credit too early."""
    return bank(EarlyBroker)


def unhandled_event() -> Program:
    """Return the bank with brokers that do not expect a full account."""
    return bank(DeafBroker)


def timer_left() -> Program:
    """Return the bank with brokers that leave their timers."""
    return bank(PatientBroker, audits=False)


BUGS: Final[dict[str, Callable[[], Program]]] = {
    one.__name__: one for one in (volatile_map, process_hash, early_credit, unhandled_event, timer_left)
}
"""The subject of a test by bug."""
