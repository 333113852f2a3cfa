"""Transactions across workflows: what a body calls is a part of it, and all of it is one record."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Generator, Sequence
from typing import Any

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Worker, WorkflowCancelled
from bokiflow.execute.record_builder import ABANDONED
from bokiflow.execute.transaction_children import CalledParts
from bokiflow.history import inspection
from bokiflow.model.flow_events import PICKER, Abandoned, Attempted, Transacted
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Log
from bokilib.errors import AtomicTooLarge
from bokilib.ports import BookPort, Expect, Tag, TicketPort
from bokilib.records import tags
from bokilib.testing import (
    UNANSWERED,
    UNKNOWNS,
    Fault,
    FaultKind,
    FaultyBook,
    crash_everywhere,
    start_anywhere,
    while_alive,
)
from bokistore import BokiStore, StoreSettings, Transaction
from libs.tests.flow.conftest import Inline, started, until


class SoldOut(Exception):
    pass


class Agency:
    """A process: a store and a worker of one log. A trip is a hotel and a flight, each booked by a workflow of its own."""

    def __init__(self, book: BookPort, name: str = "w", lease_s: float = 15.0) -> None:
        self.app = App("trips")
        self.log = Log(book)
        self.store = BokiStore(self.log, settings=StoreSettings(checkpoints=False))
        self.worker = Worker(self.app, self.log, name=name, bodies=Inline(), lease_s=lease_s)
        self.attempts = 0
        self.first_attempt = asyncio.Event()
        self.rival: BokiStore | None = None
        app, store = self.app, self.store

        async def take(tx: Transaction, what: str, most: int) -> int:
            taken = await tx[what].get("taken", 0)
            assert isinstance(taken, int)
            if taken >= most:
                raise SoldOut(what)
            tx[what].set("taken", taken + 1)
            return taken + 1

        async def seen(tx: Transaction, what: str) -> bokiflow.Json:
            return await tx[what].get("taken", 0)

        @app.step
        async def note(what: str) -> str:
            return what

        @app.workflow
        async def reserve(what: str, most: int) -> int:
            return await bokiflow.transact(store, take, await note(what), most)

        @app.workflow
        async def twice(what: str) -> list[bokiflow.Json]:
            first = await bokiflow.transact(store, take, what, 9)
            return [first, await reserve(what, 9), await bokiflow.transact(store, seen, what)]

        @app.workflow
        async def waits(what: str) -> None:
            await bokiflow.transact(store, take, what, 9)
            await bokiflow.recv("never")

        @app.workflow
        async def queues(what: str) -> None:
            async with bokiflow.lock(what):
                await bokiflow.recv("never")

        self.reserve, self.twice, self.waits, self.queues = reserve, twice, waits, queues
        self._roots()

    def _roots(self) -> None:
        app, store = self.app, self.store

        async def both(tx: Transaction, most: int) -> list[int]:
            self.attempts += 1
            hotel = await self.reserve("hotel", 9)
            if self.rival is not None and self.attempts == 1:
                await self.rival.object("flight").inc("taken")
            flight = await self.reserve("flight", most)
            tx["trips"].inc("booked")
            return [hotel, flight]

        async def lenient(tx: Transaction) -> str:
            try:
                await self.reserve("hotel", 0)
            except SoldOut as error:
                tx["trips"].set("why", str(error))
            return "stays at home"

        async def deep(tx: Transaction) -> bokiflow.Json:
            tx["hotel"].set("taken", 5)
            return [*await self.twice("hotel"), await tx["hotel"].get("taken")]

        async def at_once(tx: Transaction) -> None:
            await asyncio.gather(self.reserve("hotel", 1), self.reserve("flight", 1))

        async def never(tx: Transaction) -> None:
            tx["trips"].inc("booked")
            self.first_attempt.set()
            await self.waits("hotel")

        async def hurried(tx: Transaction) -> str:
            try:
                async with asyncio.timeout(0.05):
                    await self.queues("hotel")
            except TimeoutError:
                tx["trips"].inc("booked")
            return "without a hotel"

        @app.workflow
        async def leaves() -> str:
            return await bokiflow.transact(store, hurried)

        self.leaves = leaves

        @app.workflow
        async def trip(most: int) -> list[int]:
            return await bokiflow.transact(store, both, most)

        @app.workflow
        async def home() -> str:
            return await bokiflow.transact(store, lenient)

        @app.workflow
        async def nested() -> bokiflow.Json:
            return await bokiflow.transact(store, deep)

        @app.workflow
        async def gathered() -> None:
            await bokiflow.transact(store, at_once)

        @app.workflow
        async def endless() -> None:
            await bokiflow.transact(store, never)

        self.trip, self.home, self.nested, self.gathered, self.endless = trip, home, nested, gathered, endless


OF_A_DEPLOY = """
from bokiflow import App, transact
app, store = App("trips"), None

class {name}(Exception):
    pass

@app.workflow
async def pay():
    raise {name}("visa")

async def lenient(tx):
    try:
        return await pay()
    except {name}:
        tx["trips"].inc("told")
        return "told"
    except Exception:
        return "sent back"

@app.workflow
async def trip():
    return await transact(store, lenient)
"""


@pytest.mark.parametrize("where", ["before the call", "in it"])
async def test_a_part_that_is_too_large_says_so(cluster: MemoryCluster, where: str) -> None:
    agency = Agency((await cluster.connect()).book("shop"))
    app, store = agency.app, agency.store

    async def noted(tx: Transaction, chars: int) -> None:
        tx["notes"].set("text", "x" * chars)

    @app.workflow
    async def note(chars: int) -> None:
        await bokiflow.transact(store, noted, chars)

    async def calls(tx: Transaction) -> str:
        try:
            if where == "before the call":
                tx["notes"].set("text", "x" * 254_000)
            await note(1 if where == "before the call" else 254_000)
        except AtomicTooLarge as error:
            return str(error)
        return ""

    @app.workflow
    async def begins() -> str:
        return await bokiflow.transact(store, calls)

    async with agency.worker as worker:
        said = await (await worker.start(begins.call(), id="x")).result()
    assert "across workflows of up to 253952 bytes, found 254" in said and "read and write less in it" in said


async def test_a_transaction_does_not_go_on_with_an_error_of_a_part_whose_class_it_lacks(
    cluster: MemoryCluster,
) -> None:
    """The part is run by a new program, and what called it by an old one: that is blocked, and the new one goes on with it."""
    books = [(await cluster.connect()).book("shop") for _ in range(2)]
    workers, stores = [], []
    for book, name in zip(books, ("Declined", "Refused"), strict=True):
        made = types.ModuleType(f"trips_{name}")
        exec(OF_A_DEPLOY.format(name=name), made.__dict__)
        log = Log(book)
        stores.append(BokiStore(log, settings=StoreSettings(checkpoints=False)))
        made.store = stores[-1]  # type: ignore[attr-defined]
        workers.append(Worker(made.app, log, name=name, bodies=Inline()))
    async with workers[0] as old, workers[1]:
        handles = [await old.start(old.flow.app.find("trip").call(), id=f"x{n}") for n in range(12)]
        assert {await handle.result(blocked="wait") for handle in handles} == {"told"}


@pytest.fixture
async def agency(book: boki.Book) -> Agency:
    return Agency(book)


async def book_trip(book: BookPort) -> None:
    agency = Agency(book)

    async def work() -> None:
        async with agency.worker:
            handle = await started(agency.worker, agency.trip.call(9))
            assert await handle.result() == [1, 1]

    await while_alive(book, work())


async def values(book: boki.Book, *names: str) -> list[bokiflow.Json]:
    found: list[bokiflow.Json] = list(await BokiStore(book).values(names, consistency="linearizable"))
    return found


async def booked_once(book: boki.Book) -> None:
    assert await values(book, "hotel", "flight", "trips") == [{"taken": 1}, {"taken": 1}, {"booked": 1}]


@pytest.mark.parametrize("kinds", [("before", "after"), UNKNOWNS])
@in_virtual_time
async def test_a_crash_or_a_lost_answer_anywhere_books_all_of_it_once(kinds: tuple[FaultKind, ...]) -> None:
    assert (await crash_everywhere(book_trip, book_trip, booked_once, kinds=kinds)).runs > 10


@in_virtual_time
async def test_a_second_worker_anywhere_books_all_of_it_once() -> None:
    assert (await start_anywhere(book_trip, book_trip, booked_once)).runs > 10


@pytest.mark.nightly
@pytest.mark.timeout(3_000)
@in_virtual_time
async def test_two_crashes_at_any_pair_of_operations_book_all_of_it_once() -> None:
    assert (await crash_everywhere(book_trip, book_trip, booked_once, pairs=True)).runs > 100


async def leave_a_part(book: BookPort) -> None:
    agency = Agency(book)

    async def work() -> None:
        async with agency.worker:
            assert await (await started(agency.worker, agency.leaves.call())).result() == "without a hotel"
            await let_pass(0.5)

    await while_alive(book, work())


async def nothing_lives(book: boki.Book) -> None:
    assert await values(book, "trips") == [{"booked": 1}]
    assert await inspection.unfinished(Log(book), "trips") == [], "a part lives on, and holds its lock"


@pytest.mark.parametrize("kinds", [("before", "after"), UNKNOWNS])
@in_virtual_time
async def test_no_part_outlives_its_attempt_whatever_fails_or_dies(kinds: tuple[FaultKind, ...]) -> None:
    found = await crash_everywhere(leave_a_part, leave_a_part, nothing_lives, kinds=kinds, clock=LoopClock())
    assert found.runs > 10


@in_virtual_time
async def test_no_part_outlives_its_attempt_though_an_append_is_unanswered() -> None:
    """The body gives the part up while its start is being appended, and the process dies some operations later."""
    found = await crash_everywhere(leave_a_part, leave_a_part, nothing_lives, kinds=UNANSWERED, clock=LoopClock())
    assert found.runs > 10


@pytest.mark.nightly
@in_virtual_time
async def test_no_part_outlives_its_attempt_however_long_an_append_is_unanswered() -> None:
    found = await crash_everywhere(
        leave_a_part, leave_a_part, nothing_lives, kinds=UNANSWERED, later=(0, 2, 5, 8, 13), clock=LoopClock()
    )
    assert found.runs > 30


@in_virtual_time
async def test_one_unknown_outcome_of_its_cancellation_leaves_no_part_behind() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        first = Agency((await cluster.connect()).book("shop"))
        async with first.worker as worker:
            await worker.start(first.endless.call(), id="x")
            lost = await one_child(first)
        second = Agency(Once((await cluster.connect()).book("shop"), ABANDONED.encode()))
        async with second.worker as worker:
            async with asyncio.timeout(3_600):
                with pytest.raises(WorkflowCancelled):
                    await worker.handle(lost).result()
                await second.first_attempt.wait()


class Once(FaultyBook):
    """The first record that has some bytes is not appended, and its outcome is unknown."""

    def __init__(self, book: BookPort, mark: bytes) -> None:
        super().__init__(book)
        self._mark = mark

    def submit(self, data: bytes, *, tags: Sequence[Tag] = (), expect: Expect | None = None) -> TicketPort:
        if self._fault is None and self._mark in data:
            self._fault = Fault(len(self.operations), "never")
        return super().submit(data, tags=tags, expect=expect)


async def test_a_later_attempt_begins_once_the_parts_before_it_are_abandoned(cluster: MemoryCluster) -> None:
    first = Agency((await cluster.connect()).book("shop"))
    async with first.worker as worker:
        await worker.start(first.endless.call(), id="x")
        lost = await one_child(first)
    second = Agency((await cluster.connect()).book("shop"))
    async with second.worker:
        await until(lambda: second.first_attempt.is_set())
        history = await inspection.whole_history(second.log, "x")
        assert [event for one in history.records for event in one.own if isinstance(event, Abandoned)] == [
            Abandoned("x", "0:1", lost)
        ]


async def test_a_part_whose_start_is_under_way_when_it_is_left_is_cancelled_after_it() -> None:
    left: list[Attempted] = []
    decided: list[bool] = []
    called = CalledParts(left.append, lambda: decided.append(called.undecided))
    start: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def starts() -> int:
        return await start

    part = Attempted("x", "0:1", "a", "x/0:1~a:1", "n", 0)
    calling = asyncio.create_task(called.begin(part, starts()))
    await asyncio.sleep(0)
    calling.cancel()
    called.leave_all("0:1")
    await asyncio.gather(calling, return_exceptions=True)
    assert called.undecided and left == []
    start.set_result(7)
    await until(lambda: bool(decided))
    assert left == [part] and decided == [False] and called.running == [part.child]


class Late:
    """A ticket whose answer comes a minute later."""

    def __init__(self, ticket: TicketPort) -> None:
        self._ticket = ticket

    def __await__(self) -> Generator[Any, None, int]:
        return self._late().__await__()

    async def _late(self) -> int:
        await let_pass(60)
        return await self._ticket

    async def outcome(self, *, settle: bool = False) -> boki.Outcome:
        return await self._ticket.outcome(settle=settle)


class LateStarts(FaultyBook):
    """Answers to records that start a part come late."""

    def submit(self, data: bytes, *, tags: Sequence[Tag] = (), expect: Expect | None = None) -> TicketPort:
        ticket = super().submit(data, tags=tags, expect=expect)
        return Late(ticket) if b"flow.attempt" in data else ticket


@in_virtual_time
async def test_a_transaction_ends_after_the_starts_of_its_parts_are_known_and_abandoned() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        agency = Agency(LateStarts((await cluster.connect()).book("shop")))
        async with agency.worker as worker:
            await (await worker.start(agency.leaves.call(), id="x")).result()
            history = await inspection.whole_history(worker.log, "x")
    kinds = [type(event) for one in history.records for event in one.own]
    assert [kind for kind in kinds if kind in (Attempted, Abandoned, Transacted)] == [Attempted, Abandoned, Transacted]


@in_virtual_time
async def test_a_later_attempt_gets_the_locks_of_the_parts_that_were_abandoned() -> None:
    """The part of before runs on for a while at its worker, which is drained: its cancellation is slow, and it holds its lock meanwhile."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        app, held, slow = App("trips"), asyncio.Event(), asyncio.Event()

        @app.step
        async def call() -> None:
            held.set()
            try:
                await asyncio.Event().wait() if not slow.is_set() else None
            except asyncio.CancelledError:
                await let_pass(8)
                raise

        @app.workflow
        async def reserve() -> str:
            async with bokiflow.lock("hotel"):
                try:
                    await call()
                finally:
                    await let_pass(12)
            return "reserved"

        log = Log((await cluster.connect()).book("shop"))
        store, attempts = BokiStore(log, settings=StoreSettings(checkpoints=False)), [0]

        async def body(tx: Transaction) -> str:
            attempts[0] += 1
            if attempts[0] == 1:
                part = asyncio.ensure_future(reserve())
                await held.wait()
                slow.set()
                part.cancel()
                raise boki.Trimmed("where it reads is not kept any more", mark=1)
            return await reserve()

        @app.workflow
        async def trip() -> str:
            return await bokiflow.transact(store, body)

        async with Worker(app, log, bodies=Inline()) as worker:
            async with asyncio.timeout(600):
                assert await (await worker.start(trip.call(), id="x")).result() == "reserved"
        assert attempts[0] > 2, "an attempt is repeated while it waits for long"


async def test_all_of_it_is_one_record_beside_those_of_the_children(cluster: MemoryCluster) -> None:
    agency = Agency((await cluster.connect()).book("shop"), lease_s=3_600)  # no heartbeat comes between
    async with agency.worker as worker:
        before = worker.log.appends
        assert await (await worker.start(agency.trip.call(9), id="x")).result() == [1, 1]
        child = 1 + 1  # its start; its step, its part of the transaction and its end go together
        assert worker.log.appends - before == 1 + 2 * (child + 1) + 1 + 1, "start, children, one record, the end"


async def test_what_sold_out_undoes_all_of_it(book: boki.Book, agency: Agency) -> None:
    async with agency.worker as worker:
        with pytest.raises(SoldOut, match="flight"):
            await (await worker.start(agency.trip.call(0), id="x")).result()
    assert await values(book, "hotel", "flight", "trips") == [None, None, None]


async def test_a_part_that_failed_wrote_nothing_and_what_it_read_counts(book: boki.Book, agency: Agency) -> None:
    async with agency.worker as worker:
        assert await (await worker.start(agency.home.call(), id="x")).result() == "stays at home"
    assert await values(book, "hotel", "trips") == [None, {"why": "hotel"}]


async def test_a_rival_who_changes_what_a_part_read_makes_all_of_it_run_again(
    cluster: MemoryCluster, book: boki.Book, agency: Agency
) -> None:
    agency.rival = BokiStore((await cluster.connect()).book("shop"))
    async with agency.worker as worker:
        assert await (await worker.start(agency.trip.call(9), id="x")).result() == [1, 2]
    assert agency.attempts == 2, "one more for the conflict"
    assert await values(book, "hotel", "flight", "trips") == [{"taken": 1}, {"taken": 2}, {"booked": 1}]


async def test_parts_see_what_was_written_before_them_and_children_of_children(book: boki.Book, agency: Agency) -> None:
    async with agency.worker as worker:
        assert await (await worker.start(agency.nested.call(), id="x")).result() == [6, 7, 7, 7]
    assert await values(book, "hotel") == [{"taken": 7}]


async def test_an_attempt_that_counts_for_nothing_is_run_again_though_its_body_caught_why(
    book: boki.Book, agency: Agency
) -> None:
    store, tries = agency.store, [0]

    async def stale(tx: Transaction) -> None:
        tries[0] += 1
        if tries[0] < 3:
            raise boki.Trimmed("where it reads is not kept any more", mark=1)
        tx["hotel"].inc("taken")

    @agency.app.workflow
    async def part() -> None:
        await bokiflow.transact(store, stale)

    async def lenient(tx: Transaction) -> str:
        try:
            await part()
        except boki.BokiError:
            return "without"
        return "with"

    @agency.app.workflow
    async def root() -> str:
        return await bokiflow.transact(store, lenient)

    async with agency.worker as worker:
        assert await (await worker.start(root.call(), id="x")).result() == "with"
    assert tries == [3] and await values(book, "hotel") == [{"taken": 1}]


async def test_two_parts_at_once_are_refused(agency: Agency) -> None:
    async with agency.worker as worker:
        with pytest.raises(boki.InvalidArgument, match="one part"):
            await (await worker.start(agency.gathered.call(), id="x")).result()


async def children_of(agency: Agency, id: str) -> list[str]:
    found = []
    async for item in agency.log.book.read(tags.flow_history(id)):
        assert isinstance(item, boki.Record)
        found += [
            one.child for one in PICKER.of(item.seqnum, await agency.log.open(item)) if isinstance(one, Attempted)
        ]
    return found


async def one_child(agency: Agency) -> str:
    """The part that waits for ever, once it does."""
    for _ in range(1_000):
        for id in await children_of(agency, "x"):
            if id in agency.worker._executors and "signal 'never'" in agency.worker._executors[id].instance.waits:
                return id
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


async def test_a_part_that_is_cancelled_cancels_all_of_it(book: boki.Book, agency: Agency) -> None:
    async with agency.worker as worker:
        handle = await worker.start(agency.endless.call(), id="x")
        await worker.handle(await one_child(agency)).cancel()
        with pytest.raises(WorkflowCancelled):
            await handle.result()
    assert await values(book, "hotel", "trips") == [None, None]


async def test_who_cancels_the_root_cancels_its_parts(book: boki.Book, agency: Agency) -> None:
    async with agency.worker as worker:
        handle = await worker.start(agency.endless.call(), id="x")
        child = await one_child(agency)
        await handle.cancel()
        for one in (handle, worker.handle(child)):
            with pytest.raises(WorkflowCancelled):
                await one.result()
    assert await values(book, "hotel", "trips") == [None, None]


async def test_who_takes_over_cancels_the_parts_that_were_called_before(cluster: MemoryCluster) -> None:
    book = (await cluster.connect()).book("shop")
    first = Agency(book)
    async with first.worker as worker:
        await worker.start(first.endless.call(), id="x")
        lost = await one_child(first)
    second = Agency((await cluster.connect()).book("shop"))
    async with second.worker as worker:
        with pytest.raises(WorkflowCancelled):
            await worker.handle(lost).result()
        await until(lambda: second.first_attempt.is_set())
        assert len({id.rpartition(":")[0] for id in await children_of(second, "x")}) <= 2
        assert await worker.handle("x").status() == "running"


async def test_a_part_says_whose_it_is_and_cannot_be_forked_or_begin_anew(agency: Agency) -> None:
    async with agency.worker as worker:
        await (await worker.start(agency.trip.call(9), id="x")).result()
        child = (await children_of(agency, "x"))[0]
        known = await worker.flow.known(child)
        assert known is not None and known.parent == "x"
        with pytest.raises(boki.InvalidArgument, match="part of a transaction"):
            await worker.handle(child).fork()
        assert [one.detail async for one in worker.handle("x").steps() if one.kind == "part"] == await children_of(
            agency, "x"
        )
