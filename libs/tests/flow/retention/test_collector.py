"""Retention of workflows: a book does not grow, and nothing that is needed is deleted, wherever the collecting process dies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import cast

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from boki_common.metrics import Metrics
from bokiflow import App, Flow, IdExpired, IdReused, NoSuchWorkflow, ResultExpired, Worker
from bokiflow.errors import WorkflowStuck
from bokiflow.history import inspection
from bokiflow.history.listing import Wanted, listing
from bokiflow.model.flow_events import PICKER, Signalled
from bokiflow.model.history_fold import encode
from bokiflow.model.records import InstanceStreams, send
from bokiflow.retention import collector as collecting
from bokiflow.retention.collect_rules import Histories
from bokiflow.retention.collector import Collected, Collector
from bokiflow.worker.takeover import record_blocked
from bokiflow_tools.reading import life_of
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event
from bokilib.retention.checkpoint_rules import Ages
from bokilib.testing import CRASHES, UNKNOWNS, FaultKind, crash_everywhere, start_anywhere, while_alive
from libs.tests.conftest import SetClock
from libs.tests.flow.conftest import Inline, until, working
from libs.tests.flow.shop import Shop

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
AGES = Ages(retention_ms=2 * DAY_MS)


@pytest.fixture
async def cluster(clock: SetClock) -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster(clock=clock) as opened:
        yield opened


async def later(worker: Worker, clock: SetClock, ms: int) -> Collected:
    """Let time pass, append a heartbeat, and run one round."""
    clock.ms += ms
    await worker._peers._members.beat()
    return await worker.collect()


async def rows(book: boki.Book, tag: str | None = None) -> list[int]:
    return [item.seqnum async for item in book.read(tag) if isinstance(item, boki.Record)]


async def oldest_ms(book: boki.Book) -> int:
    """Return the time of the oldest record in the book, apart from heartbeats, which are trimmed by themselves."""
    async for item in book.read():
        if isinstance(item, boki.Record) and item.tags != (tags.member("shop"),):
            return item.time_ms
    return 0


async def test_a_blocked_one_that_is_terminated_is_kept_from_then_on(
    cluster: MemoryCluster, clock: SetClock, book: boki.Book
) -> None:
    shop = Shop()
    async with working(cluster, shop.app, retention_s=2 * 86_400) as worker:
        await worker.start(shop.wait.call(1), id="x")
        await worker.drain()
    state = await inspection.newest(Log(book), "x")
    assert state is not None
    await record_blocked(Log(book), InstanceStreams("x", "shop"), WorkflowStuck("it polls"), state.claim)
    clock.ms += DAY_MS // 2
    ended_ms = clock.ms
    async with Flow(shop.app, (await cluster.connect()).book("shop")) as outside:
        await outside.handle("x").terminate("enough")  # it has read nothing newer than the record that blocks

    async def shown() -> list[int | None]:
        log = Log((await cluster.connect()).book("shop"))
        known, life = await inspection.known(log, "x"), await life_of(log, "x")
        (listed,) = (await listing(log, "shop", Wanted())).rows
        times = [] if life.timeline is None else [life.timeline.end_ms]
        assert known is not None and life.ended is not None and listed.held.ended is not None
        return [known.ended_ms, life.ended.at_ms, listed.held.ended.at_ms, *times]

    assert await shown() == [ended_ms] * 4
    assert [one.time_ms async for one in outside.handle("x").steps()][-1] == ended_ms
    async with working(cluster, shop.app, retention_s=2 * 86_400) as worker:
        assert (await later(worker, clock, DAY_MS - 1_000)).ended == 0
        found = await later(worker, clock, 1_000)
        assert (found.ended, found.tombs) == (1, 1)
        assert await shown() == [ended_ms] * 3, "its repeated end has the time, too"
        assert (await later(worker, clock, DAY_MS - 1_000)).forgotten == 0
        assert (await later(worker, clock, 1_000)).forgotten == 1


async def test_a_history_is_trimmed_then_its_end_is_repeated_then_forgotten(
    cluster: MemoryCluster, clock: SetClock, book: boki.Book
) -> None:
    shop = Shop()
    async with working(cluster, shop.app, retention_s=2 * 86_400) as worker:
        handle = await worker.start(shop.steps.call(3), id="x", attributes={"who": "ann"})
        assert await handle.result() == 3
        assert (await later(worker, clock, DAY_MS - 1_000)).ended == 0
        assert [one.kind async for one in handle.steps()].count("step") == 3
        first = await rows(book, "flow/own/x")
        assert await later(worker, clock, 1_000) == Collected(ended=1, tombs=1, checkpoints=1)
        assert not await rows(book, "flow/wf/x")
        with pytest.raises(boki.Trimmed):
            [one async for one in handle.steps()]
        (tomb,) = await rows(book, "flow/own/x")
        assert tomb > first[-1] and await rows(book, tags.flow_done("shop", tags.partition_of("x"))) == [tomb]
        async with Flow(shop.app, (await cluster.connect()).book("shop")) as other:
            assert await other.handle("x", shop.steps).result() == 3 and await handle.status() == "completed"
            assert await (await other.start(shop.steps.call(3), id="x")).result() == 3
            assert await other.find(who="ann") == await other.find() == ["x"]
            known = await other.known("x")
            assert known is not None and (known.name, known.attributes) == ("steps", {"who": "ann"})
            for call in (shop.steps.call(4), shop.steps.call(count=3)):
                with pytest.raises(IdReused, match="in another form, since the log does not keep its arguments"):
                    await other.start(call, id="x")
            assert (await later(worker, clock, DAY_MS)).forgotten == 1
            assert await other.known("x") is None and await other.find(who="ann") == []
            with pytest.raises(NoSuchWorkflow):
                await other.handle("x").result()
            again = await other.start(shop.steps.call(2), id="x")
            assert await again.result() == 1
            with pytest.raises(ResultExpired):
                await other.results.wait("x", tomb - 1, follow=True)


async def test_the_history_of_what_failed_is_kept_for_a_week_and_can_be_forked(
    cluster: MemoryCluster, clock: SetClock, book: boki.Book
) -> None:
    """The history is rewritten each day, so it keeps no old term; emitted events and late signals are read as before."""
    app, shop, good = App("shop"), Shop(), False

    @app.workflow
    async def flow() -> int:
        bokiflow.emit("state", "begun")
        await shop.add(1, 1)
        more = await bokiflow.recv("more")
        if not good:
            raise ValueError("no")
        return cast(int, more)

    async with working(cluster, app, retention_s=9 * 86_400, failed_history_s=7 * 86_400) as worker:
        handle = await worker.start(flow.call(), id="x")
        await handle.signal("more", 7)
        with pytest.raises(ValueError, match="no"):
            await handle.result()
        await worker.log.append(send(InstanceStreams("x", "shop"), Signalled("x", "late", 1)))
        first = [one async for one in handle.steps()]
        for _ in range(6):
            await later(worker, clock, DAY_MS)
            await later(worker, clock, 1_000)
            assert clock.ms - await oldest_ms(book) < 2 * DAY_MS
            assert [one.kind async for one in handle.steps()] == [one.kind for one in first]
            assert [value async for value in handle.events("state", follow=False)] == ["begun"]
            line = (await life_of(worker.log, "x")).timeline
            assert line is not None and [span.kind for span in line.spans].count("step") == 1, (
                "show, steps and the page"
            )
        good = True
        assert await (await handle.fork(id="again")).result() == 7 and shop.ran == ["add 1 1"]
        for _ in range(2):
            await later(worker, clock, DAY_MS)
        with pytest.raises(boki.Trimmed):
            [one async for one in handle.steps()]
        assert await handle.status() == "failed"


async def test_histories_beyond_the_bound_go_when_they_would_be_rewritten(
    cluster: MemoryCluster, clock: SetClock
) -> None:
    shop = Shop()
    async with working(cluster, shop.app) as worker:
        for number in range(8):
            with pytest.raises(ValueError, match="no"):
                await (await worker.start(shop.fail.call("no"), id=f"x{number}")).result()
        clock.ms += DAY_MS
        await worker._peers._members.beat()
        size = 0
        for number in range(8):
            size += sum(map(len, encode(await inspection.whole_history(worker.log, f"x{number}"))))
        few = Histories(rewritten_bytes=size // 2)
        assert (await bokiflow.collect(worker.flow, histories=few)).tombs == 8
        left = 0
        for number in range(8):
            with contextlib.suppress(boki.Trimmed):
                left += bool([one async for one in worker.handle(f"x{number}").steps()])
        assert 2 <= left <= 4


async def test_histories_of_all_that_ended_stay_within_a_bound_in_bytes(
    cluster: MemoryCluster, clock: SetClock, book: boki.Book
) -> None:
    """Workflows return and fail for hours: the oldest histories are trimmed early, and the book does not grow."""
    app = App("shop")

    @app.step
    async def large() -> str:
        return "x" * 10_000

    @app.workflow
    async def flow(number: int) -> str:
        text = await large()
        if number % 2:
            raise ValueError("no")
        return text[:10]

    async def kept(worker: Worker, last: int) -> list[int]:
        found = []
        for number in range(last):
            with contextlib.suppress(boki.Trimmed):
                if [one async for one in worker.handle(f"x{number}").steps() if one.kind == "step"]:
                    found.append(number)
        return found

    first: list[int] = []
    async with working(cluster, app, history_bytes=100_000) as worker:
        for number in range(40):
            handle = await worker.start(flow.call(number), id=f"x{number}")
            with contextlib.suppress(ValueError):
                await handle.result()
            await later(worker, clock, 120_000)
            if number == 19:
                first = await kept(worker, 20)
        last = await kept(worker, 40)
        await worker.drain()  # without that its partitions are its own for a lease
    assert first == list(range(12, 20)) and last == list(range(32, 40)), "four of each kind fit into a half"
    async with working(cluster, app, "next", history_bytes=50_000, lease_s=0.01) as worker:
        await worker._round()
        await worker.collect()
        assert await kept(worker, 40) == list(range(36, 40)), "another worker measures what it finds"


async def test_a_burst_within_a_minute_leaves_the_newest_histories_of_both_kinds(
    cluster: MemoryCluster, clock: SetClock, capsys: pytest.CaptureFixture[str]
) -> None:
    app = App("shop")

    @app.step
    async def large() -> str:
        return "x" * 10_000

    @app.workflow
    async def flow(number: int) -> int:
        await large()
        if number % 10 == 0:
            raise ValueError("no")
        return number

    async with working(cluster, app, history_bytes=100_000) as worker:
        for number in range(40):
            with contextlib.suppress(ValueError):
                await (await worker.start(flow.call(number), id=f"x{number}")).result()
        for _ in range(2):  # the second round finds that all fit
            await worker.collect()
        kept = []
        for number in range(40):
            with contextlib.suppress(boki.Trimmed):
                if [one async for one in worker.handle(f"x{number}").steps() if one.kind == "step"]:
                    kept.append(number)
    assert [one for one in kept if one % 10 == 0] == [0, 10, 20, 30], "what failed keeps its half"
    assert [one for one in kept if one % 10] == list(range(35, 40)), "the newest stay"
    told = [line for line in capsys.readouterr().err.splitlines() if "trimmed early" in line]
    assert len(told) == 1 and "level=warning" in told[0]


async def test_what_is_collected_is_counted_and_who_is_late_shows_it(cluster: MemoryCluster, clock: SetClock) -> None:
    shop, metrics = Shop(), Metrics()

    def counted(what: str) -> float:
        return metrics.counter(collecting.COLLECTED).labels(what).value

    async with working(cluster, shop.app, retention_s=2 * 86_400, metrics=metrics) as worker:
        for number in range(3):
            await (await worker.start(shop.steps.call(1), id=f"x{number}")).result()
        await later(worker, clock, 70_000)
        assert (counted("histories"), counted("tombs"), metrics.counter(collecting.COLLECT_ROUNDS).value) == (0, 0, 1)
        assert b"boki_flow_collect_lag_seconds 0.0" in metrics.render()
        await later(worker, clock, DAY_MS + HOUR_MS)
        assert (counted("histories"), counted("tombs"), metrics.counter(collecting.COLLECT_CHECKED).value) == (3, 3, 3)
        assert b"boki_flow_collect_lag_seconds 3670.0" in metrics.render(), "an hour, and what had gone by before"
        await later(worker, clock, HOUR_MS)
        assert b"boki_flow_collect_lag_seconds 0.0" in metrics.render()
        await later(worker, clock, DAY_MS)
        assert counted("forgotten") == 3


async def test_an_id_that_is_over_and_not_forgotten_is_reported_as_expired(
    cluster: MemoryCluster, clock: SetClock, book: boki.Book
) -> None:
    shop = Shop()
    async with working(cluster, shop.app) as worker:
        handle = await worker.start(shop.steps.call(1), id="x")
        await handle.result()
        (await_end, last) = (await rows(book, "flow/own/x"))[0], (await rows(book, "flow/own/x"))[-1]
        await book.trim([("flow/own/x", last + 1)])
        with pytest.raises(IdExpired, match="not kept any more"):
            await worker.start(shop.steps.call(1), id="x")
        with pytest.raises(ResultExpired):
            await worker.flow.results.wait("x", await_end, follow=True)


async def test_a_tomb_takes_254_ends_and_large_results_are_apart(
    cluster: MemoryCluster, clock: SetClock, book: boki.Book
) -> None:
    app = App("shop")

    @app.workflow
    async def flow(size: int) -> str:
        return "x" * size

    async with working(cluster, app, lease_s=3_600) as worker:
        ids = [f"x{number}" for number in range(20_000) if tags.partition_of(f"x{number}") == 7][:260]
        for id in ids:
            await worker.start(flow.call(1), id=id)
        await worker.start(flow.call(10_000), id="large")
        assert await worker.handle("large", flow).result() == "x" * 10_000
        await asyncio.gather(*(worker.handle(id).result() for id in ids))
        await later(worker, clock, DAY_MS // 2)
        before = worker.log.appends
        done = await later(worker, clock, DAY_MS // 2)
        assert done.tombs == 261
        assert worker.log.appends - before == 1 + 1 + 2 + 1, (
            "a heartbeat, a large result, two tombs; claims of partitions anew"
        )
        counts = []
        async for item in book.read(tags.flow_done("shop", 7)):
            assert isinstance(item, boki.Record)
            counts.append(len(PICKER.of(item.seqnum, await worker.log.open(item))))
        assert sorted(counts) in ([6, 254], [7, 254])
        for _ in range(3):
            await later(worker, clock, DAY_MS)
        large = worker.flow.handle("large", flow)
        assert await large.result() == "x" * 10_000
        assert len(await rows(book, tags.flow_output("large", "result"))) == 1
        assert await (await worker.start(flow.call(10_000), id="large")).result() == "x" * 10_000


async def test_what_lives_is_written_anew_before_a_term_is_old(
    cluster: MemoryCluster, clock: SetClock, book: boki.Book
) -> None:
    """Sleeping and blocked workflows, owners of partitions and lists: no needed record is older than two days."""
    shop, broken = Shop(), App("shop")

    @broken.workflow
    async def lost() -> None: ...

    async with Flow(broken, (await cluster.connect()).book("shop")) as outside:
        await outside.start(lost.call(), id="blocked", attributes={"kind": "lost"})
    async with working(cluster, shop.app) as worker:
        for number in range(10):
            await worker.start(shop.wait.call(2), id=f"x{number}", attributes={"kind": "wait"})
            await worker.handle(f"x{number}").signal("go", number)
        await until(lambda: len(shop.ran) == 10)
        for day in range(5):
            await later(worker, clock, DAY_MS // 2)
            await later(worker, clock, DAY_MS // 2)
            assert clock.ms - await oldest_ms(book) <= 2 * DAY_MS or day < 1
        assert await worker.flow.find(kind="wait") == [f"x{number}" for number in range(10)]
        assert await worker.flow.find() == ["blocked", *(f"x{number}" for number in range(10))]
        assert await worker.handle("blocked").status() == "blocked"
        assert 1 <= len(await rows(book, "flow/blocked/shop")) <= 3, (
            "recorded again each day, and what is older is trimmed"
        )
        assert len(await rows(book)) < 100
    async with working(cluster, shop.app) as worker:
        for number in range(10):
            await worker.handle(f"x{number}").signal("go", "end")
            assert await worker.handle(f"x{number}").result() == [number, "end"]
        assert len(shop.ran) == 20


@pytest.mark.parametrize("daily", [20, pytest.param(100, marks=pytest.mark.nightly)])
async def test_a_book_of_many_workflows_does_not_grow(
    cluster: MemoryCluster, clock: SetClock, book: boki.Book, daily: int
) -> None:
    """Workflows with a child, attributes and emitted events run each day: the number of records and of known streams stays the same."""
    app, shop = App("shop"), Shop()

    @app.workflow
    async def child(number: int) -> int:
        return number

    @app.workflow
    async def flow(number: int) -> int:
        bokiflow.emit("got", number)
        return await shop.add(await child(number), 1)

    model = cluster._serving().model
    live: list[int] = []
    known: list[int] = []
    async with working(cluster, app, retention_s=2 * 86_400) as worker:
        sleeper = await worker.start(shop_wait(app).call(), id="sleeper", attributes={"kind": "long"})
        for day in range(10):
            handles = [
                await worker.start(flow.call(number), id=f"d{day}-{number}", attributes={"day": str(day % 3)})
                for number in range(daily)
            ]
            assert [await handle.result() for handle in handles] == list(range(1, daily + 1))
            for _ in range(2):
                await later(worker, clock, DAY_MS // 2)
            live.append(len(await rows(book)))
            known.append(len(model._newest))
        assert len(shop.ran) == 10 * daily
        assert max(live) < 30, "tombs of two days, 254 a record, and what is listed and owned"
        assert max(known[6:]) <= max(known[3:6]) * 1.1, "a fence and a history of each that is remembered"
        await sleeper.signal("go")
        await sleeper.result()
        for _ in range(6):
            await later(worker, clock, DAY_MS)
        assert len(await rows(book)) < 70, "who owns what"


def shop_wait(app: App) -> bokiflow.Workflow[[], None]:
    @app.workflow
    async def wait() -> None:
        await bokiflow.recv("go")

    return wait


async def test_what_is_sent_to_who_is_over_goes_too(cluster: MemoryCluster, clock: SetClock, book: boki.Book) -> None:
    """Events sent to a workflow that ended or never existed are trimmed; those sent to a running one stay."""
    shop = Shop()
    model = cluster._serving().model
    async with working(cluster, shop.app) as worker:
        await (await worker.start(shop.steps.call(1), id="over")).result()
        await worker.start(shop.wait.call(1), id="lives")
        for id in ("over", "nobody"):
            await worker.log.append(send(InstanceStreams(id, "shop"), Signalled(id, "go", 1)))
        await later(worker, clock, DAY_MS)
        await later(worker, clock, 2 * HOUR_MS)
        assert not await rows(book, "flow/wf/over") and not await rows(book, "flow/wf/nobody")
        await worker.handle("lives").signal("go", 5)
        assert await worker.handle("lives").result() == [5]
        for _ in range(9):
            await later(worker, clock, DAY_MS)
        assert not [1 for _, newest in model._newest.items() if newest in await rows(book, "flow/wf/nobody")]
        assert await inspection.newest(worker.log, "over") is None


async def test_a_checkpoint_of_a_partition_is_what_a_takeover_begins_with(
    cluster: MemoryCluster, clock: SetClock, book: boki.Book
) -> None:
    shop = Shop()
    async with working(cluster, shop.app) as worker:
        for number in range(5):
            await worker.start(shop.wait.call(1), id=f"x{number}")
            await (await worker.start(shop.steps.call(1), id=f"y{number}")).result()
        done = await later(worker, clock, DAY_MS)
        partitions = {tags.partition_of(f"x{number}") for number in range(5)}
        assert done.checkpoints >= len(partitions)
        listed = [row for one in range(64) for row in await rows(book, tags.flow_part("shop", one))]
        assert len(set(listed)) == 1, "those of several partitions are one record"
        assert not [row for one in range(64) for row in await rows(book, tags.flow_to("shop", one))]
    async with working(cluster, shop.app) as worker:
        await until(lambda: len(worker._executors) == 5)
        for number in range(5):
            await worker.handle(f"x{number}").signal("go", number)
            assert await worker.handle(f"x{number}").result() == [number]


async def test_anybody_may_collect_what_ended(cluster: MemoryCluster, clock: SetClock, book: boki.Book) -> None:
    shop = Shop()
    async with working(cluster, shop.app) as worker:
        await (await worker.start(shop.steps.call(2), id="x")).result()
        clock.ms += 2 * DAY_MS
        await worker._peers._members.beat()
    async with Flow(shop.app, (await cluster.connect()).book("shop")) as flow:
        assert await bokiflow.collect(flow) == Collected(ended=1, tombs=1)
        assert await flow.handle("x", shop.steps).result() == 1


async def test_two_who_collect_at_once_do_no_harm(cluster: MemoryCluster, clock: SetClock) -> None:
    shop = Shop()
    async with working(cluster, shop.app) as worker:
        for number in range(30):
            await (await worker.start(shop.steps.call(1), id=f"x{number}")).result()
        for _ in range(12):
            clock.ms += DAY_MS
            await worker._peers._members.beat()
            logs = [Log((await cluster.connect()).book("shop")) for _ in range(2)]
            for log in logs:
                await log.book.now(consistency="linearizable")
            await asyncio.gather(*(Collector(log, "shop", AGES).over(range(64)) for log in logs))
        assert await inspection.newest_of(worker.log, [f"x{number}" for number in range(30)]) == [None] * 30
        again = await worker.start(shop.steps.call(1), id="x1")
        assert await again.result() == 0


class CollectedBook:
    """A workflow that ended and one that waits; time passes, and processes that collect are killed."""

    def __init__(self, clock: SetClock) -> None:
        self.clock = clock
        self.shop = Shop()

    def worker(self, book: BookPort) -> Worker:
        app = self.shop.app
        return Worker(app, book, name="w", bodies=Inline(), retention_s=2 * 86_400, collect_every_s=9e9)

    async def before(self, book: boki.Book) -> None:
        async with self.worker(book) as worker:
            handle = await worker.start(self.shop.steps.call(2), id="over", attributes={"who": "ann"})
            assert await handle.result() == 1
            waits = await worker.start(self.shop.wait.call(2), id="waits", attributes={"who": "ann"})
            await waits.signal("go", 1)
            await until(lambda: worker._executors["waits"].idle and "add 1 0" in self.shop.ran)

    async def days(self, worker: Worker, count: int) -> None:
        for _ in range(count):
            self.clock.ms += DAY_MS
            await worker._peers._members.beat()
            await worker.collect()

    async def collects(self, book: BookPort) -> None:
        async with self.worker(book) as worker:
            for _ in range(100):
                await asyncio.sleep(0)  # what is taken over, is
            await self.days(worker, 1)
            known = await worker.flow.known("over")
            assert known is None or (known.outcome is not None and known.outcome.value == 1)
            await self.days(worker, 1)

    async def program(self, book: BookPort) -> None:
        with contextlib.suppress(boki.BokiError):  # an error ends one round; the next round continues
            await while_alive(book, self.collects(book))

    async def check(self, book: boki.Book) -> None:
        """Check that ended workflows are deleted and running ones unchanged."""
        async with self.worker(book) as worker:
            await until(lambda: "waits" in worker._executors)
            await self.days(worker, 4)
            for tag in ("flow/own/over", "flow/wf/over", tags.flow_done("shop", tags.partition_of("over"))):
                assert not await rows(book, tag), tag
            assert clock_age(self.clock, await oldest_ms(book)) <= 2
            assert await worker.flow.find() == await worker.flow.find(who="ann") == ["waits"]
            handle = worker.handle("waits", self.shop.wait)
            assert [one async for one in handle.events("got", follow=False)] == [1]
            await handle.signal("go", 2)
            assert await handle.result() == [1, 2]
            assert await (await worker.start(self.shop.steps.call(3), id="over")).result() == 3


def clock_age(clock: SetClock, time_ms: int) -> float:
    """Return the age in days."""
    return (clock.ms - time_ms) / DAY_MS


@pytest.mark.parametrize("kinds", [("after",), UNKNOWNS, pytest.param(CRASHES, marks=pytest.mark.nightly)])
async def test_a_crash_anywhere_of_who_collects_harms_nothing(clock: SetClock, kinds: tuple[FaultKind, ...]) -> None:
    kept = CollectedBook(clock)
    explored = await crash_everywhere(
        kept.program, kept.program, kept.check, kinds=kinds, clock=clock, before=kept.before
    )
    assert explored.runs > 5


@pytest.mark.nightly
async def test_a_second_worker_anywhere_that_collects_harms_nothing(clock: SetClock) -> None:
    kept = CollectedBook(clock)
    assert (await start_anywhere(kept.program, kept.program, kept.check, clock=clock, before=kept.before)).runs > 20


class Later(Event, tag="flow.later", frozen=True):
    """An event of a later version."""

    id: str


async def test_upkeep_leaves_out_only_partitions_that_a_program_cannot_read(
    cluster: MemoryCluster, clock: SetClock, book: boki.Book
) -> None:
    app = App("shop")

    @app.workflow
    async def order() -> str:
        return "done"

    async with (
        Flow(app, (await cluster.connect()).book("shop")) as outside,
        working(cluster, app) as worker,
    ):
        ids = [f"x{number}" for number in range(40)]
        for id in ids:
            assert await (await outside.start(order.call(), id=id)).result() == "done"
        there = tags.partition_of(ids[0])
        broken = Contribution((tags.flow_part("shop", there), tags.flow_done("shop", there)), {}, (Later(ids[0]),))
        await outside.log.append(broken)
        await later(worker, clock, 10 * DAY_MS)
        kept = {id for id in ids if await rows(book, tags.flow_history(id))}
        assert kept <= {id for id in ids if tags.partition_of(id) == there}
        assert await rows(book, tags.flow_part("shop", there)), "what it cannot read stays"
        others = {tags.partition_of(id) for id in ids} - {there}
        assert not [one for one in others if await rows(book, tags.flow_part("shop", one))]


async def test_a_child_of_a_forgotten_workflow_is_not_that_of_the_next_one_with_its_id(
    cluster: MemoryCluster, clock: SetClock
) -> None:
    app, began = App("shop"), list[tuple[str, int]]()

    @app.workflow
    async def stubborn(number: int) -> int:
        began.append((bokiflow.workflow_id(), number))
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await bokiflow.recv("go")
                return number

    @app.workflow
    async def parent(number: int) -> int:
        task = asyncio.create_task(stubborn(number))
        if number == 1:
            await bokiflow.recv("leave")
            return 0
        return await task

    async with working(cluster, app, retention_s=2 * 86_400) as worker:
        handle = await worker.start(parent.call(1), id="x")
        await until(lambda: bool(began))
        await handle.signal("leave")
        assert await handle.result() == 0
        while await worker.flow.known("x") is not None:
            await later(worker, clock, DAY_MS)
        again = await worker.start(parent.call(2), id="x")
        ((child, _),) = began
        with pytest.raises(IdReused, match=child):
            await again.result()
        await worker.handle(child).signal("go")
        assert await worker.handle(child).result() == 1
