"""Schedules: each firing is started once although workers die; pause, resume, change, removal and lists."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from io import StringIO
from typing import Any, cast

import msgspec
import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from boki_common.logs import configured
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Flow, Skipped, Timing, Worker
from bokiflow.client import schedules
from bokiflow.client.schedules import Schedule
from bokiflow.execute.record_builder import RecordBuilder
from bokiflow.execute.worker_host import WorkerHost
from bokiflow.history.listing import Wanted, listing
from bokiflow.model import cron
from bokiflow.model.cron import Missed
from bokiflow.model.flow_events import PICKER, Emitted, Ended, Invoked, Started
from bokiflow.model.records import InstanceStreams
from bokiflow.model.schedule_rules import (
    id_of,
    id_of_firing,
    label_in_group,
    label_of,
    name_of,
    served_lateness_patch,
)
from bokiflow.runtime import in_workflow
from bokiflow.runtime.commands import ChildStart
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Log
from bokilib.errors import AtomicTooLarge
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.testing import UNKNOWNS, crash_everywhere, while_alive
from libs.tests.flow.conftest import Inline, Stepping, working

EVERY_S = 0.1
QUIET: dict[str, Any] = {"lease_s": 3_600, "collect_every_s": 1e9}
"""Of a worker without heartbeats: hours of virtual time are short then."""
BEATS: dict[str, Any] = {"lease_s": 60, "collect_every_s": 1e9}
"""Of one with three heartbeats a minute, by which it knows the time."""


def office(ran: list[str], every_s: float = EVERY_S) -> App:
    """Return an app with one schedule, which makes up for all missed firings."""
    app = App("office")

    @app.workflow
    async def report(what: str) -> str:
        ran.append(what)
        return what

    app.schedule("often", report.call("r"), every_s=every_s, missed="all")
    return app


async def fired(book: BookPort, every_ms: int = 100) -> list[int]:
    """Return the times of firings in the order of the log; check that none is repeated or left out, and that each ended at most once."""
    log = Log(book)
    found: list[int] = []
    ended: list[str] = []
    async for item in book.read():
        if isinstance(item, boki.Gap):
            continue
        for event in PICKER.of(item.seqnum, await log.open(item)):
            if isinstance(event, Started) and event.name == "report":
                at = datetime.fromisoformat(event.id.removeprefix("schedule/often/"))
                found.append(round(at.timestamp() * 1_000))
            elif isinstance(event, Ended):
                ended.append(event.id)
    assert len(set(ended)) == len(ended)
    assert found == [found[0] + every_ms * number for number in range(len(found))]
    return found


async def comes_to(condition: Callable[[], Awaitable[bool]]) -> None:
    """Let other tasks and timers run until a condition holds."""
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0)


async def fired_to(book: BookPort, count: int) -> None:
    """Let other tasks run until a schedule has fired a number of times; a step may run more often after a takeover."""

    async def so() -> bool:
        return len(await fired(book)) >= count

    await comes_to(so)


async def test_a_call_that_a_schedule_could_not_start_is_refused(cluster: MemoryCluster) -> None:
    """The workflow of a schedule emits its state with the arguments, in a record that has them twice."""
    ran: list[str] = []
    app = office(ran, every_s=3_600)
    report = app.find("report")
    with pytest.raises(AtomicTooLarge, match="arguments of workflow 'report' in a schedule of up to 249856 bytes"):
        app.schedule("large", report.call("x" * schedules.CALL_BYTES), every_s=0.1)
    app.schedule("just", report.call("x" * (schedules.CALL_BYTES - 8)), every_s=0.1, attributes={"y" * 200: "z" * 200})
    async with working(cluster, app):

        async def so() -> bool:
            return bool(ran)

        await comes_to(so)
    assert len(ran[0]) == schedules.CALL_BYTES - 8


async def ran_to(ran: list[str], count: int) -> None:
    async def so() -> bool:
        return len(ran) >= count

    await comes_to(so)


async def test_what_is_due_is_started_once_under_the_name_of_its_time(cluster: MemoryCluster) -> None:
    ran: list[str] = []
    async with working(cluster, office(ran)) as worker:
        await ran_to(ran, 3)
        (one,) = await worker.flow.schedules.list()
        assert (one.name, one.workflow, one.args, one.paused) == ("often", "report", [["r"], {}], False)
        times = await fired(worker.log.book)
        id = id_of_firing("schedule/often", times[1])
        assert await worker.handle(id).result() == "r"


async def test_another_worker_goes_on_without_doubling_or_leaving_out(cluster: MemoryCluster) -> None:
    ran: list[str] = []
    for count in (3, 8):
        async with working(cluster, office(ran)) as worker:
            await fired_to(worker.log.book, count)
    assert len(await fired(worker.log.book)) >= 8


async def test_two_workers_keep_one_schedule(cluster: MemoryCluster) -> None:
    ran: list[str] = []
    async with working(cluster, office(ran), "one") as first, working(cluster, office(ran), "two"):
        await ran_to(ran, 5)
        assert len(await fired(first.log.book)) >= 5


async def test_it_is_paused_resumed_changed_and_removed(cluster: MemoryCluster) -> None:
    ran: list[str] = []
    app = office(ran)
    async with working(cluster, app) as worker:
        own = worker.flow.schedules

        async def listed(**facts: Any) -> None:
            async def so() -> bool:
                found = await own.list()
                return bool(found) and all(getattr(found[0], name) == value for name, value in facts.items())

            await comes_to(so)

        await ran_to(ran, 1)
        await own.pause("often")
        await listed(paused=True, next_ms=None)
        await own.resume("often")
        await listed(paused=False)
        await ran_to(ran, len(ran) + 1)
        await own.set(schedules.planned("often", app.find("report").call("other"), Timing(every_s=3_600)))
        await listed(args=[["other"], {}], timing=Timing(every_s=3_600))
        await own.remove("often")

        async def gone() -> bool:
            return await own.list() == []

        await comes_to(gone)
        count = len(ran)
        await own.set(app.plans["often"])
        await ran_to(ran, count + 1)
        with pytest.raises(boki.InvalidArgument, match="there is no schedule 'daily', there are"):
            await own.pause("daily")


async def test_its_history_begins_anew_after_some_rounds(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "ROUNDS", 3)
    ran: list[str] = []
    async with working(cluster, office(ran)) as worker:
        await ran_to(ran, 10)
        await fired(worker.log.book)
        assert len([done async for done in worker.handle("schedule/often").steps()]) < 10


def test_names_are_taken_once_and_without_a_stroke() -> None:
    app = office([])
    call = app.find("report").call("r")
    for name in ("often", "", "a/b"):
        with pytest.raises(boki.InvalidArgument):
            app.schedule(name, call, every_s=60)
    with pytest.raises(boki.InvalidArgument, match="Boki's own"):

        @app.workflow(name="boki.mine")
        async def mine() -> None: ...


@pytest.mark.parametrize("stops_at", [1, 2, 3])
@in_virtual_time
async def test_a_worker_that_takes_over_right_after_a_firing_doubles_nothing(stops_at: int) -> None:
    """The worker before stops silently right after a start; the next one has another name and waits for the lease."""
    ran: list[str] = []
    async with MemoryCluster(clock=LoopClock()) as cluster:
        for name, count in (("one", stops_at), ("two", stops_at + 4)):
            async with working(cluster, office(ran, 2.0), name, lease_s=3.0) as worker:
                while len(ran) < count:
                    await let_pass(0.005)
        assert len(await fired(worker.log.book, 2_000)) >= stops_at + 4


PERIOD_MS = 600_000


async def fired_in_periods(book: BookPort) -> list[int]:
    """Return the multiples of the period that were fired, in the order of the log; check that none is repeated."""
    log, found = Log(book), list[int]()
    async for item in book.read():
        if not isinstance(item, boki.Gap):
            for event in PICKER.of(item.seqnum, await log.open(item)):
                if isinstance(event, Started) and event.name == "report":
                    at = datetime.fromisoformat(event.id.removeprefix("schedule/often/"))
                    found.append(round(at.timestamp() * 1_000) // PERIOD_MS)
    assert len(set(found)) == len(found)
    return found


def periodic(missed: Missed) -> App:
    app = App("office")

    @app.workflow
    async def report() -> None: ...

    app.schedule("often", report.call(), every_s=PERIOD_MS / 1_000, missed=missed)
    return app


@pytest.mark.parametrize(("missed", "left_out"), [("all", 0), ("last", 17), ("skip", 18)])
@in_virtual_time
async def test_a_clock_that_is_set_ahead_by_hours_fires_what_is_missed_as_set(missed: Missed, left_out: int) -> None:
    """In three hours 18 firings are late when a worker notices; the next one is in time, and the schedule continues as before."""
    clock = Stepping()
    async with (
        MemoryCluster(clock=clock) as cluster,
        working(cluster, periodic(missed), **BEATS) as worker,
    ):
        await let_pass(700)
        before = await fired_in_periods(worker.log.book)
        clock.ahead_ms += 18 * PERIOD_MS
        await let_pass(1_900)
        found = await fired_in_periods(worker.log.book)
    assert found[: len(before)] == before and found == sorted(found)
    wanted = range(found[0], found[-1] + 1)
    assert len(wanted) - len(found) == left_out and len(found) >= len(before) + 3


@pytest.mark.parametrize("another", [False, True])
@in_virtual_time
async def test_a_clock_that_is_set_back_by_hours_starts_nothing_again(another: bool) -> None:
    """Neither this worker nor one that knows only the new time repeats a firing; the schedule continues when the time has come again."""
    clock, found = Stepping(), [0]
    async with MemoryCluster(clock=clock) as cluster:
        async with working(cluster, periodic("all"), **BEATS) as worker:
            await let_pass(1_300)
            before = await fired_in_periods(worker.log.book)
            if not another:
                clock.ahead_ms -= 6 * PERIOD_MS
                await let_pass(9 * PERIOD_MS / 1_000)
                found = await fired_in_periods(worker.log.book)
        if another:
            clock.ahead_ms -= 6 * PERIOD_MS
            async with working(cluster, periodic("all"), **BEATS) as worker:
                await let_pass(9 * PERIOD_MS / 1_000)
                found = await fired_in_periods(worker.log.book)
    assert found[: len(before)] == before
    assert found == list(range(found[0], found[-1] + 1)) and len(before) + 2 <= len(found) <= len(before) + 4


async def work(book: BookPort) -> None:
    ran: list[str] = []
    async with Worker(office(ran), book, name="w", bodies=Inline()):
        await ran_to(ran, 2)


async def program(book: BookPort) -> None:
    await while_alive(book, work(book))


async def check(book: boki.Book) -> None:
    assert len(await fired(book)) >= 2


async def test_a_crash_anywhere_starts_each_time_once() -> None:
    assert (await crash_everywhere(program, program, check)).runs > 10


@pytest.mark.nightly
async def test_a_lost_answer_anywhere_starts_each_time_once() -> None:
    assert (await crash_everywhere(program, program, check, kinds=UNKNOWNS)).runs > 3


async def test_its_state_is_known_after_its_history_was_rewritten(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Emitted states are trimmed then, and after a restart the history has none either."""
    monkeypatch.setattr(schedules, "ROUNDS", 3)
    ran: list[str] = []
    async with working(cluster, office(ran), **QUIET) as worker:
        own = worker.flow.schedules
        for count in (1, 10):
            await ran_to(ran, count)
            assert await worker._executors["schedule/often"].checkpoint()
            await comes_to(lambda: emitted_is_trimmed(worker))
            (one,) = await own.list()
            assert (one.name, one.paused) == ("often", False)
        await own.pause("often")
        await comes_to(lambda: is_paused(worker))
    async with working(cluster, office(ran), **QUIET) as worker:
        assert await is_paused(worker), "the next program finds it as it is set, and sets nothing"
        commands = [one async for one in worker.handle("schedule/often").steps() if one.kind == "signal"]
        assert len(commands) <= 1
        await worker.flow.schedules.resume("often")
        await ran_to(ran, len(ran) + 1)
        await fired_each_once(worker.log.book)


async def emitted_is_trimmed(worker: Worker) -> bool:
    """Return whether the stream of a schedule's states has only checkpoints."""
    tag = tags.flow_output("schedule/often", "state")
    log = worker.log
    async for item in log.book.read(tag):
        if isinstance(item, boki.Record) and any(
            isinstance(event, Emitted) for event in PICKER.of(item.seqnum, await log.open(item))
        ):
            return False
    return True


async def is_paused(worker: Worker) -> bool:
    return [one.paused for one in await worker.flow.schedules.list()] == [True]


async def fired_each_once(book: BookPort) -> list[str]:
    """Return the ids that a schedule started, in the order of the log; check that none is repeated."""
    log = Log(book)
    found = [
        event.id
        async for item in book.read()
        if isinstance(item, boki.Record)
        for event in PICKER.of(item.seqnum, await log.open(item))
        if isinstance(event, Started) and event.name == "report"
    ]
    assert len(set(found)) == len(found)
    return found


async def test_one_that_is_refused_holds_up_no_other(cluster: MemoryCluster) -> None:
    ran: list[str] = []
    app = App("office")

    @app.workflow
    async def report(what: str) -> str:
        ran.append(what)
        return what

    for name in ("a", "b"):
        app.schedule(name, report.call(name), every_s=EVERY_S)
    async with bokiflow.Flow(app, (await cluster.connect()).book("shop")) as outside:
        await outside.start(report.call("not a schedule"), id="schedule/a")
    async with working(cluster, app):
        await ran_to(ran, 3)
        assert set(ran) == {"b", "not a schedule"}


def reports(group: str, ran: list[str]) -> App:
    app = App(group)

    @app.workflow
    async def report() -> None:
        ran.append(f"{group}: {bokiflow.workflow_id()}")

    app.schedule("nightly", report.call(), every_s=3_600)
    return app


@in_virtual_time
async def test_apps_of_one_book_have_schedules_of_one_name() -> None:
    """Both fire, each by its own timing and commands; the one that came first keeps the ids that it had."""
    ran: list[str] = []
    async with MemoryCluster(clock=LoopClock()) as cluster:
        async with working(cluster, reports("a", ran), "a", **BEATS) as a:
            await let_pass(60)
            assert await is_kept(a, "nightly")
        ids: dict[str, dict[str, str]] = {}
        for _ in range(2):  # the second workers find the schedules of the first
            async with (
                working(cluster, reports("a", ran), "a", **BEATS) as a,
                working(cluster, reports("b", ran), "b", **BEATS) as b,
            ):
                await let_pass(60)
                assert await is_kept(b, "nightly")
                ran.clear()
                await let_pass(3_600)
                await let_pass(60)
                assert sorted(one.partition(":")[0] for one in ran) == ["a", "b"]
                ids = {worker.flow.group: dict(await worker.flow.schedules.ids()) for worker in (a, b)}
                assert ids["a"] == {"nightly": "schedule/nightly"} and list(ids["b"]) == ["nightly"]
                assert next(one for one in ran if one[0] == "b").startswith(f"b: {ids['b']['nightly']}/20")
                (listed,) = await b.flow.schedules.list()
                assert listed.last is not None and listed.last.id in (one.removeprefix("b: ") for one in ran)
        async with working(cluster, reports("b", ran), "b", **BEATS) as b:
            assert (await b.flow.schedules.run("nightly")).startswith(ids["b"]["nightly"])
            await b.flow.schedules.pause("nightly")
            await let_pass(60)
            assert await is_paused(b)
            async with bokiflow.Flow(App("a"), (await cluster.connect()).book("shop")) as of_a:
                assert [one.paused for one in await of_a.schedules.list()] == [False]
            await b.flow.schedules.resume("nightly")
            await b.handle(ids["b"]["nightly"]).cancel()
            await let_pass(60)
            assert await has_status(b, ids["b"]["nightly"], "cancelled")
        async with working(cluster, reports("b", ran), "b", **BEATS) as b:
            await let_pass(60)
            assert await is_kept(b, "nightly")
            again = (await b.flow.schedules.ids())["nightly"]
            assert again.startswith(f"{ids['b']['nightly']}/again-")


@in_virtual_time
async def test_the_second_app_of_a_schedules_name_keeps_its_ids_when_the_first_is_gone() -> None:
    """Also a schedule of the first app that was set again has the name alone in the ids of its firings."""
    ran: list[str] = []
    async with MemoryCluster(clock=LoopClock()) as cluster:
        async with working(cluster, reports("a", ran), "a", **BEATS, retention_s=3_600) as a:
            await let_pass(60)
            assert await is_kept(a, "nightly")
            await a.handle("schedule/nightly").cancel()
            await let_pass(60)
            assert await has_status(a, "schedule/nightly", "cancelled")
        async with working(cluster, reports("a", ran), "a", **BEATS, retention_s=3_600) as a:
            await let_pass(60)
            assert await is_kept(a, "nightly")
            for _ in range(4):
                await let_pass(7_200)
                await a.collect()
            assert await a.flow.known("schedule/nightly") is None
            async with working(cluster, reports("b", ran), "b", **BEATS) as b:
                await let_pass(60)
                assert await is_kept(b, "nightly")
                ran.clear()
                await let_pass(3_600)
                await let_pass(60)
                assert len({one.partition(" ")[2] for one in ran}) == len(ran) == 2


async def test_apps_that_set_a_schedule_of_one_name_at_once_both_have_it(cluster: MemoryCluster) -> None:
    ran: list[str] = []
    flows = [Flow(reports(group, ran), (await cluster.connect()).book("shop")) for group in "abc"]
    for _ in range(3):
        await asyncio.gather(*(flow.schedules.set(flow.app.plans["nightly"]) for flow in flows))
        ids = [(await flow.schedules.ids())["nightly"] for flow in flows]
        assert len(set(ids)) == 3
        assert [[one.name for one in await flow.schedules.list()] for flow in flows] == [[]] * 3, "no worker ran yet"


@pytest.mark.parametrize("name", ["x", "x@b", "x@b.0", "ü"])
def test_the_label_of_a_schedule_tells_its_name_and_app(name: str) -> None:
    label = label_in_group(name, "b@c.d")
    assert name_of(label, "b@c.d") == name and name_of(label, "b") == label and name_of(name, "b") == name
    assert label_of(id_of(label, 7)) == label_of(id_of_firing(id_of(label, 7), 0)) == label


@pytest.mark.parametrize("forgotten", [False, True])
@in_virtual_time
async def test_one_that_ended_is_set_again_by_the_next_program(forgotten: bool) -> None:
    """Firings keep their ids, so none is repeated; later programs find the newest workflow of the schedule."""
    ran: list[str] = []
    ids: list[str] = []
    async with MemoryCluster(clock=LoopClock()) as cluster:
        for turn in range(3):
            app = office(ran, every_s=3_600)
            async with working(cluster, app, "w", **QUIET, retention_s=3_600) as worker:
                own = worker.flow.schedules
                await comes_to(lambda: is_kept(worker))
                ids.append((await own._find("often")).id)
                await hours(worker, 1)
                await ran_to(ran, turn + 1)
                if turn < 2:
                    await worker.handle(ids[-1]).cancel()
                    await comes_to(lambda: has_status(worker, ids[-1], "cancelled"))
                    assert await own.list() == []
                    with pytest.raises(boki.InvalidArgument, match="no schedule 'often'"):
                        await own.pause("often")
                    for _ in range(4 if forgotten else 0):
                        await hours(worker, 2)
                        await worker.collect()
        assert ids[0] == "schedule/often" and len(set(ids)) == (1 if forgotten else 3)
        started = await fired_each_once((await cluster.connect()).book("shop"))
        assert all(datetime.fromisoformat(id.removeprefix("schedule/often/")) for id in started)


async def hours(worker: Worker, count: float) -> None:
    """Let time pass, also on the clock of the book."""
    await let_pass(count * 3_600)
    await worker._peers._members.beat()


async def has_status(worker: Worker, id: str, status: str) -> bool:
    return await worker.handle(id).status() == status


async def test_a_worker_that_lacks_the_workflow_keeps_the_schedule(
    cluster: MemoryCluster,
) -> None:
    """In a rolling deploy the old program owns all partitions until it is drained."""
    ran: list[str] = []
    async with (
        working(cluster, App("office"), "old", **QUIET) as old,
        working(cluster, office(ran), "new", **QUIET) as new,
    ):
        await comes_to(lambda: is_kept(new))
        assert not new._partitions.mine

        async def two_are_set_aside() -> bool:
            return len(old._takeover.aside) >= 2

        await comes_to(two_are_set_aside)
        assert await new.handle("schedule/often").status() == "running" and "schedule/often" in old._executors
        await old.drain()
        await ran_to(ran, 4)
        await fired(new.log.book)


async def is_kept(worker: Worker, name: str = "often") -> bool:
    return [one.name for one in await worker.flow.schedules.list()] == [name]


def telling() -> App:
    """Return an app whose scheduled workflow reports its due time before a wait, after it, and in its child."""
    app = App("office")

    @app.workflow
    async def child() -> int | None:
        return bokiflow.due_ms()

    @app.workflow
    async def report(again: int = 0) -> list[int | None]:
        before = bokiflow.due_ms()
        await let_pass(60)
        if not again:
            bokiflow.restart(1)
        return [before, bokiflow.due_ms(), await child()]

    app.schedule("often", report.call(), every_s=PERIOD_MS / 1_000, missed="all")
    return app


@in_virtual_time
async def test_a_firing_knows_for_which_time_it_was_started_however_late() -> None:
    """The time survives a takeover, a restart and a fork; children and other workflows have no due time."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        async with working(cluster, telling(), "w", **BEATS) as worker:
            await let_pass(2 * PERIOD_MS / 1_000)
        await let_pass(3 * PERIOD_MS / 1_000)
        async with working(cluster, telling(), "w", **BEATS) as worker:
            await let_pass(30)
            fired = [id for id in await worker.flow.find() if id.startswith("schedule/often/") and id.endswith("Z")]
            assert len(fired) >= 4
        async with working(cluster, app := telling(), "w", **BEATS) as worker:  # in the middle of their waits
            for id in fired:
                due_ms = round(datetime.fromisoformat(id.removeprefix("schedule/often/")).timestamp() * 1_000)
                assert await worker.handle(id).result() == [due_ms, due_ms, None]
            forked = await worker.handle(fired[0]).fork()
            assert await forked.result() == await worker.handle(fired[0]).result()
            by_hand = await worker.start(app.find("report").call(), id="by hand")
            assert await by_hand.result() == [None, None, None]
            debounced = await worker.flow.debounce(app.find("report").call(), id="x", quiet_s=1)
            assert await debounced.result() == [None, None, None]


@pytest.mark.parametrize(("missed", "left_out"), [("all", 0), ("last", 3), ("skip", 4)])
@in_virtual_time
async def test_what_is_skipped_is_logged_once_and_listed(missed: Missed, left_out: int) -> None:
    """No worker runs for five periods. Later workers replay the skip without logging it again."""
    stream = StringIO()
    async with MemoryCluster(clock=LoopClock()) as cluster:
        async with working(cluster, periodic(missed), "w", **BEATS) as worker:
            await let_pass(PERIOD_MS / 1_000)
            (one,) = await worker.flow.schedules.list()
            assert one.skipped is None and one.last is not None and one.next_ms == one.last.due_ms + PERIOD_MS
            before_ms = one.last.due_ms
        await let_pass(5 * PERIOD_MS / 1_000)
        with configured(stream=stream):
            for _ in range(3):
                async with working(cluster, periodic(missed), "w", **BEATS) as worker:
                    await let_pass(30)
                    (one,) = await worker.flow.schedules.list()
        fired = await fired_in_periods(worker.log.book)
    assert one.next_ms is not None
    out = [at for at in range(before_ms + PERIOD_MS, one.next_ms, PERIOD_MS) if at // PERIOD_MS not in fired]
    assert left_out <= len(out) <= 5 * bool(left_out)
    assert one.skipped == (Skipped(len(out), out[0], out[-1]) if left_out else None)
    assert one.last is not None and one.last.due_ms == max(fired) * PERIOD_MS and one.last.status == "completed"
    lines = [line for line in stream.getvalue().splitlines() if "schedule missed" in line]
    assert len(lines) == (1 if left_out else 0)
    for line in lines:
        assert f"name=often missed={missed} count={len(out)} first={cron.text(one.timing, out[0])}" in line


@in_virtual_time
async def test_the_next_firing_lies_in_the_past_while_no_worker_is_there() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        async with working(cluster, periodic("all"), "w", **BEATS):
            await let_pass(PERIOD_MS / 1_000 + 1)
        await let_pass(3 * PERIOD_MS / 1_000)
        async with bokiflow.Flow(periodic("all"), (await cluster.connect()).book("shop")) as outside:
            (one,) = await outside.schedules.list()
            assert one.last is not None and one.next_ms == one.last.due_ms + PERIOD_MS
            last = one.last
            await outside.schedules.pause("often")
            (one,) = await outside.schedules.list()
            assert (one.paused, one.asked) == (False, "pause")
            await outside.schedules.remove("often")
            (one,) = await outside.schedules.list()
            assert one.asked == "deletion"
            with pytest.raises(boki.InvalidArgument, match="no schedule 'often'"):
                await outside.schedules.resume("often")
        async with working(cluster, periodic("all"), "w", **BEATS) as worker:  # whose code has it: it makes it again
            await let_pass(30)
            (one,) = await worker.flow.schedules.list()
            assert (one.paused, one.asked, one.last, one.skipped) == (False, "", None, None), "it has not fired yet"
            due_before_the_pause = id_of_firing("often", last.due_ms + 3 * PERIOD_MS)
            assert due_before_the_pause in await worker.flow.find()


async def check_read(worker: Worker) -> None:
    """Check that the state read from a schedule's history is the state that its code has."""
    instance = worker._executors["schedule/often"].instance
    view = await schedules.view_of(worker.log, "schedule/often")
    assert view is not None and view.state == view.asked
    main: Any = None if instance._root is None else instance._root.get_coro()
    assert view.state == main.cr_await.cr_frame.f_locals["state"], "the schedule's own code"


@in_virtual_time
async def test_its_state_is_read_as_its_code_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each restart passes on the state of the code; it equals the state read from the history right before."""
    monkeypatch.setattr(schedules, "ROUNDS", 4)
    async with MemoryCluster(clock=LoopClock()) as cluster:
        for turn in range(4):
            async with working(cluster, periodic("last"), "w", **BEATS) as worker:
                await let_pass(PERIOD_MS / 1_000 * (1 + turn % 2))
                if turn % 3 == 1:
                    await worker.flow.schedules.pause("often")
                    await let_pass(PERIOD_MS / 1_000)
                    await worker.flow.schedules.resume("often")
                    await let_pass(1)
                await check_read(worker)
            await let_pass(turn % 2 * 4 * PERIOD_MS / 1_000)


@in_virtual_time
async def test_a_schedule_that_is_added_or_changed_while_the_worker_runs_is_kept() -> None:
    """A schedule that was deleted in between does not return with a new one."""
    app = App("office", replace=True)

    @app.workflow
    async def report() -> None: ...

    async def listed(worker: Worker) -> dict[str, float]:
        await let_pass(BEATS["lease_s"])
        return {one.name: one.timing.every_s for one in await worker.flow.schedules.list()}

    async with MemoryCluster(clock=LoopClock()) as cluster, working(cluster, app, **BEATS) as worker:
        await let_pass(1)
        app.schedule("later", report.call(), every_s=600)
        assert await listed(worker) == {"later": 600}
        app.schedule("later", report.call(), every_s=900)
        assert await listed(worker) == {"later": 900}
        await worker.flow.schedules.remove("later")
        app.schedule("other", report.call(), every_s=60)
        assert await listed(worker) == {"other": 60}


@in_virtual_time
async def test_firings_that_are_made_up_for_are_started_and_found_in_due_order() -> None:
    ran: list[int | None] = []

    def program() -> App:
        app = App("office")

        @app.workflow
        async def report() -> None:
            ran.append(bokiflow.due_ms())

        app.schedule("often", report.call(), every_s=1, missed="all")
        return app

    async with MemoryCluster(clock=LoopClock()) as cluster:
        async with working(cluster, program(), "w", **BEATS):
            await let_pass(5)
        await let_pass(30)
        async with working(cluster, program(), "w", **BEATS) as worker:
            await let_pass(1)
            found = [id for id in await worker.flow.find() if id.startswith("schedule/often/")]
            page = await listing(worker.log, "office", Wanted(name="report"), limit=7)
            listed = [one.started.id for one in page.rows]
            while page.before is not None:
                page = await listing(worker.log, "office", Wanted(name="report"), before=page.before, limit=7)
                listed += [one.started.id for one in page.rows]
    assert len(ran) >= 30 and ran == sorted(set(ran), key=lambda at: at or 0)
    assert found == sorted(found) and len(found) == len(ran)
    assert listed == found[::-1]


@in_virtual_time
async def test_what_was_missed_before_the_timing_changed_goes_by_the_old_timing() -> None:
    """The worker after a dead one has the new timing, and sets it before it takes the schedule over."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        async with working(cluster, periodic("all"), "one", **BEATS):
            await let_pass(2 * PERIOD_MS / 1_000)
        await let_pass(3 * PERIOD_MS / 1_000)
        async with working(cluster, periodic("skip"), "two", **BEATS) as worker:
            await let_pass(2 * PERIOD_MS / 1_000)
            (one,) = await worker.flow.schedules.list()
            found = await fired_in_periods(worker.log.book)
        async with working(cluster, periodic("skip"), "two", **BEATS) as worker:  # replays it
            await let_pass(1)
            assert await worker.flow.schedules.list() == [one]
            assert await worker.handle("schedule/often").status() == "running"
    assert one.timing.missed == "skip" and one.skipped is None
    assert found == list(range(found[0], found[-1] + 1)) and len(found) >= 6
    assert one.last is not None and one.last.due_ms == found[-1] * PERIOD_MS


@pytest.mark.parametrize("command", ["pause", "remove"])
@in_virtual_time
async def test_what_was_missed_before_a_pause_or_a_removal_goes_by_its_timing(command: str) -> None:
    """No worker ran when the schedule was paused, resumed or removed."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        async with working(cluster, periodic("all"), "one", **BEATS):
            await let_pass(2 * PERIOD_MS / 1_000)
        await let_pass(3 * PERIOD_MS / 1_000)
        app = periodic("all")
        flow = Flow(app, (await cluster.connect()).book("shop"))
        if command == "pause":
            await flow.schedules.pause("often")
            await flow.schedules.resume("often")
        else:
            await flow.schedules.remove("often")
            app.plans.clear()
        found: list[int] = []
        for _ in range(2):  # the second replays it
            async with working(cluster, app, "two", **BEATS) as worker:
                await let_pass(PERIOD_MS / 4_000)
                found = await fired_in_periods(worker.log.book)
                assert await worker.handle("schedule/often").status() == "running"
                assert len(await worker.flow.schedules.list()) == (command == "pause")
    assert found == list(range(found[0], found[-1] + 1)) and len(found) >= 4


TAKEN_OVER_S = 100
"""Seconds after which a new worker has taken over from one that stopped: longer than its lease."""


async def served_late(cluster: MemoryCluster, missed: Missed, commands: Sequence[str]) -> tuple[Schedule, list[int]]:
    """Send commands while no worker is there, the first one 5 s after a firing was due, each further one 2 periods later. Take them with a
    worker 2 1/2 periods after that.

    Returns:
        The schedule, and what was started, counted in periods from that firing.
    """
    async with working(cluster, periodic(missed), "one", **BEATS):
        await let_pass(1)
    clock, app = LoopClock(), periodic(missed)
    await let_pass((PERIOD_MS - clock.now_ms() % PERIOD_MS) / 1_000 + 5)
    due = clock.now_ms() // PERIOD_MS
    flow = Flow(app, (await cluster.connect()).book("shop"))
    for number, command in enumerate(commands):
        await let_pass(2 * PERIOD_MS / 1_000 * bool(number))
        if command == "set":
            plan = app.plans["often"]
            timing = plan.planned.timing._replace(every_s=2.5 * PERIOD_MS / 1_000)
            app.plans["often"] = plan._replace(planned=msgspec.structs.replace(plan.planned, timing=timing))
            await flow.schedules.keep(app.plans.values())
        else:
            await (flow.schedules.pause if command == "pause" else flow.schedules.resume)("often")
    await let_pass(2.5 * PERIOD_MS / 1_000)
    async with working(cluster, app, "two", **BEATS) as worker:
        await let_pass(TAKEN_OVER_S)
        await check_read(worker)
        (one,) = await worker.flow.schedules.list()
        return one, [at - due for at in await fired_in_periods(worker.log.book)]


async def stays(cluster: MemoryCluster, one: Schedule) -> None:
    """Check that the next worker replays a schedule and finds the same state."""
    async with working(cluster, App("office"), "three", **BEATS) as worker:
        await let_pass(TAKEN_OVER_S)
        await check_read(worker)
        assert await worker.flow.schedules.list() == [one]
        assert await worker.handle("schedule/often").status() == "running"


@pytest.mark.parametrize(
    ("missed", "commands", "started"),
    [
        ("skip", ["pause"], []),
        ("skip", ["resume"], []),
        ("skip", ["set"], []),
        ("skip", ["pause", "resume"], []),
        ("all", ["pause", "resume"], [0, 3, 4]),
        ("last", ["pause", "resume"], [0, 4]),
    ],
)
@in_virtual_time
async def test_what_is_late_is_counted_from_when_a_worker_serves_the_schedule(
    missed: Missed, commands: list[str], started: list[int]
) -> None:
    """A command sent just after the due time changes nothing. A firing in a pause is never due, whenever a worker takes the pause."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        one, found = await served_late(cluster, missed, commands)
        assert found == started and (one.skipped is None) == (missed == "all")
        await stays(cluster, one)


@in_virtual_time
async def test_what_older_programs_counted_from_a_command_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    names, patched = {served_lateness_patch(number) for number in range(schedules.ROUNDS)}, in_workflow.patched
    async with MemoryCluster(clock=LoopClock()) as cluster:
        with monkeypatch.context() as older:
            older.setattr(in_workflow, "patched", lambda name: name not in names and patched(name))
            one, found = await served_late(cluster, "skip", ["pause"])
        assert found == [0] and one.skipped is None and one.paused
        await stays(cluster, one)


def test_attributes_of_what_is_started_count_in_the_size_of_its_record() -> None:
    builder = RecordBuilder(cast(WorkerHost, None), InstanceStreams("schedule/often", ""), 1, 1)
    invoked = Invoked("schedule/often", "0:1", "schedule/often/1", "report", "d")
    plain = builder.effect(invoked, ChildStart(detached=True)).more_bytes
    large = builder.effect(invoked, ChildStart(detached=True, attributes={"why": "x" * 4_000})).more_bytes
    assert large >= plain + 4_000, "many firings of one look are more than one record"


@in_virtual_time
async def test_firings_are_found_by_attributes_that_may_have_their_time() -> None:
    """This holds after a restart, too; changed attributes are a change of the schedule."""

    def program(kind: str) -> App:
        app = App("office")

        @app.workflow
        async def report() -> None: ...

        attributes = {"kind": kind, "day": "{due:%Y-%m-%d}"}
        app.schedule(
            "often", report.call(), cron="30 0 * * *", timezone="Europe/Berlin", missed="all", attributes=attributes
        )
        return app

    async with MemoryCluster(clock=LoopClock()) as cluster:
        async with working(cluster, program("sales"), "w", **BEATS) as worker:
            await let_pass(60)
        await let_pass(2 * 86_400)
        async with working(cluster, program("seats"), "w", **BEATS) as worker:
            await let_pass(120)
            (one,) = await worker.flow.schedules.list()
            assert one.attributes["kind"] == "seats" and one.asked == ""
        await let_pass(86_400)
        async with working(cluster, program("seats"), "w", **BEATS) as worker:
            await let_pass(120)
            (found,) = await worker.flow.find(day="2023-11-16")
            assert found == "schedule/often/2023-11-15T23:30:00Z", "the day in Berlin"
            assert len(await worker.flow.find(kind="sales")) == 2 and len(await worker.flow.find(kind="seats")) == 1
            assert await worker.handle("schedule/often").status() == "running"


@pytest.mark.parametrize(
    "wrong", ["{", "{day}", "{0}", "{due.nothing}", "{due:%", "{due:%Q}", "{due:%Y %}", "{due:%Y-%!}"]
)
def test_attributes_that_are_no_text_of_a_time_are_refused(wrong: str) -> None:
    app = office([])
    with pytest.raises(boki.InvalidArgument, match="expected an attribute such as"):
        app.schedule("other", app.find("report").call("r"), every_s=60, attributes={"day": wrong})
    with pytest.raises(boki.InvalidArgument, match="expected up to 8"):
        app.schedule("other", app.find("report").call("r"), every_s=60, attributes=dict.fromkeys("123456789", "x"))


async def test_a_schedule_that_is_paused_is_run_once_by_hand_with_the_time_as_due(cluster: MemoryCluster) -> None:
    app = App("office")

    @app.workflow
    async def report(what: str) -> list[object]:
        return [what, bokiflow.due_ms() is not None]

    app.schedule("yearly", report.call("sales"), cron="0 0 1 1 *", attributes={"day": "{due:%Y}"})
    async with working(cluster, app) as worker:
        while not await worker.flow.schedules.list():
            await asyncio.sleep(0)
        await worker.flow.schedules.pause("yearly")
        id = await worker.flow.schedules.run("yearly")
        assert await worker.handle(id).result() == ["sales", True] and id.startswith("schedule/yearly/")
        known = await worker.flow.known(id)
        assert known is not None and set(known.attributes) == {"day"}
        (kept,) = await worker.flow.schedules.list()
        assert kept.last is None and (kept.next_ms is None or kept.asked == "pause")
        with pytest.raises(boki.InvalidArgument, match="no schedule 'daily'"):
            await worker.flow.schedules.run("daily")


@in_virtual_time
async def test_runs_by_hand_within_a_millisecond_are_workflows_of_their_own() -> None:
    """As from a web handler that two people call at the same time: each id that is returned has been started by its call."""
    ran: list[str] = []
    app = office(ran, every_s=365 * 86_400)
    async with MemoryCluster(clock=LoopClock()) as cluster, working(cluster, app) as worker:
        await let_pass(1)
        ids = await asyncio.gather(*(worker.flow.schedules.run("often") for _ in range(3)))
        for id in ids:
            await worker.handle(id).result()
        assert len({*ids}) == len(ran) == 3 and len({id.rpartition("/")[0] for id in ids}) == 1


@in_virtual_time
async def test_a_run_by_a_program_that_has_just_begun_is_not_before_what_it_may_read() -> None:
    """Its workflow reads a snapshot as of its time: what was acknowledged before the call is in it."""
    app, times = App("office"), list[int | None]()

    @app.workflow
    async def report() -> None:
        times.append(bokiflow.due_ms())

    async with MemoryCluster(clock=LoopClock()) as cluster:
        app.schedule("nightly", report.call(), cron="0 3 * * *")
        async with Worker(app, (await cluster.connect()).book("b"), lease_s=3.0):
            await let_pass(1)
        await let_pass(600)
        written = (await cluster.connect()).book("b")
        place = await written.append(b"", tags=["not of flow"])
        record = await written.read_at(place)
        async with Flow(App("office"), (await cluster.connect()).book("b")) as outside:
            await outside.schedules.run("nightly")
        async with Worker(app, (await cluster.connect()).book("b"), lease_s=3.0):
            await let_pass(60)
    assert isinstance(record, boki.Record) and len(times) == 1 and (times[0] or 0) >= record.time_ms
