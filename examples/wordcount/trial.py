"""A trial of the word count: words are sent while hosts are killed and stopped; then all counts are compared with those of Python.

result = await trial(directory, words, seconds=10, seed=7, say=print)
result.faults                                   # sentences; [] if all counts are equal
"""

from __future__ import annotations

import asyncio
import random
import re
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Final, NamedTuple

import boki
from bokirsm import Ref, Rsm
from examples.machine_hosts import SETTLE_S, TIMEOUT_S, repeated, running_hosts
from examples.wordcount import app
from examples.wordcount.app import BOOK, WORDS, Begin, Best, CounterEvents, Counts, Words

BATCH: Final = 40


class TrialResult(NamedTuple):
    """Result of a trial.

    Attributes:
        best: the most frequent word and its count, as the machines say.
        sent: words that were sent.
        distinct: different words among them.
        struck: strikes by kind.
        faults: sentences; [] if all counts are equal to those of Python.
    """

    best: tuple[str, int]
    sent: int
    distinct: int
    struck: Counter[str]
    faults: list[str]


def words_of(text: str) -> list[str]:
    """Return the words of a text, in small letters."""
    return re.findall(r"[a-z]+", text.lower())


def check(sent: Counter[str], counts: Sequence[dict[str, int]], best: tuple[str, int]) -> list[str]:
    """Return the faults of the counts of all counters, and of the most frequent word, given the words that were sent."""
    found = sum((Counter(one) for one in counts), Counter[str]())
    faults = [
        f"{word!r} was sent {sent[word]} times, and counted {found[word]} times"
        for word in sent | found
        if sent[word] != found[word]
    ]
    expected = min(sent.items(), key=lambda one: (-one[1], one[0]))
    return faults + ([f"expected {expected} to be the most frequent word, found {best}"] if best != expected else [])


class WordCount:
    """The machines as the program that sends words sees them.

    Attributes:
        sent: how often each word was sent.
    """

    def __init__(self, rsm: Rsm, top: Ref[Best], counters: Sequence[Ref[CounterEvents]]) -> None:
        self.sent: Final = Counter[str]()
        self._rsm: Final = rsm
        self._top: Final = top
        self._counters: Final = counters
        self._batches = 0

    @classmethod
    async def create(cls, rsm: Rsm, counters: int) -> WordCount:
        """Create the machines. With keys, so that a second call returns the same ones."""
        top = await rsm.create(app.Max, key="max")
        numbers = range(1, counters + 1)
        return cls(rsm, top, [await rsm.create(app.Counter, Begin(top), key=f"counter-{number}") for number in numbers])

    async def send(self, words: Sequence[str]) -> None:
        """Send a batch: to each counter its part. A send without an answer is repeated under its id, and counts once."""
        self._batches += 1
        parts: dict[int, list[str]] = {}
        for word in words:
            parts.setdefault(zlib.crc32(word.encode()) % len(self._counters), []).append(word)

        async def send(number: int, part: list[str]) -> None:
            id = f"batch-{self._batches}-{number}"
            await repeated(partial(self._rsm.send, self._counters[number], Words(part), dedup_id=id))

        await asyncio.gather(*(send(number, part) for number, part in parts.items()))
        self.sent.update(words)

    async def result(self) -> tuple[list[dict[str, int]], tuple[str, int]]:
        """Return the counts of all counters, and the most frequent word.

        A counter answers after it has counted all words that were sent before. By then what it sent to `Max` is in the log, before the
        question that `Max` gets.
        """
        counts = [await repeated(partial(self._rsm.ask, Counts().to(one))) for one in self._counters]
        return counts, await repeated(partial(self._rsm.ask, Best().to(self._top)))


async def trial(
    directory: Path,
    words: Sequence[str],
    *,
    seconds: float = 10.0,
    seed: int = 1,
    counters: int = 4,
    hosts: int = 3,
    say: Callable[[str], None] = lambda _: None,
) -> TrialResult:
    """Run a trial; see the module. It sends the words again and again for so many seconds.

    Raises:
        TimeoutError: the machines did not answer within SETTLE_S after the last strike.
    """
    async with (
        running_hosts(directory, "examples.wordcount.host", count=hosts) as processes,
        boki.connect(processes.url, timeout=TIMEOUT_S) as client,
        Rsm(WORDS, client.book(BOOK)) as rsm,
    ):
        count = await WordCount.create(rsm, counters)
        await count.send(words[:BATCH])
        await count.result()  # the hosts have begun
        async with asyncio.timeout(seconds + SETTLE_S):
            strikes = asyncio.create_task(processes.strike(seconds=seconds, chance=random.Random(seed), say=say))
            for start in cycle(range(0, len(words), BATCH)):
                await count.send(words[start : start + BATCH])
                if strikes.done():
                    break
            await strikes
            counts, best = await count.result()
    faults = processes.faults + check(count.sent, counts, best)
    return TrialResult(best, count.sent.total(), len(count.sent), processes.struck, faults)
