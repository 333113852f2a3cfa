"""The machines that are measured, and a host of them that is a process of its own.

    python -m benchmarks.rsm_programs URL BOOK NAME LEASE_S [CARRY_S]

It ends with its input, and answers questions before (`benchmarks.rsm_child`): its partitions, and the latencies of messages. With
BENCH_RSM_PROFILE in its environment it writes a profile of its whole run to that file.
"""

from __future__ import annotations

import asyncio
import cProfile
import os
import sys
from array import array
from contextlib import nullcontext
from time import perf_counter
from typing import Final

import boki
from benchmarks.rsm_child import serve
from boki_common.runtime.process import loop_factory, tune_memory
from bokirsm import App, Ask, Event, Host, Machine, Ref, Register, State, Table

BOOK: Final = "machines"
DAY_S: Final = 86_400
PROFILE: Final = "BENCH_RSM_PROFILE"
TAKEN: Final = array("d")
"""Seconds from the handler that sent a message to the one that took it, of each message of this process; the clock is the machine's."""


# -- counters


class Add(Ask[int]):
    """A number to add, answered by the sum so far."""

    number: int


class Counter(Machine[Add]):
    """Adds."""

    total: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Add)
    def add(self, e: Add) -> None:
        self.total += e.number
        self.reply(e, self.total)


# -- ping-pong


class Ball(Event):
    """A ball that flies until a time, and when it was sent."""

    until_s: float
    sent_s: float
    data: bytes


class Serve(Event):
    """The first ball of a rally with another player."""

    other: Ref[Ball]
    until_s: float
    data: bytes


class Player(Machine[Serve | Ball]):
    """Sends balls back to the other player."""

    other: Register[Ref[Ball]] = Register()
    run = State(start=True)

    @run.on(Serve)
    def serve(self, e: Serve) -> None:
        self.other = e.other
        if e.data:
            self.send(e.other, Ball(e.until_s, perf_counter(), e.data))

    @run.on(Ball)
    def back(self, e: Ball) -> None:
        now_s = perf_counter()
        TAKEN.append(now_s - e.sent_s)
        if now_s < e.until_s:
            self.send(self.other, Ball(e.until_s, perf_counter(), e.data))


# -- word count


class Freq(Event):
    """A word has reached a count that is the highest of its counter."""

    word: str
    count: int


class Begin(Event):
    """The first event of a counter of words: the machine that it tells its highest counts."""

    top: Ref[Freq]


class Words(Ask[int]):
    """A batch of words, answered by how many they are."""

    words: list[str]


class WordCounter(Machine[Begin | Words]):
    """Counts its part of the words; it tells its highest count once a batch."""

    counts: Table[str, int] = Table()
    high: Register[int] = Register(0)
    top: Register[Ref[Freq]] = Register()
    run = State(start=True)

    @run.on(Begin)
    def begin(self, e: Begin) -> None:
        self.top = e.top

    @run.on(Words)
    def count(self, e: Words) -> None:
        counts, high, best = self.counts, self.high, ""
        for word in e.words:
            count = counts[word] = counts.get(word, 0) + 1
            if count > high:
                high, best = count, word
        if best:
            self.high = high
            self.send(self.top, Freq(best, high))
        self.reply(e, len(e.words))


class Top(Machine[Freq]):
    """Knows the most frequent word."""

    word: Register[str] = Register("")
    count: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Freq)
    def check(self, e: Freq) -> None:
        if e.count > self.count:
            self.word, self.count = e.word, e.count


# -- creation


class Make(Ask[int]):
    """A number of machines to create, answered by it."""

    count: int


class Poke(Ask[int]):
    """A question to a machine that does nothing else."""


class Blank(Machine[Poke]):
    """Exists."""

    pokes: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Poke)
    def poke(self, e: Poke) -> None:
        self.pokes += 1
        self.reply(e, self.pokes)


class Maker(Machine[Make]):
    """Creates machines."""

    run = State(start=True)

    @run.on(Make)
    def make(self, e: Make) -> None:
        for _ in range(e.count):
            self.create(Blank)
        self.reply(e, e.count)


# -- producer and consumer


class More(Event):
    """A batch was consumed: the producer may send another."""


class Produce(Event):
    """An order to send batches of messages until a time, some of which are under way at once."""

    consumer: Ref[Data]
    until_s: float
    data: bytes
    batch: int
    ahead: int


class Data(Event):
    """A message; the last one of a batch names the producer."""

    sent_s: float
    data: bytes
    answer: Ref[More] | None = None


class Producer(Machine[Produce | More]):
    """Sends a batch for each that was consumed."""

    order: Register[Produce] = Register()
    run = State(start=True)

    @run.on(Produce)
    def begin(self, e: Produce) -> None:
        self.order = e
        for _ in range(e.ahead):
            self.send(self.me, More())

    @run.on(More)
    def more(self, e: More) -> None:
        order, now_s = self.order, perf_counter()
        if now_s < order.until_s:
            message = Data(now_s, order.data)
            for _ in range(order.batch - 1):
                self.send(order.consumer, message)
            self.send(order.consumer, Data(now_s, order.data, self.me))


class Consumer(Machine[Data]):
    """Counts the bytes that it gets."""

    total: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Data)
    def take(self, e: Data) -> None:
        TAKEN.append(perf_counter() - e.sent_s)
        self.total += len(e.data)
        if e.answer is not None:
            self.send(e.answer, More())


# -- deferring


class Letter(Event):
    """An event that waits."""

    data: bytes


class Open(Ask[int]):
    """The end of waiting, answered by how many letters came."""


class Deferring(Machine[Letter | Open]):
    """Reads its letters after it was opened."""

    read: Register[int] = Register(0)
    closed, opened = State(start=True, defer=(Letter,)), State()

    @closed.on(Open)
    def open(self, e: Open) -> None:
        self.reply(e, 0)
        self.jump(self.opened)

    @opened.on(Open)
    def tell(self, e: Open) -> None:
        self.reply(e, self.read)

    @opened.on(Letter)
    def take(self, e: Letter) -> None:
        self.read += 1


MACHINES: Final = App("bench", [Counter, Player, WordCounter, Top, Blank, Maker, Producer, Consumer, Deferring])


def taken() -> list[float]:
    """Return the latencies since the question before."""
    found = list(TAKEN)
    del TAKEN[:]
    return found


async def run(url: str, book: str, name: str, lease_s: float, carry_s: float) -> None:
    """Run a host until the input ends."""
    async with (
        boki.connect(url) as client,
        Host(MACHINES, client.book(book), name=name, lease_s=lease_s, carry_s=carry_s) as host,
    ):
        await serve({"partitions": lambda: host.partitions, "taken": taken})


def main() -> None:
    url, book, name, lease_s, carry_s = (*sys.argv[1:], str(DAY_S))[:5]
    tune_memory()
    profile = cProfile.Profile() if PROFILE in os.environ else None
    with asyncio.Runner(loop_factory=loop_factory()) as runner, profile or nullcontext():
        runner.run(run(url, book, name, float(lease_s), float(carry_s)))
    if profile is not None:
        profile.dump_stats(f"{os.environ[PROFILE]}-{name}")


if __name__ == "__main__":
    main()
