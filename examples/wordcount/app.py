"""The machines of the word count: counters, each of which has a part of the words, and one that knows the most frequent word of all.

A counter gets words in batches. It counts them in a table and tells the `Max` machine each time that a word reaches its highest count.
What a batch changes and sends is one record, so each word counts once.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from bokirsm import App, Ask, Event, Machine, Ref, Register, State, Table


class Freq(Event):
    """A word has reached a count."""

    word: str
    count: int


class Begin(Event):
    """The first event of a counter: the machine that it tells its highest counts."""

    top: Ref[Freq]


class Words(Event):
    """A batch of words to count."""

    words: list[str]


class Counts(Ask[dict[str, int]]):
    """A question for the counts of all words of a counter."""


class Best(Ask[tuple[str, int]]):
    """A question for the most frequent word, the first of the alphabet if there are several, and its count."""


CounterEvents: TypeAlias = Begin | Words | Counts


class Counter(Machine[CounterEvents]):
    """Counts its part of the words."""

    counts: Table[str, int] = Table()
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


class Max(Machine[Freq | Best]):
    """Knows the most frequent word of all counters."""

    word: Register[str] = Register("")
    count: Register[int] = Register(0)
    run = State(start=True)

    @run.on(Freq)
    def check(self, e: Freq) -> None:
        if (-e.count, e.word) < (-self.count, self.word):
            self.word, self.count = e.word, e.count

    @run.on(Best)
    def tell(self, e: Best) -> None:
        self.reply(e, (self.word, self.count))


WORDS: Final = App("words", [Counter, Max])
BOOK: Final = "wordcount"
