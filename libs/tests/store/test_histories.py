"""Histories of several processes, checked for cycles at both levels; and stores with a rule broken, which the check finds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from bokilib.records.isolation import Isolation
from bokistore import BokiStore, StoreSettings, Transaction
from bokistore.testing.cycles import Transacted, anomalies

KEYS = ["a", "b", "c"]


async def history(seed: int, isolation: Isolation, *, grouped: bool) -> list[str]:
    """What is wrong with what three processes did, at random."""
    rng = random.Random(seed)
    done: list[Transacted] = []
    settings = StoreSettings(
        isolation=isolation,
        checkpoint_records=rng.choice([3, 1_000]),
        grace_ms=10**9,
        followed_objects=10 * (seed % 2),
    )
    async with MemoryCluster() as cluster:
        stores = [BokiStore((await cluster.connect()).book("b"), settings=settings) for _ in range(3)]

        async def body(tx: Transaction, one: Transacted, choices: random.Random) -> None:
            one.read, one.appended = {}, {}
            for key in choices.sample(KEYS, 2):
                value = await tx[key].get("l", [])
                assert isinstance(value, list)
                one.read[key] = [item for item in value if isinstance(item, int)]
                for _ in range(choices.randrange(4)):
                    await asyncio.sleep(0)
            key = choices.choice(KEYS)
            tx[key].push("l", one.number)
            one.appended[key] = one.number

        async def client(store: BokiStore, first: int) -> None:
            for number in range(first, first + 4):
                one, choices = Transacted(number), random.Random(seed * 1_000 + number)
                try:
                    if grouped:
                        await store.transact(body, one, choices)
                    else:
                        async with store.transaction() as tx:
                            await body(tx, one, choices)
                except boki.Conflict:
                    continue
                done.append(one)

        await asyncio.gather(*(client(stores[n % 3], n * 100 + 1) for n in range(9 if grouped else 6)))
        last: dict[str, list[int]] = {}
        for key in KEYS:
            found: Any = await stores[0].object(key).get("l", [], consistency="linearizable")
            last[key] = found
        for store in stores:
            await store.close()
    return anomalies(done, last, serializable=isolation == "serializable")


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("seed", range(15))
async def test_serializable_histories_have_no_cycle(seed: int, grouped: bool) -> None:
    assert await history(seed, "serializable", grouped=grouped) == []


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("seed", range(15))
async def test_histories_of_snapshots_have_no_lost_update_no_read_skew_and_no_long_fork(
    seed: int, grouped: bool
) -> None:
    assert await history(seed, "snapshot", grouped=grouped) == []


async def found_in(seeds: Iterable[int], isolation: Isolation, *, grouped: bool) -> bool:
    for seed in seeds:
        if await history(seed, isolation, grouped=grouped):
            return True
    return False


async def test_write_skew_is_there_at_snapshot_isolation_and_the_check_finds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Serializable by name, with the expectations of a snapshot."""

    def as_a_snapshot(isolation: str, snapshot: int, *, read: Any, written: Iterable[str]) -> dict[str, int | None]:
        return dict.fromkeys(written, snapshot)

    monkeypatch.setattr("bokistore.commit.transaction_rules.expectations", as_a_snapshot)
    assert await found_in(range(40), "serializable", grouped=False)


async def test_without_expectations_updates_are_lost_and_the_check_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bokistore.commit.transaction_rules.expectations", lambda *_, **__: {})
    assert await found_in(range(40), "snapshot", grouped=False)


async def test_the_higher_snapshot_of_a_group_loses_updates_and_the_check_finds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def highest(several: Iterable[Mapping[str, int | None]]) -> dict[str, int | None]:
        together: dict[str, int | None] = {}
        for expected in several:
            for tag, seqnum in expected.items():
                together[tag] = max(together.get(tag) or 0, seqnum or 0)
        return together

    monkeypatch.setattr("bokilib.records.contribution.lowest", highest)
    monkeypatch.setattr("bokistore.commit.group_rules.must_see", lambda later, earlier: False)
    assert await found_in(range(40), "serializable", grouped=True)


async def test_members_that_do_not_see_one_another_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bokistore.commit.group_rules.must_see", lambda later, earlier: False)
    assert await found_in(range(40), "serializable", grouped=True)
