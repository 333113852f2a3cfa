"""Workers: what is started finishes once; takeover, partitions, zombies, drain; appends per operation."""

from __future__ import annotations

import asyncio
import hashlib
import io
import math
import re
import select
import signal
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import boki
import bokiflow
import bokilib
from boki.testing import MemoryCluster
from boki_common.logs import configured
from boki_common.testing.virtual_time import VirtualTimeLoop, let_pass
from bokiflow import App, Call, NonDeterminism, NotRegistered, Worker, WorkflowCancelled
from bokiflow.model.flow_events import PICKER, Claimed, Ended, PartitionClaimed
from bokiflow.testing import LoopClock, in_virtual_time
from bokiflow_tools.reading import life_of
from bokiflow_tools.wording import IDLE_CLAIMS, idle_text
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from libs.tests.flow.conftest import Inline, until, working
from libs.tests.flow.shop import Shop

LONG_S = 3_600.0
"""Of a lease: so no heartbeat comes between two counts, however slow the machine is."""


async def events_of(worker: Worker, tag: str, kind: type[Any]) -> list[Any]:
    found = []
    async for item in worker.log.book.read(tag):
        assert not isinstance(item, boki.Gap)
        found += [one for one in PICKER.of(item.seqnum, await worker.log.open(item)) if isinstance(one, kind)]
    return found


async def appends(worker: Worker, call: Call[Any], id: str) -> int:
    """Records that one workflow takes, its start included."""
    before = worker.log.appends
    await (await worker.start(call, id=id)).result()
    return worker.log.appends - before


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("lease_s", [0, -1, 15_000, 1e12, math.inf, math.nan, "15", None, True]),
        ("retention_s", [-1, math.inf, "1", None]),
        ("collect_every_s", [0, -1, math.nan, "1", None]),
        ("history_s", [-1, math.inf, "1"]),
        ("failed_history_s", [-1, math.inf, "1"]),
        ("history_bytes", [-1, 1.5, "1m", True]),
        ("stuck_after_s", [0, -1, math.inf, "1", True]),
        ("name", [5, b"w", "x" * 10_000, "\ud800"]),
    ],
)
async def test_an_option_that_is_out_of_range_is_refused(cluster: MemoryCluster, name: str, wrong: list[Any]) -> None:
    book = (await cluster.connect()).book("b")
    for found in wrong:
        with pytest.raises(boki.InvalidArgument, match={"lease_s": "a lease", "name": "name"}.get(name, f"{name}=")):
            Worker(App("shop"), book, **{name: found})


async def test_options_at_the_ends_of_their_ranges_are_taken(cluster: MemoryCluster) -> None:
    book = (await cluster.connect()).book("b")
    least: dict[str, Any] = dict.fromkeys(("retention_s", "history_s", "failed_history_s", "history_bytes"), 0)
    Worker(App("shop"), book, lease_s=3_600, stuck_after_s=None, **least)


async def test_appends_are_those_of_the_table(cluster: MemoryCluster) -> None:
    shop = Shop()
    async with working(cluster, shop.app, lease_s=LONG_S) as worker:
        await worker._peers._members.beat()
        await until(lambda: worker._peers._members.alive() != [])
        steps = [await appends(worker, shop.steps.call(count), f"steps {count}") for count in range(4)]
        assert steps == [2, 2, 3, 4], "n steps are n + 1, and none is 2"
        assert await appends(worker, shop.careful.call(1), "careful") == 3, "at most once is one more"
        assert await appends(worker, shop.sleep.call(0.001), "sleep") == 2, "a sleep is 1, with what follows from it"
        child = await appends(worker, shop.steps.call(1), "no child")
        assert await appends(worker, shop.parent.call(0), "parent") == 1 + 2 + (child - 1), (
            "invoke, and the child's own"
        )
        assert await appends(worker, shop.at_once.call(5), "at once") == 2, "what ends together is one record"
        assert await appends(worker, shop.retried.call(1), "retried") == 2, "attempts are not in the log"


async def test_appends_of_what_is_done_to_workflows_are_those_of_the_table(cluster: MemoryCluster) -> None:
    app, shop = App("shop"), Shop()

    @app.workflow
    async def wait() -> bokiflow.Json:
        await shop.add(1, 1)
        return await bokiflow.recv("go")

    @app.workflow
    async def patient() -> str:
        try:
            async with asyncio.timeout(0.001):
                await bokiflow.recv("never")
        except TimeoutError:
            return "late"
        return ""

    @app.workflow
    async def again(left: int) -> int:
        if left:
            bokiflow.restart(left - 1)
        return left

    async with working(cluster, app, lease_s=LONG_S) as worker:
        await worker._peers._members.beat()
        await until(lambda: worker._peers._members.alive() != [])
        log = worker.log
        assert await appends(worker, patient.call(), "patient") == 2, (
            "start; a time-out is 1, with what follows from it"
        )
        assert await appends(worker, again.call(0), "once") == 2
        assert await appends(worker, again.call(3), "thrice") == 2 + 3, "a restart is 1"

        handle = await worker.start(wait.call(), id="x")
        await until(lambda: "x" in worker._executors and worker._executors["x"].instance.waits == ["signal 'go'"])
        await until(lambda: worker._executors["x"].idle)
        before = log.appends
        assert await worker._executors["x"].checkpoint() and log.appends - before == 1, "a checkpoint, with its claim"
        before = log.appends
        fork = await handle.fork(id="y")
        assert log.appends - before == 1, "a fork"
        await until(lambda: "y" in worker._executors and worker._executors["y"].idle)
        assert log.appends - before == 2, "and the claim of who runs it"
        before = log.appends
        await handle.signal("go", 1)
        assert await handle.result() == 1 and log.appends - before == 2, "the signal, and the end"
        before = log.appends
        await fork.cancel()
        with pytest.raises(WorkflowCancelled):
            await fork.result()
        assert log.appends - before == 2, "the cancellation, and the end"

        await worker.start(wait.call(), id="z")
        await until(lambda: worker._executors["z"].instance.waits == ["signal 'go'"] and worker._executors["z"].idle)
        await worker.drain()
    async with working(cluster, app, "other", lease_s=LONG_S) as worker:
        await until(lambda: "z" in worker._executors and worker._executors["z"].idle)
        before = worker.log.appends
        await worker.handle("z").resume()
        assert worker.log.appends - before == 1, "to ask that it be tried again"
        claims = await events_of(worker, tags.flow_own("z"), Claimed)
        assert [one.owner for one in claims] == [worker.name], "a takeover is 1"


async def test_a_signal_takes_no_record_of_who_receives_it(cluster: MemoryCluster) -> None:
    app = App("shop")

    @app.workflow
    async def receive() -> list[bokiflow.Json]:
        return [await bokiflow.recv(), await bokiflow.recv()]

    async with working(cluster, app) as worker:
        handle = await worker.start(receive.call(), id="a")
        before = worker.log.appends
        await handle.signal("", 1)
        await handle.signal("", 2)
        assert await handle.result() == [1, 2] and worker.log.appends - before == 3


CALLS: list[tuple[Callable[[Shop], Call[Any]], Any]] = [
    (lambda shop: shop.steps.call(4), 6),
    (lambda shop: shop.at_once.call(3), [1, 2, 3, 6]),
    (lambda shop: shop.compensate.call("no"), "no: 2"),
    (lambda shop: shop.parent.call(3), 4),
    (lambda shop: shop.careful.call(3), "3"),
    (lambda shop: shop.patient.call(0.001), "late 2"),
]


@pytest.mark.parametrize("which", range(len(CALLS)))
async def test_workflows_give_what_their_code_gives(cluster: MemoryCluster, which: int) -> None:
    shop = Shop()
    make, expected = CALLS[which]
    async with working(cluster, shop.app) as worker:
        handle = await worker.start(make(shop), id="x")
        assert await handle.result() == expected
        assert await (await worker.start(make(shop), id="x")).result() == expected, "attached"
        assert len(await events_of(worker, tags.flow_own("x"), Ended)) == 1
    async with working(cluster, shop.app, "other") as worker:
        ran = len(shop.ran)
        assert await (await worker.start(make(shop), id="x")).result() == expected and len(shop.ran) == ran


async def test_errors_of_steps_are_errors_of_their_class(shop: Shop, worker: Worker) -> None:
    handle = await worker.start(shop.fail.call("sold out"))
    with pytest.raises(ValueError, match="sold out"):
        await handle.result()
    assert await handle.status() == "failed"
    shop.fails = 2
    assert await (await worker.start(shop.retried.call(7))).result() == 7 and shop.ran.count("flaky") == 3


async def test_cancelling_ends_a_workflow_and_its_children(cluster: MemoryCluster) -> None:
    app = App("shop")

    @app.workflow
    async def child() -> bokiflow.Json:
        return await bokiflow.recv()

    @app.workflow
    async def parent() -> bokiflow.Json:
        return await child()

    async with working(cluster, app) as worker:
        handle = await worker.start(parent.call(), id="p")
        await until(lambda: "p/0:1" in worker._executors)
        await handle.cancel("enough")
        with pytest.raises(WorkflowCancelled):
            await handle.result()
        with pytest.raises(WorkflowCancelled):
            await worker.handle("p/0:1", child).result()
        assert await handle.status() == await worker.handle("p/0:1").status() == "cancelled"
        await handle.cancel("again")
        assert await handle.status() == "cancelled"


async def test_a_worker_that_begins_again_goes_on_where_it_was(cluster: MemoryCluster) -> None:
    shop = Shop()
    async with working(cluster, shop.app) as worker:
        handle = await worker.start(shop.wait.call(3), id="x")
        await handle.signal("go", 1)
        await until(lambda: shop.ran == ["add 1 0"])
    async with working(cluster, shop.app) as worker:
        again = worker.handle("x", shop.wait)
        await again.signal("go", 2)
        await again.signal("go", 3)
        assert await again.result() == [1, 2, 3]
        assert shop.ran.count("add 2 0") == 1
        assert [one async for one in again.events("got", follow=False)] == [1, 2, 3]
        claims = await events_of(worker, tags.flow_own("x"), Claimed)
        assert [one.owner for one in claims] == [worker.name]


@pytest.mark.parametrize("name", [None, "w"])
def test_a_worker_on_the_log_of_an_earlier_one_takes_its_place_at_once(name: str | None) -> None:
    """Neither drained nor silent for a lease: who shares its Log knows that it is over, whatever it was called."""

    @in_virtual_time
    async def run() -> None:
        async with MemoryCluster() as cluster:
            log, shop, loop = Log((await cluster.connect()).book("shop")), Shop(), asyncio.get_running_loop()
            async with Worker(shop.app, log, bodies=Inline()) as first:
                handle = await first.start(shop.wait.call(1), id="x")
                await until(lambda: "x" in first._executors)
            began_s = loop.time()
            async with Worker(shop.app, log, name=name, bodies=Inline()) as second:
                assert second.name != first.name and len(second._partitions.mine) == tags.PARTITIONS
                await second.handle("x").signal("go", 5)
                assert await second.handle("x", shop.wait).result() == [5]
                assert await (await second.start(shop.steps.call(2), id="y")).result() == 1
                assert loop.time() - began_s < 1.0
            assert await handle.status() == "completed"

    run()


@pytest.mark.parametrize("name", [None, "w"])
def test_two_workers_at_the_same_time_on_one_log_share_the_partitions(name: str | None) -> None:
    @in_virtual_time
    async def run() -> None:
        async with MemoryCluster() as cluster:
            log, shop, passed = Log((await cluster.connect()).book("shop")), Shop(), asyncio.Event()
            async with (
                Worker(shop.app, log, name=name, bodies=Inline()) as first,
                Worker(shop.app, log, name=name, bodies=Inline()) as second,
            ):
                assert len(first._partitions.mine) == tags.PARTITIONS and not second._partitions.mine
                asyncio.get_running_loop().call_later(60, passed.set)
                await passed.wait()
                assert first._partitions.mine and second._partitions.mine
                assert sorted([*first._partitions.mine, *second._partitions.mine]) == list(range(tags.PARTITIONS))

    run()


async def test_what_somebody_without_a_worker_starts_is_run_by_who_has_the_partition(cluster: MemoryCluster) -> None:
    shop = Shop()
    outside = bokiflow.Flow(shop.app, (await cluster.connect()).book("shop"))
    async with outside, working(cluster, shop.app):
        handles = [await outside.start(shop.steps.call(2), id=f"x{number}") for number in range(10)]
        assert [await handle.result() for handle in handles] == [1] * 10
        assert len(shop.ran) == 20


async def test_what_was_started_while_nobody_worked_is_found(cluster: MemoryCluster) -> None:
    shop = Shop()
    async with bokiflow.Flow(shop.app, (await cluster.connect()).book("shop")) as outside:
        handle = await outside.start(shop.steps.call(2), id="x", attributes={"customer": "ann"})
        assert await handle.status() == "running" and await outside.find(customer="ann") == ["x"]
        async with working(cluster, shop.app):
            assert await handle.result() == 1


async def test_who_is_taken_over_while_it_lives_parks_and_gets_the_result(cluster: MemoryCluster) -> None:
    """A zombie: it has the same name, so the other one takes its place at once."""
    shop = Shop()
    async with working(cluster, shop.app, "w") as zombie:
        handle = await zombie.start(shop.wait.call(1), id="x")
        async with working(cluster, shop.app, "w") as worker:
            await until(lambda: "x" in worker._executors)
            result = asyncio.create_task(handle.result())
            await worker.handle("x").signal("go", 5)
            assert await worker.handle("x", shop.wait).result() == [5]
            assert await asyncio.wait_for(result, 5) == [5]
            assert "x" not in zombie._executors
            assert len(await events_of(worker, tags.flow_own("x"), Ended)) == 1


async def test_a_drained_worker_is_taken_over_at_once(cluster: MemoryCluster) -> None:
    shop = Shop()
    async with working(cluster, shop.app, "a") as a, working(cluster, shop.app, "b") as b:
        handle = await a.start(shop.wait.call(1), id="x")
        assert "x" in a._executors and not b._partitions.mine
        await a.drain()
        await until(lambda: "x" in b._executors)
        await handle.signal("go", 5)
        assert await handle.result() == [5] and len(b._partitions.mine) == tags.PARTITIONS


async def test_code_that_was_changed_is_reported_and_nothing_of_it_happens(cluster: MemoryCluster) -> None:
    old, new = App("shop"), App("shop")
    shop = Shop()

    @old.workflow(name="flow")
    async def before() -> bokiflow.Json:
        await shop.add(1, 1)
        return await bokiflow.recv()

    @new.workflow(name="flow")
    async def after() -> bokiflow.Json:
        await shop.double.aio(1)
        return await bokiflow.recv()

    async with working(cluster, old) as worker:
        await worker.start(before.call(), id="x")
        await until(lambda: shop.ran == ["add 1 1"] and worker._executors["x"].idle)
    async with working(cluster, new) as worker:
        with pytest.raises(NonDeterminism, match=r"expected step 'add'.*found step 'double'"):
            await worker.handle("x").result()
        assert shop.ran == ["add 1 1"]
    async with working(cluster, App("shop")) as worker:
        with pytest.raises(NotRegistered, match="flow"):
            await worker.handle("x").result()
    async with working(cluster, old) as worker:
        await worker.handle("x").signal("", 7)
        assert await worker.handle("x").result() == 7


async def test_a_step_that_runs_at_most_once_is_not_begun_again(cluster: MemoryCluster) -> None:
    app = App("shop")
    began = asyncio.Event()

    @app.step(at_most_once=True)
    async def once() -> None:
        began.set()
        await asyncio.Event().wait()

    @app.workflow
    async def flow() -> str:
        try:
            await once()
        except bokiflow.StepInterrupted as error:
            return str(error)
        return "done"

    async with working(cluster, app) as worker:
        await worker.start(flow.call(), id="x")
        await began.wait()
    began.clear()
    async with working(cluster, app) as worker:
        said = await worker.handle("x", flow).result()
        assert "`boki flow fork x` does the step again" in said and not began.is_set()


async def test_cancelling_ends_a_workflow_whose_step_ends_each_worker(cluster: MemoryCluster) -> None:
    app = App("shop")
    began: list[str] = []

    @app.step
    async def ends_its_process() -> None:
        began.append("")
        await asyncio.Event().wait()

    @app.workflow
    async def flow() -> None:
        await ends_its_process()

    async with bokiflow.Flow(app, (await cluster.connect()).book("shop")) as outside:
        handle = await outside.start(flow.call(), id="x")
        for number in range(1, IDLE_CLAIMS + 1):
            assert idle_text(await life_of(outside.log, "x")) == ""
            async with working(
                cluster, app, lease_s=0.02
            ):  # it dies there: it is not drained. Soon it is held back for leases
                while len(began) < number:
                    await asyncio.sleep(0)
        assert idle_text(await life_of(outside.log, "x")).startswith(f"{IDLE_CLAIMS} since it last recorded anything")
        await handle.cancel("it ends its process")
        async with working(cluster, app):
            with pytest.raises(bokiflow.WorkflowCancelled):
                await handle.result()
        assert len(began) == IDLE_CLAIMS and idle_text(await life_of(outside.log, "x")) == ""


async def test_what_recorded_something_was_not_taken_over_in_vain(shop: Shop, cluster: MemoryCluster) -> None:
    async with bokiflow.Flow(shop.app, (await cluster.connect()).book("shop")) as outside:
        handle = await outside.start(shop.wait.call(9), id="x")
        values = handle.events("got")
        for number in range(IDLE_CLAIMS):
            async with working(cluster, shop.app):
                await handle.signal("go", number)
                assert await anext(values) == number
        assert (await life_of(outside.log, "x")).idle_claims == 0


async def test_lost_answers_are_found_out(shop: Shop, worker: Worker, cluster: MemoryCluster) -> None:
    handle = await worker.start(shop.steps.call(3), id="x")
    with cluster.losing_answers():
        await until(lambda: bool(shop.ran))
    assert await handle.result() == 3


async def test_what_was_trimmed_before_it_was_followed_is_read_from_the_history(
    shop: Shop, worker: Worker, cluster: MemoryCluster
) -> None:
    """The partition's stream is trimmed under who follows it: signals are in the workflow's own stream."""
    handle = await worker.start(shop.wait.call(2), id="x")
    await until(lambda: "x" in worker._executors)
    partition = tags.partition_of("x")
    outside = bokiflow.Flow(shop.app, (await cluster.connect()).book("shop"))
    async with outside:
        worker._follower.discard(tags.flow_to("shop", partition))
        await outside.handle("x").signal("go", 1)
        await outside.handle("x").signal("go", 2)
        last = await outside.log.book.now(consistency="linearizable")
        await outside.log.book.trim([(tags.flow_to("shop", partition), last + 1)])
    worker._receive(partition, boki.Gap(boki.GapKind.TRIMMED, 1, last, "shop"))
    assert await handle.result() == [1, 2]


async def test_values_that_no_record_takes_are_errors_where_they_are_made(cluster: MemoryCluster) -> None:
    app = App("shop")

    @app.workflow
    async def large(chars: int) -> str:
        return "ü" * chars

    @app.workflow
    async def parent(chars: int, emits: bool) -> list[int]:
        found = []
        for count in (1_000, 100_000, chars):
            try:
                if emits:
                    bokiflow.emit("large", "ü" * count)
                found.append(len(await large(count)))
            except bokilib.AtomicTooLarge:
                found.append(-1)
        return found

    async with working(cluster, app) as worker:
        assert await (await worker.start(parent.call(150_000, False), id="x")).result() == [1_000, 100_000, -1]
        assert await (await worker.start(parent.call(150_000, True), id="y")).result() == [1_000, 100_000, -1]
        with pytest.raises(bokilib.AtomicTooLarge):
            await (await worker.start(large.call(300_000), id="z")).result()


LONG = "x" * 600_000
ADDRESSES = "store the large ones elsewhere, and pass their addresses"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("child", f"expected arguments of child workflow 'length' of up to 253952 bytes, found 600008: {ADDRESSES}"),
        (
            "emit",
            "expected a value emitted under 'state' of up to 253952 bytes, found 600005: store it elsewhere, and emit its address",
        ),
        (
            "send",
            "expected signal 'go' to workflow 'other' of up to 253952 bytes, found 600005: store it elsewhere, and send its address",
        ),
        (
            "restart",
            f"expected arguments of a restart of workflow 'parent' of up to 475136 bytes, found 600008: {ADDRESSES}",
        ),
    ],
)
async def test_values_that_are_too_large_in_a_workflow_are_named(cluster: MemoryCluster, call: str, says: str) -> None:
    app = App("shop")

    @app.workflow
    async def length(text: str) -> int:
        return len(text)

    @app.workflow
    async def parent(call: str) -> str:
        try:
            if call == "child":
                await length(LONG)
            elif call == "emit":
                bokiflow.emit("state", LONG)
            elif call == "send":
                bokiflow.send("other", "go", LONG)
            else:
                bokiflow.restart(LONG)
        except bokilib.AtomicTooLarge as error:
            return str(error)
        return ""

    async with working(cluster, app) as worker:
        assert await (await worker.start(parent.call(call), id="x")).result() == says


async def test_values_that_are_too_large_from_outside_are_named(shop: Shop, worker: Worker) -> None:
    @shop.app.workflow
    async def length(text: str) -> int:
        return len(text)

    @shop.app.workflow
    async def receives() -> int:
        return len(str(await bokiflow.recv("go")))

    with pytest.raises(bokilib.AtomicTooLarge, match=f"arguments of workflow 'length' to fit a record.*: {ADDRESSES}"):
        await worker.start(length.call(LONG), id="length")
    assert await (await worker.start(length.call(LONG[:523_000]), id="length")).result() == 523_000
    handle = await worker.start(receives.call(), id="x")
    with pytest.raises(bokilib.AtomicTooLarge, match=r"signal 'go' to workflow 'x' to fit a record.*send its address"):
        await handle.signal("go", LONG)
    with pytest.raises(bokilib.AtomicTooLarge, match=r"reason of a cancellation to workflow 'x'.*: give a shorter one"):
        await handle.cancel(LONG)
    await handle.signal("go", LONG[:500_000])
    assert await handle.result() == 500_000


async def test_what_is_blocked_is_tried_again_when_somebody_asks(cluster: MemoryCluster) -> None:
    app, shop = App("shop"), Shop()
    deployed = False

    @app.workflow
    async def flow() -> bokiflow.Json:
        if not deployed:
            await shop.double.aio(1)
        else:
            await shop.add(1, 1)
        return await bokiflow.recv()

    async with working(cluster, app) as worker:
        deployed = True
        handle = await worker.start(flow.call(), id="x")
        await until(lambda: shop.ran == ["add 1 1"] and worker._executors["x"].idle)
        deployed = False
    outside = bokiflow.Flow(app, (await cluster.connect()).book("shop"))
    async with outside, working(cluster, app) as worker:
        with pytest.raises(NonDeterminism):
            await worker.handle("x").result()
        found = outside.handle("x", flow)
        while await found.status() != "blocked":
            await asyncio.sleep(0)
        known = await outside.known("x")
        assert known is not None and known.blocked.startswith("NonDeterminism: workflow 'x'")
        deployed = True
        await found.resume()
        await until(lambda: "x" in worker._executors)
        await found.signal("", 7)
        assert await found.result() == 7 and await handle.status() == "completed"
        await found.resume()
        assert shop.ran == ["add 1 1"]
        with pytest.raises(bokiflow.NoSuchWorkflow):
            await outside.handle("nobody").resume()


async def test_what_is_blocked_is_gone_on_with_by_who_has_its_partition_next(cluster: MemoryCluster) -> None:
    """A worker of an older version lives on; it has given up what it cannot run."""
    old, new, shop = App("shop"), App("shop"), Shop()

    @new.workflow
    async def flow() -> int:
        return await shop.add(1, 1)

    async with working(cluster, old, "old") as before:
        outside = bokiflow.Flow(new, (await cluster.connect()).book("shop"))
        async with outside:
            handle = await outside.start(flow.call(), id="x")
            await until(lambda: "x" in before._takeover.aside)
            while await handle.status() != "blocked":
                await asyncio.sleep(0)
            async with working(cluster, new, "new") as after:
                await after._partitions.claim([tags.partition_of("x")])
                await after._load_again(tags.partition_of("x"))
                await after._round()
                assert await handle.result() == 2


async def test_draining_lets_steps_end_begins_none_and_takes_nothing_new(cluster: MemoryCluster) -> None:
    app, ran = App("shop"), []
    began, may_end = asyncio.Event(), asyncio.Event()

    @app.step
    async def slow(name: str) -> str:
        ran.append(name)
        began.set()
        await may_end.wait()
        return name

    @app.step(at_most_once=True)
    async def once() -> str:
        ran.append("once")
        return "once"

    @app.workflow
    async def flow() -> list[str]:
        first = await slow("first")
        return [first, await once(), await slow("second")]

    async with working(cluster, app, "old") as old:
        handle = await old.start(flow.call(), id="x")
        await began.wait()
        draining = asyncio.ensure_future(old.drain())
        await until(lambda: old.finishing)
        await old.start(flow.call(), id="y")
        may_end.set()
        await draining
        assert ran == ["first"], "no step begins, also none that runs at most once"
        assert [(one.kind, one.detail) async for one in handle.steps()] == [("step", "slow")]
    async with working(cluster, app, "new") as new:
        assert await new.handle("x").result() == await new.handle("y").result() == ["first", "once", "second"]
        assert sorted(ran[1:]) == ["first", "once", "once", "second", "second"], "in an order of their own"


@in_virtual_time
async def test_draining_cancels_steps_that_take_too_long() -> None:
    async with MemoryCluster() as cluster:
        app, ran = App("shop"), []

        @app.step
        async def hangs() -> int:
            ran.append(asyncio.get_running_loop().time())
            await let_pass(1_000 if len(ran) == 1 else 0)
            return len(ran)

        @app.workflow
        async def flow() -> int:
            return await hangs()

        async with working(cluster, app, "old", lease_s=LONG_S) as old:
            await old.start(flow.call(), id="x")
            await until(lambda: bool(ran))
            assert await old.drain(finish_s=20) == ["hangs of x"]
        async with working(cluster, app, "new", lease_s=LONG_S) as new:
            assert await new.handle("x").result() == 2 and 20 <= ran[1] - ran[0] < 25


async def blocked(worker: Worker, id: str) -> str:
    """Return why a workflow is blocked, once it is."""
    async with asyncio.timeout(20):
        while (known := await worker.flow.known(id)) is None or not known.blocked:
            await asyncio.sleep(0)
    return known.blocked


def _spins() -> None:
    while True:
        pass


@pytest.mark.parametrize("wrong", ["spins", "blocks", "polls"])
async def test_code_that_keeps_its_worker_from_running_others_is_stopped_and_they_go_on(
    cluster: MemoryCluster, wrong: str
) -> None:
    app = App("shop")

    @app.workflow
    async def holds_up() -> None:
        if wrong == "polls":
            while True:
                await asyncio.sleep(0)
        _spins() if wrong == "spins" else hashlib.pbkdf2_hmac("sha256", b"", b"", 900_000)

    @app.workflow
    async def good() -> int:
        return 1

    async with working(cluster, app, stuck_after_s=0.05) as worker:
        stuck = await worker.start(holds_up.call(), id="x")
        assert await (await worker.start(good.call())).result() == 1
        assert (await blocked(worker, "x")).startswith("WorkflowStuck: ") and await stuck.status() == "blocked"


@pytest.mark.parametrize("once", [True, False])
async def test_a_step_that_ended_is_recorded_though_the_code_after_it_is_stuck(
    cluster: MemoryCluster, once: bool
) -> None:
    charged: list[int] = []

    def program(*, stuck: bool) -> App:
        app = App("shop")

        @app.step(at_most_once=once)
        async def charge() -> int:
            charged.append(7)
            return 7

        @app.workflow
        async def pays() -> str:
            found = await charge()
            if stuck:
                _spins()
            return f"charged {found}"

        return app

    async with working(cluster, program(stuck=True), stuck_after_s=0.05) as worker:
        await worker.start(worker.flow.app.find("pays").call(), id="x")
        await blocked(worker, "x")
    async with working(cluster, program(stuck=False)) as worker:
        handle = worker.handle("x")
        await handle.resume()
        assert await handle.result(blocked="wait") == "charged 7" and charged == [7]


async def test_steps_that_run_when_their_workflow_is_blocked_may_end_and_are_recorded(cluster: MemoryCluster) -> None:
    """A result does not fit the type that this code expects; another step, which runs at most once, is on its way."""
    charged: list[int] = []
    may_end = asyncio.Event()

    def program(kind: type) -> App:
        app = App("shop")

        async def count() -> Any:
            return "many"

        count.__annotations__["return"] = kind
        counted = app.step(count)

        @app.step(at_most_once=True)
        async def charge() -> int:
            charged.append(7)
            await may_end.wait()
            return 7

        @app.workflow
        async def pays() -> list[Any]:
            return list(await asyncio.gather(counted(), charge()))

        return app

    async with working(cluster, program(int)) as worker:
        handle = await worker.start(worker.flow.app.find("pays").call(), id="x")
        await until(lambda: bool(charged))
        await until(lambda: worker._executors["x"]._finishing is not None)
        assert await handle.status() == "running"
        may_end.set()
        await blocked(worker, "x")
    async with working(cluster, program(str)) as worker:
        await worker.handle("x").resume()
        assert await worker.handle("x").result(blocked="wait") == ["many", 7] and charged == [7]


async def test_a_worker_that_was_closed_is_not_entered_again(cluster: MemoryCluster) -> None:
    async with working(cluster, App("shop")) as worker:
        pass
    with pytest.raises(boki.ClosedError, match="make a new Worker"):
        async with worker:
            pass


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="a system call is interrupted on Unix only")
async def test_a_blocking_call_of_a_workflow_is_named_and_interrupted(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    app = App("shop")

    @app.workflow
    async def sleeps() -> None:
        select.select([], [], [], 900)  # as `time.sleep`, which tests forbid

    async with working(cluster, app, stuck_after_s=0.05) as worker:
        handle = await worker.start(sleeps.call(), id="x")
        why = await blocked(worker, "x")
        assert why.startswith("WorkflowStuck: ") and "in sleeps, `select.select([], [], [], 900)" in why
        said = capsys.readouterr().err
        assert "workflow stuck: its code keeps the event loop from running" in said and "select.select" in said
        await handle.cancel()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # anyio's thread: it is told, too
async def test_a_workflow_that_waits_for_a_thread_is_blocked_with_what_to_do(cluster: MemoryCluster) -> None:
    app = App("shop")

    @app.workflow
    async def waits() -> int:
        return await anyio.to_thread.run_sync(int)

    async with working(cluster, app) as worker:
        await worker.start(waits.call(), id="x")
        assert "Put it into a step" in await blocked(worker, "x")


async def test_a_stuck_workflow_runs_again_once_resumed_and_ends_once_cancelled(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []
    stuck = True

    def shop() -> App:
        app = App("shop")

        @app.workflow
        async def waits() -> None:
            await bokiflow.recv("never")

        @app.workflow
        async def polls() -> str:
            ran.append("polls")
            waiting = asyncio.create_task(waits())
            await bokiflow.recv("go")
            while stuck:
                await asyncio.sleep(0)
            waiting.cancel()
            return "done"

        return app

    async with working(cluster, shop()) as worker:
        for id in ("resumed", "cancelled"):
            await (await worker.start(worker.flow.app.find("polls").call(), id=id)).signal("go")
            await blocked(worker, id)
        await worker.drain()
    assert ran == ["polls", "polls"]
    async with working(cluster, shop(), name="w2") as worker:
        await worker._round()
        await until(lambda: len(worker._takeover.aside) == 2)
        assert ran == ["polls", "polls"], "the next worker does not begin it again"
        said = [line for line in capsys.readouterr().err.split("\n") if "not tried again until" in line]
        assert len(said) == 2 and all("boki flow resume --all --error WorkflowStuck" in line for line in said)
        assert all("since=" in line and "in polls" not in line for line in said), (
            "it was said before where it was stuck"
        )
        await worker.handle("cancelled").cancel()
        words = "'cancelled' was cancelled while blocked by WorkflowStuck: its `except` and `finally` did not run"
        with pytest.raises(WorkflowCancelled, match=words):
            await worker.handle("cancelled").result()
        assert await worker.handle("cancelled").status() == "cancelled"
        with pytest.raises(WorkflowCancelled, match=r"workflow 'cancelled/0/1:1' was cancelled$"):
            await worker.handle("cancelled/0/1:1").result()
        stuck = False
        await worker.handle("resumed").resume()
        assert await worker.handle("resumed").result() == "done" and ran == ["polls"] * 3


async def test_what_is_started_between_a_claim_and_its_answer_is_run(cluster: MemoryCluster) -> None:
    """Its worker follows the partition, since it owned it once: it is told of the start before it knows that its claim counts."""
    shop = Shop()
    partition = tags.partition_of("x")
    outside = bokiflow.Flow(shop.app, (await cluster.connect()).book("shop"))
    async with outside, working(cluster, shop.app, "a", lease_s=LONG_S) as a:
        append = a.log.append
        started: list[bokiflow.Handle[Any]] = []

        async def late(one: Contribution, **options: Any) -> int:
            seqnum = await append(one, **options)
            if not started and any(isinstance(event, PartitionClaimed) for event in one.events):
                started.append(await outside.start(shop.steps.call(1), id="x"))
                last = await outside.log.book.now()
                await until(lambda: a._follower.position >= last)
            return seqnum

        async with working(cluster, shop.app, "b", lease_s=LONG_S) as b:
            assert await b._partitions.claim([partition])
            await until(lambda: partition not in a._partitions.mine)
            a.log.append = late  # type: ignore[method-assign]  # its answer is late
            await b.drain()
            await until(lambda: bool(started))
        await until(lambda: bool(shop.ran))
        assert await started[0].result() == 0


@in_virtual_time
async def test_calls_of_a_worker_whose_client_has_ended_fail_and_do_not_wait(shop: Shop) -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster, working(cluster, shop.app, "w", lease_s=15) as worker:
        waits = await worker.start(shop.wait.call(1), id="waits")
        result = asyncio.create_task(waits.result())
        await let_pass(7)
        cluster._serving().model.cluster = "a restored copy"
        cluster.disconnect()
        with pytest.raises(boki.WrongCluster, match="open a new client"):
            await result
        with pytest.raises(boki.WrongCluster):
            await waits.result()


@pytest.mark.parametrize("goes_on", [False, True], ids=["it ends at once", "it goes on"])
@in_virtual_time
async def test_a_step_that_blocks_the_event_loop_is_named_in_one_warning(*, goes_on: bool) -> None:
    app, stream = App("shop"), io.StringIO()

    @app.step
    async def works(blocked_s: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.jump(blocked_s)  # as `time.sleep` in it
        if goes_on:
            await let_pass(0.1)

    @app.workflow
    async def working_hard(blocked_s: float) -> None:
        await works(blocked_s)

    async with (
        MemoryCluster(clock=LoopClock()) as cluster,
        working(cluster, app, "w", lease_s=15) as worker,
    ):
        await let_pass(7)
        with configured(level="warning", stream=stream):
            await (await worker.start(working_hard.call(3), id="short")).result()
            await let_pass(30)
            assert stream.getvalue() == ""
            await (await worker.start(working_hard.call(25), id="long")).result()
            await let_pass(30)
    (line,) = [line for line in stream.getvalue().splitlines() if "event loop stood still" in line]
    assert f"worker={worker.name} " in line and "works of long" in line and "count=1 " in line
    assert "to_thread" in line
    seconds = re.search(r"seconds=([0-9.]+) ", line)
    assert seconds and 25 <= float(seconds[1]) <= 25.6, "all of it, also what was before the next round was due"
