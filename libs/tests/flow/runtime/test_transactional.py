"""Transactions of a store as steps: the outcome and the writes are one record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Worker
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Log
from bokilib.ports import BookPort, Expect, Tag, TicketPort
from bokilib.records.contribution import Contribution
from bokilib.records.tags import store_object
from bokilib.testing import UNKNOWNS, Fault, FaultKind, FaultyBook, crash_everywhere, start_anywhere, while_alive
from bokistore import BokiStore, StoreSettings, Transaction
from libs.tests.flow.conftest import Inline, started, until


class Bank:
    """A process: a store and a worker of one log."""

    def __init__(self, book: BookPort, lease_s: float = 15.0) -> None:
        self.app = App("bank")
        self.log = Log(book)
        self.store = BokiStore(self.log, settings=StoreSettings(checkpoints=False))
        self.worker = Worker(self.app, self.log, name="w", bodies=Inline(), lease_s=lease_s)

        async def move(tx: Transaction, cents: int) -> int:
            left = await tx["ann"].get("cents", 10)
            assert isinstance(left, int)
            if left < cents:
                raise ValueError(f"only {left}")
            tx["ann"].set("cents", left - cents)
            tx["bob"].inc("cents", cents)
            return left - cents

        @self.app.step
        async def note(cents: int) -> int:
            return cents

        @self.app.workflow
        async def pay(cents: int) -> list[int]:
            before = await note(cents)
            left = await bokiflow.transact(self.store, move, cents)
            return [before, left, await note(left)]

        @self.app.workflow
        async def both(cents: int) -> list[int]:
            return list(
                await asyncio.gather(*(bokiflow.transact(self.store, move, cents) for _ in range(3)), note(1), note(2))
            )

        self.pay, self.both = pay, both


@pytest.fixture
async def bank(book: boki.Book) -> Bank:
    return Bank(book)


async def pay(book: BookPort) -> None:
    bank = Bank(book)

    async def work() -> None:
        async with bank.worker:
            handle = await started(bank.worker, bank.pay.call(3))
            assert await handle.result() == [3, 7, 7]

    await while_alive(book, work())


async def paid_once(book: boki.Book) -> None:
    values = await BokiStore(book).values(["ann", "bob"], consistency="linearizable")
    assert values == [{"cents": 7}, {"cents": 3}]


@pytest.mark.parametrize("kinds", [("before", "after"), UNKNOWNS])
async def test_a_crash_or_a_lost_answer_anywhere_pays_once(kinds: tuple[FaultKind, ...]) -> None:
    assert (await crash_everywhere(pay, pay, paid_once, kinds=kinds)).runs > 5


async def test_a_second_worker_anywhere_pays_once() -> None:
    assert (await start_anywhere(pay, pay, paid_once)).runs > 5


async def test_a_transaction_is_one_record_and_one_more_for_each_conflict(cluster: MemoryCluster) -> None:
    bank = Bank((await cluster.connect()).book("shop"), lease_s=3_600)  # no heartbeat comes between
    async with bank.worker as worker:
        before = worker.log.appends
        assert await (await worker.start(bank.pay.call(3), id="x")).result() == [3, 7, 7]
        assert worker.log.appends - before == 1 + 1 + 1 + 1, "start, step, transaction, step with the end"


async def test_transactions_of_many_workflows_are_all_there_once(cluster: MemoryCluster, bank: Bank) -> None:
    async with bank.worker as worker:
        handles = [await worker.start(bank.both.call(1), id=f"x{number}") for number in range(3)]
        found = [await handle.result() for handle in handles]
        assert sorted(left for one in found for left in one[:3]) == list(range(1, 10))
        failing = await worker.start(bank.pay.call(5), id="too much")
        with pytest.raises(ValueError, match="only 1"):
            await failing.result()
    await_values = await BokiStore((await cluster.connect()).book("shop")).values(["ann", "bob"])
    assert await_values == [{"cents": 1}, {"cents": 9}]


async def test_workflows_that_change_one_object_at_once_take_few_records(cluster: MemoryCluster) -> None:
    """They commit together: one by one each would lose to all before it."""
    bank = Bank((await cluster.connect()).book("shop"), lease_s=3_600)

    async def inc(tx: Transaction) -> int:
        before = await tx["hot"].get("n", 0)
        assert isinstance(before, int)
        tx["hot"].set("n", before + 1)
        return before

    @bank.app.workflow
    async def count() -> int:
        return await bokiflow.transact(bank.store, inc)

    async with bank.worker as worker:
        handles = [await worker.start(count.call(), id=f"x{number}") for number in range(30)]
        assert sorted([await handle.result() for handle in handles]) == list(range(30))
        assert worker.log.appends <= 3 * 30 + 10, "a start and an end each, and transactions together"


async def test_a_transaction_that_fits_no_record_fails_and_is_not_tried_for_ever(bank: Bank) -> None:
    async def too_much(tx: Transaction) -> None:
        for number in range(300):
            tx[f"object {number}"].set("there", True)

    @bank.app.workflow
    async def large() -> str:
        try:
            await bokiflow.transact(bank.store, too_much)
        except boki.BokiError as error:
            return type(error).__name__
        return ""

    async with bank.worker as worker:
        assert await (await worker.start(large.call(), id="x")).result() == "AtomicTooLarge"


async def test_a_store_of_another_log_is_refused(cluster: MemoryCluster, bank: Bank) -> None:
    bank.store = BokiStore((await cluster.connect()).book("shop"))
    async with bank.worker as worker:
        with pytest.raises(boki.InvalidArgument, match="Log"):
            await (await worker.start(bank.pay.call(3), id="x")).result()


class Contended:
    """A store whose transactions always have to run again when they would commit. `on_commit`: called before it says so."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.on_commit: Callable[[], object] = lambda: None
        self.staged: list[StagedOnce] = []

    async def begin(self) -> NoTransaction:
        raise AssertionError("it stages")

    async def commit(self, tx: NoTransaction) -> int:
        raise AssertionError("it stages")

    def stage(self, body: Callable[[Any], Awaitable[Any]], *, name: str = "") -> StagedOnce:
        self.staged.append(StagedOnce(self, body))
        return self.staged[-1]


class NoTransaction:
    def add(self, part: Contribution) -> None:
        raise AssertionError(part)

    def end(self) -> None: ...


class StagedOnce:
    """A transaction of `Contended`. `ended`: it was given up."""

    def __init__(self, store: Contended, body: Callable[[Any], Awaitable[Any]]) -> None:
        self.ended = False
        self._store = store
        self._body = body

    async def ran(self) -> Any:
        return await self._body(NoTransaction())

    async def commit(self, part: Callable[[Any], Contribution]) -> None:
        self._store.on_commit()

    async def end(self) -> None:
        self.ended = True


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_staged_transaction_ends_with_its_workflow_whenever_that_is_put_down(log: Log, turns: int) -> None:
    app, store = App("bank"), Contended(log)

    async def body(tx: NoTransaction) -> int:
        return 1

    @app.workflow
    async def pay() -> int:
        return await bokiflow.transact(store, body)

    async with Worker(app, log, name="w", bodies=Inline(), lease_s=3_600) as worker:

        def put_down() -> None:
            park: Callable[[], object] = worker._executors["x"].park
            for _ in range(turns):
                park = partial(asyncio.get_running_loop().call_soon, park)
            park()

        store.on_commit = put_down
        await worker.start(pay.call(), id="x")
        await until(lambda: "x" not in worker._executors)
        await until(lambda: bool(store.staged) and all(one.ended for one in store.staged))


class LosesOneAnswer(FaultyBook):
    """A book that loses the answer of the next record that joins a stream, once it is told which."""

    stream = ""

    def submit(self, data: bytes, *, tags: Sequence[Tag] = (), expect: Expect | None = None) -> TicketPort:
        if self.stream in tags:
            self._fault, self.stream = Fault(len(self.operations), "lost"), ""
        return super().submit(data, tags=tags, expect=expect)


@in_virtual_time
async def test_a_step_that_raised_beside_a_record_of_unknown_outcome_did_not_happen() -> None:
    """Its first run would have committed; the state that the other two leave is not enough for it."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        book = LosesOneAnswer((await cluster.connect()).book("shop"))
        bank = Bank(book)

        async def take(tx: Transaction) -> int:
            left = await tx["ann"].get("cents", 0)
            assert isinstance(left, int)
            if left < 10:
                raise ValueError(f"only {left}")
            tx["ann"].inc("cents", -10)
            return left

        @bank.app.workflow
        async def withdraw() -> int:
            await bokiflow.recv("go")
            return await bokiflow.transact(bank.store, take)

        await bank.store.object("ann").set("cents", 25)
        async with bank.worker as worker:
            handles = [await worker.start(withdraw.call(), id=f"w{number}") for number in range(3)]
            await let_pass(1)
            book.stream = store_object("ann")
            await asyncio.gather(*(handle.signal("go") for handle in handles))
            found = await asyncio.gather(*(handle.result() for handle in handles), return_exceptions=True)
        assert not book.stream and found[:2] == [25, 15]
        assert repr(found[2]) == repr(ValueError("only 5"))
        assert await bank.store.object("ann").get("cents") == 5
