"""The reader of one workflow."""

from __future__ import annotations

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from bokiflow import NoSuchWorkflow, Worker
from bokiflow.history.listing import Wanted, listing
from bokiflow.runtime import in_workflow
from bokiflow_tools.reading import life_of
from bokiflow_tools.wording import life_facts, life_lines, listed_facts, listed_line
from bokilib.append.log import Log
from bokilib.records import tags
from libs.tests.flow.conftest import Inline, Stepping, working
from libs.tests.flow.shop import Shop


async def test_a_workflow_from_its_start_to_its_end(cluster: MemoryCluster, book: boki.Book) -> None:
    shop = Shop()
    async with working(cluster, shop.app) as worker:
        handle = await worker.start(shop.parent.call(2), id="x", attributes={"who": "ann"})
        running = await life_of(worker.log, "x")
        assert (running.status, running.ended, running.owner) == ("running", None, worker.name)
        await handle.result()
    found = await life_of(Log(book), "x", consistency="linearizable")
    assert (found.status, found.name, found.owner) == ("completed", "parent", "")
    line = found.timeline
    assert line is not None
    assert [span.kind for span in line.spans].count("child") == 3 and line.spans[-1].kind == "end"
    with pytest.raises(NoSuchWorkflow):
        await life_of(Log(book), "nobody")


async def test_who_took_it_over_is_reported(cluster: MemoryCluster, book: boki.Book) -> None:
    shop = Shop()
    async with working(cluster, shop.app, name="a") as worker:
        handle = await worker.start(shop.wait.call(1), id="x")
        await worker.drain()
    async with Worker(shop.app, book, name="b", bodies=Inline()) as other:
        await other.handle("x").signal("go", 1)
        assert await other.handle("x", shop.wait).result() == [1]
        found = await life_of(other.log, handle.id)
    assert found.timeline is not None
    kinds = [span.kind for span in found.timeline.spans]
    assert kinds.count("takeover") == 1 and "signal" in kinds and "step" in kinds


async def test_what_a_workflow_launched_has_its_status(cluster: MemoryCluster) -> None:
    app = bokiflow.App("shop")

    @app.workflow
    async def report(day: int) -> int:
        return day

    @app.workflow
    async def keeps() -> None:
        in_workflow.launch(report.call(1), "report/1")
        await bokiflow.recv("more")

    async with working(cluster, app) as worker:
        handle = await worker.start(keeps.call(), id="x")
        assert await worker.handle("report/1", report).result(missing="wait") == 1
        line = (await life_of(worker.log, "x")).timeline
        assert line is not None
        assert [(span.kind, span.child, span.value) for span in line.spans] == [("launch", "report/1", "completed")]
        await handle.signal("more")
        await handle.result()


async def test_a_fork_began_when_it_was_forked_and_an_end_is_when_a_worker_made_it() -> None:
    shop = Shop()
    clock = Stepping()
    async with MemoryCluster(clock=clock) as cluster:
        async with working(cluster, shop.app) as worker:
            await worker.start(shop.wait.call(1), id="x")
            await worker.drain()
            await worker.handle("x").cancel("late")
            began = await worker.flow.known("x")
        clock.ahead_ms += 600_000
        async with working(cluster, shop.app) as worker:
            with pytest.raises(bokiflow.WorkflowCancelled):
                await worker.handle("x").result()
            assert began is not None
            ended = await life_of(worker.log, "x")
            assert ended.ended is not None and ended.ended.at_ms >= began.started_ms + 600_000
            assert ended.timeline is not None
            times = [(span.kind, span.begin_ms) for span in ended.timeline.spans]
            assert [kind for kind, _ in times] == ["cancel", "takeover", "end"]
            assert times == sorted(times, key=lambda one: one[1])
            clock.ahead_ms += 600_000
            await worker.handle("x").fork(id="y")
            await worker.handle("y").signal("go", 1)
            await worker.handle("y").result()
            fork = await life_of(worker.log, "y")
            (row,) = [one for one in (await listing(worker.log, "shop", Wanted())).rows if one.started.id == "y"]
            (shown,) = (
                [span for span in fork.timeline.spans if span.kind == "fork"] if fork.timeline is not None else []
            )
            known = await worker.flow.known("y")
            assert known is not None and known.started_ms >= ended.ended.at_ms + 600_000
            facts, listed = life_facts(fork), listed_facts(1, row.started, row.held)
            assert facts["started_ms"] == listed["started_ms"] == known.started_ms == shown.begin_ms
            assert facts["origin"] == listed["origin"] == shown.name == "x"
            assert "fork of x" in listed_line(row.started, row.held, "now")
            after = [one async for one in worker.log.book.read() if isinstance(one, boki.Record)][-1].seqnum + 1
            await worker.log.book.trim([(tags.flow_history("y"), after)])
            assert life_facts(await life_of(worker.log, "y"))["started_ms"] == known.started_ms


async def test_a_history_that_is_not_kept_any_more_is_no_picture(cluster: MemoryCluster, book: boki.Book) -> None:
    shop = Shop()
    async with working(cluster, shop.app) as worker:
        await (await worker.start(shop.steps.call(2), id="x")).result()
    position = await book.now(consistency="linearizable")
    await book.trim(before=position + 1, tag=tags.flow_history("x"))
    found = await life_of(Log(book), "x", consistency="linearizable")
    assert found.records is None and found.timeline is None and found.status == "completed"


async def test_without_its_history_a_life_has_all_that_its_end_has(cluster: MemoryCluster, book: boki.Book) -> None:
    shop = Shop()
    async with working(cluster, shop.app) as worker:
        await (await worker.start(shop.steps.call(2), id="x", attributes={"day": "d1"})).result()
        known = await worker.flow.known("x")
    await book.trim(before=await book.now(consistency="linearizable") + 1, tag=tags.flow_history("x"))
    found = await life_of(Log(book), "x", consistency="linearizable")
    facts = life_facts(found)
    assert known is not None
    assert (facts["group"], facts["started_ms"], facts["attributes"]) == ("shop", known.started_ms, {"day": "d1"})
    assert [facts[name] for name in ("args", "version", "origin", "cancels")] == [None] * 4
    assert (facts["history_kept"], facts["result"], facts["parent"]) == (False, 1, "")
    lines = life_lines(found, str)
    assert "call      steps(…)" in lines and "attribute day=d1" in lines
    assert lines[-1] == "history   its history is not kept any more (history_s)"
