"""Partitions read from bookies and from the metalog equal what the SDK reads, or raise a named error."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)

from boki_cli.testing.logs import log_with_carried
from boki_common.ids import book_id, seqnum
from boki_ledger.testing.ledgers import Ledgers
from boki_logbook.index.places import ShardPlace
from boki_logbook.scan.facts import COMMITTED, LIVE
from boki_logbook.scan.partitions import cut
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RunSpec, make_batch, plain_records
from boki_logbook.testing.plans import everything, plan_of
from boki_metalog.entries.metalog_entry import Lost
from boki_metalog.terms.metadata_tree import ensure_view
from boki_spark.errors import ClusterAway, DataLoss, PlanStale
from boki_spark.plan.cluster import AUTO, Cluster
from boki_spark.read.entries import PartitionReader, ReadCounts
from boki_spark.testing.small_cluster import SmallCluster, read_rows, whole_plan


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    async with SmallCluster() as made:
        yield made


async def filled(cluster: SmallCluster, count: int = 60) -> list[tuple[int, int, bytes]]:
    """Append records of two books with three tags in two terms."""
    rows = []
    for part in range(2):
        records = [(f"book-{at % 2}", b"%d.%d" % (part, at), [f"tag/{at % 3}"]) for at in range(count)]
        seqnums = await cluster.append(*records)
        rows += [(at, book_id(book), data) for at, (book, data, _) in zip(seqnums, records, strict=True)]
        if not part:
            await cluster.roll()
    return sorted(rows)


@pytest.mark.parametrize("mode", [LIVE, COMMITTED])
async def test_partitions_of_the_whole_have_every_record(cluster: SmallCluster, mode: str) -> None:
    rows = await filled(cluster)
    pipeline = cluster.pipeline()
    plan = await whole_plan(pipeline, mode)
    for partitions in (cut(plan), cut(plan, max_bytes=1)):
        assert await read_rows(pipeline, partitions) == rows


@pytest.mark.parametrize("mode", [LIVE, COMMITTED])
async def test_a_book_and_tags_choose_rows_in_either_mode(cluster: SmallCluster, mode: str) -> None:
    rows = await filled(cluster)
    pipeline = cluster.pipeline()
    plan = await whole_plan(pipeline, mode, book="book-1", tags=["tag/0", "tag/2"])
    counts = ReadCounts()
    wanted = [row for row in rows if (at := int(row[2].split(b".")[1])) % 2 == 1 and at % 3 in (0, 2)]
    assert await read_rows(pipeline, plan, counts=counts) == wanted
    assert counts.rows == len(wanted) and counts.entries > 0 and counts.bytes > 0
    if mode == LIVE:
        assert plan.rows == len(wanted)


async def test_trimmed_records_are_left_out_of_batches_and_stay_in_streams(cluster: SmallCluster) -> None:
    rows = await filled(cluster)
    pipeline = cluster.pipeline()
    before = [row for row in rows if row[1] == book_id("book-0")][40][0]
    await cluster.trim("book-0", before)
    live = [row for row in rows if row[0] >= before or row[1] != book_id("book-0")]
    assert await read_rows(pipeline, await whole_plan(pipeline)) == live
    assert await read_rows(pipeline, await whole_plan(pipeline, COMMITTED)) == rows


async def carried(ended: bool) -> tuple[Ledgers, Cluster, DecisionState, tuple[int, int]]:
    """Return a log whose entries 1 and 2 are only in the metalog, and its state."""
    ledgers = Ledgers()
    await ledgers.start()
    await ensure_view(ledgers.store)
    log = await log_with_carried(ledgers.store, ledgers.client, ended=ended)
    state = DecisionState()
    places = state.begin_term(1, 0, [(0, 1023)])
    places.shards[0] = ShardPlace(1, 0, log.data.ledger_id, "e")
    for number in range(3):
        run = RunSpec(1, bytes(16), number + 1, plain_records(f"record {number}"))
        state.apply_entry(places, make_batch(run), shard=0, entry=number, time_ms=1)
    return ledgers, Cluster(ledgers.store, ledgers.client, None, AUTO), state, (log.metalog.ledger_id, 5)


@pytest.mark.parametrize("ended", [False, True])
async def test_entries_that_only_the_metalog_has_are_read_from_it(ended: bool) -> None:
    ledgers, pipeline, state, metalog = await carried(ended)
    plan = plan_of(state, everything(state), metalog=lambda _: metalog)
    assert [row[2] for row in await read_rows(pipeline, plan)] == [b"record 0", b"record 1", b"record 2"]
    await ledgers.close()


async def test_without_the_metalog_they_are_lost_and_reported() -> None:
    ledgers, pipeline, state, _ = await carried(True)
    plan = plan_of(state, everything(state))
    with pytest.raises((DataLoss, ClusterAway), match=r"^\[BOKI_"):
        await read_rows(pipeline, plan)
    await ledgers.close()


async def test_a_ledger_that_was_deleted_makes_the_plan_stale(cluster: SmallCluster) -> None:
    rows = await filled(cluster)
    pipeline = cluster.pipeline()
    plan = await whole_plan(pipeline)
    await cluster.ledgers.client.delete(int(plan.terms[0].entries.ledgers[0]))
    with pytest.raises(PlanStale, match=r"^\[BOKI_PLAN_STALE\].*make a new plan"):
        await read_rows(pipeline, plan)
    counts = ReadCounts()
    left = await read_rows(pipeline, plan, counts=counts, fail_on_data_loss=False)
    assert left == [row for row in rows if row[0] >= seqnum(2, 0)] and counts.lost == len(rows) - len(left)


async def test_entries_that_were_given_up_are_data_loss(cluster: SmallCluster) -> None:
    rows = await filled(cluster)
    pipeline = cluster.pipeline()
    await cluster.lose(Lost(1, 0, 0, 1, b"a disk", True))
    await cluster.until(lambda: cluster.engine.core.state.places.terms[1].lost)
    plan = await whole_plan(pipeline)
    assert plan.terms[0].given_up[0].evidence == b"a disk"
    with pytest.raises(DataLoss, match=r"^\[BOKI_DATA_LOSS\].*given up"):
        await read_rows(pipeline, plan)
    counts = ReadCounts()
    left = await read_rows(pipeline, plan, counts=counts, fail_on_data_loss=False)
    assert 0 < counts.lost == len(rows) - len(left)


async def test_an_entry_with_other_records_than_the_index_says_is_data_loss(cluster: SmallCluster) -> None:
    await filled(cluster)
    pipeline = cluster.pipeline()
    (first, *_) = cut(await whole_plan(pipeline), max_bytes=1)
    with pytest.raises(DataLoss, match=r"expected .* records of shard 0 of term 2"):
        await read_rows(pipeline, [dataclasses.replace(first, term=2)])
    tagged = cut(await whole_plan(pipeline, tags=["tag/0"]), max_bytes=1)[0]
    with pytest.raises(DataLoss, match="other books or tags"):
        await read_rows(pipeline, [dataclasses.replace(tagged, tags=(12345,))])
    with pytest.raises(DataLoss, match="expected 99 rows"):
        await read_rows(pipeline, [dataclasses.replace(first, rows=99)])


async def test_bookies_that_stay_away_are_named(cluster: SmallCluster) -> None:
    await filled(cluster)
    pipeline = cluster.pipeline()
    plan = await whole_plan(pipeline)
    for bookie in ("b1", "b2", "b3"):
        cluster.ledgers.bookies.crash(bookie)
    with pytest.raises(ClusterAway, match=r"^\[BOKI_UNREACHABLE\].*could not be read"):
        await read_rows(pipeline, plan)


async def test_bookies_that_are_away_for_a_moment_during_a_scan_are_waited_for(cluster: SmallCluster) -> None:
    rows = await filled(cluster)
    pipeline = cluster.pipeline()
    plan = await whole_plan(pipeline)
    bookies = ("b1", "b2", "b3")
    for bookie in bookies:
        cluster.ledgers.bookies.crash(bookie)

    async def read() -> list[int]:
        found: list[int] = []
        for partition in cut(plan):
            async for some in PartitionReader(
                pipeline.ledgers, partition, counts=ReadCounts(), retry_for_s=60.0
            ).read():
                found += some.seqnums.tolist()
        return found

    reading = asyncio.ensure_future(read())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not reading.done()
    for bookie in bookies:
        cluster.ledgers.bookies.restart(bookie)
    assert await reading == [row[0] for row in rows]


async def test_a_ledger_that_was_closed_short_of_what_the_metalog_carries_is_no_fault() -> None:
    """Tools that know no logs close a ledger this way; entries that the metalog carries are read from there."""
    ledgers, pipeline, state, metalog = await carried(True)
    reader = await ledgers.client.open(state.places.terms[1].shards[0].ledger_id, recover=True)
    assert reader.closed and reader.last_entry < 2
    await reader.close()
    plan = plan_of(state, everything(state), metalog=lambda _: metalog)
    assert [row[2] for row in await read_rows(pipeline, plan)] == [b"record 0", b"record 1", b"record 2"]
    await ledgers.close()
