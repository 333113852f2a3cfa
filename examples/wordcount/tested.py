"""The word count under the tester: programs that send words at the same time, and what has to be so in each run.

.venv/bin/python -m pytest examples/test_tested.py -k word
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from bokirsm import App, Machine, Ref
from bokirsm.testing import Main, Monitor, Program, TestRsm
from examples.wordcount import app

TEXTS: Final = (("to", "be"), ("or", "to"), ("be",), ("to",))
"""The batches of words that one program sends; another sends them in reverse."""
SENT: Final = Counter(word for batch in TEXTS for word in batch * 2)


class CountsAreRight(Monitor):
    """At the end the counters have counted all words, and the top machine knows the most frequent one."""

    def ended(self) -> None:
        counted: Counter[str] = Counter()
        for one in self.machines(app.Counter):
            assert not counted.keys() & one.counts.keys(), "a word is counted by one machine"
            counted.update(one.counts)
        assert counted in (SENT, {}), f"the counters have {dict(counted)}"
        (top,) = self.machines(app.Max)
        assert (top.word, top.count) == ("to", SENT["to"]), f"the most frequent word is {top.word!r} with {top.count}"


async def _send(rsm: TestRsm, counters: list[Ref[app.CounterEvents]], texts: tuple[tuple[str, ...], ...]) -> None:
    for batch in texts:
        for number, counter in enumerate(counters):
            words = [word for word in batch if len(word) * ord(word[0]) % len(counters) == number]
            await rsm.send(counter, app.Words(words))


def counting(counter: type[Machine[app.CounterEvents]] = app.Counter) -> Main:
    """Return the program that counts words. `counter`: the class of the machines that count."""

    async def main(rsm: TestRsm) -> None:
        top = await rsm.create(app.Max, key="max")
        counters = [await rsm.create(counter, app.Begin(top), key=f"counter-{number}") for number in (1, 2)]
        rsm.start(_send(rsm, counters, TEXTS))
        rsm.start(_send(rsm, counters, TEXTS[::-1]))

    return main


def word_count(counter: type[Machine[app.CounterEvents]] = app.Counter) -> Program:
    """Return the word count as the subject of a test."""
    return Program(App("words", [counter, app.Max]), counting(counter), [CountsAreRight])
