"""Figure 8 of the paper: golden logs, and the store against the oracle on random ones. Who commits is the same, record by record."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import boki
from boki.testing import MemoryCluster
from bokistore import BokiStore, Inc, StoreSettings, Transaction
from libs.tests.store.figure_8 import TransactionRecord, committed, parse

GOLDEN = [
    tuple(part.split("=>"))
    for part in (Path(__file__).parent / "golden" / "figure_8.txt").read_text().splitlines()
    if not part.startswith("#")
]


def succeeded(outcome: dict[str, bool]) -> list[str]:
    return sorted(name for name, did in outcome.items() if did)


async def by_the_store(log: Sequence[TransactionRecord]) -> dict[str, bool]:
    """The same history with the store: a process for each transaction, in the order of the log."""
    settings = StoreSettings(isolation="snapshot", checkpoints=False)
    async with MemoryCluster() as cluster:

        async def another() -> BokiStore:
            store = BokiStore((await cluster.connect()).book("b"), settings=settings)
            await store.log.book.now(consistency="linearizable")
            return store

        plain = await another()
        running: dict[str, tuple[BokiStore, Transaction]] = {}
        outcome: dict[str, bool] = {}
        for row in log:
            if row.kind == "write":
                async with plain.transaction(consistency="linearizable") as tx:
                    for name in sorted(row.writes):
                        tx.send(name, Inc("n", 1))
            elif row.kind == "start":
                store = await another()
                running[row.transaction] = store, await store.begin()
            else:
                store, tx = running[row.transaction]
                for name in sorted(row.writes):
                    tx[name].inc("n")
                try:
                    await store.commit(tx)
                    outcome[row.transaction] = True
                except boki.Conflict:
                    outcome[row.transaction] = False
    return outcome


@pytest.mark.parametrize(("text", "expected"), GOLDEN)
async def test_golden_logs(text: str, expected: str) -> None:
    log = parse(text)
    assert succeeded(committed(log)) == expected.split()
    assert await by_the_store(log) == committed(log)


def random_log(rng: random.Random) -> list[TransactionRecord]:
    """Transactions that overlap at random, and plain writes."""
    log: list[TransactionRecord] = []
    idle, running = list("ABCDE"), list[str]()
    while idle or running:
        what = rng.random()
        writes = frozenset(rng.sample("XYZ", rng.randrange(1, 3)))
        if what < 0.2:
            log.append(TransactionRecord("write", "", writes))
        elif idle and (what < 0.6 or not running):
            running.append(idle.pop(0))
            log.append(TransactionRecord("start", running[-1]))
        elif running:
            log.append(TransactionRecord("commit", running.pop(rng.randrange(len(running))), writes))
    return log


@pytest.mark.parametrize("seed", range(60))
async def test_the_store_decides_as_the_paper_does(seed: int) -> None:
    log = random_log(random.Random(seed))
    assert await by_the_store(log) == committed(log)
