"""Engines and the index snapshot make the same plans; a position that neither has reached is a retryable error."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

import boki
from boki_common.errors import InvalidArgument
from boki_common.metadata.store import MetadataStore, Versioned
from boki_common.net.connection import Address
from boki_logbook.scan.facts import COMMITTED, LIVE, ScanRange
from boki_logbook.state.snapshot_rules import SNAPSHOT_PATH
from boki_logbook.testing.plans import seqnums_of
from boki_metalog.terms.term_record import DELETED
from boki_spark.errors import Behind, ClusterAway, DataLoss
from boki_spark.plan.cluster import SNAPSHOT, Cluster, ClusterOptions, engine_addresses
from boki_spark.plan.read_options import ReadOptions
from boki_spark.plan.stream_planner import StreamPlanner
from boki_spark.plan.stream_rules import EARLIEST, Beginning
from boki_spark.testing.small_cluster import SmallCluster, read_rows, whole_plan


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    async with SmallCluster() as made:
        yield made


async def test_engine_and_snapshot_plan_the_same_of_a_sealed_term(cluster: SmallCluster) -> None:
    seqnums = await cluster.append(*((f"book-{at % 2}", b"%d" % at, ["a", f"t/{at % 4}"]) for at in range(40)))
    await cluster.trim("book-1", seqnums[11])
    await cluster.roll()
    await cluster.snapshot_covers(1)
    by_engine, by_snapshot = cluster.pipeline(), cluster.pipeline(SNAPSHOT)
    term = {0: (1, (await by_engine.committed()).terms[0].end_pos)}
    for mode in (LIVE, COMMITTED):
        for tags in ((), (5,)):
            asked = ScanRange({}, term, None, tags)
            one, other = await by_engine.plan(asked, mode), await by_snapshot.plan(asked, mode)
            assert seqnums_of(one) == seqnums_of(other)
    asked = ScanRange({}, term)
    one, other = await by_engine.plan(asked, LIVE), await by_snapshot.plan(asked, LIVE)
    assert await read_rows(by_engine, one) == await read_rows(by_snapshot, other)
    facts = one.committed.terms[0]
    same = other.committed.terms[0]
    assert (facts.metalog_ledger, facts.digest) == (same.metalog_ledger, same.digest)


async def reclaimed(cluster: SmallCluster, term: int) -> None:
    """Wait until the ledgers of a term are deleted."""
    async with asyncio.timeout(300):
        while (await cluster.record(term)).location.kind != DELETED:
            await asyncio.sleep(0)


async def test_a_stream_goes_past_a_term_that_was_reclaimed_before_it_got_there(cluster: SmallCluster) -> None:
    """A stream that begins after that continues with the remaining records. One that had begun raises DataLoss."""
    seqnums = [(await cluster.append(("book", b"%d" % at, [])))[0] for at in range(8)]
    where = ReadOptions(ClusterOptions("boki://a", timeout_s=5.0), start=Beginning(EARLIEST))
    tolerant = dataclasses.replace(where, fail_on_data_loss=False)
    pipeline = cluster.pipeline()
    first = await StreamPlanner(pipeline, where).latest(where.start.encode(), max_rows=3)
    second = await StreamPlanner(pipeline, where).latest(first)
    assert (first["rows"], second["rows"]) == (3, 5)
    await cluster.roll()
    await cluster.trim("book", seqnums[-1] + 1)
    await cluster.snapshot_covers(1)
    await reclaimed(cluster, 1)
    last = await cluster.append(("book", b"after", []))
    for begin, options in ((where.start.encode(), where), (first, tolerant), (second, where)):
        planner = StreamPlanner(pipeline, options)
        end = await planner.latest(begin)
        rows = await read_rows(pipeline, await planner.partitions(begin, end))
        assert [row[::2] for row in rows] == [(last[0], b"after")], begin
        assert await planner.latest(end) is end
    with pytest.raises(DataLoss, match=r"\[BOKI_DATA_LOSS\].*term 1, positions 3 to 7"):
        await StreamPlanner(pipeline, where).latest(first)
    step, start, seen = StreamPlanner(pipeline, tolerant), first, []
    while (end := await step.latest(start, max_rows=1)) is not start:
        seen += [row[0] for row in await read_rows(pipeline, await step.partitions(start, end))]
        start = end
    assert seen == last, "in steps, too"
    with pytest.raises(DataLoss, match="some were trimmed"):
        await StreamPlanner(pipeline, where).partitions(first, second)
    assert await read_rows(pipeline, await StreamPlanner(pipeline, tolerant).partitions(first, second)) == []


async def test_a_reader_goes_past_a_term_that_was_reclaimed_before_it_got_there(cluster: SmallCluster) -> None:
    seqnums = [(await cluster.append(("book", b"%d" % at, [])))[0] for at in range(8)]
    async with boki.connect(f"boki://{cluster.engine.addresses[0]}") as client:
        following = client.book("book").read(follow=True, limit=9)
        waiting = client.book("book").read(start=seqnums[-1] + 1, follow=True, limit=1)
        parked = asyncio.ensure_future(anext(waiting))
        assert [(await anext(following)).seqnum for _ in range(3)] == seqnums[:3]
        await cluster.roll()
        await cluster.trim("book", seqnums[-1] + 1)
        await cluster.snapshot_covers(1)
        await reclaimed(cluster, 1)
        last = await cluster.append(("book", b"after", []))
        found: list[int] = []
        while last[0] not in found:
            item = await anext(following)
            found += [item.seqnum] if isinstance(item, boki.Record) else []
        assert found[:-1] == seqnums[3 : 3 + len(found) - 1], "what it had read ahead, in order"
        item = await parked
        assert isinstance(item, boki.Record) and item.seqnum == last[0]


async def test_a_range_that_ends_behind_the_state_is_refused_and_can_be_tried_again(cluster: SmallCluster) -> None:
    await cluster.append(("orders", b"x", []))
    pipeline = cluster.pipeline()
    with pytest.raises(Behind, match=r"^\[BOKI_BEHIND\].*position 99 of log 0") as error:
        await pipeline.plan(ScanRange({}, {0: (1, 99)}), LIVE)
    assert error.value.retryable
    with pytest.raises(Behind):
        await pipeline.plan(ScanRange({7: (1, 2)}, {}), LIVE)


async def test_without_a_snapshot_the_error_names_how_to_get_one(cluster: SmallCluster) -> None:
    with pytest.raises(Behind, match="boki log roll"):
        await cluster.pipeline(SNAPSHOT).committed()


async def test_a_range_that_cannot_be_is_refused(cluster: SmallCluster) -> None:
    with pytest.raises(InvalidArgument, match="tags"):
        await cluster.pipeline().plan(ScanRange({}, {}, None, (0,)), LIVE)


async def test_a_time_is_a_position_in_each_log(cluster: SmallCluster) -> None:
    await cluster.append(("orders", b"x", []))
    await cluster.roll()
    await cluster.append(("orders", b"y", []))
    pipeline = cluster.pipeline()
    end = (await pipeline.committed()).end
    assert await pipeline.seek(0) == {0: (1, 0)}
    assert await pipeline.seek(2**60) == end
    plan = await whole_plan(pipeline)
    times = [int(term.entries.times[0]) for term in plan.terms]
    assert await pipeline.seek(times[0]) == {0: (1, 0)}


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("boki://127.0.0.1", [Address("127.0.0.1", 7040)]),
        ("boki://one:1,two:2/?token_file=/x", [Address("one", 1), Address("two", 2)]),
        ("unix:///run/boki", [Address.parse("unix:///run/boki")]),
    ],
)
def test_a_url_names_engines(url: str, found: list[Address]) -> None:
    assert engine_addresses(url) == found


@pytest.mark.parametrize("url", ["", "http://x", "boki://a,,b"])
def test_what_names_no_engine_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument):
        engine_addresses(url)


async def test_options_that_name_no_cluster_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="neither"):
        await Cluster.open(ClusterOptions())
    with pytest.raises(InvalidArgument, match="expected plan to be"):
        await Cluster.open(ClusterOptions(url="boki://x", plan="guess"))


async def test_nobody_at_the_url_is_an_error_in_time() -> None:
    with pytest.raises(ClusterAway, match=r"^\[BOKI_UNREACHABLE\]"):
        await Cluster.open(ClusterOptions(url="boki://127.0.0.1:1", timeout_s=0.2))


class OlderNode:
    """A metadata store whose first answer about the index snapshot is an older one."""

    def __init__(self, store: MetadataStore, older: Versioned) -> None:
        self._store = store
        self._older: Versioned | None = older

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, path: str) -> Versioned:
        older = self._older
        if path == SNAPSHOT_PATH and older is not None:
            self._older = None
            return older
        return await self._store.get(path)


async def test_a_snapshot_that_is_replaced_while_a_plan_is_made_of_it_is_read_anew(cluster: SmallCluster) -> None:
    await cluster.append(("orders", b"1", []))
    await cluster.roll()
    first = await cluster.snapshot_covers(1)
    older = await cluster.ledgers.store.get(SNAPSHOT_PATH)
    await cluster.append(("orders", b"2", []))
    await cluster.roll()
    await cluster.snapshot_covers(2)
    known = await cluster.ledgers.client.list()
    async with asyncio.timeout(300):
        while set(first.ledgers) & set(known):
            await asyncio.sleep(0)
            known = await cluster.ledgers.client.list()
    made = cluster.pipeline(SNAPSHOT)
    store: Any = OlderNode(made.store, older)
    pipeline = Cluster(store, made.ledgers, None, SNAPSHOT)
    node, state, _ = await pipeline.snapshot_state()
    assert node.covers(2, 0) and state.places.terms[2].counts.records == 1
