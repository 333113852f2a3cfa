"""A store as a whole: crashes at every operation of transactions, unknown outcomes, a second process anywhere; and what it costs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

import boki
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.ports import BookPort
from bokilib.records.tags import bucket_of
from bokilib.testing import UNANSWERED, UNKNOWNS, crash_everywhere, start_anywhere, while_alive
from bokistore import BokiStore, Inc, StoreSettings, Transaction
from bokistore.model.directory_rules import of_bucket
from libs.tests.store.conftest import Another

BARE = StoreSettings(checkpoints=False)
TOTAL = 100
NIGHTLY = [pytest.mark.nightly, pytest.mark.timeout(900)]


async def transfer(tx: Transaction, amount: int) -> None:
    """Once, however often it is run: the transfer's own object says that it was done."""
    if await tx[f"transfer{amount}"].exists():
        return
    alice, bob = tx["alice"], tx["bob"]
    left = await alice.get("balance", TOTAL)
    assert isinstance(left, int) and left >= amount
    alice.set("balance", left - amount)
    bob.inc("balance", amount)
    tx[f"transfer{amount}"].set("done", True)


async def transfers(book: BookPort) -> None:
    store = BokiStore(book, settings=BARE)
    for amount in (10, 20):
        try:
            await store.transact(transfer, amount)
        except boki.OutcomeUnknown as unknown:
            await unknown.outcome()
            await store.transact(transfer, amount)


async def balanced(book: boki.Book) -> None:
    alice, bob = await BokiStore(book, settings=BARE).values(["alice", "bob"], consistency="linearizable")
    assert (alice, bob) == ({"balance": 70}, {"balance": 30})


async def test_transfers_happen_once_at_every_crash_and_pair_of_crashes() -> None:
    explored = await crash_everywhere(transfers, transfers, balanced, pairs=True)
    assert explored.operations >= 7 and explored.runs > 150


async def test_they_happen_once_when_nothing_is_kept_in_memory() -> None:
    """Every read is computed from records: what a process knows beside them decides nothing."""
    explored = await crash_everywhere(transfers, transfers, balanced, always_replay=True)
    assert explored.runs >= 16


async def test_transfers_happen_once_whatever_answer_is_lost() -> None:
    explored = await crash_everywhere(transfers, check=balanced, kinds=UNKNOWNS)
    assert explored.runs == 4


async def transfers_at_once(book: BookPort) -> None:
    """Two transfers, one of which is given up and tried again, beside transactions on other objects that do not wait for them."""
    store = BokiStore(book, settings=BARE)

    async def audit(tx: Transaction, name: str) -> None:
        tx[name].set("balance", [await tx[who].get("balance", 0) for who in ("alice", "bob")])

    async def audits(name: str) -> None:
        for number in range(3):
            await let_pass(0.02)
            await store.transact(audit, f"{name}{number}")

    async def impatient(amount: int) -> None:
        first = asyncio.ensure_future(store.transact(transfer, amount))
        await asyncio.wait([first], timeout=0.05)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await store.transact(transfer, amount)

    async def work() -> None:
        await asyncio.gather(audits("early"), impatient(20))
        await asyncio.gather(audits("late"), impatient(10))

    await while_alive(book, work())


@pytest.mark.parametrize(("later", "pairs"), [((1, 3), False), pytest.param((0, 2, 5), True, marks=NIGHTLY)])
@in_virtual_time
async def test_transfers_happen_once_if_their_process_dies_after_an_append_is_unanswered(
    later: tuple[int, ...], pairs: bool
) -> None:
    explored = await crash_everywhere(
        transfers_at_once, transfers_at_once, balanced, kinds=UNANSWERED, later=later, pairs=pairs, clock=LoopClock()
    )
    assert explored.runs > 10


async def test_transfers_happen_once_with_a_second_process_at_any_point() -> None:
    explored = await start_anywhere(transfers, transfers, balanced)
    assert explored.runs >= 7


async def test_a_crash_never_leaves_half_a_transaction() -> None:
    async def both(book: BookPort) -> None:
        async with BokiStore(book, settings=BARE).transaction() as tx:
            tx["x"].inc("n")
            tx["y"].inc("n")

    async def equal(book: boki.Book) -> None:
        x, y = await BokiStore(book, settings=BARE).values(["x", "y"], consistency="linearizable")
        assert x == y

    await crash_everywhere(both, both, equal, pairs=True)
    await crash_everywhere(lambda book: asyncio.gather(both(book), return_exceptions=True), check=equal, kinds=UNKNOWNS)


async def test_a_store_without_isolation_is_none(store: BokiStore) -> None:
    with pytest.raises(boki.InvalidArgument):
        BokiStore(store.log.book, settings=StoreSettings(isolation="none"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    ["retries", "cached_views", "followed_objects", "checkpoint_records", "grace_ms", "retention_ms", "forget_ms"],
)
def test_a_setting_that_is_out_of_range_is_refused(name: str) -> None:
    for found in (-1, 1.5, "7", None, True, 2**63):
        with pytest.raises(boki.InvalidArgument, match=f"{name}="):
            StoreSettings(**cast(Any, {name: found}))


def test_settings_of_which_none_would_never_end() -> None:
    for name in ("checkpoint_records", "checkpoint_bytes", "grace_ms"):
        with pytest.raises(boki.InvalidArgument, match=f"{name}=.* 1 to"):
            StoreSettings(**cast(Any, {name: 0}))
    for found in (-1, math.inf, math.nan, "1", None):
        with pytest.raises(boki.InvalidArgument, match="followed_within_s="):
            StoreSettings(followed_within_s=found)  # type: ignore[arg-type]
    StoreSettings(retries=0, cached_views=0, followed_objects=2_000, followed_within_s=0, retention_ms=0, forget_ms=0)


Cost = Callable[[BokiStore], Awaitable[object]]


async def _transaction(store: BokiStore) -> None:
    async with store.transaction() as tx:
        tx.send("page", Inc("n", 1))
        tx["x"].inc("n", len(await tx["y"].value() or {}))
        tx["z"].set("a", 1)


async def _snapshot(store: BokiStore) -> None:
    async with store.snapshot() as then:
        await then.values(["x", "y"])
        await then.ids("c")


async def _short_life(store: BokiStore) -> None:
    await store.expire("x", 1)
    assert await store.sweep() == ["x"]


COSTS: dict[str, tuple[int, Cost]] = {
    "an operation": (1, lambda store: store.object("x").inc("n")),
    "several on one object": (1, lambda store: store.object("x").apply(Inc("a", 1), Inc("b", 1))),
    "a transaction": (1, _transaction),
    "a transaction that reads": (0, _snapshot),
    "a read": (0, lambda store: store.object("x").value()),
    "a creation": (1, lambda store: store.collection("c", dict).create("a", {})),
    "a deletion": (1, lambda store: store.delete("x")),
    "a deletion of nothing": (0, lambda store: store.delete("nothing")),
    "64 transactions at once": (1, lambda store: asyncio.gather(*(store.transact(transfer, 1) for _ in range(64)))),
    "a checkpoint": (1, lambda store: store.checkpointer.checkpoint("x")),
    "history": (0, lambda store: store.object("x").history()),
    "the names of all objects": (0, lambda store: store.names()),
    "a checkpoint of names": (
        1,
        lambda store: store.checkpointer.checkpoint_subject(of_bucket("c", bucket_of("there"))),
    ),
    "a time to live": (1, lambda store: store.expire("x", 10**15)),
    "a sweep of nothing": (0, lambda store: store.sweep()),
    "a time to live that is over, and its sweep": (2, _short_life),
    "a round of a carrier that carries nothing": (1, lambda store: store.carrier("a").round()),
    "a round of a carrier": (2, lambda store: store.carrier("a", carry_ms=0).round()),
}


@pytest.mark.parametrize("what", COSTS)
async def test_appends_per_operation(store: BokiStore, what: str) -> None:
    await store.object("x").inc("n")
    await store.collection("c", dict).create("there", {})
    cost, does = COSTS[what]
    before = store.log.appends
    await does(store)
    assert store.log.appends - before == cost


async def test_a_checkpoint_per_so_many_records(another: Another) -> None:
    store = await another(StoreSettings(checkpoint_records=100))
    for _ in range(10):
        await asyncio.gather(*(store.object("x").send(Inc("n", 1)) for _ in range(100)))
        await store.object("x").get("n")
        await store.close()
    assert 1_009 <= store.log.appends <= 1_010


async def test_a_transaction_that_lost_costs_one_more(store: BokiStore, another: Another) -> None:
    other = await another()
    runs: list[int] = []

    async def body(tx: Transaction) -> None:
        found = await tx["x"].get("n", 0)
        runs.append(1)
        if len(runs) == 1:
            await other.object("x").inc("n")
        tx["x"].set("n", int(str(found)) + 1)

    before = store.log.appends
    await store.transact(body)
    assert store.log.appends - before == len(runs) == 2
