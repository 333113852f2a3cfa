"""Retention of locks: a lock that is held for days keeps no term and is not lost, and of a free lock nothing is left."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

import boki
from boki.testing import MemoryCluster
from bokiflow import App, Worker
from bokiflow.locks import lock_reading
from bokiflow.locks.lock_room import LockCarried, carry_old
from bokiflow.model.lock_rules import Enqueued, LockView
from bokilib import Carrier
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.retention.checkpoint_rules import REWRITE_MS
from bokilib.testing import UNKNOWNS, FaultKind, crash_everywhere, start_anywhere, while_alive
from libs.tests.conftest import SetClock
from libs.tests.flow.conftest import Inline, until, working
from libs.tests.flow.locks.test_locks import Seats, first_event, waits
from libs.tests.flow.retention.test_collector import DAY_MS, later, rows


@pytest.fixture
async def cluster(clock: SetClock) -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster(clock=clock) as opened:
        yield opened


async def held(worker: Worker, seats: Seats, id: str, name: str, *, shared: bool = False) -> int:
    """Start a workflow that holds a lock until the signal `go`; return its fencing number."""
    await worker.start(seats.hold.call(name, shared), id=id)
    number: int = await first_event(worker, id, "has")
    return number


async def oldest_ms(book: boki.Book) -> int:
    """Return the time of the oldest record in the book, apart from heartbeats, which are trimmed by themselves."""
    async for item in book.read():
        if isinstance(item, boki.Record) and item.tags != (tags.member("seats"),):
            return item.time_ms
    return 0


async def is_forgotten(book: boki.Book, name: str) -> bool:
    """Return whether the log has forgotten a lock."""
    try:
        await book.append(b"", tags=["probe"], expect={tags.lock(name): None, tags.lock_checkpoint(name): None})
    except boki.Conflict:
        return False
    return True


async def test_locks_that_are_held_for_days_keep_no_term_and_their_numbers(
    cluster: MemoryCluster, clock: SetClock, book: boki.Book
) -> None:
    seats = Seats()
    async with working(cluster, seats.app) as worker:
        number = await held(worker, seats, "h", "a")
        await worker.start(seats.sit.call("a"), id="w")
        await waits(worker, "w", "lock 'a'")
        together = [await held(worker, seats, f"s{one}", "b", shared=True) for one in range(2)]
        for day in range(5):
            await later(worker, clock, DAY_MS // 2)
            done = await later(worker, clock, DAY_MS // 2)
            assert done.locks == 2, "once a day, each"
            assert clock.ms - await oldest_ms(book) <= 2 * DAY_MS or day < 1
            assert await rows(book, tags.lock_checkpoint("a")) == await rows(book, tags.lock_checkpoint("b"))
        assert not await rows(book, tags.lock("a")), "all of it is in the checkpoint"
    async with working(cluster, seats.app) as worker:
        for id in ("h", "s0", "s1"):
            await worker.handle(id).signal("go")
        assert await worker.handle("h", seats.hold).result() == number
        assert await worker.handle("w", seats.sit).result() > number
        assert [await worker.handle(f"s{one}", seats.hold).result() for one in range(2)] == together


async def test_the_lock_of_who_is_blocked_is_carried_and_his_when_he_goes_on(
    cluster: MemoryCluster, clock: SetClock, book: boki.Book
) -> None:
    """No worker runs the blocked workflow, so no process remembers its lock; a workflow that wants the lock waits."""
    seats, without = Seats(), App("seats")
    async with working(cluster, seats.app) as worker:
        number = await held(worker, seats, "h", "a")
    async with working(cluster, without) as worker:
        await until(lambda: "h" in worker._takeover.aside)
        for _ in range(4):
            await later(worker, clock, DAY_MS)
        assert clock.ms - await oldest_ms(book) <= 2 * DAY_MS
        assert await worker.handle("h").status() == "blocked"
    async with working(cluster, seats.app) as worker:
        await worker.start(seats.sit.call("a"), id="w")
        await waits(worker, "w", "lock 'a'")
        await worker.handle("h").signal("go")
        assert await worker.handle("h", seats.hold).result() == number < await worker.handle("w", seats.sit).result()


async def test_of_a_lock_that_nobody_holds_nothing_is_left_though_who_had_it_died(
    cluster: MemoryCluster, clock: SetClock, book: boki.Book
) -> None:
    seats = Seats()
    async with working(cluster, seats.app) as worker:
        for number in range(6):
            await (await worker.start(seats.sit.call(f"a{number % 2}"), id=f"x{number}")).result()
        assert len(await rows(book, tags.lock("a0"))) == 6, "and it dies: nothing was trimmed"
    async with working(cluster, seats.app) as worker:
        assert (await later(worker, clock, DAY_MS)).locks == 2, "that nobody holds them"
        assert not await rows(book, tags.lock("a0")) and not await is_forgotten(book, "a0")
        assert (await later(worker, clock, DAY_MS)).locks == 0
        assert await is_forgotten(book, "a0") and await is_forgotten(book, "a1")
        before = await (await worker.start(seats.sit.call("a0"), id="again")).result()
        assert before > 0 and (await lock_reading.read(worker.log, "a0")).queue == ()


async def test_a_book_with_a_lock_for_each_order_does_not_grow(
    cluster: MemoryCluster, clock: SetClock, book: boki.Book
) -> None:
    seats = Seats()
    model = cluster._serving().model
    live: list[int] = []
    known: list[int] = []
    async with working(cluster, seats.app, retention_s=86_400) as worker:
        for day in range(9):
            for number in range(40):
                await (await worker.start(seats.sit.call(f"order {day}-{number}"), id=f"{day}-{number}")).result()
            await worker.locks.tidy()
            for _ in range(2):
                await later(worker, clock, DAY_MS // 2)
            live.append(len(await rows(book)))
            known.append(len(model._newest))
    assert max(live) < 60, "the last release of each lock of a day, and the checkpoints of a day's locks in one record"
    assert max(known[6:]) <= max(known[3:6]) * 1.1


async def test_many_locks_are_carried_by_one_record_and_those_that_moved_are_left(log: Log, clock: SetClock) -> None:
    names = [f"k{number}" for number in range(100)]
    half = names[:50]
    for name in names:
        await log.append(Contribution((tags.lock(name),), {}, (Enqueued(name, "x", "0:1", False, 1, True),)))
    clock.ms += REWRITE_MS

    class Slow(LockCarried):
        """A process that a second one overtakes for half of the locks."""

        async def _views(self, names: Sequence[str]) -> dict[str, LockView]:
            views = await super()._views(names)
            faster = LockCarried(log)
            faster._names = dict.fromkeys(half)
            assert await faster.carry(clock.ms, {}, carry_ms=REWRITE_MS) == (50, 0)
            return views

    before = log.appends
    done = await Carrier(log, [Slow(log)], who="a").round()
    assert (done.carried, done.read, log.appends - before) == (50, 100, 1 + 1 + 2), "the claim, theirs, and twice mine"
    views = await lock_reading.read_many(log, names)
    assert all([entry.owner for entry in view.queue] == ["x"] and not view.newest for view in views.values())
    with pytest.raises(boki.Conflict):
        carried = LockCarried(log)
        carried._names = dict.fromkeys(names)
        clock.ms += REWRITE_MS
        await carried.carry(clock.ms, {tags.rewriter("lock"): 1}, carry_ms=REWRITE_MS)


class Days:
    """A workflow that holds a lock, one that waits for it, and a free lock; days pass, and processes that rewrite locks are killed."""

    def __init__(self, clock: SetClock) -> None:
        self.clock = clock
        self.seats = Seats()
        self.number = 0

    def worker(self, book: BookPort) -> Worker:
        return Worker(self.seats.app, book, name="w", bodies=Inline(), retention_s=86_400, collect_every_s=9e9)

    async def before(self, book: boki.Book) -> None:
        async with self.worker(book) as worker:
            self.number = await held(worker, self.seats, "h", "a")
            await worker.start(self.seats.sit.call("a"), id="w")
            await waits(worker, "w", "lock 'a'")
            await (await worker.start(self.seats.sit.call("free"), id="z")).result()

    async def days(self, worker: Worker, count: int) -> None:
        for _ in range(count):
            self.clock.ms += DAY_MS
            await worker._peers._members.beat()
            await worker.collect()

    async def program(self, book: BookPort) -> None:
        """Rewrite locks on three days, in one process."""
        log = Log(book)
        for _ in range(3):
            self.clock.ms += DAY_MS
            with contextlib.suppress(boki.BokiError):  # an error ends one round; the next round continues
                await carry_old(log, {}, self.clock.ms, DAY_MS)

    async def whole(self, book: BookPort) -> None:
        """Rewrite all states of the book, as a worker does."""

        async def carries() -> None:
            async with self.worker(book) as worker:
                await self.days(worker, 2)

        with contextlib.suppress(boki.BokiError):
            await while_alive(book, carries())

    async def check(self, book: boki.Book) -> None:
        async with self.worker(book) as worker:
            await until(lambda: {"h", "w"} <= set(worker._executors))
            await self.days(worker, 4)
            assert self.clock.ms - await oldest_ms(book) <= 2 * DAY_MS
            assert await is_forgotten(book, "free")
            await worker.handle("h").signal("go")
            assert await worker.handle("h", self.seats.hold).result() == self.number
            assert await worker.handle("w", self.seats.sit).result() > self.number
            assert (await lock_reading.read(worker.log, "a")).queue == ()


@pytest.mark.parametrize("kinds", [("after",), UNKNOWNS, pytest.param(("before",), marks=pytest.mark.nightly)])
async def test_a_crash_anywhere_of_who_carries_leaves_each_lock_to_who_has_it(
    clock: SetClock, kinds: tuple[FaultKind, ...]
) -> None:
    days = Days(clock)
    explored = await crash_everywhere(
        days.program, days.program, days.check, kinds=kinds, clock=clock, before=days.before
    )
    assert explored.runs > 3


async def test_a_second_one_anywhere_who_carries_harms_nothing(clock: SetClock) -> None:
    days = Days(clock)
    assert (await start_anywhere(days.program, days.program, days.check, clock=clock, before=days.before)).runs > 10


@pytest.mark.nightly
@pytest.mark.timeout(3_000)
async def test_a_crash_or_a_second_worker_anywhere_that_carries_harms_nothing(clock: SetClock) -> None:
    days = Days(clock)
    await crash_everywhere(days.whole, days.whole, days.check, clock=clock, before=days.before)
    await start_anywhere(days.whole, days.whole, days.check, clock=clock, before=days.before)
