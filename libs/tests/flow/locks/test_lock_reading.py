"""Reads of locks see a checkpoint that is made while they read, and read many locks at a time."""

from __future__ import annotations

from typing import Any

from boki.testing import MemoryCluster
from bokiflow.locks import lock_reading
from bokiflow.model import lock_rules
from bokiflow.model.lock_rules import Enqueued, Released
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.retention.checkpoint_rules import FORGET_MS
from libs.tests.conftest import SetClock
from libs.tests.flow.conftest import working
from libs.tests.flow.locks.test_locks import Seats, first_event


async def test_a_checkpoint_that_is_written_during_a_read_is_not_missed(cluster: MemoryCluster) -> None:
    """Between the read's snapshot and its records, another process checkpoints and trims the lock."""
    seats = Seats()
    async with working(cluster, seats.app) as worker:
        await worker.start(seats.hold.call("a"), id="h")
        number = await first_event(worker, "h", "has")
        book: Any = worker.log.book
        snapshots = 0

        class Slow:
            def __getattr__(self, name: str) -> Any:
                return getattr(book, name)

            async def now(self, **options: Any) -> int:
                nonlocal snapshots
                position: int = await book.now(**options)
                snapshots += 1
                if snapshots == 1:
                    view = await lock_reading.read(worker.log, "a")
                    made = lock_rules.Checkpoint("a", view.position, view.queue)
                    stream = tags.lock_checkpoint("a")
                    await worker.log.append(Contribution((stream,), {stream: view.position}, (made,)))
                    await book.trim([(tags.lock("a"), view.position + 1)])
                return position

        slow: Any = Slow()
        view = await lock_reading.read(Log(slow), "a")
        assert [entry.number for entry in view.queue] == [number] and snapshots == 2


async def test_many_locks_are_read_at_a_time_each_as_it_is(log: Log) -> None:
    names = [f"k{number}" for number in range(lock_reading.AT_ONCE - 1)]
    for name in names:
        await log.append(Contribution((tags.lock(name),), {}, (Enqueued(name, "x", "0:1", False, 1, True),)))
    for name in names[::2]:
        await log.append(Contribution((tags.lock(name),), {}, (Released(name, "x", "0:1"),)))
    await log.book.trim([(tags.lock(names[0]), await log.book.now() + 1)])
    views = await lock_reading.read_many(log, [*names, "never"])
    assert [name for name in names if views[name].queue] == names[1::2]
    assert (views["never"].newest, views[names[0]].newest) == (0, 0) and views[names[2]].newest > 0


async def test_a_record_that_a_locks_stream_has_no_more_is_none_of_its() -> None:
    """The stream of another lock still has the record; this lock was released, forgotten and acquired again since."""
    clock = SetClock()
    async with MemoryCluster(clock=clock) as cluster:
        log = Log((await cluster.connect()).book("shop"))
        both = [Enqueued(name, "w", f"0:{name}", False, 1, True) for name in ("x", "y")]
        await log.append(Contribution((tags.lock("x"), tags.lock("y")), {}, tuple(both)))
        given_back = await log.append(Contribution((tags.lock("y"),), {}, (Released("y", "w", "0:y"),)))
        clock.ms += 2 * FORGET_MS
        await log.append(Contribution((tags.lock("z"),), {}, (Enqueued("z", "w", "0:z", False, 1, True),)))
        await log.book.trim([(tags.lock("y"), given_back + 1)], forget=True)
        await log.append(Contribution((tags.lock("y"),), {}, (Enqueued("y", "v", "0:1", False, 9, True),)))
        views = await lock_reading.read_many(log, ["x", "y"])
        assert [[entry.owner for entry in views[name].queue] for name in ("x", "y")] == [["w"], ["v"]]
