"""Types: a typed program is accepted by pyright as it stands, and each of the wrong ones is refused at its wrong line."""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.tests.typed_programs import check_typed_programs

GOOD = """
from collections.abc import Sequence

import boki
import bokirsm.sync
from bokilib import Contribution
from bokirsm import Answers, App, Ask, Delivery, Event, Host, Machine, Plugin, Ref, Register, Rsm, State, Table, Volatile


class Freq(Event, name="WordFreq"):
    text: str
    count: int


class Init(Event):
    target: Ref[Freq]


class Word(Ask[int]):
    text: str


class Mail(Event):
    text: str


class Sms(Event):
    number: int


class Posts(Plugin[Mail | Sms], name="posts", timeout_s=5, most=10):
    async def deliver(self, batch: Sequence[Delivery[Mail | Sms]]) -> Answers:
        for one in batch:
            sent = one.event.text if isinstance(one.event, Mail) else str(one.event.number)
            print(one.id, one.attempt, sent)
        return [(one.machine, Word("sent")) for one in batch]


class Counter(Machine[Init | Word], name="WordCounter"):
    freq: Table[str, int] = Table()
    high: Register[int] = Register(0)
    target: Register[Ref[Freq]] = Register()
    since_crash: Volatile[int] = Volatile(int)
    waiting, counting = State(start=True, defer=(Word,)), State()

    @waiting.on(Init)
    def setup(self, e: Init) -> None:
        self.target = e.target
        self.jump(self.counting)

    @counting.on(Word)
    async def count(self, e: Word) -> None:
        n = self.freq[e.text] = self.freq.get(e.text, 0) + 1
        self.since_crash += 1
        if n > self.high:
            self.high = n
            self.send(self.target, Freq(e.text, n))
        self.reply(e, n)
        self.emit(Posts, Mail(e.text))
        self.emit(Posts, Sms(n))
        self.also(Contribution())
        self.send(self.target, Freq(e.text, n), at_most_once=True)

    @counting.entry
    def enter(self) -> None:
        self.after(3, Word("x"), every=4)
        self.send(self.me, Init(self.create(Max, Freq("a", 1), near=self.me)))

    @counting.on(Event)
    def other(self, e: Event) -> None:
        self.halt()


class Max(Machine[Freq]):
    run = State(start=True, ignore=(Freq,))


async def main(book: boki.Book) -> int:
    app = App("words", [Counter, Max], plugins=[Posts])
    async with Host(app, book, name="host-1", plugins=[Posts()]) as host, Rsm(app, book) as rsm:
        counter = await host.create(Counter, Init(await host.create(Max, key="max")), key="c-1")
        seqnum: int = await rsm.send(counter, Word("a"), dedup_id="x")
        await rsm.send_many([(counter, Word("b")), (counter, Word("c"))])
        return seqnum + await host.ask(Word("a").to(counter))


def blocking(book: boki.sync.Book) -> int:
    with bokirsm.sync.Rsm(App("words", [Counter, Max]), book) as rsm:
        counter = rsm.create(Counter, Init(rsm.create(Max, key="max")), key="c-1")
        seqnum: int = rsm.send(counter, Word("a"), dedup_id="x") + rsm.send_many([(counter, Word("b"))])
        return seqnum + rsm.ask(Word("a").to(counter), timeout_s=3)
"""

WRONG = {
    "an answer of another type": 'm.reply(w, "x")',
    "a timer of a foreign event": 'm.after(3, Freq("a", 1))',
    "an output that the plugin does not deliver": 'm.emit(Posts, Freq("a", 1))',
    "an output for a machine": 'm.emit(Counter, Word("a"))',
    "a part that is no contribution": "m.also(w)",
    "a state that is a text": 'm.jump("counting")',
    "an event that is changed": 'w.text = "b"',
    "a register of another type": 'm.high = "x"',
    "a table of another type": 'm.freq["a"] = "x"',
    "a first event that is foreign": 'm.first(Freq("a", 1))',
    "an event that the machine does not accept": 'm.send(c, Freq("a", 1))',
    "a first event of another machine": "m.create(Max, Init(top))",
    "a field that is not declared": "m.total = 5",
    "an event from outside that is not accepted": 'await host.send(c, Freq("a", 1))',
    "a question that is not accepted": "await host.ask(Name().to(c))",
    "a question that is none": "await host.ask(Init(top))",
    "a machine that is created with another event": 'await host.create(Max, Init(top), key="m")',
    "an answer that is used as another type": "text: str = await host.ask(w.to(c))",
    "a blocking send of an event that is not accepted": 'rsm.send(c, Freq("a", 1))',
    "a blocking creation with another event": "rsm.create(Max, Init(top))",
    "a blocking answer that is used as another type": "text: str = rsm.ask(w.to(c))",
}

FRAME = """
from bokirsm import Ask, Host, Ref
from bokirsm.sync import Rsm
from good import Counter, Freq, Init, Max, Posts, Word


class Name(Ask[str]):
    pass


async def wrong(
    host: Host, c: Ref[Init | Word], m: Counter, top: Ref[Freq], w: Word, max: type[Max], rsm: Rsm
) -> str:
"""


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_pyright_in_its_strict_mode(tmp_path: Path) -> None:
    check_typed_programs(
        tmp_path,
        GOOD,
        FRAME,
        list(WRONG.values()),
        ("bokirsm", "bokilib"),
        end="    return ''\n",
        reportUnusedExpression="none",
        reportUnusedImport="none",
    )
