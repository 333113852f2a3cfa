"""Tests of the word count: its machines, the check at the end, and trials under kill -9 and SIGSTOP.

    .venv/bin/python -m pytest examples/test_wordcount.py -m "not processes"    # without the trials

A nightly test runs for a minute.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from boki.testing import MemoryCluster
from bokirsm import Host
from examples.wordcount.__main__ import TEXT
from examples.wordcount.app import BOOK, WORDS
from examples.wordcount.trial import WordCount, check, trial, words_of


async def test_the_machines_count_as_python_does() -> None:
    words = words_of(TEXT.read_text())
    async with MemoryCluster() as cluster, Host(WORDS, (await cluster.connect()).book(BOOK)) as host:
        count = await WordCount.create(host.rsm, 3)
        for start in range(0, len(words), 500):
            await count.send(words[start : start + 500])
        counts, best = await count.result()
    assert count.sent == Counter(words)
    assert len(counts) == 3 and all(counts)
    assert check(count.sent, counts, best) == []


def test_each_fault_is_found() -> None:
    sent = Counter(["to", "be", "or", "not", "to", "be"])
    assert check(sent, [{"be": 2, "or": 1}, {"to": 2, "not": 1}], ("be", 2)) == []
    assert check(sent, [{"be": 1, "or": 1}, {"to": 2, "not": 1, "a": 1}], ("to", 2)) == [
        "'be' was sent 2 times, and counted 1 times",
        "'a' was sent 0 times, and counted 1 times",
        "expected ('be', 2) to be the most frequent word, found ('to', 2)",
    ]


@pytest.mark.processes
@pytest.mark.waits
@pytest.mark.timeout(200)
async def test_a_short_trial_of_the_word_count(tmp_path: Path) -> None:
    found = await trial(tmp_path, words_of(TEXT.read_text()), seconds=6, seed=3)
    assert found.faults == []
    assert found.struck.total() >= 1


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.timeout(600)
async def test_a_minute_of_the_word_count(tmp_path: Path) -> None:
    found = await trial(tmp_path, words_of(TEXT.read_text()), seconds=60, seed=7)
    assert found.faults == []
