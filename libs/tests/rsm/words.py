"""The word count of the paper: machines that tests of several rooms use."""

from __future__ import annotations

from bokirsm import Ask, Event, Machine, Ref, Register, State, Table, Volatile


class Freq(Event):
    text: str
    count: int


class Init(Event):
    target: Ref[Freq]


class Word(Ask[int]):
    text: str


class Counter(Machine[Init | Word]):
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
    def count(self, e: Word) -> None:
        n = self.freq[e.text] = self.freq.get(e.text, 0) + 1
        self.since_crash += 1
        if n > self.high:
            self.high = n
            self.send(self.target, Freq(e.text, n))
        self.reply(e, n)


class Best(Ask[str]):
    pass


class Max(Machine[Freq | Best]):
    high: Register[int] = Register(0)
    word: Register[str] = Register("")
    run = State(start=True)

    @run.on(Freq)
    def check(self, e: Freq) -> None:
        if e.count > self.high:
            self.high, self.word = e.count, e.text

    @run.on(Best)
    def best(self, e: Best) -> None:
        self.reply(e, f"{self.word} {self.high}")
