"""Histories under all faults at once, in memory: processes that die at any operation and begin anew, answers that are lost, connections
that break, aux data that is gone, damaged or another record's, checkpoints and trims at any point by some who die between their steps,
carriers, days that go by between two steps. What committed is checked for cycles at both levels, as in `test_histories`.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Literal

import msgspec
import pytest

import boki
from boki.testing import MemoryCluster
from bokilib import Fenced
from bokilib.ports import BookPort, ConsistencyName, Expect, Tag, TicketPort
from bokilib.records.isolation import Isolation
from bokilib.retention.checkpoint_rules import GRACE_MS, REWRITE_MS
from bokilib.testing import Died, Fault, FaultKind, FaultyBook
from bokistore import BokiStore, StoreSettings, Transaction
from bokistore.testing.cycles import Transacted, anomalies
from libs.tests.store.conftest import SetClock

KEYS = ["a", "b", "c"]
Ended = Literal["committed", "refused", "unknown"]


class WrongAux:
    """A book whose aux data is gone, damaged, or of another record, as a seed has it."""

    def __init__(self, book: boki.Book, chances: random.Random) -> None:
        self._book = book
        self._chances = chances
        self._last: bytes | None = None

    def _of(self, record: boki.Record) -> boki.Record:
        aux = record.aux_data
        if aux is None:
            return record
        what = self._chances.randrange(5)
        if what == 0:
            aux = None
        elif what == 1:
            at = self._chances.randrange(len(aux))
            aux = aux[:at] + bytes([aux[at] ^ (1 << self._chances.randrange(8))]) + aux[at + 1 :]
        elif what == 2:
            aux = self._last
        self._last = record.aux_data
        return msgspec.structs.replace(record, aux_data=aux)

    @property
    def position(self) -> int | None:
        return self._book.position

    def submit(self, data: bytes, *, tags: Any = (), expect: Expect | None = None) -> TicketPort:
        return self._book.submit(data, tags=tags, expect=expect)

    async def ready(self) -> None:
        await self._book.ready()

    async def now(self, *, consistency: ConsistencyName = "session") -> int:
        return await self._book.now(consistency=consistency)

    async def read_prev(
        self, tag: Tag | None = None, *, at_most: int | None = None, consistency: ConsistencyName = "session"
    ) -> boki.Record | None:
        found = await self._book.read_prev(tag, at_most=at_most, consistency=consistency)
        return None if found is None else self._of(found)

    async def read_prev_many(
        self, queries: Any, *, consistency: ConsistencyName = "session"
    ) -> list[boki.Record | None]:
        found = await self._book.read_prev_many(queries, consistency=consistency)
        return [None if one is None else self._of(one) for one in found]

    async def read_since(
        self, seen: Any, *, at_most: int | None = None, consistency: ConsistencyName = "session"
    ) -> boki.Since:
        position, records = await self._book.read_since(seen, at_most=at_most, consistency=consistency)
        return boki.Since(position, [self._of(one) for one in records])

    def read(self, tag: Tag | None = None, **options: Any) -> Any:
        return self._book.read(tag, **options)

    async def trim(self, pairs: Any, *, forget: bool = False) -> None:
        await self._book.trim(pairs, forget=forget)

    async def set_aux_data(self, seqnum: int, data: bytes) -> bool:
        return await self._book.set_aux_data(seqnum, data)


class Nemesis:
    """One run: a cluster, a clock, processes that come and go."""

    def __init__(self, seed: int, isolation: Isolation, cluster: MemoryCluster, clock: SetClock) -> None:
        self.chances = random.Random(seed)
        self.isolation: Isolation = isolation
        self.cluster = cluster
        self.clock = clock
        self.deaths = 0
        self.stores: list[BokiStore] = []
        self.done: list[tuple[Transacted, Ended]] = []

    async def process(self, *, dies: bool = True) -> BokiStore:
        """Another one, that will die or lose an answer at some operation."""
        while True:
            try:
                book: BookPort = WrongAux((await self.cluster.connect()).book("b"), self.chances)
                break
            except boki.Unreachable:
                pass  # its connection was cut while it was made
        kinds: tuple[FaultKind, ...] = ("before", "after", "lost", "never")
        fault = Fault(self.chances.randrange(60), self.chances.choice(kinds)) if dies else None
        settings = StoreSettings(
            isolation=self.isolation,
            checkpoint_records=self.chances.choice([3, 1_000]),
            cached_views=self.chances.choice([0, 2, 10_000]),
            followed_objects=self.chances.choice([0, 2, 100]),
            aux_data=self.chances.random() < 0.7,
        )
        self.stores.append(BokiStore(FaultyBook(book, fault), settings=settings))
        return self.stores[-1]

    async def body(self, tx: Transaction, one: Transacted) -> None:
        one.read, one.appended = {}, {}
        for key in self.chances.sample(KEYS, 2):
            value: Any = await tx[key].get("l", [])
            one.read[key] = list(value)
            for _ in range(self.chances.randrange(4)):
                await asyncio.sleep(0)
        key = self.chances.choice(KEYS)
        tx[key].push("l", one.number)
        one.appended[key] = one.number

    async def transaction(self, store: BokiStore, one: Transacted) -> Ended:
        try:
            if self.chances.random() < 0.5:
                await store.transact(self.body, one)
            else:
                async with store.transaction() as tx:
                    await self.body(tx, one)
        except boki.OutcomeUnknown as unknown:
            return "committed" if isinstance(await unknown.outcome(), boki.Committed) else "refused"
        except (boki.Conflict, boki.Trimmed):
            return "refused"
        return "committed"

    async def client(self, first: int) -> None:
        store = await self.process()
        for number in range(first, first + 6):
            one = Transacted(number)
            try:
                ended = await self.transaction(store, one)
            except Died:
                ended, store = "unknown", await self.process()
                self.deaths += 1
            self.done.append((one, ended))
        book = store.log.book
        assert isinstance(book, FaultyBook)
        book.die()

    async def maintenance(self) -> None:
        """Somebody who checkpoints, trims and carries; and time."""
        for _ in range(12):
            store = await self.process()
            key = self.chances.choice(KEYS)
            try:
                for _ in range(self.chances.randrange(4)):
                    await asyncio.sleep(0)
                what = self.chances.randrange(4)
                if what == 0:
                    await store.tend(key)
                elif what == 1:
                    await store.carrier("a").round()
                elif what == 2:
                    self.clock.ms += self.chances.choice([1, GRACE_MS, REWRITE_MS])
                else:
                    self.cluster.disconnect()
            except Died:
                self.deaths += 1
            except (Fenced, boki.Conflict, boki.Trimmed, boki.OutcomeUnknown):
                pass


async def history(seed: int, isolation: Isolation) -> tuple[list[str], Nemesis]:
    """What is wrong with what they did."""
    clock = SetClock()
    async with MemoryCluster(clock=clock) as cluster:
        nemesis = Nemesis(seed, isolation, cluster, clock)
        await asyncio.gather(*(nemesis.client(n * 100 + 1) for n in range(4)), nemesis.maintenance())
        for store in nemesis.stores:
            await store.close()
        reader = await nemesis.process(dies=False)
        last: dict[str, list[int]] = {}
        for key in KEYS:
            found: Any = await reader.object(key).get("l", [], consistency="linearizable")
            last[key] = found
        await reader.close()
    there = {value for values in last.values() for value in values}
    counting = [one for one, ended in nemesis.done if ended == "committed" or one.number in there]
    wrong = [
        f"{one.number} was refused, and is there"
        for one, ended in nemesis.done
        if ended == "refused" and one.number in there
    ]
    return wrong + anomalies(counting, last, serializable=isolation == "serializable"), nemesis


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
@pytest.mark.parametrize("seed", range(25))
async def test_whatever_fails_histories_have_no_cycle(
    seed: int, isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bokistore.read.checkpoint_reads.AUX_RECORDS", 2)
    wrong, nemesis = await history(seed, isolation)
    assert wrong == []
    assert sum(ended == "committed" for _, ended in nemesis.done) >= 4


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
async def test_more_of_them(isolation: Isolation) -> None:
    for seed in range(1_000, 1_400):
        wrong, _ = await history(seed, isolation)
        assert wrong == [], f"seed {seed}"


async def test_a_store_that_believes_any_view_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the faults above are known to reach it."""
    monkeypatch.setattr("bokistore.model.fold._crc", lambda seqnum, body: b"same")
    monkeypatch.setattr("bokistore.read.checkpoint_reads.AUX_RECORDS", 2)
    for seed in range(60):
        try:
            wrong, _ = await history(seed, "snapshot")
        except (boki.BokiError, AssertionError):
            return
        if wrong:
            return
    raise AssertionError("60 histories without a fault")
