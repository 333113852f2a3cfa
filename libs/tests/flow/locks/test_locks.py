"""Locks in workflows: holders, their order and the cost, with a death at any operation."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from bokiflow import App, LockRefused, Worker
from bokiflow.client.replayer import export, replay
from bokiflow.locks import lock_reading, lock_room
from bokiflow.model import flow_events, lock_rules
from bokiflow.model.flow_events import Locked, Stepped, Unlocked
from bokiflow.testing import LoopClock, in_virtual_time
from bokiflow_tools.drawing import known
from bokiflow_tools.reading import life_of
from bokiflow_tools.wording import life_facts, life_lines, span_line
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.testing import UNKNOWNS, FaultKind, crash_everywhere, start_anywhere, while_alive
from libs.tests.flow.conftest import Inline, started, until, working


class Seats:
    """An app of workflows that acquire locks; `inside` has the workflows in each lock as bodies see them, `most` their largest number."""

    def __init__(self) -> None:
        self.app = App("seats")
        self.numbers: list[int] = []
        app = self.app

        @app.step
        async def use(name: str, who: str) -> str:
            return f"{who} has {name}"

        @app.workflow
        async def sit(name: str, shared: bool = False) -> int:
            async with bokiflow.lock(name, mode="shared" if shared else "exclusive") as number:
                await use(name, bokiflow.workflow_id())
                return number

        @app.workflow
        async def hold(name: str, shared: bool = False) -> int:
            async with bokiflow.lock(name, mode="shared" if shared else "exclusive") as number:
                bokiflow.emit("has", number)
                await bokiflow.recv("go")
            await use(name, "nobody")
            return number

        @app.workflow
        async def after_a_step(name: str) -> str:
            await use(name, "first")
            async with bokiflow.lock(name):
                await use(name, "then")
            return await use(name, "last")

        @app.workflow
        async def attempt(name: str) -> str:
            try:
                async with bokiflow.lock(name, try_=True):
                    return await use(name, "I")
            except LockRefused as error:
                return f"refused {error.name} {error.holder}"

        @app.workflow
        async def patient(name: str, seconds: float) -> str:
            try:
                async with bokiflow.lock(name, timeout_s=seconds):
                    return await use(name, "I")
            except TimeoutError:
                return await use("nothing", "late")

        @app.workflow
        async def two(first: str, second: str, *, ordered: bool = False) -> str:
            async with bokiflow.lock(first, ordered=ordered):
                bokiflow.emit("has", first)
                await bokiflow.recv("go")
                try:
                    async with bokiflow.lock(second, ordered=ordered):
                        return await use(second, "I")
                except LockRefused as error:
                    return f"refused {error.name} {error.holder}"

        @app.workflow
        async def child(name: str) -> int:
            return await sit(name)

        self.use, self.sit, self.hold, self.attempt, self.patient = use, sit, hold, attempt, patient
        self.two, self.child, self.after_a_step = two, child, after_a_step


async def first_event(worker: Worker, id: str, topic: str) -> Any:
    async for value in worker.handle(id).events(topic):
        return value
    return None


async def waits(worker: Worker, id: str, what: str) -> None:
    """Wait until the log has the record that a workflow waits for a lock."""

    def so() -> bool:
        executor = worker._executors.get(id)
        return executor is not None and executor.idle and any(what in one for one in executor.instance.waits)

    await until(so)


async def test_a_workflow_that_waits_names_the_lock_its_holder_and_what_blocks_that_one(
    cluster: MemoryCluster,
) -> None:
    seats = Seats()
    async with working(cluster, seats.app) as worker:
        await worker.start(seats.hold.call("report of today"), id="first")
        await first_event(worker, "first", "has")
        await worker.start(seats.sit.call("report of today"), id="second")
        await waits(worker, "second", "lock")
        first, second = await worker.flow.known("first"), await worker.flow.known("second")
        assert first is not None and (first.holds, first.waits_for) == (("report of today",), ())
        assert second is not None and second.holds == ()
        (wait,) = second.waits_for
        assert (wait.name, wait.holder, wait.holder_blocked) == ("report of today", "first", "")
        assert second.started_ms <= wait.since_ms <= worker.log.now_ms()
        await worker.drain()
    async with working(cluster, App("seats"), name="lacks all") as worker:
        while len(await worker.flow.blocked("NotRegistered")) < 2:
            await asyncio.sleep(0)
        life = await life_of(worker.log, "second")
        (wait,) = life.waits_for
        assert wait.holder == "first" and wait.holder_blocked.startswith("NotRegistered: ")
        lines = life_lines(life, lambda ms: f"{ms}")
        told = "held by first (blocked: NotRegistered)"
        assert f"waits for lock 'report of today', {told}, since {wait.since_ms}" in lines
        assert "holds     lock 'report of today'" in life_lines(await life_of(worker.log, "first"), str)
        assert life.timeline is not None
        (row,) = [span_line(span, 0) for span in life.timeline.spans if span.kind == "queued"]
        assert row.endswith(f"waits for lock 'report of today'  open  → {told}")
        table = "".join(known("shop", life).itertext())
        assert f"lock 'report of today', {told}, since " in table
        assert life_facts(life)["waits_for"][0]["holder"] == "first"


class Zeros:
    """A source of tokens that returns zeros: all incarnations have one name."""

    def token(self, size: int) -> bytes:
        return bytes(size)


async def check_locks(book: BookPort) -> Counter[str]:
    """Check by the log that each workflow used a lock only while it held it; return how often each lock was acquired."""
    log = Log(book, random=Zeros())
    queues: dict[str, lock_rules.Queue] = {}
    has: dict[tuple[str, str], tuple[str, int]] = {}
    taken: Counter[str] = Counter()
    last: dict[str, int] = {}
    async for item in book.read(start=1):
        if isinstance(item, boki.Gap):
            continue
        envelope = await log.open(item)
        given_back: list[lock_rules.LockEvent] = []
        for one in lock_rules.PICKER.of(item.seqnum, envelope):
            if isinstance(one, lock_rules.Enqueued):
                queues[one.id] = lock_rules.after(queues.get(one.id, ()), item.seqnum, [one])
            else:
                given_back.append(one)
        for event in flow_events.PICKER.of(item.seqnum, envelope):
            if isinstance(event, Locked):
                number = event.number or item.seqnum
                assert (event.id, event.key) not in has, "granted once"
                assert lock_rules.standing(queues[event.name], number) == "held"
                holders = lock_rules.holders(queues[event.name])
                if not holders[0].shared:
                    assert number > last.get(event.name, 0), "fencing numbers grow"
                last[event.name] = max(number, last.get(event.name, 0))
                has[event.id, event.key] = event.name, number
                taken[event.name] += 1
            elif isinstance(event, Unlocked):
                has.pop((event.id, event.key), None)
            elif isinstance(event, Stepped) and event.name == "use" and str(event.outcome.value).startswith("inside"):
                mine = [number for (id, _), (_, number) in has.items() if id == event.id]
                assert mine and all(
                    lock_rules.standing(queue, number) == "held"
                    for name, queue in queues.items()
                    for number in mine
                    if any(entry.number == number for entry in queue)
                )
        for one in given_back:  # a grant and what follows from it share a record, in this order
            queues[one.id] = lock_rules.after(queues.get(one.id, ()), item.seqnum, [one])
    assert not has and not any(queues.values()), "all were given back"
    return taken


async def test_a_lock_takes_one_record_giving_it_back_none(cluster: MemoryCluster) -> None:
    seats = Seats()
    async with working(cluster, seats.app) as worker:
        await worker._peers._members.beat()
        await until(lambda: worker._peers._members.alive() != [])

        async def appends(call: bokiflow.Call[Any], id: str) -> int:
            before = worker.log.appends
            await (await worker.start(call, id=id)).result()
            return worker.log.appends - before

        assert await appends(seats.sit.call("a"), "x1") == 2 + 1, "a workflow of one step, and the lock"
        assert await appends(seats.after_a_step.call("a"), "x2") == 4 + 1
        holding = await worker.start(seats.hold.call("b"), id="h")
        await first_event(worker, "h", "has")
        assert await appends(seats.attempt.call("b"), "x3") == 2, "what is refused at once takes none"
        before = worker.log.appends
        waiting = await worker.start(seats.sit.call("b"), id="w")
        await waits(worker, "w", "lock 'b'")
        assert worker.log.appends - before == 2, "the start, and the place in the queue"
        await holding.signal("go")
        await asyncio.gather(holding.result(), waiting.result())
        assert worker.log.appends - before == 2 + 1 + 2 + 2, "a signal; released, and the end; granted, and the end"
        holding = await worker.start(seats.hold.call("b"), id="h2")
        await first_event(worker, "h2", "has")
        before = worker.log.appends
        waiting_too = await worker.start(seats.after_a_step.call("b"), id="w2")
        await waits(worker, "w2", "lock 'b'")
        assert worker.log.appends - before == 2, "the start, and the first step: the place goes with it"
        await holding.signal("go")
        await asyncio.gather(holding.result(), waiting_too.result())
        assert worker.log.appends - before == (4 + 1) + 1 + 2, (
            "a workflow of three steps, and the lock; a signal; the other"
        )


async def test_a_place_that_goes_with_a_step_is_given_up_while_its_record_is_under_way(cluster: MemoryCluster) -> None:
    """The code is cancelled, refused or ends before the record is in the log: its lock queue entry is removed."""
    app = App("others")
    seats = Seats()

    @app.step
    async def note(what: str) -> str:
        return what

    @app.workflow
    async def gives_up() -> str:
        async def sit() -> None:
            async with bokiflow.lock("a"):
                await note("inside")

        await note("first")
        sitting = asyncio.ensure_future(sit())
        await asyncio.sleep(0)
        sitting.cancel()
        return await note("last")

    @app.workflow
    async def ends() -> str:
        await note("first")
        sitting = asyncio.ensure_future(bokiflow.lock("a").__aenter__())
        await asyncio.sleep(0)
        return f"{sitting.done()}"

    @app.workflow
    async def two() -> str:
        async with bokiflow.lock("b"):
            await note("inside")
            try:
                async with bokiflow.lock("a"):
                    return "both"
            except LockRefused as error:
                return f"refused {error.holder}"

    async with working(cluster, seats.app) as other, working(cluster, app, "x") as worker:
        holding = await other.start(seats.hold.call("a"), id="h")
        await first_event(other, "h", "has")
        assert await (await worker.start(two.call(), id="2")).result() == "refused h"
        assert await (await worker.start(gives_up.call(), id="1")).result() == "last"
        assert await (await worker.start(ends.call(), id="3")).result() == "False"
        await holding.signal("go")
        await holding.result()
        queue = (await lock_reading.read(worker.log, "a")).queue
        assert queue == () and not (await lock_reading.read(worker.log, "b")).queue


@in_virtual_time
async def test_a_time_out_takes_one_record_and_leaves_the_queue() -> None:
    seats = Seats()
    async with MemoryCluster(clock=LoopClock()) as cluster, working(cluster, seats.app) as worker:
        holding = await worker.start(seats.hold.call("a"), id="h")
        number = await first_event(worker, "h", "has")
        late = await worker.start(seats.patient.call("a", 0.01), id="late")
        assert await late.result() == "late has nothing"
        kinds = [done.kind async for done in late.steps()]
        assert kinds == ["lock asked", "timer", "unlock", "step", "end"]
        other = await worker.start(seats.sit.call("a"), id="other")
        await waits(worker, "other", "lock 'a'")
        await holding.signal("go")
        assert await other.result() > await holding.result() == number
        assert await check_locks(worker.log.book) == {"a": 2}


async def test_locks_are_given_in_the_order_of_asking_and_shared(cluster: MemoryCluster) -> None:
    seats = Seats()
    async with working(cluster, seats.app) as worker:
        first = await worker.start(seats.hold.call("a", True), id="first")
        await first_event(worker, "first", "has")
        second = await worker.start(seats.hold.call("a", True), id="second")
        await first_event(worker, "second", "has")
        exclusive = await worker.start(seats.hold.call("a"), id="exclusive")
        await waits(worker, "exclusive", "lock 'a'")
        third = await worker.start(seats.hold.call("a", True), id="third")
        await waits(worker, "third", "lock 'a'")
        await first.signal("go")
        await first.result()
        await waits(worker, "exclusive", "lock 'a'")
        await second.signal("go")
        number = await first_event(worker, "exclusive", "has")
        await waits(worker, "third", "lock 'a'")
        await exclusive.signal("go")
        await third.signal("go")
        assert await third.result() > number == await exclusive.result() > await second.result()
        assert await check_locks(worker.log.book) == {"a": 4}


async def test_who_has_a_lock_waits_for_younger_ones_only(cluster: MemoryCluster) -> None:
    seats = Seats()
    async with working(cluster, seats.app) as worker:
        old = await worker.start(seats.two.call("a", "b"), id="old")
        await first_event(worker, "old", "has")
        young = await worker.start(seats.two.call("b", "a"), id="young")
        await first_event(worker, "young", "has")
        await old.signal("go")
        await waits(worker, "old", "lock 'b'")
        await young.signal("go")
        assert await young.result() == "refused a old"
        assert await old.result() == "I has b"
        await check_locks(worker.log.book)


async def test_who_takes_locks_in_one_order_waits_for_anybody(cluster: MemoryCluster) -> None:
    seats = Seats()
    async with working(cluster, seats.app) as worker:
        old = await worker.start(seats.hold.call("b"), id="old")
        await first_event(worker, "old", "has")
        young = await worker.start(seats.two.call("a", "b", ordered=True), id="young")
        await first_event(worker, "young", "has")
        await young.signal("go")
        await waits(worker, "young", "lock 'b'")
        await old.signal("go")
        assert await young.result() == "I has b"


async def test_a_child_is_as_old_as_the_root_of_its_family(cluster: MemoryCluster) -> None:
    seats = Seats()
    async with working(cluster, seats.app) as worker:
        family = await worker.start(seats.child.call("free"), id="family")
        assert await family.result() > 0
        holding = await worker.start(seats.hold.call("a"), id="h")
        await first_event(worker, "h", "has")
        with pytest.raises(LockRefused, match="held by workflow 'h'"):
            await (await worker.start(seats.child.call("a"), id="younger")).result()
        await holding.signal("go")
        await holding.result()


async def test_tasks_of_one_workflow_ask_one_after_the_other(cluster: MemoryCluster) -> None:
    app = App("seats")
    order: list[str] = []

    @app.step
    async def note(what: str) -> None:
        order.append(what)

    @app.workflow
    async def several() -> list[str]:
        async def one(name: str) -> str:
            async with bokiflow.lock(name):
                await note(name)
            return name

        found = await asyncio.gather(*(one(name) for name in "abc"), return_exceptions=True)
        return [str(each) for each in found]

    @app.workflow
    async def twice() -> str:
        async with bokiflow.lock("a"):
            try:
                async with bokiflow.lock("a"):
                    return "both"
            except LockRefused:
                return "not twice"

    async with working(cluster, app) as worker:
        assert await (await worker.start(several.call(), id="x")).result() == ["a", "b", "c"]
        assert sorted(order) == ["a", "b", "c"]
        assert await (await worker.start(twice.call(), id="y")).result() == "not twice"
        await check_locks(worker.log.book)


async def test_the_end_of_a_workflow_gives_all_back_also_cancelled(cluster: MemoryCluster) -> None:
    app = App("seats")

    @app.workflow
    async def careless() -> int:
        return await bokiflow.lock("a").__aenter__()

    @app.workflow
    async def forever() -> int:
        async with bokiflow.lock("a") as number:
            bokiflow.emit("has", number)
            await bokiflow.recv("never")
            return number

    async with working(cluster, app) as worker:
        assert await (await worker.start(careless.call(), id="1")).result() > 0
        handle = await worker.start(forever.call(), id="2")
        await first_event(worker, "2", "has")
        waiting = await worker.start(forever.call(), id="3")
        await waits(worker, "3", "lock 'a'")
        await handle.cancel()
        await first_event(worker, "3", "has")
        await waiting.cancel()
        with pytest.raises(bokiflow.WorkflowCancelled):
            await waiting.result()
        assert await check_locks(worker.log.book) == {"a": 3}


async def test_a_lock_is_kept_over_a_takeover_with_its_number(cluster: MemoryCluster) -> None:
    seats = Seats()
    async with working(cluster, seats.app, "one") as worker:
        await worker.start(seats.hold.call("a"), id="h")
        number = await first_event(worker, "h", "has")
        await worker.start(seats.sit.call("a"), id="w")
        await waits(worker, "w", "lock 'a'")
    async with working(cluster, seats.app, "one") as worker:
        await waits(worker, "w", "lock 'a'")
        await waits(worker, "h", "signal")
        await worker.handle("h").signal("go")
        assert await worker.handle("h", seats.hold).result() == number
        assert await worker.handle("w", seats.sit).result() > number
        assert await check_locks(worker.log.book) == {"a": 2}
        assert await replay(seats.app, await export(worker.log, "w")) == []


async def test_locks_are_in_the_checkpoint_of_a_history(cluster: MemoryCluster) -> None:
    for ids in (("h", "w"), ()):
        seats = Seats()
        async with working(cluster, seats.app, "one") as worker:
            await worker.start(seats.hold.call("a"), id="h")
            number = await first_event(worker, "h", "has")
            await worker.start(seats.sit.call("a"), id="w")
            await waits(worker, "w", "lock 'a'")
            await waits(worker, "h", "signal")
            for id in ids:
                assert await worker._executors[id].checkpoint()
            if not ids:
                await worker.handle("h").signal("go")
                assert await worker.handle("w", seats.sit).result() > number
                assert await worker.handle("h", seats.hold).result() == number


async def test_locks_of_workers_in_two_processes_exclude_each_other(cluster: MemoryCluster) -> None:
    one, other = Seats(), Seats()
    async with working(cluster, one.app, "one") as first, working(cluster, other.app, "two") as second:
        handles = [
            await worker.start(one.sit.call(f"{number % 3}"), id=f"{worker.name}{number}")
            for number in range(12)
            for worker in (first, second)
        ]
        numbers = await asyncio.gather(*(handle.result() for handle in handles))
        assert len(set(numbers)) == 24
        assert await check_locks(first.log.book) == {"0": 8, "1": 8, "2": 8}


def test_names_that_would_share_a_stream_are_refused() -> None:
    for name in ("", "x" * 201, "ck/a"):
        with pytest.raises(boki.InvalidArgument):
            bokiflow.lock(name)
    with pytest.raises(boki.InvalidArgument):
        bokiflow.lock("a", timeout_s=0)


# -- crashes, lost answers, second workers


class Contended:
    """Two workflows that want one lock, and a third that waits no longer than it has to."""

    def __init__(self) -> None:
        self.seats = Seats()

    def calls(self) -> list[tuple[str, bokiflow.Call[Any]]]:
        seats = self.seats
        return [
            ("x", seats.sit.call("a")),
            ("y", seats.sit.call("a")),
            ("z", seats.after_a_step.call("b")),
            ("v", seats.after_a_step.call("a")),
        ]

    async def work(self, book: BookPort) -> None:
        async with Worker(self.seats.app, book, name="w", bodies=Inline()) as worker:
            handles = []
            for id, call in self.calls():
                handles.append(await started(worker, call, id))
            x, y, z, v = await asyncio.gather(*(handle.result() for handle in handles))
            assert x != y and (z, v) == ("last has b", "last has a")

    async def program(self, book: BookPort) -> None:
        await while_alive(book, self.work(book))

    async def check(self, book: boki.Book) -> None:
        assert await check_locks(book) == {"a": 3, "b": 1}
        log = Log(book)
        ends: Counter[str] = Counter()
        async for item in book.read():
            assert not isinstance(item, boki.Gap)
            for event in flow_events.PICKER.of(item.seqnum, await log.open(item)):
                if isinstance(event, flow_events.Ended):
                    ends[event.id] += 1
        assert ends == {"x": 1, "y": 1, "z": 1, "v": 1}


async def test_a_crash_at_any_operation_leaves_each_lock_to_one() -> None:
    contended = Contended()
    assert (await crash_everywhere(contended.program, contended.program, contended.check)).runs > 10


@pytest.mark.parametrize("kinds", [UNKNOWNS])
async def test_a_lost_answer_at_any_append_leaves_each_lock_to_one(kinds: tuple[FaultKind, ...]) -> None:
    contended = Contended()
    assert (await crash_everywhere(contended.program, contended.program, contended.check, kinds=kinds)).runs > 3


async def test_a_second_worker_anywhere_leaves_each_lock_to_one() -> None:
    contended = Contended()
    assert (await start_anywhere(contended.program, contended.program, contended.check)).runs > 3


@pytest.mark.nightly
@pytest.mark.timeout(3_000)
async def test_two_crashes_anywhere_leave_each_lock_to_one() -> None:
    contended = Contended()
    assert (await crash_everywhere(contended.program, contended.program, contended.check, pairs=True)).runs > 100


async def test_a_lock_that_is_taken_without_its_condition_is_found(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defect acquires a lock that was free when it was read, although records came since."""
    plain = lock_room.append

    async def append(opened: Log, ready: Any, part: Any, seen: int) -> int | None:
        return await plain(opened, ready._replace(at_once=False), part, seen)

    monkeypatch.setattr(lock_room, "append", append)
    book = (await cluster.connect()).book("shop")
    contended = Contended()
    await contended.work(book)
    with pytest.raises(AssertionError):
        await contended.check(book)
