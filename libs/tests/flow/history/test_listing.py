"""Pages of workflows: newest first, filtered, and merged from several apps."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from bokiflow import App, Flow
from bokiflow.history import inspection
from bokiflow.history.instance_state import InstanceState
from bokiflow.history.listing import (
    PAGE,
    Before,
    Listed,
    Listing,
    Wanted,
    groups,
    listing,
    newest,
    newest_of,
    parse_before,
)
from bokiflow.model.delivery_order import end_of
from bokiflow.model.flow_events import PartitionCheckpoint, Started
from bokiflow.model.outcomes import Outcome
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.testing import FaultyBook
from libs.tests.conftest import SetClock
from libs.tests.flow.conftest import working
from libs.tests.flow.shop import Shop


def ids(found: Listing) -> list[str]:
    return [one.started.id for one in found.rows]


async def started(book: boki.Book, app: App, call: Any, names: list[str], **more: Any) -> None:
    async with Flow(app, book) as flow:
        for name in names:
            await flow.start(call, id=name, **more)


async def test_page_by_page_each_workflow_is_listed_once_newest_first(book: boki.Book) -> None:
    shop = Shop()
    names = [f"x{number}" for number in range(23)]
    await started(book, shop.app, shop.steps.call(1), names)
    log, seen, before = Log(book), list[str](), None
    for _ in range(3):
        page = await listing(log, "shop", Wanted(), before=before, limit=10)
        seen += ids(page)
        before = page.before
    assert seen == names[::-1] and before is None
    assert ids(await listing(log, "other", Wanted())) == []


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
async def test_a_page_has_no_more_than_its_limit_though_a_record_starts_many(
    cluster: MemoryCluster, limit: int
) -> None:
    shop, app = Shop(), App("shop")

    @app.workflow
    async def child(number: int) -> int:
        return number

    @app.workflow
    async def parent() -> list[int]:
        return list(await asyncio.gather(*(child(number) for number in range(5))))

    async with working(cluster, app) as worker:
        await (await worker.start(parent.call(), id="p")).result()
        await worker.flow.start(shop.steps.call(1), id="other app's")
        log, seen = worker.log, list[str]()
        page = await listing(log, "shop", Wanted(name="child"), limit=limit)
        while True:
            assert len(page.rows) <= limit
            seen += ids(page)
            if page.before is None:
                break
            assert parse_before(str(page.before)) == page.before
            page = await listing(log, "shop", Wanted(name="child"), before=page.before, limit=limit)
        assert (
            sorted(seen) == sorted(one for one in await worker.flow.find() if one.startswith("p/")) and len(seen) == 5
        )


def test_pages_of_several_groups_are_one_and_places_are_checked() -> None:
    def row(seqnum: int, at: int = 0) -> Listed:
        return Listed(seqnum, 0, Started(f"{seqnum}:{at}", "n", "d", [], 0), InstanceState(seqnum), at)

    pages = {"a": Listing([row(9), row(5, 1)], Before(5, 1)), "b": Listing([row(7), row(5, 0)], None)}
    rows, after = newest_of(pages, 2)
    assert [(group, one.seqnum) for group, one in rows] == [("a", 9), ("b", 7)] and after == Before(7)
    rows, after = newest_of(pages, 3)
    assert [(one.seqnum, one.at) for _, one in rows][2] == (5, 1) and str(after) == "5:1"
    assert newest_of(pages, 4)[1] == Before(5, 1) and newest_of({}, 4) == ([], None)
    for wrong in ("", "x", "-1", "0", "5:", "5:x", "5:1:2", "9" * 30, "²"):
        with pytest.raises(boki.InvalidArgument, match="expected a place"):
            parse_before(wrong)


async def test_only_what_is_asked_for(cluster: MemoryCluster, book: boki.Book) -> None:
    shop = Shop()
    async with working(cluster, shop.app) as worker:
        for name, call in (("good", shop.steps.call(1)), ("bad", shop.fail.call("no")), ("waits", shop.wait.call(1))):
            handle: Any = await worker.start(call, id=name, attributes={"who": "ann" if name == "bad" else "bob"})
            if name == "good":
                await handle.result()
            elif name == "bad":
                assert await handle.status() in ("running", "failed")
                try:
                    await handle.result()
                except ValueError:
                    pass
        log = Log(book)
        await book.now(consistency="linearizable")

        async def some(**wanted: Any) -> list[str]:
            return ids(await listing(log, "shop", Wanted(**wanted)))

        assert await some() == ["waits", "bad", "good"]
        assert await some(statuses=frozenset(["running"])) == ["waits"]
        assert await some(statuses=frozenset(["failed", "completed"])) == ["bad", "good"]
        assert await some(name="steps") == ["good"]
        assert await some(attribute=("who", "ann")) == ["bad"]
        assert await some(attribute=("who", "ann"), statuses=frozenset(["running"])) == []


async def test_by_the_time_of_the_log() -> None:
    clock, shop = SetClock(), Shop()
    async with MemoryCluster(clock=clock) as cluster:
        book = (await cluster.connect()).book("shop")
        for hour in range(3):
            clock.ms = 10**12 + hour * 3_600_000
            await started(book, shop.app, shop.steps.call(1), [f"x{hour}"])
        log, second = Log(book), 10**12 + 3_600_000
        assert ids(await listing(log, "shop", Wanted(since_ms=second))) == ["x2", "x1"]
        assert ids(await listing(log, "shop", Wanted(until_ms=second))) == ["x0"]


async def test_apps_are_found_in_the_records(book: boki.Book) -> None:
    shop, other = Shop(), App("other")

    @other.workflow
    async def nothing() -> None:
        pass

    await started(book, shop.app, shop.steps.call(1), ["a"])
    await started(book, other, nothing.call(), ["b"])
    await book.append(b"of somebody else")
    log = Log(book)
    assert await groups(log) == ["other", "shop"]
    assert await groups(log, 2) == ["other"], "of the newest records only"
    assert await groups(log, 100) == ["other", "shop"]


async def test_streams_that_were_trimmed_end_where_they_were(book: boki.Book) -> None:
    shop = Shop()
    await started(book, shop.app, shop.steps.call(1), [f"x{number}" for number in range(8)])
    position = await book.now()
    streams = [tags.flow_part("shop", one) for one in range(tags.PARTITIONS)]
    assert len(await newest(book, streams, position + 1, 100)) == 8
    cut = (await newest(book, streams, position + 1, 4))[-1].seqnum
    await book.trim(before=cut)
    await book.now(consistency="linearizable")
    assert len(await newest(book, streams, position + 1, 100)) == 4


async def test_what_began_long_ago_is_listed_by_a_newer_record(cluster: MemoryCluster, book: boki.Book) -> None:
    shop = Shop()
    async with working(cluster, shop.app) as worker:
        for name in ("a", "b"):
            await (await worker.start(shop.steps.call(1), id=name, attributes={"who": name})).result()
        await worker.start(shop.wait.call(1), id="waits")
    log, streams = Log(book), [tags.flow_part("shop", one) for one in range(tags.PARTITIONS)]
    position = await book.now(consistency="linearizable")
    assert ids(await listing(log, "shop", Wanted())) == ["waits", "b", "a"]
    ((waits, _),) = [await inspection.first(log, "waits") or (0, None)]
    checkpoint = PartitionCheckpoint("shop", tags.partition_of("waits"), ("waits",), position, (waits,))
    await log.append(Contribution((tags.flow_part("shop", checkpoint.partition),), {}, (checkpoint,)))
    await book.trim([(stream, position + 1) for stream in streams])
    found = await listing(log, "shop", Wanted())
    assert ids(found) == ["waits", "b", "a"], "by the checkpoint, and by their ends"
    assert found.rows[1].started.args is None and found.rows[1].started.attributes == {"who": "b"}
    await log.append(Contribution((tags.flow_part("shop", checkpoint.partition),), {}, (checkpoint,)))
    assert ids(await listing(log, "shop", Wanted())) == ["waits", "b", "a"], "each once"


async def test_a_program_lists_workflows_with_their_facts(cluster: MemoryCluster) -> None:
    shop = Shop()
    async with working(cluster, shop.app) as worker:
        await (await worker.start(shop.steps.call(1), id="good", attributes={"who": "bob"})).result()
        with pytest.raises(ValueError, match="no"):
            await (await worker.start(shop.fail.call("no"), id="bad", attributes={"who": "ann"})).result()
        await worker.start(shop.wait.call(1), id="waits", attributes={"who": "ann"})
        flow = worker.flow

        async def some(**wanted: Any) -> list[str]:
            found = [one async for one in flow.list_workflows(**wanted)]
            assert found == [await flow.known(one.id) for one in found]
            return [one.id for one in found]

        assert await some() == ["waits", "bad", "good"]
        assert await some(limit=2) == ["waits", "bad"]
        assert await some(status="running") == ["waits"] == await some(status=["running", "blocked"])
        assert await some(status={"failed", "completed"}) == ["bad", "good"]
        assert await some(name="steps") == ["good"]
        assert await some(attribute=("who", "ann")) == ["waits", "bad"]
        assert await some(attribute=("who", "ann"), status="running") == ["waits"]
        assert await some(since_ms=2**62) == [] and await some(until_ms=2**62, limit=1) == ["waits"]
        several: list[dict[str, Any]] = [
            {"status": "stuck"},
            {"limit": 0},
            {"name": b"x"},
            {"attribute": "who"},
            {"attribute": ("who", 1)},
        ]
        for wrong in several:
            with pytest.raises(boki.InvalidArgument, match="expected"):
                flow.list_workflows(**wrong)


async def test_a_list_goes_on_where_a_page_ends_and_reads_no_more_than_is_taken(cluster: MemoryCluster) -> None:
    shop, count = Shop(), 2 * PAGE + 3
    names = [f"x{number}" for number in range(count)]
    book = (await cluster.connect()).book("shop")
    await started(book, shop.app, shop.steps.call(1), names)
    async with Flow(shop.app, book) as flow:
        assert [one.id async for one in flow.list_workflows()] == names[::-1]
        assert [one.id async for one in flow.list_workflows(limit=PAGE + 1)] == names[: -PAGE - 2 : -1]
        async with aclosing(flow.list_workflows()) as workflows:
            async for one in workflows:
                assert one.id == names[-1]
                break


@pytest.mark.parametrize("wanted", [{}, {"name": "steps"}, {"attribute": ("who", "ann")}, {"status": "running"}])
async def test_pages_miss_and_repeat_no_workflow_while_new_ones_start(
    cluster: MemoryCluster, wanted: dict[str, Any]
) -> None:
    shop, names, seen, before = Shop(), [f"x{number}" for number in range(23)], list[str](), ""
    book = (await cluster.connect()).book("shop")
    await started(book, shop.app, shop.steps.call(1), names, attributes={"who": "ann"})
    for turn in range(6):
        others = (await cluster.connect()).book("shop")  # as a web server with several processes turns pages
        async with Flow(shop.app, others) as flow:
            page = await flow.page_of_workflows(before=before, limit=5, **wanted)
            assert page.workflows == [await flow.known(one.id) for one in page.workflows]
        seen += [one.id for one in page.workflows]
        await started(
            book, shop.app, shop.steps.call(1), [f"new{turn}:{one}" for one in range(3)], attributes={"who": "ann"}
        )
        before = page.before
        if not before:
            break
    assert seen == names[::-1] and not before


async def test_a_page_refuses_what_is_no_place_and_no_limit(book: boki.Book) -> None:
    async with Flow(Shop().app, book) as flow:
        assert await flow.page_of_workflows() == ([], "")
        several: list[dict[str, Any]] = [
            {"before": "x"},
            {"before": 5},
            {"limit": 0},
            {"limit": None},
            {"status": "stuck"},
        ]
        for wrong in several:
            with pytest.raises(boki.InvalidArgument, match="expected"):
                await flow.page_of_workflows(**wrong)


async def test_what_runs_is_listed_without_the_ends(cluster: MemoryCluster, book: boki.Book) -> None:
    """The stream of ends has a week of workflows: who asks for the stuck ones does not read it."""
    shop = Shop()
    async with working(cluster, shop.app) as worker:
        for name in ("a", "b"):
            await (await worker.start(shop.steps.call(1), id=name)).result()
        await worker.start(shop.wait.call(1), id="waits")
    log, streams = Log(book), [tags.flow_part("shop", one) for one in range(tags.PARTITIONS)]
    position = await book.now(consistency="linearizable")
    (start, _) = await inspection.first(log, "waits") or (0, None)
    checkpoint = PartitionCheckpoint("shop", tags.partition_of("waits"), ("waits",), position, (start,))
    await log.append(Contribution((tags.flow_part("shop", checkpoint.partition),), {}, (checkpoint,)))
    await book.trim([(stream, position + 1) for stream in streams])
    read = set[str]()

    class Watched(FaultyBook):
        async def read_prev_many(self, queries, *, consistency="session"):  # type: ignore[no-untyped-def]
            read.update(str(tag) for tag, _ in queries)
            return await super().read_prev_many(queries, consistency=consistency)

    flow = Flow(shop.app, Watched(book))
    assert [one.id async for one in flow.list_workflows(status=["running", "blocked"])] == ["waits"]
    ends = {tags.flow_done("shop", one) for one in range(tags.PARTITIONS)}
    assert read and not read & ends
    assert [one.id async for one in flow.list_workflows()] == ["waits", "b", "a"] and read >= ends


async def test_a_result_that_is_not_kept_hides_no_workflow_of_a_list(log: Log) -> None:
    start = Started("x", "n", "d", None, 5, group="shop")
    end = end_of(start, 3, Outcome("large"), 7, ())
    known = await inspection.known_of(log, start, InstanceState(9, "", end, large=8, newest=end))
    assert (known.status, known.ended_ms, known.outcome) == ("completed", 7, None)
